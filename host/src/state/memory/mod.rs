//! The `memory` backend: hash tables per key group, records in arenas.
//!
//! Owns the keys of one subtask. An access first finds the table of every key, then looks into the indexes, then at the
//! records: three short loops instead of one long one, so that the processor waits for many cache misses at a time.
//!
//! What always holds: a key lies in a group that the backend was made for; the byte count is that of the content alone,
//! the same in every process, although the places of keys in tables depend on a secret; no result depends on it.

mod arena;
mod frame;
mod group;
mod table;

use std::fmt;
use std::ops::{Bound, Range};

use self::frame::Frames;
use self::group::Group;
use self::table::{EntryMap, Handle, Hash, Stored, Table};
use super::secret::HashSecret;
use super::{Keys, MapPage, StateBackend, StateError, StateIndex};
use crate::operator::StateDescriptor;
use crate::protocol::key_group;
use crate::record::{Column, Lists, OptionalColumn};

/// The most bytes of a map that is kept as a byte string; a larger one is a tree.
const LARGEST_FLAT_MAP: usize = 512;

/// Keyed state in memory.
pub struct MemoryBackend {
    operator: String,
    states: Vec<StateDescriptor>,
    groups: Range<u32>,
    max_parallelism: u32,
    budget: u64,
    bytes: u64,
    secret: HashSecret,
    /// For each state, its key groups.
    content: Vec<Vec<Group>>,
    /// Where the keys of the running access are. Empty between accesses.
    probes: Vec<Probe>,
    /// Room for what is about to be stored.
    scratch: Vec<u8>,
}

/// Where a key is.
#[derive(Clone, Copy, Debug)]
struct Probe {
    hash: Hash,
    /// Counts from the first group of the backend.
    group: u32,
    table: u32,
    /// The record that is probably the key's.
    candidate: Option<Handle>,
}

impl fmt::Debug for MemoryBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryBackend")
            .field("operator", &self.operator)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

impl MemoryBackend {
    /// An empty backend for the keyed ones among `states` and the key groups `groups` of `max_parallelism`, with a
    /// budget in bytes.
    #[must_use]
    pub fn new(
        operator: &str,
        states: Vec<StateDescriptor>,
        groups: Range<u32>,
        max_parallelism: u32,
        budget: u64,
    ) -> Self {
        let states: Vec<_> = states.into_iter().filter(|state| state.kind.is_keyed()).collect();
        let content = states.iter().map(|_| groups.clone().map(|_| Group::default()).collect()).collect();
        Self {
            operator: operator.to_owned(),
            states,
            groups,
            max_parallelism,
            budget,
            bytes: 0,
            secret: HashSecret::random(),
            content,
            probes: Vec::new(),
            scratch: Vec::new(),
        }
    }

    /// Where the keys are, as far as the indexes tell.
    fn locate(&self, state: StateIndex, keys: Keys<'_>, probes: &mut Vec<Probe>) {
        let groups = &self.content[state.0];
        probes.clear();
        probes.extend(keys.positions.iter().map(|&position| {
            let placement = keys.hashes[position as usize];
            let group = key_group::group_of(placement, self.max_parallelism);
            assert!(
                self.groups.contains(&group),
                "{} was given a key of group {group}, but owns {:?}",
                self.operator,
                self.groups
            );
            let (hash, group) = (Hash::from(self.secret.remix(placement)), group - self.groups.start);
            Probe { hash, group, table: groups[group as usize].table_of(hash), candidate: None }
        }));
        let mut touched = 0;
        for probe in probes {
            let table = &groups[probe.group as usize].tables[probe.table as usize];
            probe.candidate = table.candidate(probe.hash.tag);
            // Nothing here waits for the record, so that many of them are on their way at a time.
            touched |= probe.candidate.map_or(0, |handle| table.touch(handle));
        }
        std::hint::black_box(touched);
    }

