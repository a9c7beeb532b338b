//! Columns: byte strings laid end to end.
//!
//! The same shape as `column`, `optional-column` and `lists` of the operator contract, so that crossing into a guest is
//! a copy of two slices. Whatever comes from outside the host passes through `from_parts`, which checks it; inside,
//! every column holds its invariant: offsets start at 0, never fall, and end at the length of the data.

/// Byte strings laid end to end: string `i` is `data[offsets[i]..offsets[i + 1]]`.
#[derive(Clone, Debug, Default)]
pub struct Column {
    data: Vec<u8>,
    /// One more than there are strings, or none at all.
    offsets: Vec<u32>,
}

/// What is wrong with the parts of a column that came from outside.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MalformedColumn {
    /// Offsets must start at 0.
    #[error("offsets start at {first}, not at 0")]
    Start {
        /// The first offset.
        first: u32,
    },
    /// Offsets must never fall.
    #[error("offset {position} falls from {before} to {after}")]
    Falling {
        /// The position of the lower offset.
        position: usize,
        /// The offset before it.
        before: u32,
        /// The lower offset.
        after: u32,
    },
    /// The last offset must be the length of the data.
    #[error("the last offset is {last}, but there are {bytes} bytes")]
    End {
        /// The last offset, 0 when there are none.
        last: u32,
        /// The length of the data.
        bytes: usize,
    },
    /// Missing positions must rise and lie within the column.
    #[error("missing position {position} of {len} strings is out of range or out of order")]
    Missing {
        /// The offending position.
        position: u32,
        /// The number of strings.
        len: usize,
    },
}

/// Checks what offsets and bounds have in common: first 0, never falling, last equal to `end`; or nothing at all.
fn check_offsets(offsets: &[u32], end: usize) -> Result<(), MalformedColumn> {
    let (Some(&first), Some(&last)) = (offsets.first(), offsets.last()) else {
        return if end == 0 { Ok(()) } else { Err(MalformedColumn::End { last: 0, bytes: end }) };
    };
    if first != 0 {
        return Err(MalformedColumn::Start { first });
    }
    // One pass without a branch per element, so that it vectorises; the slow search runs only when it fails.
    if !offsets.windows(2).fold(true, |rising, pair| rising & (pair[0] <= pair[1])) {
        let position = offsets.windows(2).position(|pair| pair[0] > pair[1]).expect("a fall was seen") + 1;
        return Err(MalformedColumn::Falling { position, before: offsets[position - 1], after: offsets[position] });
    }
    if last as usize != end {
        return Err(MalformedColumn::End { last, bytes: end });
    }
    Ok(())
}

impl Column {
    /// A column without strings.
    #[must_use]
    pub const fn new() -> Self {
        Self { data: Vec::new(), offsets: Vec::new() }
    }

    /// A column without strings and with room for `strings` of them with `bytes` in all.
    #[must_use]
    pub fn with_capacity(strings: usize, bytes: usize) -> Self {
        Self { data: Vec::with_capacity(bytes), offsets: Vec::with_capacity(strings + 1) }
    }

    /// Makes a column of parts from outside the host.
    ///
    /// # Errors
    /// When the offsets do not describe the data.
    pub fn from_parts(data: Vec<u8>, offsets: Vec<u32>) -> Result<Self, MalformedColumn> {
        check_offsets(&offsets, data.len())?;
        Ok(Self { data, offsets })
    }

    /// Takes the place of this column's content with a copy of parts from outside the host, reusing its buffers.
    ///
    /// # Errors
    /// When the offsets do not describe the data; the column is empty then.
    pub fn assign_parts(&mut self, data: &[u8], offsets: &[u32]) -> Result<(), MalformedColumn> {
        self.clear();
        check_offsets(offsets, data.len())?;
        self.data.extend_from_slice(data);
        self.offsets.extend_from_slice(offsets);
        Ok(())
    }

    /// The number of strings.
    #[must_use]
    pub fn len(&self) -> usize {
        self.offsets.len().saturating_sub(1)
    }

