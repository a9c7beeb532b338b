//! Staged writes of a map state.
//!
//! Writes are kept as a log, in columns that the backend takes as they are. Entries are found in the log by an index
//! that is built only when something is read, and by a chain per slot for scans. A slot that was cleared forgets what
//! the backend has and what the log has from before.

use hashbrown::HashTable;

use super::super::Fault;
use super::scope::Scope;
use super::slot_map::SlotMap;
use super::{Target, check_result};
use crate::protocol::key_group;
use crate::record::{Column, OptionalColumn};
use crate::state::{HashSecret, StateError};

/// The end of a chain.
const NONE: u32 = u32::MAX;

/// What was written to one slot.
#[derive(Clone, Copy, Debug)]
struct Chain {
    /// The newest write.
    newest: u32,
    /// Writes before this one do not count, nor does what the backend has, if the slot was cleared.
    since: u32,
    cleared: bool,
}

impl Default for Chain {
    fn default() -> Self {
        Self { newest: NONE, since: 0, cleared: false }
    }
}

/// Staged writes of a map state.
pub(super) struct StagedEntries {
    chains: SlotMap<Chain>,
    /// Whether any slot was cleared.
    any_cleared: bool,
    /// The log: slot, key of the entry, value or its removal, and the write to the same slot before it.
    slots: Vec<u32>,
    keys: Column,
    values: OptionalColumn,
    previous: Vec<u32>,
    /// The newest write of each entry among the first `hashes.len()` writes.
    index: HashTable<u32>,
    hashes: Vec<u64>,
    secret: HashSecret,
}

impl StagedEntries {
    /// Nothing is staged.
    pub(super) fn new() -> Self {
        Self {
            chains: SlotMap::default(),
            any_cleared: false,
            slots: Vec::new(),
            keys: Column::new(),
            values: OptionalColumn::new(),
            previous: Vec::new(),
            index: HashTable::new(),
            hashes: Vec::new(),
            secret: HashSecret::random(),
        }
    }

    /// Forgets everything.
    pub(super) fn reset(&mut self) {
        self.chains.reset();
        self.any_cleared = false;
        self.slots.clear();
        self.keys.clear();
        self.values.clear();
        self.previous.clear();
        self.index.clear();
        self.hashes.clear();
    }

    /// The bytes that are staged.
    pub(super) fn byte_size(&self) -> usize {
        let per_write = 2 * size_of::<u32>();
        self.keys.byte_size() + self.values.values().byte_size() + self.slots.len() * per_write
    }

    /// Empties the map of one of `slots` slots.
    pub(super) fn clear(&mut self, slots: usize, slot: u32) {
        let since = self.slots.len() as u32;
        *self.chains.touch(slots, slot) = Chain { newest: NONE, since, cleared: true };
        self.any_cleared = true;
    }

    /// Sets or removes an entry in the map of one of `slots` slots.
    pub(super) fn write(&mut self, slots: usize, slot: u32, key: &[u8], value: Option<&[u8]>) {
        let write = self.slots.len() as u32;
        let previous = std::mem::replace(&mut self.chains.touch(slots, slot).newest, write);
        self.previous.push(previous);
        self.slots.push(slot);
        self.keys.push(key);
        self.values.push(value);
    }

    fn staged(&self, slot: u32) -> Chain {
        self.chains.get(slot).unwrap_or_default()
    }

    /// Whether the map of a slot was emptied, so that the backend's entries do not count.
    pub(super) fn is_cleared(&self, slot: u32) -> bool {
        self.staged(slot).cleared
    }

    /// The writes that count of one slot from the key `start` up to `end`, the latter not included, by key.
    pub(super) fn of_slot(&self, slot: u32, start: &[u8], end: Option<&[u8]>) -> Vec<(&[u8], Option<&[u8]>)> {
        let newest = Some(self.staged(slot).newest).filter(|&write| write != NONE);
        // A write before the slot was cleared is in no chain any more: clearing starts a new one.
        let chain = std::iter::successors(newest, |&write| {
            Some(self.previous[write as usize]).filter(|&previous| previous != NONE)
        });
        let mut writes: Vec<u32> = chain
            .filter(|&write| {
                let key = self.keys.get(write as usize);
                key >= start && end.is_none_or(|end| key < end)
            })
            .collect();
        // Newest first within a key, since the chain runs that way and the sort is stable.
        writes.sort_by(|&one, &other| self.keys.get(one as usize).cmp(self.keys.get(other as usize)));
        writes.dedup_by(|later, first| self.keys.get(*later as usize) == self.keys.get(*first as usize));
        writes.into_iter().map(|write| (self.keys.get(write as usize), self.values.get(write as usize))).collect()
    }

