//! What an operator sends: records collected into one columnar batch per output.
//!
//! Keys and timestamps that records inherit are not copied while they follow the input in order: the buffer keeps the
//! range of positions, and an operator that sends one record for each it gets hands the input's own columns back.
//!
//! Invariant: all records of a buffer have keys or none has, and so with timestamps, because a batch is like that.

use crate::bindings::tidegate::operator::types::{BatchParam, ColumnParam};
use crate::imports::collector;
use crate::record::{Batch, Column};

/// So many records leave together.
pub(crate) const FULL_RECORDS: usize = 4096;
/// So many bytes of values or keys leave together.
pub(crate) const FULL_BYTES: usize = 64 << 10;

/// Where records go: the main output, or a side output declared when the operator opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Output(pub(crate) u32);

impl Output {
    /// The main output: `input = "node"` in the job file.
    pub const MAIN: Self = Self(0);
}

/// A record to send, for [`Context::send`](crate::Context::send). Its key and timestamp are those of the record being
/// processed unless given, its output is the main one.
#[derive(Clone, Copy, Debug)]
pub struct Emit<'a> {
    pub(crate) value: &'a [u8],
    pub(crate) key: Part<&'a [u8]>,
    pub(crate) timestamp: Part<i64>,
    pub(crate) output: Output,
}

/// A key or timestamp of a record to send.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Part<T> {
    /// That of the record being processed.
    Inherited,
    Given(T),
    Absent,
}

impl<'a> Emit<'a> {
    /// A record with this value.
    #[inline]
    pub fn new(value: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        Self { value: value.as_ref(), key: Part::Inherited, timestamp: Part::Inherited, output: Output::MAIN }
    }

    /// With this key.
    #[must_use]
    #[inline]
    pub fn key(self, key: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        Self { key: Part::Given(key.as_ref()), ..self }
    }

    /// Without a key.
    #[must_use]
    #[inline]
    pub fn without_key(self) -> Self {
        Self { key: Part::Absent, ..self }
    }

    /// With this event time, in milliseconds since 1970.
    #[must_use]
    #[inline]
    pub fn timestamp(self, timestamp: i64) -> Self {
        Self { timestamp: Part::Given(timestamp), ..self }
    }

    /// Without an event time.
    #[must_use]
    #[inline]
    pub fn without_timestamp(self) -> Self {
        Self { timestamp: Part::Absent, ..self }
    }

    /// To this output.
    #[must_use]
    #[inline]
    pub fn to(self, output: Output) -> Self {
        Self { output, ..self }
    }
}

/// No record: the position outside of `process`.
pub(crate) const NO_POSITION: u32 = u32::MAX;

/// No position that a record could have, nor `NO_POSITION`: nothing follows on.
const NOTHING_FOLLOWS: u32 = u32::MAX - 1;

/// Records waiting to leave by one output.
#[derive(Debug)]
pub(crate) struct OutputBuffer {
    id: u32,
    keyed: bool,
    timed: bool,
    values: Column,
    /// Keys and timestamps of all records but the last ones, which inherit.
    keys: Column,
    timestamps: Vec<i64>,
    /// The positions in the input whose keys and timestamps the last records have: from `inherited` to `next`.
    inherited: u32,
    /// The position that would carry the range on; `NOTHING_FOLLOWS` when there is no range.
    next: u32,
    /// What was here before the record at a position sent anything, if it has sent more than one that inherits.
    mark: Mark,
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    position: u32,
    records: usize,
}

const NO_MARK: Mark = Mark { position: NO_POSITION, records: 0 };

