//! Keyed state within a call: slots and staged writes over a backend.

use std::sync::Arc;

use super::{Fault, StateDescriptor};
use crate::record::{Batch, Column, Lists, OptionalColumn};
use crate::state::{StateBackend, StateError};

/// The writes of one call.
#[derive(Debug)]
pub struct StagedWrites;

/// Which map entries a scan visits: the maps of `slots` one after the other, each in the order of its keys.
#[derive(Clone, Debug)]
pub struct EntryScan {
    /// The slots, in the order of visiting.
    pub slots: Vec<u32>,
    /// The smallest key to visit; empty for the first of all.
    pub start: Vec<u8>,
    /// The smallest key to visit no more; none for no end.
    pub end: Option<Vec<u8>>,
}

/// Where the next page of a scan begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryCursor {
    /// The position in the slots of the scan.
    pub position: u32,
    /// The key to go on from.
    pub key: Vec<u8>,
}

/// One page of a scan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntryPage {
    /// For each entry, the position in the slots of the scan.
    pub positions: Vec<u32>,
    /// The keys of the entries.
    pub keys: Column,
    /// The values of the entries.
    pub values: Column,
    /// Where to go on; none when the scan is done.
    pub next: Option<EntryCursor>,
}

/// Keyed state within a call.
pub struct KeyedState {}

impl KeyedState {
    /// All declared states (keyed or not, so that a wrong kind can be named) over the backend of the keyed ones; a single result for the guest may take `result_limit` bytes.
    #[must_use]
    pub fn new(declared: &[StateDescriptor], backend: Box<dyn StateBackend>, result_limit_bytes: u64) -> Self {
        todo!("state helper")
    }
    /// Opens the scope of the keys of a batch; without one, or with one that is not keyed, there is none.
    pub(super) fn begin(&mut self, batch: Option<Arc<Batch>>) {
        todo!("state helper")
    }
    /// Applies what was staged and closes the scope.
    pub(super) fn commit(&mut self) -> Result<(), StateError> {
        todo!("state helper")
    }
    /// Forgets what was staged and closes the scope.
    pub(super) fn abandon(&mut self) {
        todo!("state helper")
    }
    /// The slot of each record of the batch; nothing when the input is not keyed.
    pub fn slots(&mut self) -> Result<&[u32], Fault> {
        todo!("state helper")
    }
    pub fn get(&mut self, state: u32, slot: u32) -> Result<Option<Vec<u8>>, Fault> {
        todo!("state helper")
    }
    pub fn put(&mut self, state: u32, slot: u32, value: &[u8]) -> Result<(), Fault> {
        todo!("state helper")
    }
    pub fn load(&mut self, state: u32) -> Result<OptionalColumn, Fault> {
        todo!("state helper")
    }
    pub fn load_some(&mut self, state: u32, slots: &[u32]) -> Result<OptionalColumn, Fault> {
        todo!("state helper")
    }
    pub fn store(&mut self, state: u32, values: OptionalColumn) -> Result<(), Fault> {
        todo!("state helper")
    }
    pub fn update(&mut self, state: u32, slots: &[u32], values: &Column) -> Result<(), Fault> {
        todo!("state helper")
    }
    pub fn clear(&mut self, state: u32, slots: &[u32]) -> Result<(), Fault> {
        todo!("state helper")
    }
    pub fn load_lists(&mut self, state: u32, slots: &[u32]) -> Result<Lists, Fault> {
        todo!("state helper")
    }
    pub fn append(&mut self, state: u32, slots: &[u32], items: &Column) -> Result<(), Fault> {
        todo!("state helper")
    }
    pub fn replace_lists(&mut self, state: u32, slots: &[u32], items: &Lists) -> Result<(), Fault> {
        todo!("state helper")
    }
    pub fn get_entries(&mut self, state: u32, slots: &[u32], keys: &Column) -> Result<OptionalColumn, Fault> {
        todo!("state helper")
    }
    pub fn put_entries(&mut self, state: u32, slots: &[u32], keys: &Column, values: &Column) -> Result<(), Fault> {
        todo!("state helper")
    }
    pub fn remove_entries(&mut self, state: u32, slots: &[u32], keys: &Column) -> Result<(), Fault> {
        todo!("state helper")
    }
    pub fn scan_entries(
        &mut self,
        state: u32,
        scan: &EntryScan,
        resume: Option<&EntryCursor>,
        limit: u32,
    ) -> Result<EntryPage, Fault> {
        todo!("state helper")
    }
    /// The bytes that the backend holds.
    pub fn byte_size(&self) -> u64 {
        todo!("state helper")
    }
}
