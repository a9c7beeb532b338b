//! Keys of one key group in one state: tables that split as they grow.
//!
//! Extendible hashing: a directory maps the upper bits of a key's side to a table, and a table that is full is dealt
//! out to two by one more bit. So growing costs at most the copy of one small table at a time, however large the group.

use super::table::{Handle, Hash, Table};

/// The most keys of a table, unless their hashes are too much alike.
const MOST_KEYS: usize = 4096;

/// The most bytes of small records in a table, unless the hashes of their keys are too much alike.
const MOST_SMALL_BYTES: usize = 1 << 20;

/// The most tables that room is made for before there are keys.
const MOST_TABLES_AT_ONCE: usize = 1 << 16;

/// How much larger a directory may be than an even spread of the keys would have it. Keys made to collide end up in a
/// large table, not in a directory without end.
const MOST_SKEW: usize = 64;

/// The keys that room is made for per table when their number is known: so few that hardly a table splits at once.
const EXPECTED_KEYS: usize = MOST_KEYS / 4 * 3;

/// The same for bytes.
const EXPECTED_SMALL_BYTES: usize = MOST_SMALL_BYTES / 4 * 3;

/// The bytes that a table of a layer makes room for at a time, at least.
const LAYER_CHUNK: usize = 4 << 10;

/// Keys and what is said about each.
#[derive(Debug)]
pub(super) struct Tables {
    pub(super) tables: Vec<Table>,
    /// The table of each value of the `depth` upper bits of a side.
    directory: Vec<u32>,
    depth: u32,
}

impl Default for Tables {
    fn default() -> Self {
        Self { tables: vec![Table::default()], directory: vec![0], depth: 0 }
    }
}

impl Tables {
    /// The position of the table of a key.
    #[inline]
    pub(super) fn table_of(&self, hash: Hash) -> u32 {
        self.directory[(u64::from(hash.side) >> (u32::BITS - self.depth)) as usize]
    }

    /// Empty tables with room for so many keys with so many bytes in all.
    pub(super) fn with_room(keys: usize, bytes: usize) -> Self {
        let count = (keys / EXPECTED_KEYS).max(bytes / EXPECTED_SMALL_BYTES).clamp(1, MOST_TABLES_AT_ONCE);
        let depth = count.next_power_of_two().ilog2();
        let (keys, bytes) = (keys.min(count * MOST_KEYS) >> depth, bytes.min(count * MOST_SMALL_BYTES) >> depth);
        let tables = (0..1 << depth).map(|_| Table::with_room(depth, keys + keys / 16, bytes + bytes / 16)).collect();
        Self { tables, directory: (0..1 << depth).collect(), depth }
    }

    /// Empty tables among which keys are dealt out as among these: a layer over them that takes as many keys as they have
    /// hardly ever splits, and is merged table by table.
    pub(super) fn same_shape(&self) -> Self {
        let tables = self.tables.iter().map(|table| Table::with_room(table.depth, 0, LAYER_CHUNK)).collect();
        Self { tables, directory: self.directory.clone(), depth: self.depth }
    }

    /// The number of keys. Looks at every table.
    pub(super) fn len(&self) -> usize {
        self.tables.iter().map(Table::len).sum()
    }

    /// Whether nothing is said about any key.
    pub(super) fn is_empty(&self) -> bool {
        self.tables.iter().all(|table| table.len() == 0)
    }

    /// The table and the record of a key.
    #[inline]
    pub(super) fn find(&self, hash: Hash, key: &[u8]) -> Option<(u32, Handle)> {
        let table = self.table_of(hash);
        self.tables[table as usize].find(hash.tag, key).map(|handle| (table, handle))
    }

    /// Removes what is said about a key. Leaves the place to whatever comes next: nothing is compacted.
    pub(super) fn forget(&mut self, hash: Hash, key: &[u8]) {
        if let Some((table, handle)) = self.find(hash, key) {
            self.tables[table as usize].remove(handle, hash.tag);
        }
    }

    /// Splits or compacts a table that was written to, if it is time. Returns whether records moved.
    #[inline]
    pub(super) fn settle(&mut self, table: u32) -> bool {
        let written = &mut self.tables[table as usize];
        if written.len() > MOST_KEYS || written.small_bytes() > MOST_SMALL_BYTES {
            return self.split(table);
        }
        if written.is_wasteful() {
            written.compact();
            return true;
        }
        false
    }

