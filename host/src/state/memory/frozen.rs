//! Reading the frozen layers of groups.
//!
//! Keys come in the order of their placement hashes, which is the same in every process: equal content gives equal
//! snapshots, although the places of keys in tables depend on a secret.

use std::collections::VecDeque;
use std::ops::{Bound, Range};
use std::sync::Arc;

use super::entry_map::EntryMap;
use super::group::{byte_strings, patched};
use super::table::{Handle, Said, Stored};
use super::tables::Tables;
use crate::operator::StateKind;
use crate::protocol::key_group;
use crate::state::frame::{self, Framed};
use crate::state::{FrozenState, Payload, Place};

/// The bytes that a piece of a list or map has at most, unless one item has more.
const PIECE_BYTES: usize = 64 << 10;

/// The frozen content of a backend.
pub(super) struct MemorySnapshot {
    kinds: Vec<StateKind>,
    /// What is still to be read.
    groups: VecDeque<FrozenGroup>,
    /// The records of the first group, those of one key side by side with the newest first; empty until it is its turn.
    records: Vec<Record>,
    /// The first record of the key that is read next.
    next: usize,
    /// How far that key has been read.
    progress: Progress,
    scratch: Vec<u8>,
}

/// A key group of a state that holds something.
pub(super) struct FrozenGroup {
    pub(super) place: Place,
    /// The oldest first.
    pub(super) layers: Vec<Arc<Tables>>,
}

struct Record {
    hash: u64,
    /// Counts from the newest layer.
    age: u32,
    table: u32,
    handle: Handle,
}

/// How far a list or a map has been read.
enum Progress {
    NotBegun,
    /// Up to a byte of a part of a list.
    List {
        part: usize,
        offset: usize,
    },
    /// Up to an entry of a map.
    Map {
        last: Box<[u8]>,
    },
}

impl FrozenGroup {
    fn said(&self, record: &Record) -> (&[u8], Said<'_>) {
        let layer = &self.layers[self.layers.len() - 1 - record.age as usize];
        layer.tables[record.table as usize].said(record.handle)
    }

    /// All records, those of one key side by side with the newest first.
    fn sorted(&self) -> Vec<Record> {
        let count = self.layers.iter().map(|layer| layer.len()).sum();
        let mut records = Vec::with_capacity(count);
        for (age, layer) in (0..).zip(self.layers.iter().rev()) {
            for (position, table) in (0..).zip(&layer.tables) {
                records.extend(table.handles().map(|handle| {
                    let hash = key_group::hash(table.said(handle).0);
                    Record { hash, age, table: position, handle }
                }));
            }
        }
        // Whoever chooses the keys can make hashes collide, so the keys themselves have a say.
        records.sort_unstable_by(|left, right| {
            let keys = || self.said(left).0.cmp(self.said(right).0);
            left.hash.cmp(&right.hash).then_with(keys).then(left.age.cmp(&right.age))
        });
        records
    }

    /// The end of the run of records of one key.
    fn run(&self, records: &[Record], start: usize) -> Range<usize> {
        let (first, key) = (&records[start], self.said(&records[start]).0);
        let same = |record: &&Record| record.hash == first.hash && self.said(record).0 == key;
        start..start + 1 + records[start + 1..].iter().take_while(same).count()
    }
}

impl MemorySnapshot {
    /// The frozen content of groups by rising place.
    pub(super) fn new(kinds: Vec<StateKind>, groups: VecDeque<FrozenGroup>) -> Self {
        let (records, progress) = (Vec::new(), Progress::NotBegun);
        Self { kinds, groups, records, next: 0, progress, scratch: Vec::new() }
    }

