//! The `memory` backend: hash tables per key group, records in arenas.
//!
//! Owns the keys of one subtask. An access first finds the table of every key, then looks into the indexes, then at the
//! records: three short loops instead of one long one, so that the processor waits for many cache misses at a time.
//!
//! What always holds: a key lies in a group that the backend was made for; the byte count is that of the content alone,
//! the same in every process, although the places of keys in tables depend on a secret; no result depends on it.

mod arena;
mod entry_map;
mod frozen;
mod group;
mod merge;
mod table;
mod tables;

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;

use self::entry_map::EntryMap;
use self::frozen::{FrozenGroup, MemorySnapshot};
use self::group::{Group, Spot, byte_strings, entries_between, patched};
use self::table::{Content, Handle, Hash, Said, Stored, Table};
use self::tables::Tables;
use super::frame::{self, Frames};
use super::secret::HashSecret;
use super::{Framed, FrozenState, Keys, MapPage, Payload, Place, StateBackend, StateError, StateIndex};
use crate::operator::{StateDescriptor, StateKind};
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
    /// The groups that were frozen and are not whole again, in the order in which they were frozen.
    unmerged: VecDeque<(StateIndex, u32)>,
    /// The records that are being merged. Empty between accesses.
    pulled: Vec<(u32, Handle)>,
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
    /// The layer of the group, from the newest on.
    layer: u32,
    table: u32,
    /// The record that is probably the key's.
    candidate: Option<Handle>,
}

/// What to do to the record of each key.
trait Write {
    /// Whether no key is named twice.
    const DISTINCT: bool;

    /// Writes to a table, in which `found` is the record of the key, what belongs to position `position`. Returns by how
    /// many bytes the table grew.
    fn write(&mut self, table: &mut Table, hash: Hash, found: Option<Handle>, key: &[u8], position: usize) -> i64;

