//! Byte strings end to end, each behind its length: how a list, and a map of few entries, is one byte string.
//!
//! A map is its keys and values in turn, in the order of the keys.

use std::ops::Range;

/// Appends a string with its length.
pub(crate) fn push(out: &mut Vec<u8>, string: &[u8]) {
    let mut len = string.len();
    while len >= 0x80 {
        out.push((len & 0x7f) as u8 | 0x80);
        len >>= 7;
    }
    out.push(len as u8);
    out.extend_from_slice(string);
}

/// The bytes of a string with its length.
pub(crate) fn framed_len(string: &[u8]) -> usize {
    let bits = usize::BITS - (string.len() | 1).leading_zeros();
    bits.div_ceil(7) as usize + string.len()
}

/// The strings of a sequence.
#[derive(Clone, Debug)]
pub(crate) struct Frames<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for Frames<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.0.is_empty() {
            return None;
        }
        let (mut len, mut shift, mut read) = (0, 0, 0);
        loop {
            let byte = self.0[read];
            read += 1;
            len |= usize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                break;
            }
        }
        let (string, rest) = self.0[read..].split_at(len);
        self.0 = rest;
        Some(string)
    }
}

/// Strings end to end that are known to be well formed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Framed<'a>(&'a [u8]);

impl<'a> Framed<'a> {
    /// Strings that this process has framed itself.
    pub(crate) fn trusted(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Strings from elsewhere, if they are well formed.
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        count(bytes).map(|_| Self(bytes))
    }

    /// The strings.
    pub fn strings(self) -> impl Iterator<Item = &'a [u8]> {
        Frames(self.0)
    }

    /// The strings with their lengths.
    #[must_use]
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }
}

/// Takes the first string off, unless there is none that is well formed.
pub(crate) fn split<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (mut len, mut shift) = (0u64, 0);
    let mut rest = *bytes;
    loop {
        let (&byte, behind) = rest.split_first()?;
        rest = behind;
        len |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 {
            break;
        }
        if shift > 35 {
            return None;
        }
    }
    let (string, rest) = rest.split_at_checked(usize::try_from(len).ok()?)?;
    *bytes = rest;
    Some(string)
}

/// The number of strings, unless they are not well formed.
pub(crate) fn count(mut strings: &[u8]) -> Option<usize> {
    let mut count = 0;
    while !strings.is_empty() {
        split(&mut strings)?;
        count += 1;
    }
    Some(count)
}

/// As many of the first strings as have at most `most` bytes, lengths included.
pub(crate) fn fitting(strings: &[u8], most: usize) -> &[u8] {
    if strings.len() <= most {
        return strings;
    }
    let mut rest = Frames(strings);
    let mut end = 0;
    while rest.next().is_some() && strings.len() - rest.0.len() <= most {
        end = strings.len() - rest.0.len();
    }
    &strings[..end]
}

/// The same, but one string at least, if there is one.
pub(crate) fn prefix(strings: &[u8], most: usize) -> &[u8] {
    let fitting = fitting(strings, most);
    if !fitting.is_empty() || strings.is_empty() {
        return fitting;
    }
    let mut rest = Frames(strings);
    rest.next();
    &strings[..strings.len() - rest.0.len()]
}

/// The entries of a map.
#[derive(Clone, Debug)]
pub(crate) struct Entries<'a>(pub(crate) Frames<'a>);

impl<'a> Iterator for Entries<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let key = self.0.next()?;
        Some((key, self.0.next().expect("each key has a value")))
    }
}

/// The entries of a map.
pub(crate) fn entries(map: &[u8]) -> Entries<'_> {
    Entries(Frames(map))
}

/// The value of a key in a map.
pub(crate) fn find<'a>(map: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    entries(map).find(|entry| entry.0 >= key).filter(|entry| entry.0 == key).map(|entry| entry.1)
}

/// Writes to `out` the map with one entry set, or removed when there is no value.
pub(crate) fn edit(map: &[u8], key: &[u8], value: Option<&[u8]>, out: &mut Vec<u8>) {
    let gap = place(map, key);
    out.clear();
    out.extend_from_slice(&map[..gap.start]);
    if let Some(value) = value {
        push(out, key);
        push(out, value);
    }
    out.extend_from_slice(&map[gap.end..]);
}

/// Where the entry of a key is, or the empty range where it would be.
fn place(map: &[u8], key: &[u8]) -> Range<usize> {
    let mut rest = entries(map);
    loop {
        let start = map.len() - rest.0.0.len();
        match rest.next() {
            Some((found, _)) if found < key => {}
            Some((found, _)) if found == key => return start..map.len() - rest.0.0.len(),
            _ => return start..start,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// What is pushed is what is read, at any length.
        #[test]
        fn strings_come_back(lengths in proptest::collection::vec(0usize..20_000, 0..5)) {
            let strings: Vec<Vec<u8>> = lengths.iter().map(|&len| vec![7; len]).collect();
            let mut out = Vec::new();
            strings.iter().for_each(|string| push(&mut out, string));
            prop_assert_eq!(out.len(), strings.iter().map(|string| framed_len(string)).sum::<usize>());
            prop_assert_eq!(Framed::parse(&out).map(|framed| framed.strings().count()), Some(strings.len()));
            prop_assert_eq!(Frames(&out).map(<[u8]>::to_vec).collect::<Vec<_>>(), strings);
        }

        /// Edits are those of a sorted map.
        #[test]
        fn edits_are_those_of_a_map(edits: Vec<(Vec<u8>, Option<Vec<u8>>)>) {
            let (mut map, mut model) = (Vec::new(), BTreeMap::new());
            for (key, value) in edits {
                let mut out = Vec::new();
                edit(&map, &key, value.as_deref(), &mut out);
                map = out;
                match value {
                    Some(value) => model.insert(key.clone(), value),
                    None => model.remove(&key),
                };
                prop_assert_eq!(find(&map, &key), model.get(&key).map(Vec::as_slice));
            }
            let all: Vec<_> = entries(&map).map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
            prop_assert_eq!(all, model.into_iter().collect::<Vec<_>>());
        }
    }
}