impl OutputBuffer {
    pub(crate) fn new(id: u32) -> Self {
        Self {
            id,
            keyed: false,
            timed: false,
            values: Column::default(),
            keys: Column::default(),
            timestamps: Vec::new(),
            inherited: 0,
            next: NOTHING_FOLLOWS,
            mark: NO_MARK,
        }
    }

    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.values.offsets.len() > FULL_RECORDS || self.values.data.len().max(self.keys.data.len()) >= FULL_BYTES
    }

    /// Whether the record at a position alone has filled the buffer.
    pub(crate) fn is_full_of(&self, position: u32) -> bool {
        let before = self.records_before(position);
        let start = |column: &Column| column.offsets.get(before).map_or(0, |&offset| offset as usize);
        self.values.len() - before >= FULL_RECORDS
            || self.values.data.len() - start(&self.values) >= FULL_BYTES
            || self.keys.data.len() - start(&self.keys) >= FULL_BYTES
    }

    /// Whether a record with or without key and timestamp can join those that wait.
    #[inline]
    pub(crate) fn accepts(&self, keyed: bool, timed: bool) -> bool {
        (self.keyed == keyed && self.timed == timed) || self.values.len() == 0
    }

    /// Whether a record that inherits from a position goes on where the last one stopped. All is prepared for it then.
    #[inline]
    pub(crate) fn is_next(&self, position: u32) -> bool {
        self.next == position
    }

    /// Adds a record that inherits from a position. `is_next` must have said yes.
    #[inline]
    pub(crate) fn push_next<R>(&mut self, write_value: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        self.next += 1;
        self.values.push_next_with(write_value)
    }

    /// Adds a record. `accepts` must have said yes.
    pub(crate) fn push<R>(
        &mut self,
        batch: &Batch,
        position: u32,
        (key, timestamp): (Part<&[u8]>, Part<i64>),
        write_value: impl FnOnce(&mut Vec<u8>) -> R,
    ) -> R {
        if self.mark.position != position {
            self.mark = Mark { position, records: self.records_before(position) };
        }
        self.copy_inherited(batch);
        if let (Part::Inherited, Part::Inherited) = (key, timestamp) {
            (self.keyed, self.timed) = (batch.is_keyed(), batch.has_timestamps());
            (self.inherited, self.next) = (position, position + 1);
        } else {
            self.push_given(batch, position, key, timestamp);
        }
        self.values.push_with(write_value)
    }

    fn push_given(&mut self, batch: &Batch, position: u32, key: Part<&[u8]>, timestamp: Part<i64>) {
        let key = match key {
            Part::Inherited => batch.is_keyed().then(|| batch.keys.get(position as usize)),
            Part::Given(key) => Some(key),
            Part::Absent => None,
        };
        let timestamp = match timestamp {
            Part::Inherited => batch.timestamps.get(position as usize).copied(),
            Part::Given(timestamp) => Some(timestamp),
            Part::Absent => None,
        };
        (self.keyed, self.timed) = (key.is_some(), timestamp.is_some());
        if let Some(key) = key {
            self.keys.push(key);
        }
        self.timestamps.extend(timestamp);
    }

    /// How many records were here before the one at a position sent anything.
    fn records_before(&self, position: u32) -> usize {
        if self.mark.position == position {
            self.mark.records
        } else if self.next == position.wrapping_add(1) {
            // It has sent one, which went on where the last one had stopped.
            self.values.len() - 1
        } else {
            self.values.len()
        }
    }

    /// Copies the keys and timestamps that were only referred to.
    fn copy_inherited(&mut self, batch: &Batch) {
        if self.next == NOTHING_FOLLOWS {
            return;
        }
        let (start, end) = (self.inherited as usize, self.next as usize);
        self.next = NOTHING_FOLLOWS;
        if self.keyed {
            self.keys.extend_from(&batch.keys, start, end);
        }
        if self.timed {
            self.timestamps.extend_from_slice(&batch.timestamps[start..end]);
        }
    }

    /// Takes back what the record at a position has sent since it was last flushed.
    pub(crate) fn undo(&mut self, batch: &Batch, position: u32) {
        let records = self.records_before(position);
        if self.values.len() > records {
            self.copy_inherited(batch);
            self.values.truncate(records);
            self.keys.truncate(records);
            self.timestamps.truncate(records);
        }
        self.mark = NO_MARK;
    }

    /// Sends what waits. Says whether the record at a position has sent some of it.
    pub(crate) fn flush(&mut self, batch: &Batch, position: u32) -> bool {
        let records = self.values.len();
        if records == 0 {
            return false;
        }
        let of_position = self.records_before(position) < records;
        let whole = self.inherited == 0 && self.next as usize == records;
        if !whole {
            self.copy_inherited(batch);
        }
        let (keys, timestamps) = if whole { (&batch.keys, &batch.timestamps) } else { (&self.keys, &self.timestamps) };
        let keys = if self.keyed {
            let offsets = &keys.offsets[..=records];
            ColumnParam { data: &keys.data[..offsets[records] as usize], offsets }
        } else {
            ColumnParam { data: &[], offsets: &[] }
        };
        let timestamps = if self.timed { &timestamps[..records] } else { &[] };
        collector::emit(self.id, BatchParam { keys, values: self.values.lent(), timestamps });
        self.discard();
        of_position
    }

    /// Forgets what waits.
    pub(crate) fn discard(&mut self) {
        self.values.clear();
        self.keys.clear();
        self.timestamps.clear();
        self.next = NOTHING_FOLLOWS;
        self.mark = NO_MARK;
    }
}