    /// Whether there are no strings.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.offsets.len() < 2
    }

    /// The bytes of all strings.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// Where each string starts, then where the last one ends; or nothing.
    #[must_use]
    pub fn offsets(&self) -> &[u32] {
        &self.offsets
    }

    /// The data and the offsets, as [`Column::from_parts`] takes them.
    #[must_use]
    pub fn into_parts(self) -> (Vec<u8>, Vec<u32>) {
        (self.data, self.offsets)
    }

    /// String `index`.
    ///
    /// # Panics
    /// When there is no such string.
    #[inline]
    #[must_use]
    pub fn get(&self, index: usize) -> &[u8] {
        &self.data[self.offsets[index] as usize..self.offsets[index + 1] as usize]
    }

    /// All strings in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> + '_ {
        self.offsets.windows(2).map(|pair| &self.data[pair[0] as usize..pair[1] as usize])
    }

    /// Appends a string.
    ///
    /// # Panics
    /// When the column would pass 4 GiB; batches are bounded far below that.
    #[inline]
    pub fn push(&mut self, string: &[u8]) {
        if self.offsets.is_empty() {
            self.offsets.push(0);
        }
        self.data.extend_from_slice(string);
        self.offsets.push(offset(self.data.len()));
    }

    /// Appends strings `range` of another column.
    ///
    /// # Panics
    /// When there are no such strings, or the column would pass 4 GiB.
    pub fn extend_range(&mut self, other: &Self, range: std::ops::Range<usize>) {
        if range.is_empty() {
            return;
        }
        let (start, end) = (other.offsets[range.start], other.offsets[range.end]);
        if self.offsets.is_empty() {
            self.offsets.push(0);
        }
        let base = offset(self.data.len());
        self.data.extend_from_slice(&other.data[start as usize..end as usize]);
        offset(self.data.len());
        self.offsets.extend(other.offsets[range.start + 1..=range.end].iter().map(|at| at - start + base));
    }

    /// Removes all strings and keeps the buffers.
    pub fn clear(&mut self) {
        self.data.clear();
        self.offsets.clear();
    }

    /// The bytes that the strings and their offsets take.
    #[must_use]
    pub fn byte_size(&self) -> usize {
        self.data.len() + self.offsets.len() * size_of::<u32>()
    }
}

fn offset(len: usize) -> u32 {
    u32::try_from(len).expect("a column stays below 4 GiB")
}

impl PartialEq for Column {
    /// No offsets and a lone 0 both mean no strings.
    fn eq(&self, other: &Self) -> bool {
        self.data == other.data && (self.offsets == other.offsets || (self.is_empty() && other.is_empty()))
    }
}

impl Eq for Column {}

impl<S: AsRef<[u8]>> FromIterator<S> for Column {
    fn from_iter<I: IntoIterator<Item = S>>(strings: I) -> Self {
        let mut column = Self::new();
        strings.into_iter().for_each(|string| column.push(string.as_ref()));
        column
    }
}

/// Byte strings that may be missing. A missing string is not an empty one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OptionalColumn {
    values: Column,
    /// The positions that are missing, rising. Mostly none.
    missing: Vec<u32>,
}

impl OptionalColumn {
    /// A column without strings.
    #[must_use]
    pub const fn new() -> Self {
        Self { values: Column::new(), missing: Vec::new() }
    }

    /// Makes an optional column of parts from outside the host.
    ///
    /// # Errors
    /// When a missing position is out of range, or the positions do not rise.
    pub fn from_parts(values: Column, missing: Vec<u32>) -> Result<Self, MalformedColumn> {
        let mut next = 0;
        for &position in &missing {
            if position < next || position as usize >= values.len() {
                return Err(MalformedColumn::Missing { position, len: values.len() });
            }
            next = position + 1;
        }
        Ok(Self { values, missing })
    }

    /// The number of positions, missing ones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there are no positions.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// One string per position, empty where it is missing.
    #[must_use]
    pub fn values(&self) -> &Column {
        &self.values
    }

    /// The positions that are missing, rising.
    #[must_use]
    pub fn missing(&self) -> &[u32] {
        &self.missing
    }

    /// The values and the missing positions, as [`OptionalColumn::from_parts`] takes them.
    #[must_use]
    pub fn into_parts(self) -> (Column, Vec<u32>) {
        (self.values, self.missing)
    }

    /// Appends a string or the lack of one.
    #[inline]
    pub fn push(&mut self, string: Option<&[u8]>) {
        if string.is_none() {
            self.missing.push(offset(self.values.len()));
        }
        self.values.push(string.unwrap_or_default());
    }

    /// The string at `index`, if it is not missing. For single looks; loops use [`OptionalColumn::iter`].
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let present = self.missing.is_empty() || self.missing.binary_search(&offset(index)).is_err();
        present.then(|| self.values.get(index))
    }

    /// All positions in order.
    pub fn iter(&self) -> impl Iterator<Item = Option<&[u8]>> + '_ {
        let mut missing = self.missing.iter().copied().peekable();
        self.values.iter().enumerate().map(move |(index, value)| {
            missing.next_if(|&position| position as usize == index).is_none().then_some(value)
        })
    }

    /// Removes all strings and keeps the buffers.
    pub fn clear(&mut self) {
        self.values.clear();
        self.missing.clear();
    }
}

