//! Maps that outgrew the form of a byte string, and what changes in them while they are frozen.
//!
//! A frozen map is never copied, however large: changes go to a patch, which lies over it until it is merged.

use std::collections::BTreeMap;
use std::collections::btree_map::Range;
use std::iter::Peekable;
use std::ops::Bound;

/// What an entry of a map costs besides its bytes, about: two boxed strings and the node's spare room.
const MAP_ENTRY_OVERHEAD: usize = 64;

/// A string with an allocation of its own.
type Bytes = Box<[u8]>;

/// What an entry costs.
fn cost(key: &[u8], value: &[u8]) -> usize {
    key.len() + value.len() + MAP_ENTRY_OVERHEAD
}

/// A map that outgrew the form of a byte string.
#[derive(Clone, Debug, Default)]
pub(super) struct EntryMap {
    entries: BTreeMap<Bytes, Bytes>,
    bytes: usize,
}

impl EntryMap {
    /// The number of entries.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// What the entries cost.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Sets an entry.
    pub(super) fn insert(&mut self, key: &[u8], value: &[u8]) {
        match self.entries.get_mut(key) {
            Some(before) => {
                self.bytes = self.bytes + value.len() - before.len();
                *before = value.into();
            }
            None => {
                self.bytes += cost(key, value);
                self.entries.insert(key.into(), value.into());
            }
        }
    }

    /// Removes an entry.
    pub(super) fn remove(&mut self, key: &[u8]) {
        if let Some(value) = self.entries.remove(key) {
            self.bytes -= cost(key, &value);
        }
    }

    /// Sets an entry, or removes it when there is no value.
    pub(super) fn write(&mut self, key: &[u8], value: Option<&[u8]>) {
        match value {
            Some(value) => self.insert(key, value),
            None => self.remove(key),
        }
    }
}

/// Entries that were set, or removed, in a map that lies below.
#[derive(Clone, Debug)]
pub(super) struct EntryPatch {
    changed: BTreeMap<Bytes, Option<Bytes>>,
    /// The number of entries that the map has with this patch and those below.
    len: usize,
    /// What they cost.
    bytes: usize,
}

impl EntryPatch {
    /// A patch over a map as it is now.
    pub(super) fn over(below: &PatchedMap<'_>) -> Self {
        Self { changed: BTreeMap::new(), len: below.len(), bytes: below.bytes() }
    }

    /// Whether the map has no entries with this patch and those below.
    pub(super) fn leaves_nothing(&self) -> bool {
        self.len == 0
    }

    /// What the entries of the map cost with this patch and those below.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether the patch changes nothing.
    pub(super) fn is_spent(&self) -> bool {
        self.changed.is_empty()
    }

    /// Takes note that an entry of the map became `value` and was `before`, without keeping the change.
    pub(super) fn count(&mut self, key: &[u8], before: Option<usize>, value: Option<&[u8]>) {
        if let Some(before) = before {
            self.len -= 1;
            self.bytes -= key.len() + before + MAP_ENTRY_OVERHEAD;
        }
        if let Some(value) = value {
            self.len += 1;
            self.bytes += cost(key, value);
        }
    }

    /// Keeps a change.
    pub(super) fn change(&mut self, key: &[u8], value: Option<&[u8]>) {
        match self.changed.get_mut(key) {
            Some(change) => *change = value.map(Bytes::from),
            None => drop(self.changed.insert(key.into(), value.map(Bytes::from))),
        }
    }

    /// Forgets a change.
    pub(super) fn forget(&mut self, key: &[u8]) {
        self.changed.remove(key);
    }

    /// Moves at most `most` changes to the map below and returns how many.
    pub(super) fn drain_into(&mut self, map: &mut EntryMap, most: usize) -> usize {
        for moved in 0..most {
            let Some((key, value)) = self.changed.pop_first() else { return moved };
            map.write(&key, value.as_deref());
        }
        most
    }

    /// Becomes this patch and one above it in one.
    pub(super) fn absorb(&mut self, above: Self) {
        self.changed.extend(above.changed);
        (self.len, self.bytes) = (above.len, above.bytes);
    }
}

/// A map with the patches that lie over it.
#[derive(Clone, Debug)]
pub(super) struct PatchedMap<'a> {
    pub(super) map: &'a EntryMap,
    /// The newest first.
    pub(super) patches: Vec<&'a EntryPatch>,
}

impl<'a> PatchedMap<'a> {
    /// The number of entries.
    pub(super) fn len(&self) -> usize {
        self.patches.first().map_or(self.map.len(), |newest| newest.len)
    }

    /// What the entries cost.
    pub(super) fn bytes(&self) -> usize {
        self.patches.first().map_or(self.map.bytes(), |newest| newest.bytes)
    }

    /// The value of an entry.
    pub(super) fn get(&self, key: &[u8]) -> Option<&'a [u8]> {
        let change = self.patches.iter().find_map(|patch| patch.changed.get(key));
        match change {
            Some(change) => change.as_deref(),
            None => self.map.entries.get(key).map(|value| &**value),
        }
    }

    /// The entries between two bounds in the order of their keys.
    pub(super) fn range(&self, start: Bound<&[u8]>, end: Bound<&[u8]>) -> PatchedEntries<'a> {
        let patches = self.patches.iter();
        PatchedEntries {
            entries: self.map.entries.range::<[u8], _>((start, end)).peekable(),
            changes: patches.map(|patch| patch.changed.range::<[u8], _>((start, end)).peekable()).collect(),
        }
    }
}

/// Changes of one patch.
type Changes<'a> = Peekable<Range<'a, Bytes, Option<Bytes>>>;

/// Entries of a map with its patches in the order of their keys.
#[derive(Debug)]
pub(super) struct PatchedEntries<'a> {
    entries: Peekable<Range<'a, Bytes, Bytes>>,
    /// Those of the newest patch first.
    changes: Vec<Changes<'a>>,
}

impl<'a> Iterator for PatchedEntries<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let heads = self.changes.iter_mut().filter_map(|changes| changes.peek().map(|change| &**change.0));
            let changed = heads.min();
            let entry = self.entries.peek().map(|entry| &**entry.0);
            let key = match (changed, entry) {
                (None, None) => return None,
                (None, Some(_)) => return self.entries.next().map(|(key, value)| (&**key, &**value)),
                (Some(key), None) => key,
                (Some(changed), Some(entry)) => changed.min(entry),
            };
            // The newest says what counts; the others pass the key by.
            let mut value = self.entries.next_if(|entry| **entry.0 == *key).map(|(_, value)| &**value);
            for changes in self.changes.iter_mut().rev() {
                if let Some((_, change)) = changes.next_if(|change| **change.0 == *key) {
                    value = change.as_deref();
                }
            }
            if let Some(value) = value {
                return Some((key, value));
            }
        }
    }
}