    /// The same for a group that may have more than one layer. `near` is what a probe found for the key,
    /// unless records have moved since. Returns whether records moved as well.
    fn write_layered(
        &mut self,
        group: &mut Group,
        hash: Hash,
        key: &[u8],
        position: usize,
        near: Option<Spot>,
    ) -> (i64, bool);
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
            unmerged: VecDeque::new(),
            pulled: Vec::new(),
            probes: Vec::new(),
            scratch: Vec::new(),
        }
    }

    /// The hash of each key and its group, counted from the first one of the backend.
    #[inline]
    fn place<'a>(&'a self, keys: Keys<'a>) -> impl ExactSizeIterator<Item = (Hash, u32)> + 'a {
        keys.positions.iter().map(move |&position| {
            let placement = keys.hashes[position as usize];
            let group = key_group::group_of(placement, self.max_parallelism);
            assert!(
                self.groups.contains(&group),
                "{} was given a key of group {group}, but owns {:?}",
                self.operator,
                self.groups
            );
            (Hash::from(self.secret.remix(placement)), group - self.groups.start)
        })
    }

    /// Where the keys are, as far as the indexes tell. All groups of the state are whole.
    fn locate(&self, state: StateIndex, keys: Keys<'_>, probes: &mut Vec<Probe>) {
        let groups = &self.content[state.0];
        probes.clear();
        probes.extend(self.place(keys).map(|(hash, group)| Probe {
            hash,
            group,
            layer: 0,
            table: groups[group as usize].live.table_of(hash),
            candidate: None,
        }));
        let mut touched = 0;
        for probe in probes {
            let table = &groups[probe.group as usize].live.tables[probe.table as usize];
            probe.candidate = table.candidate(probe.hash.tag);
            // Nothing here waits for the record, so that many of them are on their way at a time.
            touched |= probe.candidate.map_or(0, |handle| table.touch(handle));
        }
        std::hint::black_box(touched);
    }

    /// The same when groups may have layers.
    fn locate_in_layers(&self, state: StateIndex, keys: Keys<'_>, probes: &mut Vec<Probe>) {
        let groups = &self.content[state.0];
        probes.clear();
        let nowhere = |(hash, group)| Probe { hash, group, layer: 0, table: 0, candidate: None };
        probes.extend(self.place(keys).map(nowhere));
        // Layer by layer, so that nothing waits for the index of one to know whether to look into the next.
        for probe in &mut *probes {
            if let Some((_, table, handle)) = groups[probe.group as usize].candidate_on_top(probe.hash) {
                (probe.table, probe.candidate) = (table, Some(handle));
            }
        }
        let mut touched = 0;
        for probe in probes {
            let group = &groups[probe.group as usize];
            if probe.candidate.is_none()
                && let Some((layer, table, handle)) = group.candidate_below(probe.hash)
            {
                (probe.layer, probe.table, probe.candidate) = (layer, table, Some(handle));
            }
            if let Some(handle) = probe.candidate {
                touched |= group.layer(probe.layer).tables[probe.table as usize].touch(handle);
            }
        }
        std::hint::black_box(touched);
    }

    /// Calls `each` with the position of each key, what it holds, and what layers over that say about it, the newest
    /// first.
    #[inline]
    fn read(
        &mut self,
        state: StateIndex,
        keys: Keys<'_>,
        mut each: impl FnMut(usize, Option<Stored<'_>>, &[Said<'_>]),
    ) {
        if !self.unmerged.is_empty() {
            return self.read_layers(state, keys, each);
        }
        let mut probes = std::mem::take(&mut self.probes);
        self.locate(state, keys, &mut probes);
        let groups = &self.content[state.0];
        for (position, (probe, (key, _))) in probes.iter().zip(keys.iter()).enumerate() {
            let table = &groups[probe.group as usize].live.tables[probe.table as usize];
            each(position, stored(table, probe, key), &[]);
        }
        self.probes = probes;
    }

    /// The same when groups may have layers.
    fn read_layers(
        &mut self,
        state: StateIndex,
        keys: Keys<'_>,
        mut each: impl FnMut(usize, Option<Stored<'_>>, &[Said<'_>]),
    ) {
        let mut probes = std::mem::take(&mut self.probes);
        self.locate_in_layers(state, keys, &mut probes);
        let groups = &self.content[state.0];
        for (position, (probe, (key, _))) in probes.iter().zip(keys.iter()).enumerate() {
            let Some(candidate) = probe.candidate else {
                each(position, None, &[]);
                continue;
            };
            let group = &groups[probe.group as usize];
            match group.layer(probe.layer).tables[probe.table as usize].said(candidate) {
                (found, Said::Whole(stored)) if found == key => each(position, Some(stored), &[]),
                (found, Said::Nothing) if found == key => each(position, None, &[]),
                _ => {
                    let seen = group.see(probe.hash, key);
                    each(position, seen.bottom, &seen.over);
                }
            }
        }
        self.probes = probes;
    }

    /// Lets `write` write to the record of each key.
    #[inline]
    fn write<W: Write>(&mut self, state: StateIndex, keys: Keys<'_>, mut write: W) -> Result<(), StateError> {
        if !self.unmerged.is_empty() {
            return self.write_layers(state, keys, write);
        }
        let mut probes = std::mem::take(&mut self.probes);
        self.locate(state, keys, &mut probes);
        // A write moves the record of its own key, and at times all records of a table.
        let mut moved = false;
        let mut outcome = Ok(());
        for (position, (probe, (key, _))) in probes.iter().zip(keys.iter()).enumerate() {
            let group = &mut self.content[state.0][probe.group as usize].live;
            let at = if moved { group.table_of(probe.hash) } else { probe.table };
            let table = &mut group.tables[at as usize];
            let found = match probe.candidate {
                None if W::DISTINCT && !moved => None,
                Some(handle) if W::DISTINCT && !moved && table.holds(handle, key) => Some(handle),
                _ => table.find(probe.hash.tag, key),
            };
            let growth = write.write(table, probe.hash, found, key, position);
            moved |= group.settle(at);
            outcome = self.account(growth);
            if outcome.is_err() {
                break;
            }
        }
        self.probes = probes;
        outcome
    }

    /// The same when groups may have layers.
    fn write_layers<W: Write>(&mut self, state: StateIndex, keys: Keys<'_>, mut write: W) -> Result<(), StateError> {
        let mut probes = std::mem::take(&mut self.probes);
        self.locate_in_layers(state, keys, &mut probes);
        let mut moved = false;
        let mut outcome = Ok(());
        for (position, (probe, (key, _))) in probes.iter().zip(keys.iter()).enumerate() {
            let group = &mut self.content[state.0][probe.group as usize];
            let near = probe.candidate.filter(|_| !moved).map(|handle| (probe.layer, probe.table, handle));
            let (growth, moves) = write.write_layered(group, probe.hash, key, position, near);
            moved |= moves;
            outcome = self.account(growth);
            if outcome.is_err() {
                break;
            }
        }
        self.probes = probes;
        outcome
    }

    fn restore_entry(
        &mut self,
        state: StateIndex,
        key: &[u8],
        payload: Payload<'_>,
        scratch: &mut Vec<u8>,
    ) -> Result<(), StateError> {
        let placement = key_group::hash(key);
        let group = key_group::group_of(placement, self.max_parallelism);
        if !self.groups.contains(&group) {
            let (operator, owned) = (self.operator.clone(), self.groups.clone());
            return Err(StateError::ForeignKey { operator, group, owned });
        }
        let hash = Hash::from(self.secret.remix(placement));
        let kind = self.states[state.0].kind;
        let group = &mut self.content[state.0][(group - self.groups.start) as usize];
        assert!(group.is_whole(), "state is restored before it is frozen for the first time");
        let (mut growth, mut fits) = (0, true);
        merge::edit(&mut group.live, hash, key, |table, found| match (kind, payload) {
            (StateKind::KeyedValue, Payload::Value(value)) => growth = table.set(found, hash, key, value),
            (StateKind::KeyedList, Payload::Items(items)) if items.as_bytes().is_empty() => {}
            (StateKind::KeyedList, Payload::Items(items)) => {
                growth = table.append(found, hash, key, items.as_bytes());
            }
            (StateKind::KeyedMap, Payload::Entries(entries)) => {
                growth = restore_map(table, hash, found, key, entries, scratch);
            }
            _ => fits = false,
        });
        if !fits {
            let (operator, state) = (self.operator.clone(), self.states[state.0].name.clone());
            return Err(StateError::ForeignKind { operator, state });
        }
        self.account(growth)
    }

    #[inline]
    fn account(&mut self, growth: i64) -> Result<(), StateError> {
        self.bytes = self.bytes.checked_add_signed(growth).expect("no more bytes are freed than were taken");
        if growth > 0 && self.bytes > self.budget {
            let (operator, bytes, budget) = (self.operator.clone(), self.bytes, self.budget);
            return Err(StateError::Budget { operator, bytes, budget });
        }
        Ok(())
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

/// The bytes of a value.
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
        self.read(state, keys, |_, stored, _| {
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
        self.write(state, keys, WriteValues(values.iter()))
    }

    fn load_lists(
        &mut self,
        state: StateIndex,
        keys: Keys<'_>,
        limit: u64,
        out: &mut Lists,
    ) -> Result<u64, StateError> {
        let mut total = 0;
        self.read(state, keys, |_, stored, over| {
            let items = byte_strings(stored, over).flat_map(Frames);
            total += items.clone().map(|item| item.len() as u64 + 4).sum::<u64>();
            if total <= limit {
                out.push(items);
            }
        });
        Ok(total)
    }

    fn append_lists(&mut self, state: StateIndex, keys: Keys<'_>, items: &Lists) -> Result<(), StateError> {
        assert_eq!(keys.len(), items.len(), "one list per key");
        let mut framed = std::mem::take(&mut self.scratch);
        let outcome = self.write(state, keys, AppendLists { items, framed: &mut framed });
        self.scratch = framed;
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
        self.read(state, keys, |position, stored, over| {
            let entry_key = entry_keys.get(position);
            let value = stored.and_then(|stored| match stored {
                Stored::Bytes(map) => frame::find(map, entry_key),
                Stored::Map(map) => patched(map, over).get(entry_key),
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
        let mut edited = std::mem::take(&mut self.scratch);
        let outcome = self.write(state, keys, WriteEntries { entry_keys, values: values.iter(), edited: &mut edited });
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
        self.read(state, keys, |_, stored, over| match stored {
            None => {}
            Some(Stored::Bytes(map)) => {
                let within = frame::entries(map).skip_while(|(key, _)| *key < start);
                fill(&mut page, within.take_while(|(key, _)| end.is_none_or(|end| *key < end)), limit, bytes);
            }
            Some(Stored::Map(map)) => {
                fill(&mut page, entries_between(&patched(map, over), start, end), limit, bytes);
            }
        });
        Ok(page)
    }

    fn clear(&mut self, state: StateIndex, keys: Keys<'_>) -> Result<(), StateError> {
        self.write(state, keys, Clear)
    }

    fn byte_size(&self) -> u64 {
        self.bytes
    }

    fn key_count(&self, state: StateIndex) -> u64 {
        self.content[state.0].iter().map(Group::key_count).sum()
    }

    fn freeze(&mut self) -> Box<dyn FrozenState> {
        let mut frozen = VecDeque::new();
        self.unmerged.clear();
        for (state, groups) in self.content.iter_mut().enumerate() {
            for (position, group) in (0..).zip(groups) {
                let layers = group.freeze();
                if !layers.is_empty() {
                    let state = StateIndex(state);
                    self.unmerged.push_back((state, position));
                    let place = Place { state, group: self.groups.start + position };
                    frozen.push_back(FrozenGroup { place, layers });
                }
            }
        }
        let kinds = self.states.iter().map(|state| state.kind).collect();
        Box::new(MemorySnapshot::new(kinds, frozen))
    }

    fn merge(&mut self, entries: usize) -> bool {
        let mut budget = entries;
        while let Some(&(state, group)) = self.unmerged.front() {
            if !self.content[state.0][group as usize].merge(&mut budget, &mut self.pulled) {
                break;
            }
            self.unmerged.pop_front();
        }
        !self.unmerged.is_empty()
    }

    fn reserve(&mut self, place: Place, keys: u64, bytes: u64) {
        let Some(position) = place.group.checked_sub(self.groups.start) else { return };
        let Some(group) = self.content[place.state.0].get_mut(position as usize) else { return };
        if group.is_whole() && group.live.is_empty() {
            let amount = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
            group.live = Tables::with_room(amount(keys), amount(bytes));
        }
    }

    fn restore<'a>(
        &mut self,
        state: StateIndex,
        entries: &mut dyn Iterator<Item = (&'a [u8], Payload<'a>)>,
    ) -> Result<(), StateError> {
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut outcome = Ok(());
        for (key, payload) in entries {
            outcome = self.restore_entry(state, key, payload, &mut scratch);
            if outcome.is_err() {
                break;
            }
        }
        self.scratch = scratch;
        outcome
    }
}

/// Sets entries of a map. Returns by how many bytes the table grew.
fn restore_map(
    table: &mut Table,
    hash: Hash,
    found: Option<Handle>,
    key: &[u8],
    entries: Framed<'_>,
    edited: &mut Vec<u8>,
) -> i64 {
    if found.is_none() && entries.as_bytes().len() <= LARGEST_FLAT_MAP && is_sorted(entries) {
        // The form is that of a flat map already.
        return if entries.as_bytes().is_empty() { 0 } else { table.set(None, hash, key, entries.as_bytes()) };
    }
    let (mut found, mut growth) = (found, 0);
    let mut strings = entries.strings();
    while let (Some(entry_key), Some(value)) = (strings.next(), strings.next()) {
        growth += write_entry(table, hash, found, key, (entry_key, Some(value)), edited);
        found = table.find(hash.tag, key);
    }
    growth
}

/// Whether these are keys and values, each key greater than the one before.
fn is_sorted(entries: Framed<'_>) -> bool {
    let mut strings = entries.strings();
    let mut before: Option<&[u8]> = None;
    while let Some(key) = strings.next() {
        if strings.next().is_none() || before.is_some_and(|before| before >= key) {
            return false;
        }
        before = Some(key);
    }
    true
}

struct WriteValues<I>(I);

impl<'a, I: Iterator<Item = Option<&'a [u8]>>> WriteValues<I> {
    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        self.0.next().expect("one value per key")
    }
}

impl<'a, I: Iterator<Item = Option<&'a [u8]>>> Write for WriteValues<I> {
    const DISTINCT: bool = true;

    #[inline]
    fn write(&mut self, table: &mut Table, hash: Hash, found: Option<Handle>, key: &[u8], _: usize) -> i64 {
        match (self.next(), found) {
            (Some(value), _) => table.set(found, hash, key, value),
            (None, Some(handle)) => table.remove(handle, hash.tag),
            (None, None) => 0,
        }
    }

    fn write_layered(
        &mut self,
        group: &mut Group,
        hash: Hash,
        key: &[u8],
        _: usize,
        near: Option<Spot>,
    ) -> (i64, bool) {
        group.put(hash, key, self.next(), near)
    }
}

struct AppendLists<'a> {
    items: &'a Lists,
    framed: &'a mut Vec<u8>,
}

impl AppendLists<'_> {
    fn frame(&mut self, position: usize) -> Option<&[u8]> {
        self.framed.clear();
        self.items.get(position).for_each(|item| frame::push(self.framed, item));
        (!self.framed.is_empty()).then_some(self.framed)
    }
}

impl Write for AppendLists<'_> {
    const DISTINCT: bool = true;

    fn write(&mut self, table: &mut Table, hash: Hash, found: Option<Handle>, key: &[u8], position: usize) -> i64 {
        self.frame(position).map_or(0, |more| table.append(found, hash, key, more))
    }

    fn write_layered(
        &mut self,
        group: &mut Group,
        hash: Hash,
        key: &[u8],
        position: usize,
        _: Option<Spot>,
    ) -> (i64, bool) {
        (self.frame(position).map_or(0, |more| group.append(hash, key, more)), true)
    }
}