    fn hash(&self, slot: u32, key: &[u8]) -> u64 {
        // An odd factor keeps the slots apart without a second hash.
        let place = u64::from(slot).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.secret.remix(key_group::hash(key).wrapping_add(place))
    }

    /// Brings the index up to the end of the log.
    fn update_index(&mut self) {
        for write in self.hashes.len()..self.slots.len() {
            let (slot, key) = (self.slots[write], self.keys.get(write));
            let hash = self.hash(slot, key);
            self.hashes.push(hash);
            let (slots, keys, hashes) = (&self.slots, &self.keys, &self.hashes);
            let is_it = |&other: &u32| slots[other as usize] == slot && keys.get(other as usize) == key;
            match self.index.find_mut(hash, is_it) {
                Some(newest) => *newest = write as u32,
                None => {
                    self.index.insert_unique(hash, write as u32, |&write| hashes[write as usize]);
                }
            }
        }
    }

    /// What was written to an entry, if something was. The index must be up to date.
    fn staged_entry(&self, slot: u32, key: &[u8]) -> Option<Option<&[u8]>> {
        let chain = self.chains.get(slot)?;
        let is_it = |&write: &u32| self.slots[write as usize] == slot && self.keys.get(write as usize) == key;
        let newest = self.index.find(self.hash(slot, key), is_it).filter(|&&write| write >= chain.since);
        match newest {
            Some(&write) => Some(self.values.get(write as usize)),
            None => chain.cleared.then_some(None),
        }
    }

    /// The values of some entries, whose slots the scope has.
    pub(super) fn get(
        &mut self,
        target: &mut Target<'_>,
        scope: &Scope,
        slots: &[u32],
        keys: &Column,
    ) -> Result<OptionalColumn, Fault> {
        let mut out = OptionalColumn::new();
        if self.chains.touched().is_empty() {
            let positions: Vec<u32> = slots.iter().map(|&slot| scope.position(slot)).collect();
            let named = scope.keys(&positions);
            let bytes = target.backend.get_entries(target.state, named, keys, target.limit, &mut out)?;
            check_result("get-entries", bytes, target.limit)?;
            return Ok(out);
        }
        self.update_index();
        let (mut positions, mut unstaged_keys) = (Vec::new(), Column::new());
        for (&slot, key) in slots.iter().zip(keys.iter()) {
            if self.staged_entry(slot, key).is_none() {
                positions.push(scope.position(slot));
                unstaged_keys.push(key);
            }
        }
        let mut read = OptionalColumn::new();
        let named = scope.keys(&positions);
        let mut bytes = target.backend.get_entries(target.state, named, &unstaged_keys, target.limit, &mut read)?;
        check_result("get-entries", bytes, target.limit)?;
        let mut unstaged = read.iter();
        for (&slot, key) in slots.iter().zip(keys.iter()) {
            let value = match self.staged_entry(slot, key) {
                Some(value) => {
                    bytes += value.map_or(0, <[u8]>::len) as u64;
                    check_result("get-entries", bytes, target.limit)?;
                    value
                }
                None => unstaged.next().expect("one value per entry that is not staged"),
            };
            out.push(value);
        }
        Ok(out)
    }

    /// Writes what is staged to the backend.
    pub(super) fn commit(&self, target: &mut Target<'_>, scope: &Scope) -> Result<(), StateError> {
        if !self.any_cleared {
            if !self.slots.is_empty() {
                let positions: Vec<u32> = self.slots.iter().map(|&slot| scope.position(slot)).collect();
                target.backend.write_entries(target.state, scope.keys(&positions), &self.keys, &self.values)?;
            }
            return Ok(());
        }
        let cleared = self.chains.touched().iter().filter(|&&slot| self.is_cleared(slot));
        let positions: Vec<u32> = cleared.map(|&slot| scope.position(slot)).collect();
        target.backend.clear(target.state, scope.keys(&positions))?;
        let (mut positions, mut keys, mut values) = (Vec::new(), Column::new(), OptionalColumn::new());
        for (write, (&slot, value)) in self.slots.iter().zip(self.values.iter()).enumerate() {
            if write as u32 >= self.staged(slot).since {
                positions.push(scope.position(slot));
                keys.push(self.keys.get(write));
                values.push(value);
            }
        }
        if !positions.is_empty() {
            target.backend.write_entries(target.state, scope.keys(&positions), &keys, &values)?;
        }
        Ok(())
    }
}
