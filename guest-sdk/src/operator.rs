//! What the author of an operator writes.

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::{Batch, Context, Error, Record, Setup};

/// An operator: a struct with its state handles, made by `open`, and what it does with a record.
///
/// Whatever the struct holds besides handles is a cache: the host makes a new instance whenever it likes to, between
/// any two calls. What must last belongs into state.
///
/// An error ends the call, and everything the call wrote is undone; the host learns which record it was about, and the
/// job's `on-error` decides what happens then.
pub trait Operator: Sized {
    /// The operator's table of the job file, `[operators.NAME.config]`. [`NoConfig`] when it takes none.
    type Config: DeserializeOwned;

    /// Makes the operator and declares its states and side outputs. The same config must always declare the same.
    ///
    /// # Errors
    /// When the config makes no sense.
    fn open(config: Self::Config, setup: &mut Setup) -> Result<Self, Error>;

    /// Processes one record.
    ///
    /// # Errors
    /// When the record cannot be processed.
    fn process(&mut self, record: Record<'_>, context: &mut Context) -> Result<(), Error>;

    /// Processes all records of a batch: for operators that want to do something once a batch. State and inherited keys
    /// are those of a record, so they can be used inside of [`Context::for_each`] only.
    ///
    /// # Errors
    /// When a record cannot be processed.
    fn process_batch(&mut self, batch: &Batch, context: &mut Context) -> Result<(), Error> {
        let _ = batch;
        context.for_each(|record, context| self.process(record, context))
    }

    /// The watermark has come this far: no record of an earlier or equal event time is expected.
    ///
    /// # Errors
    /// When that cannot be dealt with; the job fails then.
    fn on_watermark(&mut self, watermark: i64, context: &mut Context) -> Result<(), Error> {
        let _ = (watermark, context);
        Ok(())
    }

    /// An input has ended and `remaining` inputs have not. With 0 of them the last results are due.
    ///
    /// # Errors
    /// When that cannot be dealt with; the job fails then.
    fn on_end_of_input(&mut self, input: u32, remaining: u32, context: &mut Context) -> Result<(), Error> {
        let _ = (input, remaining, context);
        Ok(())
    }
}

/// The config of an operator that takes none: any field is an error.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoConfig {}
