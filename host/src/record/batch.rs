//! Batches: records in columns.
//!
//! A stream is keyed or not, and carries event time or not, as a whole. A batch without keys or timestamps has those
//! columns empty; a record without a key is not a record with key "". The hashes of the keys are computed once, by the
//! output that places the records, and travel with the batch inside the host.

use std::ops::Range;

use super::{Column, MalformedColumn, Timestamp};

/// What the records of a stream carry, as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamShape {
    /// Whether records have keys.
    pub keyed: bool,
    /// Whether records have event times.
    pub timed: bool,
}

impl StreamShape {
    /// What the records have, for people.
    pub(crate) fn describe(self) -> &'static str {
        match (self.keyed, self.timed) {
            (true, true) => "keys and timestamps",
            (true, false) => "keys and no timestamps",
            (false, true) => "timestamps and no keys",
            (false, false) => "neither keys nor timestamps",
        }
    }
}

/// Records, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    keys: Column,
    values: Column,
    timestamps: Vec<Timestamp>,
    /// The placement hash of each key once known, else empty. See `protocol::key_group`.
    hashes: Vec<u64>,
}

/// What is wrong with the parts of a batch that came from outside.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MalformedBatch {
    /// A column is malformed by itself.
    #[error("malformed {column}: {source}")]
    Column {
        /// "keys" or "values".
        column: &'static str,
        /// What is wrong with it.
        source: MalformedColumn,
    },
    /// The columns that are not empty must have one element per record.
    #[error("{values} values come with {found} {column}")]
    Lengths {
        /// "keys" or "timestamps".
        column: &'static str,
        /// The number of values.
        values: usize,
        /// The number of elements of the other column.
        found: usize,
    },
}

impl Batch {
    /// A batch without records.
    #[must_use]
    pub const fn new() -> Self {
        Self { keys: Column::new(), values: Column::new(), timestamps: Vec::new(), hashes: Vec::new() }
    }

    /// Makes a batch of parts from outside the host, whose columns have been checked.
    ///
    /// # Errors
    /// When a part that is not empty has another length than the values.
    pub fn from_columns(keys: Column, values: Column, timestamps: Vec<Timestamp>) -> Result<Self, MalformedBatch> {
        let records = values.len();
        for (column, found) in [("keys", keys.len()), ("timestamps", timestamps.len())] {
            if found != 0 && found != records {
                return Err(MalformedBatch::Lengths { column, values: records, found });
            }
        }
        Ok(Self { keys, values, timestamps, hashes: Vec::new() })
    }

    /// Puts a copy of parts from outside the host in the place of this batch's content, reusing its buffers.
    ///
    /// # Errors
    /// When a column is malformed or the lengths differ; the batch is empty then.
    pub fn assign_parts(
        &mut self,
        keys: (&[u8], &[u32]),
        values: (&[u8], &[u32]),
        timestamps: &[Timestamp],
    ) -> Result<(), MalformedBatch> {
        let mut parts = std::mem::take(self);
        parts.clear();
        let column = |column: &mut Column, name, (data, offsets): (&[u8], &[u32])| {
            column.assign_parts(data, offsets).map_err(|source| MalformedBatch::Column { column: name, source })
        };
        column(&mut parts.keys, "keys", keys)?;
        column(&mut parts.values, "values", values)?;
        parts.timestamps.extend_from_slice(timestamps);
        let hashes = std::mem::take(&mut parts.hashes);
        *self = Self::from_columns(parts.keys, parts.values, parts.timestamps)?;
        self.hashes = hashes;
        Ok(())
    }

    /// The number of records.
    #[must_use]
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there are no records.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The keys; empty when the stream is not keyed.
    #[must_use]
    pub fn keys(&self) -> &Column {
        &self.keys
    }

    /// The values.
    #[must_use]
    pub fn values(&self) -> &Column {
        &self.values
    }

    /// The event times; empty when the stream carries none.
    #[must_use]
    pub fn timestamps(&self) -> &[Timestamp] {
        &self.timestamps
    }

    /// The placement hashes of the keys; empty until [`Batch::set_hashes`].
    #[must_use]
    pub fn hashes(&self) -> &[u64] {
        &self.hashes
    }

    /// Whether the records have keys. False for a batch without records.
    #[must_use]
    pub fn is_keyed(&self) -> bool {
        !self.keys.is_empty()
    }

    /// What the records carry. Nothing for a batch without records.
    #[must_use]
    pub fn shape(&self) -> StreamShape {
        StreamShape { keyed: self.is_keyed(), timed: !self.timestamps.is_empty() }
    }

    /// The key of a record, if the stream is keyed.
    #[must_use]
    pub fn key(&self, record: usize) -> Option<&[u8]> {
        self.is_keyed().then(|| self.keys.get(record))
    }

