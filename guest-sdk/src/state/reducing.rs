//! One value per key into which others are folded.

use std::cell::RefCell;
use std::rc::Rc;

use super::ValueState;
use crate::Error;
use crate::codec::{Codec, Postcard};
use crate::context::{Context, Table};

/// One value per key, made of all that was added by a function that joins two values.
///
/// ```
/// use tidegate_sdk::{Context, Error, ReducingState, Setup};
///
/// fn declare(setup: &mut Setup) -> ReducingState<i64> {
///     setup.state("highest").reducing(i64::max)
/// }
///
/// fn highest(state: &ReducingState<i64>, context: &mut Context, number: i64) -> Result<i64, Error> {
///     state.add(context, number)
/// }
/// ```
pub struct ReducingState<T, C = Postcard> {
    value: ValueState<T, C>,
    reduce: fn(T, T) -> T,
}

impl<T: Clone + 'static, C: Codec<T> + 'static> ReducingState<T, C> {
    pub(crate) fn new(id: u32, name: &str, reduce: fn(T, T) -> T) -> (Self, Rc<RefCell<dyn Table>>) {
        let (value, table) = ValueState::new(id, name);
        (Self { value, reduce }, table)
    }

    /// Adds a value and returns what all that was added for the key comes to.
    ///
    /// # Errors
    /// When no record with a key is being processed, or the stored value cannot be decoded.
    #[inline]
    pub fn add(&self, context: &mut Context, value: T) -> Result<T, Error> {
        self.value.fold(context, |before| match before {
            Some(before) => (self.reduce)(before, value),
            None => value,
        })
    }

    /// What all that was added for the key comes to; none when nothing was.
    ///
    /// # Errors
    /// As for [`add`](Self::add).
    #[inline]
    pub fn get(&self, context: &mut Context) -> Result<Option<T>, Error> {
        self.value.get(context)
    }

    /// Forgets what was added for the key.
    ///
    /// # Errors
    /// When no record with a key is being processed.
    pub fn clear(&self, context: &mut Context) -> Result<(), Error> {
        self.value.clear(context)
    }
}