    /// Calls `each` with the position of each key and what it holds.
    #[inline]
    fn read(&mut self, state: StateIndex, keys: Keys<'_>, mut each: impl FnMut(usize, Option<Stored<'_>>)) {
        let mut probes = std::mem::take(&mut self.probes);
        self.locate(state, keys, &mut probes);
        let groups = &self.content[state.0];
        for (position, (probe, (key, _))) in probes.iter().zip(keys.iter()).enumerate() {
            let table = &groups[probe.group as usize].tables[probe.table as usize];
            each(position, stored(table, probe, key));
        }
        self.probes = probes;
    }

    /// Calls `write` with the table of each key, its hash, its record if there is one, the key and its position; it
    /// returns by how many bytes the table grew. `distinct` says that no key is named twice.
    #[inline]
    fn write(
        &mut self,
        state: StateIndex,
        keys: Keys<'_>,
        distinct: bool,
        mut write: impl FnMut(&mut Table, Hash, Option<Handle>, &[u8], usize) -> i64,
    ) -> Result<(), StateError> {
        let mut probes = std::mem::take(&mut self.probes);
        self.locate(state, keys, &mut probes);
        // A write moves the record of its own key, and at times all records of a table.
        let mut moved = false;
        let mut outcome = Ok(());
        for (position, (probe, (key, _))) in probes.iter().zip(keys.iter()).enumerate() {
            let group = &mut self.content[state.0][probe.group as usize];
            let at = if moved { group.table_of(probe.hash) } else { probe.table };
            let table = &mut group.tables[at as usize];
            let found = match probe.candidate {
                None if distinct && !moved => None,
                Some(handle) if distinct && !moved && table.holds(handle, key) => Some(handle),
                _ => table.find(probe.hash.tag, key),
            };
            let growth = write(table, probe.hash, found, key, position);
            moved |= group.settle(at);
            self.bytes = self.bytes.checked_add_signed(growth).expect("no more bytes are freed than were taken");
            if growth > 0 && self.bytes > self.budget {
                let (operator, bytes, budget) = (self.operator.clone(), self.bytes, self.budget);
                outcome = Err(StateError::Budget { operator, bytes, budget });
                break;
            }
        }
        self.probes = probes;
        outcome
    }
}

/// What a key holds.
#[inline]
fn stored<'a>(table: &'a Table, probe: &Probe, key: &[u8]) -> Option<Stored<'a>> {
    let (found, stored) = table.record(probe.candidate?);
    if found == key {
        return Some(stored);
    }
    // Another key with the same tag: one in a million times.
    table.find(probe.hash.tag, key).map(|handle| table.record(handle).1)
}

/// The bytes of a value or a list.
#[inline]
fn bytes(stored: Stored<'_>) -> &[u8] {
    match stored {
        Stored::Bytes(bytes) => bytes,
        Stored::Map(_) => panic!("only map state holds maps"),
    }
}

impl StateBackend for MemoryBackend {
    fn states(&self) -> &[StateDescriptor] {
        &self.states
    }

    fn load_values(
        &mut self,
        state: StateIndex,
        keys: Keys<'_>,
        limit: u64,
        out: &mut OptionalColumn,
    ) -> Result<u64, StateError> {
        let mut total = 0;
        self.read(state, keys, |_, stored| {
            let value = stored.map(bytes);
            total += value.map_or(0, <[u8]>::len) as u64;
            if total <= limit {
                out.push(value);
            }
        });
        Ok(total)
    }

    fn write_values(&mut self, state: StateIndex, keys: Keys<'_>, values: &OptionalColumn) -> Result<(), StateError> {
        assert_eq!(keys.len(), values.len(), "one value per key");
        let mut values = values.iter();
        self.write(state, keys, true, |table, hash, found, key, _| {
            match (values.next().expect("one value per key"), found) {
                (Some(value), _) => table.set(found, hash, key, value),
                (None, Some(handle)) => table.remove(handle, hash.tag),
                (None, None) => 0,
            }
        })
    }

    fn load_lists(
        &mut self,
        state: StateIndex,
        keys: Keys<'_>,
        limit: u64,
        out: &mut Lists,
    ) -> Result<u64, StateError> {
        let mut total = 0;
        self.read(state, keys, |_, stored| {
            let items = Frames(stored.map_or(&[], bytes));
            total += items.clone().map(|item| item.len() as u64 + 4).sum::<u64>();
            if total <= limit {
                out.push(items);
            }
        });
        Ok(total)
    }

    fn append_lists(&mut self, state: StateIndex, keys: Keys<'_>, items: &Lists) -> Result<(), StateError> {
        assert_eq!(keys.len(), items.len(), "one list per key");
        let mut more = std::mem::take(&mut self.scratch);
        let outcome = self.write(state, keys, true, |table, hash, found, key, position| {
            more.clear();
            items.get(position).for_each(|item| frame::push(&mut more, item));
            if more.is_empty() { 0 } else { table.append(found, hash, key, &more) }
        });
        self.scratch = more;
        outcome
    }