struct WriteEntries<'a, I> {
    entry_keys: &'a Column,
    values: I,
    edited: &'a mut Vec<u8>,
}

impl<'a, I: Iterator<Item = Option<&'a [u8]>>> WriteEntries<'a, I> {
    fn next(&mut self, position: usize) -> (&'a [u8], Option<&'a [u8]>) {
        (self.entry_keys.get(position), self.values.next().expect("one value per key"))
    }
}

impl<'a, I: Iterator<Item = Option<&'a [u8]>>> Write for WriteEntries<'a, I> {
    const DISTINCT: bool = false;

    fn write(&mut self, table: &mut Table, hash: Hash, found: Option<Handle>, key: &[u8], position: usize) -> i64 {
        let entry = self.next(position);
        write_entry(table, hash, found, key, entry, self.edited)
    }

    fn write_layered(
        &mut self,
        group: &mut Group,
        hash: Hash,
        key: &[u8],
        position: usize,
        _: Option<Spot>,
    ) -> (i64, bool) {
        let entry = self.next(position);
        (group.write_entry(hash, key, entry, self.edited), true)
    }
}

struct Clear;

impl Write for Clear {
    const DISTINCT: bool = true;

    fn write(&mut self, table: &mut Table, hash: Hash, found: Option<Handle>, _: &[u8], _: usize) -> i64 {
        found.map_or(0, |handle| table.remove(handle, hash.tag))
    }