    /// Computes the hash of every key with `hash`, unless they are known already.
    pub fn set_hashes(&mut self, hash: impl Fn(&[u8]) -> u64) {
        if self.hashes.len() != self.keys.len() {
            self.hashes.clear();
            self.hashes.extend(self.keys.iter().map(hash));
        }
    }

    /// Appends a record. Every record of a batch has a key or none has, and the same for timestamps.
    pub fn push(&mut self, key: Option<&[u8]>, value: &[u8], timestamp: Option<Timestamp>) {
        let records = self.values.len();
        debug_assert!(self.hashes.is_empty(), "records are not pushed behind hashed ones");
        if let Some(key) = key {
            self.keys.push(key);
        }
        self.values.push(value);
        if let Some(timestamp) = timestamp {
            self.timestamps.push(timestamp);
        }
        debug_assert!([0, records + 1].contains(&self.keys.len()), "keyed and unkeyed records do not mix");
        debug_assert!([0, records + 1].contains(&self.timestamps.len()), "timed and untimed records do not mix");
    }

    /// Whether records of `other` can stand behind the records of this batch: both are keyed or neither is, and the
    /// same for timestamps and hashes.
    #[must_use]
    pub fn same_shape(&self, other: &Self) -> bool {
        self.is_empty()
            || other.is_empty()
            || (self.shape() == other.shape() && self.hashes.is_empty() == other.hashes.is_empty())
    }

    /// Appends records `range` of another batch of the same shape.
    pub fn extend_range(&mut self, other: &Self, range: Range<usize>) {
        assert!(self.same_shape(other), "batches of different shapes do not mix");
        if other.is_keyed() {
            self.keys.extend_range(&other.keys, range.clone());
        }
        self.values.extend_range(&other.values, range.clone());
        if !other.timestamps.is_empty() {
            self.timestamps.extend_from_slice(&other.timestamps[range.clone()]);
        }
        if !other.hashes.is_empty() {
            self.hashes.extend_from_slice(&other.hashes[range]);
        }
    }

    /// Appends one record of another batch of the same shape, with its hash.
    #[inline]
    pub fn push_from(&mut self, other: &Self, record: usize) {
        if other.is_keyed() {
            self.keys.push(other.keys.get(record));
        }
        self.values.push(other.values.get(record));
        if let Some(&timestamp) = other.timestamps.get(record) {
            self.timestamps.push(timestamp);
        }
        if let Some(&hash) = other.hashes.get(record) {
            self.hashes.push(hash);
        }
    }

    /// Records `range` as a batch of their own.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Self {
        let mut part = Self::new();
        part.extend_range(self, range);
        part
    }

    /// Removes all records and keeps the buffers.
    pub fn clear(&mut self) {
        self.keys.clear();
        self.values.clear();
        self.timestamps.clear();
        self.hashes.clear();
    }

    /// The bytes that the records take, which is what bounds and budgets count.
    #[must_use]
    pub fn byte_size(&self) -> usize {
        self.keys.byte_size() + self.values.byte_size() + (self.timestamps.len() + self.hashes.len()) * size_of::<u64>()
    }

    /// The bytes of one record, counted like [`Batch::byte_size`].
    #[must_use]
    pub fn record_byte_size(&self, record: usize) -> usize {
        let key = if self.is_keyed() { self.keys.get(record).len() + size_of::<u32>() } else { 0 };
        key + self.values.get(record).len() + size_of::<u32>() + 2 * size_of::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_must_agree() {
        let column = |strings: &[&str]| strings.iter().collect::<Column>();
        assert!(Batch::from_columns(Column::new(), column(&["a"]), vec![]).is_ok());
        assert!(Batch::from_columns(column(&["k"]), column(&["a"]), vec![-1]).is_ok());
        let error = Batch::from_columns(column(&["k"]), column(&["a", "b"]), vec![]).unwrap_err();
        assert_eq!(error, MalformedBatch::Lengths { column: "keys", values: 2, found: 1 });
        let error = Batch::from_columns(Column::new(), column(&["a", "b"]), vec![1]).unwrap_err();
        assert_eq!(error, MalformedBatch::Lengths { column: "timestamps", values: 2, found: 1 });
    }

    #[test]
    fn a_slice_keeps_keys_times_and_hashes() {
        let mut batch = Batch::new();
        for record in 0..5u8 {
            batch.push(Some(&[record]), &[record, record], Some(i64::from(record)));
        }
        batch.set_hashes(|key| u64::from(key[0]) + 100);
        let slice = batch.slice(2..4);
        assert_eq!(slice.len(), 2);
        assert_eq!(slice.key(1), Some(&[3u8][..]));
        assert_eq!(slice.timestamps(), [2, 3]);
        assert_eq!(slice.hashes(), [102, 103]);
        let mut again = Batch::new();
        again.push_from(&batch, 2);
        again.push_from(&batch, 3);
        assert_eq!(again, slice);
    }
}