    /// Reads on from the first group until `most_bytes` were handed out. Returns how many were.
    fn read_group(&mut self, most_bytes: usize, each: &mut dyn FnMut(Place, &[u8], Payload<'_>)) -> usize {
        let group = &self.groups[0];
        if self.records.is_empty() {
            self.records = group.sorted();
        }
        let kind = self.kinds[group.place.state.0];
        let mut given = 0;
        while given < most_bytes && self.next < self.records.len() {
            let run = group.run(&self.records, self.next);
            let key = group.said(&self.records[run.start]).0;
            let mut over = Vec::new();
            let mut bottom = None;
            for record in &self.records[run.clone()] {
                match group.said(record).1 {
                    Said::Whole(stored) => bottom = Some(stored),
                    Said::Nothing => {}
                    change => {
                        over.push(change);
                        continue;
                    }
                }
                break;
            }
            let room = most_bytes - given;
            let mut count = |key: &[u8], payload: Payload<'_>, bytes: usize| {
                given += key.len() + bytes;
                each(group.place, key, payload);
            };
            let done = match (kind, bottom) {
                (_, None) => true,
                (StateKind::KeyedMap, Some(Stored::Map(map))) => {
                    read_map(map, &over, room, &mut self.progress, &mut self.scratch, &mut |entries, bytes| {
                        count(key, Payload::Entries(entries), bytes);
                    })
                }
                (StateKind::KeyedMap, Some(Stored::Bytes(map))) => {
                    count(key, Payload::Entries(Framed::trusted(map)), map.len());
                    true
                }
                (StateKind::KeyedList, bottom) => {
                    let parts = byte_strings(bottom, &over);
                    read_list(parts, room, &mut self.progress, &mut self.scratch, &mut |items, bytes| {
                        count(key, Payload::Items(items), bytes);
                    })
                }
                (_, Some(Stored::Bytes(value))) => {
                    count(key, Payload::Value(value), value.len());
                    true
                }
                (_, Some(Stored::Map(_))) => panic!("only map state holds maps"),
            };
            if done {
                self.progress = Progress::NotBegun;
                self.next = run.end;
            }
        }
        given
    }
}

/// Hands out pieces of a list until there are `room` bytes of them. Returns whether that was the end. Where a piece ends
/// does not depend on how the list is parted.
fn read_list<'a>(
    parts: impl Iterator<Item = &'a [u8]> + Clone,
    room: usize,
    progress: &mut Progress,
    scratch: &mut Vec<u8>,
    each: &mut dyn FnMut(Framed<'_>, usize),
) -> bool {
    let (mut at, mut offset) = match *progress {
        Progress::List { part, offset } => (part, offset),
        _ => (0, 0),
    };
    let mut given = 0;
    let mut rest = parts.skip(at);
    let mut current = &rest.next().expect("a list is not empty")[offset..];
    loop {
        let piece = frame::prefix(current, PIECE_BYTES);
        let mut piece_bytes = piece.len();
        (offset, current) = (offset + piece.len(), &current[piece.len()..]);
        if !current.is_empty() {
            each(Framed::trusted(piece), piece.len());
        } else {
            // The piece may go on in the next part.
            scratch.clear();
            scratch.extend_from_slice(piece);
            while current.is_empty()
                && let Some(part) = rest.next()
            {
                (at, offset, current) = (at + 1, 0, part);
                let more = frame::fitting(current, PIECE_BYTES.saturating_sub(scratch.len()));
                scratch.extend_from_slice(more);
                (offset, current) = (offset + more.len(), &current[more.len()..]);
            }
            each(Framed::trusted(scratch), scratch.len());
            piece_bytes = scratch.len();
            if current.is_empty() {
                return true;
            }
        }
        given += piece_bytes;
        if given >= room {
            *progress = Progress::List { part: at, offset };
            return false;
        }
    }
}

/// Hands out pieces of a map until there are `room` bytes of them. Returns whether that was the end.
fn read_map(
    map: &EntryMap,
    over: &[Said<'_>],
    room: usize,
    progress: &mut Progress,
    scratch: &mut Vec<u8>,
    each: &mut dyn FnMut(Framed<'_>, usize),
) -> bool {
    let start = match progress {
        Progress::Map { last } => Bound::Excluded(&**last),
        _ => Bound::Unbounded,
    };
    let map = patched(map, over);
    let mut given = 0;
    let mut last = None;
    let mut entries = map.range(start, Bound::Unbounded);
    loop {
        scratch.clear();
        while scratch.len() < PIECE_BYTES
            && let Some((key, value)) = entries.next()
        {
            frame::push(scratch, key);
            frame::push(scratch, value);
            last = Some(key);
        }
        if scratch.is_empty() {
            return true;
        }
        each(Framed::trusted(scratch), scratch.len());
        given += scratch.len();
        if given >= room {
            *progress = Progress::Map { last: last.expect("a piece has an entry").into() };
            return false;
        }
    }
}

impl FrozenState for MemorySnapshot {
    fn next(&mut self, most_bytes: usize, each: &mut dyn FnMut(Place, &[u8], Payload<'_>)) -> bool {
        while !self.groups.is_empty() {
            let given = self.read_group(most_bytes, each);
            if self.next == self.records.len() {
                self.groups.pop_front();
                self.records = Vec::new();
                self.next = 0;
            }
            if given > 0 {
                return true;
            }
        }
        false
    }
}