    fn write_layered(
        &mut self,
        group: &mut Group,
        hash: Hash,
        key: &[u8],
        _: usize,
        near: Option<Spot>,
    ) -> (i64, bool) {
        group.put(hash, key, None, near)
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
            let map = table.map_mut(handle);
            let before = map.bytes() as i64;
            map.write(entry_key, value);
            let growth = map.bytes() as i64 - before;
            return growth + if map.len() == 0 { table.remove(handle, hash.tag) } else { 0 };
        }
    };
    frame::edit(flat, entry_key, value, edited);
    match found {
        Some(handle) if edited.is_empty() => table.remove(handle, hash.tag),
        None if edited.is_empty() => 0,
        _ => store_flat_map(table, hash, found, key, edited),
    }
}

/// Sets what a key holds to a map, in the form that suits its size. Returns by how many bytes the table grew.
fn store_flat_map(table: &mut Table, hash: Hash, found: Option<Handle>, key: &[u8], flat: &[u8]) -> i64 {
    if flat.len() <= LARGEST_FLAT_MAP {
        return table.set(found, hash, key, flat);
    }
    let mut map = EntryMap::default();
    frame::entries(flat).for_each(|(key, value)| map.insert(key, value));
    table.set_large(found, hash, key, Content::Map(map))
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

#[cfg(test)]
mod tests;
