//! The operators of simulated jobs. Each checks, by its wrapper, that its calls come in the order that was promised.

use std::collections::BTreeSet;
use std::sync::Arc;

use tidegate::operator::{
    CallContext, Descriptor, Fault, GuestFault, NativeFactory, NativeOperator, OperatorFactory, SideOutput,
    StateDescriptor, StateKind,
};
use tidegate::record::{Batch, OptionalColumn, Watermark};

/// Wraps an operator and checks the order of its calls. A broken promise is a panic in the subtask.
pub struct Ordered<O> {
    operator: O,
    ended: BTreeSet<u32>,
    remaining: Option<u32>,
    watermark: Option<Watermark>,
    closed: bool,
}

impl<O: NativeOperator> Ordered<O> {
    fn new(operator: O) -> Self {
        Self { operator, ended: BTreeSet::new(), remaining: None, watermark: None, closed: false }
    }

    fn check(&mut self, context: &CallContext) {
        assert!(!self.closed, "a call came after close");
        assert!(context.watermark() >= self.watermark, "the watermark went back");
        self.watermark = context.watermark();
    }
}

impl<O: NativeOperator> NativeOperator for Ordered<O> {
    async fn process(&mut self, input: u32, batch: &Batch, context: &mut CallContext) -> Result<(), Fault> {
        self.check(context);
        assert!(!batch.is_empty(), "a batch has records");
        assert!(!self.ended.contains(&input), "records came on input {input} after its end");
        self.operator.process(input, batch, context).await
    }

    async fn on_watermark(&mut self, context: &mut CallContext) -> Result<(), Fault> {
        let before = self.watermark;
        self.check(context);
        assert!(context.watermark() > before, "on-watermark was called without an advance");
        self.operator.on_watermark(context).await
    }

    async fn on_end_of_input(&mut self, input: u32, remaining: u32, context: &mut CallContext) -> Result<(), Fault> {
        self.check(context);
        assert!(self.ended.insert(input), "input {input} ended twice");
        if let Some(before) = self.remaining.replace(remaining) {
            assert_eq!(remaining + 1, before, "inputs end one by one");
        }
        if remaining == 0 {
            assert_eq!(self.watermark, Some(Watermark::MAX), "the last end of input comes behind the last watermark");
        }
        self.operator.on_end_of_input(input, remaining, context).await
    }

    async fn close(&mut self, context: &mut CallContext) -> Result<(), Fault> {
        self.check(context);
        self.closed = true;
        self.operator.close(context).await
    }
}

fn factory<O: NativeOperator + 'static>(
    descriptor: Descriptor,
    make: impl Fn() -> O + Send + Sync + 'static,
) -> Arc<dyn OperatorFactory> {
    Arc::new(NativeFactory::new(descriptor, move |_| Ordered::new(make())))
}

/// A number written in decimal digits.
#[must_use]
pub fn number(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Emits records in one batch or in several, so that the emitter is suspended at any place.
async fn emit_in_pieces(output: u32, batch: Batch, context: &mut CallContext) -> Result<(), Fault> {
    let mut start = 0;
    while start < batch.len() {
        let left = (batch.len() - start) as u64;
        let size = if context.random.below(2) == 0 { left } else { 1 + context.random.below(left) };
        let end = start + usize::try_from(size).expect("at most the length of a batch");
        context.emit(output, batch.slice(start..end)).await?;
        start = end;
    }
    Ok(())
}

/// How an operator tells that it cannot use a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Complaint {
    /// It returns an error that names the record.
    Named,
    /// It returns an error that names none.
    Unnamed,
    /// It gives the record up and goes on.
    Rejected,
}

/// Adds up the values of each key over all inputs, and emits the sum so far for each record.
struct RunningSum {
    complaint: Complaint,
}

const SUM: u32 = 7;

/// A keyed sum. A value that is no number is a fault.
#[must_use]
pub fn running_sum(complaint: Complaint) -> Arc<dyn OperatorFactory> {
    let state =
        StateDescriptor { id: SUM, name: "sum".into(), kind: StateKind::KeyedValue, ttl: None, schema_version: 1 };
    factory(Descriptor { states: vec![state], side_outputs: vec![] }, move || RunningSum { complaint })
}

impl NativeOperator for RunningSum {
    async fn process(&mut self, _input: u32, batch: &Batch, context: &mut CallContext) -> Result<(), Fault> {
        let slots = context.state.slots()?.to_vec();
        let mut sums: Vec<Option<i64>> = context
            .state
            .load(SUM)?
            .iter()
            .map(|sum| sum.map(|sum| number(sum).expect("only numbers are stored")))
            .collect();
        let mut output = Batch::new();
        for (record, (&slot, value)) in slots.iter().zip(batch.values().iter()).enumerate() {
            let position = u32::try_from(record).expect("batches are small");
            let Some(value) = number(value) else {
                let message = format!("{} is no number", value.escape_ascii());
                match self.complaint {
                    Complaint::Rejected => {
                        context.reject(position, &message)?;
                        continue;
                    }
                    Complaint::Named => {
                        return Err(GuestFault::Returned { message, position: Some(position) }.into());
                    }
                    Complaint::Unnamed => return Err(GuestFault::Returned { message, position: None }.into()),
                }
            };
            let sum = sums[slot as usize].get_or_insert(0);
            *sum += value;
            output.push(batch.key(record), sum.to_string().as_bytes(), batch.timestamps().get(record).copied());
        }
        let mut column = OptionalColumn::default();
        sums.iter().for_each(|sum| column.push(sum.map(|sum| sum.to_string()).as_ref().map(String::as_bytes)));
        context.state.store(SUM, column)?;
        emit_in_pieces(0, output, context).await
    }
}

