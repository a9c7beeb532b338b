//! Byte strings end to end, each behind its length: how a list, and a map of few entries, is one byte string.
//!
//! A map is its keys and values in turn, in the order of the keys.

use std::ops::Range;

/// Appends a string with its length.
pub(super) fn push(out: &mut Vec<u8>, string: &[u8]) {
    let mut len = string.len();
    while len >= 0x80 {
        out.push((len & 0x7f) as u8 | 0x80);
        len >>= 7;
    }
    out.push(len as u8);
    out.extend_from_slice(string);
}

/// The strings of a sequence.
#[derive(Clone, Debug)]
pub(super) struct Frames<'a>(pub(super) &'a [u8]);

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

/// The entries of a map.
#[derive(Clone, Debug)]
pub(super) struct Entries<'a>(pub(super) Frames<'a>);

impl<'a> Iterator for Entries<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let key = self.0.next()?;
        Some((key, self.0.next().expect("each key has a value")))
    }
}

/// The entries of a map.
pub(super) fn entries(map: &[u8]) -> Entries<'_> {
    Entries(Frames(map))
}

/// The value of a key in a map.
pub(super) fn find<'a>(map: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    entries(map).find(|entry| entry.0 >= key).filter(|entry| entry.0 == key).map(|entry| entry.1)
}

/// Writes to `out` the map with one entry set, or removed when there is no value.
pub(super) fn edit(map: &[u8], key: &[u8], value: Option<&[u8]>, out: &mut Vec<u8>) {
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
