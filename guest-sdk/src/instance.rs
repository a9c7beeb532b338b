//! One instance of an operator: turns the host's calls into those of the `Operator` trait.
//!
//! Each call opens a scope in the context, lets the operator work, and sends on and writes back what it did if it did
//! not fail.

use std::rc::Rc;

use crate::bindings::tidegate::operator::types::{BatchResult, Descriptor, Failure};
use crate::imports::clock;
use crate::metrics::Meter;
use crate::output::NO_POSITION;
use crate::{Batch, Context, Error, Operator, Setup};

/// One instance of an operator. For [`export!`](crate::export) and `testing`.
#[doc(hidden)]
pub struct Instance<O> {
    operator: O,
    context: Context,
    meters: Vec<Rc<dyn Meter>>,
}

impl<O: Operator> Instance<O> {
    /// Opens the operator. The config is JSON.
    pub fn open(config: &str) -> Result<(Self, Descriptor), Failure> {
        let mut setup = Setup::default();
        let opened = parse_config(config).and_then(|config| O::open(config, &mut setup));
        let operator = opened.map_err(|error| failure(error, NO_POSITION))?;
        let Setup { states, side_outputs, tables, meters } = setup;
        let context = Context::new(side_outputs.iter().map(|output| output.id), tables);
        Ok((Self { operator, context, meters }, Descriptor { states, side_outputs }))
    }

    /// Processes records of one input.
    pub fn process(&mut self, input: u32, records: BatchResult) -> Result<(), Failure> {
        self.call(Batch::new(input, records), |operator, context| {
            let batch = context.batch();
            operator.process_batch(&batch, context)
        })
    }

    /// The watermark has come further.
    pub fn on_watermark(&mut self) -> Result<(), Failure> {
        match clock::watermark() {
            Some(watermark) => {
                self.call(Batch::default(), |operator, context| operator.on_watermark(watermark, context))
            }
            None => Ok(()),
        }
    }

    /// An input has ended.
    pub fn on_end_of_input(&mut self, input: u32, remaining: u32) -> Result<(), Failure> {
        self.call(Batch::default(), |operator, context| operator.on_end_of_input(input, remaining, context))
    }

    fn call(
        &mut self,
        batch: Batch,
        work: impl FnOnce(&mut O, &mut Context) -> Result<(), Error>,
    ) -> Result<(), Failure> {
        let Self { operator, context, meters } = self;
        context.begin(batch);
        match work(operator, context).and_then(|()| context.finish()) {
            Ok(()) => {
                meters.iter().for_each(|meter| meter.flush());
                Ok(())
            }
            Err(error) => {
                meters.iter().for_each(|meter| meter.discard());
                Err(failure(error, context.position()))
            }
        }
    }
}

fn failure(error: Error, position: u32) -> Failure {
    Failure { message: error.into_message(), position: (position != NO_POSITION).then_some(position) }
}

/// Reads a config, naming the field that does not fit.
fn parse_config<C: serde::de::DeserializeOwned>(config: &str) -> Result<C, Error> {
    // A job file without the table means the same as one with an empty table.
    let config = if config.is_empty() || config == "null" { "{}" } else { config };
    let json = &mut serde_json::Deserializer::from_str(config);
    serde_path_to_error::deserialize(json).map_err(|error| {
        let path = error.path().to_string();
        let place = if path == "." { "config".to_owned() } else { format!("config.{path}") };
        // The line and column of the JSON would point into a text that nobody wrote.
        let message = error.into_inner().to_string();
        let message = message.rfind(" at line ").map_or(message.as_str(), |end| &message[..end]);
        Error::new(format_args!("{place}: {message}"))
    })
}