/// Turns `a=1 b=2` into records of the keys `a` and `b`.
struct Tokens;

/// Splits lines into keyed records.
#[must_use]
pub fn tokens() -> Arc<dyn OperatorFactory> {
    factory(Descriptor::default(), || Tokens)
}

/// The tokens of a line, each a key and a value.
pub fn tokens_of(line: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    line.split(|byte| *byte == b' ').filter_map(|token| {
        let split = token.iter().position(|byte| *byte == b'=')?;
        Some((&token[..split], &token[split + 1..]))
    })
}

impl NativeOperator for Tokens {
    async fn process(&mut self, _input: u32, batch: &Batch, context: &mut CallContext) -> Result<(), Fault> {
        let mut output = Batch::new();
        for (record, line) in batch.values().iter().enumerate() {
            let timestamp = batch.timestamps().get(record).copied();
            tokens_of(line).for_each(|(key, value)| output.push(Some(key), value, timestamp));
            if context.random.below(4) == 0 {
                emit_in_pieces(0, std::mem::take(&mut output), context).await?;
            }
        }
        emit_in_pieces(0, output, context).await
    }
}

/// Multiplies values.
struct Times(i64);

/// Multiplies each value by a factor; what is no number passes as it is.
#[must_use]
pub fn times(factor: i64) -> Arc<dyn OperatorFactory> {
    factory(Descriptor::default(), move || Times(factor))
}

impl NativeOperator for Times {
    async fn process(&mut self, _input: u32, batch: &Batch, context: &mut CallContext) -> Result<(), Fault> {
        let mut output = Batch::new();
        for (record, value) in batch.values().iter().enumerate() {
            let product = number(value).map(|number| (number * self.0).to_string().into_bytes());
            let timestamp = batch.timestamps().get(record).copied();
            output.push(batch.key(record), product.as_deref().unwrap_or(value), timestamp);
        }
        emit_in_pieces(0, output, context).await
    }
}

/// The side output of [`router`] for odd numbers.
pub const ODD: &str = "odd";
/// The side output of [`router`] for what is above [`BIG_ABOVE`], whatever else it is.
pub const BIG: &str = "big";
/// What is big.
pub const BIG_ABOVE: i64 = 6;

/// Sends even numbers to the main output, odd ones to a side output, and a copy of big ones to another.
struct Router;

/// Routes numbers by what they are.
#[must_use]
pub fn router() -> Arc<dyn OperatorFactory> {
    let side_outputs = vec![SideOutput { id: 1, name: ODD.into() }, SideOutput { id: 9, name: BIG.into() }];
    factory(Descriptor { states: vec![], side_outputs }, || Router)
}

impl NativeOperator for Router {
    async fn process(&mut self, _input: u32, batch: &Batch, context: &mut CallContext) -> Result<(), Fault> {
        let (mut even, mut odd, mut big) = (Batch::new(), Batch::new(), Batch::new());
        for (record, value) in batch.values().iter().enumerate() {
            let value = number(value).unwrap_or_default();
            if value % 2 == 0 { &mut even } else { &mut odd }.push_from(batch, record);
            if value > BIG_ABOVE {
                big.push_from(batch, record);
            }
        }
        emit_in_pieces(0, even, context).await?;
        emit_in_pieces(9, big, context).await?;
        emit_in_pieces(1, odd, context).await
    }
}

/// The side output of [`listener`] for what was heard on its second input.
pub const HEARD: &str = "heard";

/// Passes the records of its first input on, and tells which subtask heard which record of its second.
struct Listener;

/// An operator for a second input that every subtask hears.
#[must_use]
pub fn listener() -> Arc<dyn OperatorFactory> {
    factory(Descriptor { states: vec![], side_outputs: vec![SideOutput { id: 3, name: HEARD.into() }] }, || Listener)
}

impl NativeOperator for Listener {
    async fn process(&mut self, input: u32, batch: &Batch, context: &mut CallContext) -> Result<(), Fault> {
        if input == 0 {
            return emit_in_pieces(0, batch.clone(), context).await;
        }
        let subtask = context.subtask().index.to_string();
        let mut output = Batch::new();
        batch.values().iter().for_each(|value| output.push(Some(subtask.as_bytes()), value, None));
        emit_in_pieces(3, output, context).await
    }
}