    fn get_entries(
        &mut self,
        state: StateIndex,
        keys: Keys<'_>,
        entry_keys: &Column,
        limit: u64,
        out: &mut OptionalColumn,
    ) -> Result<u64, StateError> {
        assert_eq!(keys.len(), entry_keys.len(), "one map key per key");
        let mut total = 0;
        self.read(state, keys, |position, stored| {
            let entry_key = entry_keys.get(position);
            let value = stored.and_then(|stored| match stored {
                Stored::Bytes(map) => frame::find(map, entry_key),
                Stored::Map(map) => map.entries().get(entry_key).map(|value| &**value),
            });
            total += value.map_or(0, <[u8]>::len) as u64;
            if total <= limit {
                out.push(value);
            }
        });
        Ok(total)
    }

    fn write_entries(
        &mut self,
        state: StateIndex,
        keys: Keys<'_>,
        entry_keys: &Column,
        values: &OptionalColumn,
    ) -> Result<(), StateError> {
        assert_eq!((keys.len(), keys.len()), (entry_keys.len(), values.len()), "one entry per key");
        let mut values = values.iter();
        let mut edited = std::mem::take(&mut self.scratch);
        let outcome = self.write(state, keys, false, |table, hash, found, key, position| {
            let (entry_key, value) = (entry_keys.get(position), values.next().expect("one value per key"));
            write_entry(table, hash, found, key, (entry_key, value), &mut edited)
        });
        self.scratch = edited;
        outcome
    }

    fn scan_entries(
        &mut self,
        state: StateIndex,
        keys: Keys<'_>,
        start: &[u8],
        end: Option<&[u8]>,
        limit: usize,
        bytes: usize,
    ) -> Result<MapPage, StateError> {
        assert_eq!(keys.len(), 1, "a scan visits the map of one key");
        let mut page = MapPage::default();
        if end.is_some_and(|end| start >= end) {
            return Ok(page);
        }
        self.read(state, keys, |_, stored| match stored {
            None => {}
            Some(Stored::Bytes(map)) => {
                let within = frame::entries(map).skip_while(|(key, _)| *key < start);
                fill(&mut page, within.take_while(|(key, _)| end.is_none_or(|end| *key < end)), limit, bytes);
            }
            Some(Stored::Map(map)) => {
                let bounds = (Bound::Included(start), end.map_or(Bound::Unbounded, Bound::Excluded));
                let within = map.entries().range::<[u8], _>(bounds);
                fill(&mut page, within.map(|(key, value)| (&**key, &**value)), limit, bytes);
            }
        });
        Ok(page)
    }

    fn clear(&mut self, state: StateIndex, keys: Keys<'_>) -> Result<(), StateError> {
        self.write(state, keys, true, |table, hash, found, _, _| {
            found.map_or(0, |handle| table.remove(handle, hash.tag))
        })
    }

    fn byte_size(&self) -> u64 {
        self.bytes
    }

    fn key_count(&self, state: StateIndex) -> u64 {
        self.content[state.0].iter().map(|group| group.len() as u64).sum()
    }
}

/// Sets or removes one entry of a map. Returns by how many bytes the table grew.
fn write_entry(
    table: &mut Table,
    hash: Hash,
    found: Option<Handle>,
    key: &[u8],
    (entry_key, value): (&[u8], Option<&[u8]>),
    edited: &mut Vec<u8>,
) -> i64 {
    let flat = match found.map(|handle| (handle, table.record(handle).1)) {
        None => &[],
        Some((_, Stored::Bytes(map))) => map,
        Some((handle, Stored::Map(_))) => {
            let mut is_empty = false;
            let growth = table.change_map(handle, |map| {
                match value {
                    Some(value) => map.insert(entry_key, value),
                    None => map.remove(entry_key),
                }
                is_empty = map.entries().is_empty();
            });
            return growth + if is_empty { table.remove(handle, hash.tag) } else { 0 };
        }
    };
    frame::edit(flat, entry_key, value, edited);
    match found {
        Some(handle) if edited.is_empty() => table.remove(handle, hash.tag),
        None if edited.is_empty() => 0,
        _ if edited.len() <= LARGEST_FLAT_MAP => table.set(found, hash, key, edited),
        _ => {
            let mut map = EntryMap::default();
            frame::entries(edited).for_each(|(key, value)| map.insert(key, value));
            table.set_map(found, hash, key, map)
        }
    }
}

/// Fills a page with entries up to `limit` of them and until `bytes` are reached.
fn fill<'a>(page: &mut MapPage, entries: impl Iterator<Item = (&'a [u8], &'a [u8])>, limit: usize, bytes: usize) {
    for (key, value) in entries {
        if page.keys.len() >= limit
            || (!page.keys.is_empty() && page.keys.byte_size() + page.values.byte_size() >= bytes)
        {
            page.more = true;
            return;
        }
        page.keys.push(key);
        page.values.push(value);
    }
}