    /// Splits a table, unless the keys are too much alike for that.
    fn split(&mut self, table: u32) -> bool {
        let position = table as usize;
        let depth = self.tables[position].depth;
        if depth == self.depth {
            let even = self.len() / MOST_KEYS + 1;
            if self.depth == u32::BITS || self.directory.len() * 2 > even * MOST_SKEW {
                return false;
            }
            self.directory = self.directory.iter().flat_map(|&table| [table, table]).collect();
            self.depth += 1;
        }
        let new = self.tables[position].split();
        let new_position = u32::try_from(self.tables.len()).expect("far fewer than 2^32 tables");
        self.tables.push(new);
        for (bits, entry) in self.directory.iter_mut().enumerate() {
            if *entry == table && bits >> (self.depth - depth - 1) & 1 == 1 {
                *entry = new_position;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::Stored;
    use super::*;
    use crate::random::Random;

    fn insert(group: &mut Tables, key: u64, hash: Hash, value: &[u8]) {
        let table = group.table_of(hash);
        let found = group.tables[table as usize].find(hash.tag, &key.to_le_bytes());
        group.tables[table as usize].set(found, hash, &key.to_le_bytes(), value);
        group.settle(table);
    }

    fn holds(group: &Tables, key: u64, hash: Hash, value: &[u8]) -> bool {
        let table = &group.tables[group.table_of(hash) as usize];
        let found = table.find(hash.tag, &key.to_le_bytes());
        found.is_some_and(|handle| matches!(table.record(handle).1, Stored::Bytes(bytes) if bytes == value))
    }

    /// Splitting keeps every key, small records and large ones, and keeps tables small.
    #[test]
    fn splits_keep_every_key() {
        let mut group = Tables::default();
        let mut random = Random::new(1);
        let keys: Vec<(u64, Hash)> = (0..60_000).map(|key| (key, random.next_u64().into())).collect();
        let value = |key: u64| vec![key as u8; if key.is_multiple_of(1000) { 5000 } else { key as usize % 50 }];
        keys.iter().for_each(|&(key, hash)| insert(&mut group, key, hash, &value(key)));
        assert_eq!(group.len(), keys.len());
        assert!(group.tables.len() >= keys.len() / MOST_KEYS);
        assert!(group.tables.iter().all(|table| table.len() <= MOST_KEYS));
        assert!(keys.iter().all(|&(key, hash)| holds(&group, key, hash, &value(key))));
    }

    /// Removing, growing and shrinking records leaves the others alone, and what it frees is given back.
    #[test]
    fn compacting_keeps_every_key() {
        let mut group = Tables::default();
        let mut random = Random::new(2);
        let keys: Vec<(u64, Hash)> = (0..3000).map(|key| (key, random.next_u64().into())).collect();
        let value = |key: u64, round: u64| vec![(key + round) as u8; ((key * 7 + round * 131) % 700) as usize];
        let mut compacted = false;
        for round in 0..20 {
            for &(key, hash) in &keys {
                insert(&mut group, key, hash, &value(key, round));
            }
            assert!(keys.iter().all(|&(key, hash)| holds(&group, key, hash, &value(key, round))));
        }
        let (gone, kept) = keys.split_at(2900);
        for &(key, hash) in gone {
            let position = group.table_of(hash);
            let table = &mut group.tables[position as usize];
            let handle = table.find(hash.tag, &key.to_le_bytes()).unwrap();
            assert!(table.remove(handle, hash.tag) < 0);
            compacted |= group.settle(position);
        }
        assert!(compacted);
        assert_eq!(group.len(), kept.len());
        assert!(gone.iter().all(|&(key, hash)| !holds(&group, key, hash, &value(key, 19))));
        assert!(kept.iter().all(|&(key, hash)| holds(&group, key, hash, &value(key, 19))));
    }

    /// Keys whose hashes collide, as a hostile tenant might make them, share a table and cost no endless directory.
    #[test]
    fn colliding_keys_stay_together() {
        let mut group = Tables::default();
        let hash = |key: u64| Hash { tag: key as u32, side: 7 };
        (0..6000).for_each(|key| insert(&mut group, key, hash(key), b"v"));
        assert_eq!(group.len(), 6000);
        assert!(group.directory.len() <= 2 * MOST_SKEW);
        assert!((0..6000).all(|key| holds(&group, key, hash(key), b"v")));
    }
}