impl<S: AsRef<[u8]>> FromIterator<Option<S>> for OptionalColumn {
    fn from_iter<I: IntoIterator<Item = Option<S>>>(strings: I) -> Self {
        let mut column = Self::new();
        strings.into_iter().for_each(|string| column.push(string.as_ref().map(AsRef::as_ref)));
        column
    }
}

/// Lists of byte strings end to end: list `i` is strings `bounds[i]` to `bounds[i + 1]`, the latter not included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lists {
    /// One more than there are lists, or none at all.
    bounds: Vec<u32>,
    items: Column,
}

impl Lists {
    /// No lists.
    #[must_use]
    pub const fn new() -> Self {
        Self { bounds: Vec::new(), items: Column::new() }
    }

    /// Makes lists of parts from outside the host.
    ///
    /// # Errors
    /// When the bounds do not describe the items.
    pub fn from_parts(bounds: Vec<u32>, items: Column) -> Result<Self, MalformedColumn> {
        check_offsets(&bounds, items.len())?;
        Ok(Self { bounds, items })
    }

    /// The bounds and the items, as [`Lists::from_parts`] takes them.
    #[must_use]
    pub fn into_parts(self) -> (Vec<u32>, Column) {
        (self.bounds, self.items)
    }

    /// The number of lists.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bounds.len().saturating_sub(1)
    }

    /// Whether there are no lists.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where each list starts, then where the last one ends; or nothing.
    #[must_use]
    pub fn bounds(&self) -> &[u32] {
        &self.bounds
    }

    /// The strings of all lists.
    #[must_use]
    pub fn items(&self) -> &Column {
        &self.items
    }

    /// The strings of list `index`.
    ///
    /// # Panics
    /// When there is no such list.
    pub fn get(&self, index: usize) -> impl ExactSizeIterator<Item = &[u8]> + '_ {
        (self.bounds[index] as usize..self.bounds[index + 1] as usize).map(|item| self.items.get(item))
    }

    /// Appends a list.
    pub fn push<S: AsRef<[u8]>>(&mut self, list: impl IntoIterator<Item = S>) {
        if self.bounds.is_empty() {
            self.bounds.push(0);
        }
        list.into_iter().for_each(|item| self.items.push(item.as_ref()));
        self.bounds.push(offset(self.items.len()));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// What is pushed is what is read, whatever the strings are.
        #[test]
        fn strings_come_back(strings: Vec<Option<Vec<u8>>>) {
            let column: OptionalColumn = strings.iter().cloned().collect();
            let back: Vec<Option<Vec<u8>>> = column.iter().map(|string| string.map(<[u8]>::to_vec)).collect();
            prop_assert_eq!(&back, &strings);
            for (index, string) in strings.iter().enumerate() {
                prop_assert_eq!(column.get(index), string.as_deref());
            }
            let checked = OptionalColumn::from_parts(column.values().clone(), column.missing().to_vec());
            prop_assert_eq!(checked, Ok(column));
        }

        /// Appending ranges of a column in order gives the column.
        #[test]
        fn ranges_join(strings: Vec<Vec<u8>>, cut in 0usize..20) {
            let whole: Column = strings.iter().collect();
            let cut = cut.min(whole.len());
            let mut joined = Column::new();
            joined.extend_range(&whole, 0..cut);
            joined.extend_range(&whole, cut..whole.len());
            prop_assert_eq!(joined, whole);
        }
    }

    #[test]
    fn malformed_parts_are_refused() {
        let parts = |data: &[u8], offsets: &[u32]| Column::from_parts(data.to_vec(), offsets.to_vec()).map(|_| ());
        assert_eq!(parts(b"", &[]), Ok(()));
        assert_eq!(parts(b"", &[0]), Ok(()));
        assert_eq!(parts(b"ab", &[0, 1, 2]), Ok(()));
        assert_eq!(parts(b"a", &[]), Err(MalformedColumn::End { last: 0, bytes: 1 }));
        assert_eq!(parts(b"ab", &[1, 2]), Err(MalformedColumn::Start { first: 1 }));
        assert_eq!(parts(b"ab", &[0, 2, 1]), Err(MalformedColumn::Falling { position: 2, before: 2, after: 1 }));
        assert_eq!(parts(b"ab", &[0, 3]), Err(MalformedColumn::End { last: 3, bytes: 2 }));
        let values: Column = ["a", "b"].iter().collect();
        for missing in [vec![2], vec![1, 0], vec![0, 0]] {
            assert!(OptionalColumn::from_parts(values.clone(), missing).is_err());
        }
        assert!(Lists::from_parts(vec![0, 3], values.clone()).is_err());
        assert!(Lists::from_parts(vec![0, 0, 2], values).is_ok());
    }
}
