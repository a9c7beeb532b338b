//! What an operator receives: records, one by one or as the batch in which they came.

use crate::Error;
use crate::bindings::tidegate::operator::types::{BatchResult, ColumnParam, ColumnResult};

/// Byte strings laid end to end.
#[derive(Debug, Default)]
pub(crate) struct Column {
    pub(crate) data: Vec<u8>,
    /// One more than there are strings, the first 0; or none, for no strings.
    pub(crate) offsets: Vec<u32>,
}

impl Column {
    pub(crate) fn len(&self) -> usize {
        self.offsets.len().saturating_sub(1)
    }

    #[inline]
    pub(crate) fn get(&self, index: usize) -> &[u8] {
        &self.data[self.offsets[index] as usize..self.offsets[index + 1] as usize]
    }

    /// Appends the string that `write` appends to the bytes.
    #[inline]
    pub(crate) fn push_with<R>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        if self.offsets.is_empty() {
            self.offsets.push(0);
        }
        self.push_next_with(write)
    }

    /// The same for a column that has strings already.
    #[inline]
    pub(crate) fn push_next_with<R>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        let result = write(&mut self.data);
        self.offsets.push(u32::try_from(self.data.len()).expect("a column stays below 4 GiB"));
        result
    }

    #[inline]
    pub(crate) fn push(&mut self, string: &[u8]) {
        self.push_with(|data| data.extend_from_slice(string));
    }

    pub(crate) fn truncate(&mut self, strings: usize) {
        if let Some(&end) = self.offsets.get(strings) {
            self.data.truncate(end as usize);
            self.offsets.truncate(strings + 1);
        }
    }

    /// The column as the host takes it.
    pub(crate) fn lent(&self) -> ColumnParam<'_> {
        ColumnParam { data: &self.data, offsets: &self.offsets }
    }

    pub(crate) fn clear(&mut self) {
        self.data.clear();
        self.offsets.clear();
    }

    /// Appends strings `start..end` of another column.
    pub(crate) fn extend_from(&mut self, other: &Column, start: usize, end: usize) {
        if start == end {
            return;
        }
        if self.offsets.is_empty() {
            self.offsets.push(0);
        }
        let (from, to) = (other.offsets[start], other.offsets[end]);
        let base = u32::try_from(self.data.len()).expect("a column stays below 4 GiB");
        self.data.extend_from_slice(&other.data[from as usize..to as usize]);
        self.offsets.extend(other.offsets[start + 1..=end].iter().map(|&offset| base + (offset - from)));
    }
}

impl From<ColumnResult> for Column {
    fn from(column: ColumnResult) -> Self {
        Self { data: column.data, offsets: column.offsets }
    }
}

/// Records of one input, as the host handed them over.
#[derive(Debug, Default)]
pub struct Batch {
    pub(crate) input: u32,
    pub(crate) len: usize,
    /// Without strings when the stream is not keyed.
    pub(crate) keys: Column,
    pub(crate) values: Column,
    /// Empty when the stream carries no event time.
    pub(crate) timestamps: Vec<i64>,
}

impl Batch {
    pub(crate) fn new(input: u32, records: BatchResult) -> Self {
        let BatchResult { keys, values, timestamps } = records;
        let values = Column::from(values);
        Self { input, len: values.len(), keys: keys.into(), values, timestamps }
    }

    /// The number of records.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no records.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether the records have keys.
    #[must_use]
    pub fn is_keyed(&self) -> bool {
        !self.keys.offsets.is_empty()
    }

    /// Whether the records carry event time.
    #[must_use]
    pub fn has_timestamps(&self) -> bool {
        !self.timestamps.is_empty()
    }

    /// The record at a position.
    ///
    /// # Panics
    /// When there are not so many.
    #[must_use]
    #[inline]
    pub fn record(&self, position: usize) -> Record<'_> {
        assert!(position < self.len, "position {position} is out of range: the batch has {} records", self.len);
        Record { batch: self, position }
    }

    /// The records, in order.
    pub fn records(&self) -> impl ExactSizeIterator<Item = Record<'_>> {
        (0..self.len).map(|position| Record { batch: self, position })
    }
}

/// One record.
#[derive(Clone, Copy)]
pub struct Record<'a> {
    batch: &'a Batch,
    position: usize,
}

impl<'a> Record<'a> {
    /// The value.
    #[must_use]
    #[inline]
    pub fn value(&self) -> &'a [u8] {
        self.batch.values.get(self.position)
    }

    /// The value as text.
    ///
    /// # Errors
    /// When it is not UTF-8.
    pub fn text(&self) -> Result<&'a str, Error> {
        let value = self.value();
        str::from_utf8(value)
            .map_err(|error| Error::from(error).context(format_args!("the value \"{}\"", value.escape_ascii())))
    }

    /// The key; none when the stream is not keyed.
    #[must_use]
    #[inline]
    pub fn key(&self) -> Option<&'a [u8]> {
        self.batch.is_keyed().then(|| self.batch.keys.get(self.position))
    }

    /// Event time in milliseconds since 1970; none when the stream carries none.
    #[must_use]
    #[inline]
    pub fn timestamp(&self) -> Option<i64> {
        self.batch.timestamps.get(self.position).copied()
    }

    /// The input that the record came by, from 0 in the order of the job file.
    #[must_use]
    #[inline]
    pub fn input(&self) -> u32 {
        self.batch.input
    }

    /// The position in the batch.
    #[must_use]
    #[inline]
    pub fn position(&self) -> usize {
        self.position
    }
}

impl std::fmt::Debug for Record<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Record")
            .field("key", &self.key().map(|key| key.escape_ascii().to_string()))
            .field("value", &self.value().escape_ascii().to_string())
            .field("timestamp", &self.timestamp())
            .finish_non_exhaustive()
    }
}
