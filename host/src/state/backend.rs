//! The `StateBackend` trait.
//!
//! Every access is in bulk, because a disk answers a hundred questions at once cheaper than one after the other, and
//! because a call through a trait object per key would cost as much as the answer.

use std::ops::Range;

use super::{FrozenState, Payload, Place};
use crate::operator::StateDescriptor;
use crate::record::{Column, Lists, OptionalColumn};

/// The position of a state among the keyed states of its operator, in the order of the descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StateIndex(pub usize);

/// The keys that an access names: key `i` is `column.get(positions[i])` with the placement hash `hashes[positions[i]]`.
#[derive(Clone, Copy, Debug)]
pub struct Keys<'a> {
    /// Keys to pick from.
    pub column: &'a Column,
    /// Their placement hashes (`protocol::key_group::hash`).
    pub hashes: &'a [u64],
    /// Which of them are meant, and in which order.
    pub positions: &'a [u32],
}

impl<'a> Keys<'a> {
    /// The keys and their placement hashes, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&'a [u8], u64)> + 'a {
        let (column, hashes) = (self.column, self.hashes);
        self.positions.iter().map(move |&position| (column.get(position as usize), hashes[position as usize]))
    }

    /// The number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.positions.len()
    }

    /// Whether no key is named.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }
}

/// Some entries of one key's map, in the order of their keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MapPage {
    /// The keys of the entries.
    pub keys: Column,
    /// The values of the entries.
    pub values: Column,
    /// Whether there are entries behind these.
    pub more: bool,
}

/// Why state could not be read or written. Always the host's side of things, never a record's fault.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// The state of a subtask outgrew its budget.
    #[error(
        "the state of {operator} takes {bytes} bytes, over its budget of {budget}: raise state.budget or keep less state"
    )]
    Budget {
        /// The operator's name.
        operator: String,
        /// What the state takes.
        bytes: u64,
        /// What it may take.
        budget: u64,
    },
    /// What is to be restored has a key that belongs elsewhere.
    #[error("a key of group {group} cannot be restored: {operator} owns the groups {owned:?}")]
    ForeignKey {
        /// The operator's name.
        operator: String,
        /// The group of the key.
        group: u32,
        /// The groups of the subtask.
        owned: Range<u32>,
    },
    /// What is to be restored is of another kind than the state.
    #[error("state {state:?} of {operator} cannot be restored: it holds something else than was found for it")]
    ForeignKind {
        /// The operator's name.
        operator: String,
        /// The name of the state.
        state: String,
    },
}

/// Keyed state of one operator subtask. Used by one task at a time.
///
/// Keys lie in the key groups that the backend was made for; this is asserted. No write names a key twice, save that
/// `write_entries` may name a key with several of its map keys.
///
/// A read takes a limit and returns the bytes of its result. If they are more than the limit, what it appended is of no
/// use: a state may hold more than a result should, or a column can.
pub trait StateBackend: Send {
    /// The states, in the order of their indexes.
    fn states(&self) -> &[StateDescriptor];

    /// Appends the value of each key to `out`.
    ///
    /// # Errors
    /// When the backend cannot read.
    fn load_values(
        &mut self,
        state: StateIndex,
        keys: Keys<'_>,
        limit: u64,
        out: &mut OptionalColumn,
    ) -> Result<u64, StateError>;

    /// Sets the value of key `i` to string `i`; a missing one is removed.
    ///
    /// # Errors
    /// When the backend cannot write, or the budget is used up.
    fn write_values(&mut self, state: StateIndex, keys: Keys<'_>, values: &OptionalColumn) -> Result<(), StateError>;

    /// Appends the list of each key to `out`.
    ///
    /// # Errors
    /// When the backend cannot read.
    fn load_lists(&mut self, state: StateIndex, keys: Keys<'_>, limit: u64, out: &mut Lists)
    -> Result<u64, StateError>;

    /// Appends list `i` to the list of key `i`.
    ///
    /// # Errors
    /// When the backend cannot write, or the budget is used up.
    fn append_lists(&mut self, state: StateIndex, keys: Keys<'_>, items: &Lists) -> Result<(), StateError>;

    /// Appends to `out` the value of entry `entry_keys.get(i)` in the map of key `i`.
    ///
    /// # Errors
    /// When the backend cannot read.
    fn get_entries(
        &mut self,
        state: StateIndex,
        keys: Keys<'_>,
        entry_keys: &Column,
        limit: u64,
        out: &mut OptionalColumn,
    ) -> Result<u64, StateError>;

    /// Sets entry `entry_keys.get(i)` in the map of key `i` to string `i`; a missing one is removed. Later ones win.
    ///
    /// # Errors
    /// When the backend cannot write, or the budget is used up.
    fn write_entries(
        &mut self,
        state: StateIndex,
        keys: Keys<'_>,
        entry_keys: &Column,
        values: &OptionalColumn,
    ) -> Result<(), StateError>;

    /// The entries of the map of `keys` (one key) from `start` up to `end`, the latter not included: at most `limit`, and
    /// at least one if there is one, but no more once `bytes` are reached.
    ///
    /// # Errors
    /// When the backend cannot read.
    fn scan_entries(
        &mut self,
        state: StateIndex,
        keys: Keys<'_>,
        start: &[u8],
        end: Option<&[u8]>,
        limit: usize,
        bytes: usize,
    ) -> Result<MapPage, StateError>;

    /// Removes all that the keys hold in a state of any kind.
    ///
    /// # Errors
    /// When the backend cannot write.
    fn clear(&mut self, state: StateIndex, keys: Keys<'_>) -> Result<(), StateError>;

    /// The bytes that the state takes, keys and overhead included.
    fn byte_size(&self) -> u64;

    /// The number of keys that hold something in a state.
    fn key_count(&self, state: StateIndex) -> u64;

    /// Takes hold of the content as it is, at once: nothing is copied. What is written from now on does not touch it.
    fn freeze(&mut self) -> Box<dyn FrozenState>;

    /// Does a bit of the work that a freeze left for later, about as much as it is to move so many small entries, and
    /// returns whether there is more of it. Called once for every batch: without it reads and writes stay slow, and
    /// memory is not given back. There is nothing to do while a snapshot holds what would have to be moved.
    fn merge(&mut self, entries: usize) -> bool;

    /// Makes room for what is about to be restored: so many keys with so many bytes in all. Only the speed depends on it.
    fn reserve(&mut self, place: Place, keys: u64, bytes: u64);

    /// Sets the values of keys, appends to their lists, and sets entries of their maps.
    ///
    /// # Errors
    /// When a key belongs to another subtask, or holds what does not fit the state, or the budget is used up.
    fn restore<'a>(
        &mut self,
        state: StateIndex,
        entries: &mut dyn Iterator<Item = (&'a [u8], Payload<'a>)>,
    ) -> Result<(), StateError>;
}
