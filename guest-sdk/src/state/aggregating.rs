//! One accumulator per key.

use std::cell::RefCell;
use std::rc::Rc;

use super::ValueState;
use crate::Error;
use crate::codec::{Codec, Postcard};
use crate::context::{Context, Table};

/// One accumulator per key: what is added has one type, what is kept another, what comes out a third.
///
/// ```
/// use tidegate_sdk::{AggregatingState, Setup};
///
/// /// The mean of numbers, from their count and sum.
/// fn mean(setup: &mut Setup) -> AggregatingState<i64, (u64, i64), f64> {
///     setup.state("mean").aggregating(
///         |(count, sum), number| {
///             *count += 1;
///             *sum += number;
///         },
///         |(count, sum)| *sum as f64 / *count as f64,
///     )
/// }
/// ```
pub struct AggregatingState<In, Acc, Out, C = Postcard> {
    accumulator: ValueState<Acc, C>,
    add: fn(&mut Acc, In),
    result: fn(&Acc) -> Out,
}

impl<In, Acc: Default + 'static, Out, C: Codec<Acc> + 'static> AggregatingState<In, Acc, Out, C> {
    pub(crate) fn new(
        id: u32,
        name: &str,
        add: fn(&mut Acc, In),
        result: fn(&Acc) -> Out,
    ) -> (Self, Rc<RefCell<dyn Table>>) {
        let (accumulator, table) = ValueState::new(id, name);
        (Self { accumulator, add, result }, table)
    }

    /// Adds to the accumulator of the key, which begins as its type's default, and returns the result.
    ///
    /// # Errors
    /// When no record with a key is being processed, or the stored accumulator cannot be decoded.
    #[inline]
    pub fn add(&self, context: &mut Context, value: In) -> Result<Out, Error> {
        self.accumulator.update(context, |accumulator| {
            let accumulator = accumulator.get_or_insert_default();
            (self.add)(accumulator, value);
            (self.result)(accumulator)
        })
    }

    /// The result for the key; none when nothing was added.
    ///
    /// # Errors
    /// As for [`add`](Self::add).
    #[inline]
    pub fn get(&self, context: &mut Context) -> Result<Option<Out>, Error> {
        self.accumulator.with(context, |accumulator| accumulator.map(self.result))
    }

    /// Forgets what was added for the key.
    ///
    /// # Errors
    /// When no record with a key is being processed.
    pub fn clear(&self, context: &mut Context) -> Result<(), Error> {
        self.accumulator.clear(context)
    }
}
