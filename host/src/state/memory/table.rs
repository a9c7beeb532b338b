//! One hash table: some keys of one key group and what they hold.
//!
//! The index holds a tag of 32 hash bits and a handle per key, nothing else, so that it stays in the processor's caches
//! when the records do not. A small record is one block of the arena, key and value side by side; a large one has an
//! allocation of its own, as has a map that outgrew the form of a byte string.
//!
//! Which tag belongs to which key is a matter of a secret, so nothing here may be listed in the order of the index.

use hashbrown::HashTable;

use super::arena::{Address, Arena, LARGEST_BLOCK, block_size};
use super::entry_map::{EntryMap, EntryPatch};

/// What a key costs besides the block of its record: its part of the index.
const ENTRY_OVERHEAD: usize = 12;

/// What a record with an allocation of its own costs besides its bytes, about.
const LARGE_OVERHEAD: usize = 96;

/// The part of a small record in front of the key: side, key length with form, value length.
const HEADER: usize = 8;

/// The bits of the key length in a header; what is above them is the form.
const KEY_LEN_BITS: u32 = 13;

const _: () = assert!(LARGEST_BLOCK < 1 << KEY_LEN_BITS);

/// The remixed hash of a key, in the two halves that serve to different ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hash {
    /// Finds the key in its table.
    pub(super) tag: u32,
    /// Finds the table in its group, by its upper bits.
    pub(super) side: u32,
}

impl From<u64> for Hash {
    #[inline]
    fn from(remixed: u64) -> Self {
        Self { tag: (remixed >> 32) as u32, side: remixed as u32 }
    }
}

/// Where a record is, until the table is compacted or split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Handle(u32);

impl Handle {
    /// The bit that tells large records from small ones.
    const LARGE: u32 = 1 << 31;

    fn small(address: Address) -> Self {
        debug_assert_eq!(address & Self::LARGE, 0);
        Self(address)
    }

    fn large(position: usize) -> Self {
        Self(u32::try_from(position).expect("far fewer than 2^31 large records") | Self::LARGE)
    }

    #[inline]
    fn is_large(self) -> bool {
        self.0 & Self::LARGE != 0
    }

    fn position(self) -> usize {
        (self.0 & !Self::LARGE) as usize
    }
}

/// What a key holds.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stored<'a> {
    /// A value, a list or a map of few entries.
    Bytes(&'a [u8]),
    /// A map of more.
    Map(&'a EntryMap),
}

/// What a record of a layer says about its key.
#[derive(Clone, Copy, Debug)]
pub(super) enum Said<'a> {
    /// The key holds this.
    Whole(Stored<'a>),
    /// The list goes on: this comes behind what lies below.
    More(&'a [u8]),
    /// The map that lies below has these changes.
    Patch(&'a EntryPatch),
    /// The key holds nothing.
    Nothing,
}

/// What a small record says, kept in its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// What the key holds.
    Whole = 0,
    /// What comes behind the list that lies below.
    More = 1,
    /// The key holds nothing.
    Nothing = 2,
}

impl Form {
    #[inline]
    fn of(bits: u16) -> Self {
        match bits {
            0 => Self::Whole,
            1 => Self::More,
            _ => Self::Nothing,
        }
    }
}

#[derive(Clone, Debug)]
struct Entry {
    tag: u32,
    handle: Handle,
}

/// A record with an allocation of its own.
#[derive(Clone, Debug)]
pub(super) struct Large {
    pub(super) side: u32,
    pub(super) key: Box<[u8]>,
    pub(super) content: Content,
}

/// What such a record says.
#[derive(Clone, Debug)]
pub(super) enum Content {
    /// The key holds a value or a list.
    Bytes(Vec<u8>),
    /// The key holds a map.
    Map(EntryMap),
    /// See [`Said::More`].
    More(Vec<u8>),
    /// See [`Said::Patch`].
    Patch(EntryPatch),
    /// See [`Said::Nothing`].
    Nothing,
}

impl Large {
    fn cost(&self) -> usize {
        let content = match &self.content {
            Content::Bytes(bytes) | Content::More(bytes) => bytes.len(),
            Content::Map(map) => map.bytes(),
            Content::Patch(patch) => patch.bytes(),
            Content::Nothing => 0,
        };
        self.key.len() + content + LARGE_OVERHEAD
    }
}

/// What a key costs that holds so many bytes: a value, a list or a map of few entries.
#[inline]
pub(super) fn cost_of_bytes(key: usize, bytes: usize) -> usize {
    let len = HEADER + key + bytes;
    ENTRY_OVERHEAD + if len <= LARGEST_BLOCK { block_size(len) } else { key + bytes + LARGE_OVERHEAD }
}

/// What a key costs that holds a map whose entries cost so many bytes.
pub(super) fn cost_of_map(key: usize, entries: usize) -> usize {
    key + entries + LARGE_OVERHEAD + ENTRY_OVERHEAD
}

/// Some keys of a group and what they hold.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    index: HashTable<Entry>,
    arena: Arena,
    large: Vec<Option<Large>>,
    /// Positions in `large` that are free.
    vacant: Vec<u32>,
    /// How many upper bits of the side all keys share.
    pub(super) depth: u32,
}

/// The index takes the place from the lower bits and its own tag from the uppermost.
#[inline]
fn spread(tag: u32) -> u64 {
    u64::from(tag) << 32 | u64::from(tag)
}

/// The parts of a small record: side, key and value.
#[inline]
fn parse(record: &[u8]) -> (u32, &[u8], &[u8]) {
    let (side, lengths, rest) = header(record);
    let (key, rest) = rest.split_at(lengths.0);
    (side, key, &rest[..lengths.1])
}

#[inline]
fn header(record: &[u8]) -> (u32, (usize, usize), &[u8]) {
    let (header, rest) = read_header(record);
    let key_len = (header >> 32) as u16 & ((1 << KEY_LEN_BITS) - 1);
    (header as u32, (key_len as usize, (header >> 48) as usize), rest)
}

#[inline]
fn form(record: &[u8]) -> Form {
    Form::of((read_header(record).0 >> 32) as u16 >> KEY_LEN_BITS)
}

#[inline]
fn read_header(record: &[u8]) -> (u64, &[u8]) {
    let (header, rest) = record.split_first_chunk::<HEADER>().expect("a record has a header");
    (u64::from_le_bytes(*header), rest)
}

#[inline]
fn write_header(record: &mut [u8], side: u32, form: Form, key: usize, value: usize) {
    let key = key as u64 | (form as u64) << KEY_LEN_BITS;
    let header = u64::from(side) | key << 32 | (value as u64) << 48;
    record[..HEADER].copy_from_slice(&header.to_le_bytes());
}

impl Table {
    /// An empty table with room for so many keys with so many bytes of small records.
    pub(super) fn with_room(depth: u32, keys: usize, bytes: usize) -> Self {
        Self { index: HashTable::with_capacity(keys), arena: Arena::expecting(bytes), depth, ..Self::default() }
    }

    /// The number of keys.
    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    /// The bytes of small records.
    pub(super) fn small_bytes(&self) -> usize {
        self.arena.used_bytes()
    }

    /// The first record with a tag: almost always that of the key that is sought, which remains to be seen. Touches
    /// the index alone.
    #[inline]
    pub(super) fn candidate(&self, tag: u32) -> Option<Handle> {
        self.index.find(spread(tag), |entry| entry.tag == tag).map(|entry| entry.handle)
    }

    /// The record of a key.
    pub(super) fn find(&self, tag: u32, key: &[u8]) -> Option<Handle> {
        let is_it = |entry: &Entry| entry.tag == tag && self.holds(entry.handle, key);
        self.index.find(spread(tag), is_it).map(|entry| entry.handle)
    }

    /// Whether a record is that of a key. The record may be one that was freed.
    #[inline]
    pub(super) fn holds(&self, handle: Handle, key: &[u8]) -> bool {
        if handle.is_large() {
            return self.large[handle.position()].as_ref().is_some_and(|large| *large.key == *key);
        }
        parse(self.arena.at(handle.0)).1 == key
    }

    /// Reads from a record for no other purpose than to have it in the cache soon. Returns what must be used, or else
    /// the compiler leaves the read out.
    #[inline]
    pub(super) fn touch(&self, handle: Handle) -> u8 {
        if handle.is_large() { 0 } else { self.arena.at(handle.0)[0] }
    }

    /// A key and what is said about it.
    #[inline]
    pub(super) fn said(&self, handle: Handle) -> (&[u8], Said<'_>) {
        if handle.is_large() {
            let large = self.large_at(handle);
            let said = match &large.content {
                Content::Bytes(bytes) => Said::Whole(Stored::Bytes(bytes)),
                Content::Map(map) => Said::Whole(Stored::Map(map)),
                Content::More(more) => Said::More(more),
                Content::Patch(patch) => Said::Patch(patch),
                Content::Nothing => Said::Nothing,
            };
            return (&large.key, said);
        }
        let record = self.arena.at(handle.0);
        let (_, key, value) = parse(record);
        let said = match form(record) {
            Form::Whole => Said::Whole(Stored::Bytes(value)),
            Form::More => Said::More(value),
            Form::Nothing => Said::Nothing,
        };
        (key, said)
    }

    /// A key and what it holds, in a table whose records all say that.
    #[inline]
    pub(super) fn record(&self, handle: Handle) -> (&[u8], Stored<'_>) {
        if handle.is_large() {
            return self.large_record(handle);
        }
        let (_, key, value) = parse(self.arena.at(handle.0));
        (key, Stored::Bytes(value))
    }

    /// Sets what a key holds. `found` is its record so far. Returns by how many bytes the table grew.
    #[inline]
    pub(super) fn set(&mut self, found: Option<Handle>, hash: Hash, key: &[u8], value: &[u8]) -> i64 {
        if let Some(handle) = found
            && !handle.is_large()
        {
            let record = self.arena.at_mut(handle.0);
            let (side, (key_len, before), _) = header(record);
            let (start, len) = (HEADER + key_len, HEADER + key_len + value.len());
            if before == value.len() || (len <= LARGEST_BLOCK && block_size(len) == block_size(start + before)) {
                write_header(record, side, Form::Whole, key_len, value.len());
                record[start..len].copy_from_slice(value);
                return 0;
            }
        }
        self.replace(found, Form::Whole, hash, key, value, &[])
    }

    /// Says about a key what comes behind its list that lies below. `found` is its record so far.
    pub(super) fn set_more(&mut self, found: Option<Handle>, hash: Hash, key: &[u8], more: &[u8]) {
        self.replace(found, Form::More, hash, key, more, &[]);
    }

    /// Says that a key holds nothing, whatever lies below. `found` is its record so far.
    pub(super) fn set_nothing(&mut self, found: Option<Handle>, hash: Hash, key: &[u8]) {
        self.replace(found, Form::Nothing, hash, key, &[], &[]);
    }

    /// Says something about a key that takes a record with an allocation of its own.
    pub(super) fn set_large(&mut self, found: Option<Handle>, hash: Hash, key: &[u8], content: Content) -> i64 {
        let before = found.map_or(0, |handle| self.release(handle));
        let handle = self.make_large(hash.side, key, content);
        self.place(found, hash.tag, handle);
        self.cost(handle) - before
    }

    /// Appends to what a record says, be it a list or what comes behind one that lies below. `found` is the record so
    /// far. Returns by how many bytes the table grew.
    pub(super) fn append(&mut self, found: Option<Handle>, hash: Hash, key: &[u8], more: &[u8]) -> i64 {
        let Some(handle) = found else { return self.replace(None, Form::Whole, hash, key, more, &[]) };
        if handle.is_large() {
            let (Content::Bytes(bytes) | Content::More(bytes)) = &mut self.large_at_mut(handle).content else {
                panic!("what is no list is appended to");
            };
            bytes.extend_from_slice(more);
            return more.len() as i64;
        }
        let record = self.arena.at_mut(handle.0);
        let form = form(record);
        let (side, (key_len, value_len), _) = header(record);
        let end = HEADER + key_len + value_len;
        let len = end + more.len();
        if len <= LARGEST_BLOCK && block_size(len) == block_size(end) {
            write_header(record, side, form, key_len, value_len + more.len());
            record[end..len].copy_from_slice(more);
            return 0;
        }
        let before = record[HEADER + key_len..end].to_vec();
        self.replace(found, form, hash, key, &before, more)
    }

    /// The changes of a map that lies below.
    pub(super) fn patch_mut(&mut self, handle: Handle) -> &mut EntryPatch {
        let Content::Patch(patch) = &mut self.large_at_mut(handle).content else { panic!("not a patch") };
        patch
    }

    /// The map of a record.
    pub(super) fn map_mut(&mut self, handle: Handle) -> &mut EntryMap {
        let Content::Map(map) = &mut self.large_at_mut(handle).content else { panic!("not a map of its own") };
        map
    }

    /// Takes a record out of the index alone, as [`Table::pull`] does.
    pub(super) fn unlink(&mut self, handle: Handle, tag: u32) {
        let entry = self.index.find_entry(spread(tag), |entry| entry.handle == handle);
        entry.expect("a handle is in the index under its tag").remove();
    }

    /// The side of a key.
    pub(super) fn side_of(&self, handle: Handle) -> u32 {
        if handle.is_large() { self.large_at(handle).side } else { header(self.arena.at(handle.0)).0 }
    }

    /// Takes up to `most` records out of the index and appends them to `out`. They stay where they are, and are to be
    /// taken from there.
    pub(super) fn pull(&mut self, most: usize, out: &mut Vec<(u32, Handle)>) {
        out.extend(self.index.extract_if(|_| true).take(most).map(|entry| (entry.tag, entry.handle)));
    }

    /// Puts a record back that was pulled.
    pub(super) fn push_back(&mut self, (tag, handle): (u32, Handle)) {
        self.place(None, tag, handle);
    }

    /// Takes a large record that was pulled.
    pub(super) fn take_large(&mut self, handle: Handle) -> Option<Large> {
        handle.is_large().then(|| self.large[handle.position()].take().expect("a handle is that of a record"))
    }

    /// The hash of a small record with this tag, what it says, its key and its bytes.
    pub(super) fn small_parts(&self, tag: u32, handle: Handle) -> (Hash, Form, &[u8], &[u8]) {
        let record = self.arena.at(handle.0);
        let (side, key, value) = parse(record);
        (Hash { tag, side }, form(record), key, value)
    }

    /// All records, in the order of the index.
    pub(super) fn handles(&self) -> impl Iterator<Item = Handle> + '_ {
        self.index.iter().map(|entry| entry.handle)
    }

    /// Removes a key. Returns by how many bytes the table grew: a negative number.
    pub(super) fn remove(&mut self, handle: Handle, tag: u32) -> i64 {
        self.unlink(handle, tag);
        -self.release(handle)
    }

    /// Whether compacting pays.
    #[inline]
    pub(super) fn is_wasteful(&self) -> bool {
        self.arena.is_wasteful()
    }

    /// Gives back what removed and moved records left behind. Handles change.
    pub(super) fn compact(&mut self) {
        let fresh = Arena::expecting(self.arena.used_bytes());
        let old = std::mem::replace(&mut self.arena, fresh);
        for entry in self.index.iter_mut().filter(|entry| !entry.handle.is_large()) {
            entry.handle = adopt(&mut self.arena, old.at(entry.handle.0));
        }
        if self.index.len() < self.index.capacity() / 4 {
            self.index.shrink_to_fit(|entry| spread(entry.tag));
        }
        if self.vacant.len() == self.large.len() {
            (self.large, self.vacant) = (Vec::new(), Vec::new());
        }
    }

    /// Deals the keys out to two tables by one more bit of their sides, and returns that of the keys whose bit is set.
    /// Handles change.
    pub(super) fn split(&mut self) -> Self {
        let old = std::mem::take(self);
        let (expected, room) = (old.index.len() / 2 + old.index.len() / 8, old.arena.used_bytes() / 2);
        let make = || Self {
            index: HashTable::with_capacity(expected),
            arena: Arena::expecting(room + room / 8),
            depth: old.depth + 1,
            ..Self::default()
        };
        let (mut low, mut high) = (make(), make());
        let mut large = old.large;
        for Entry { tag, handle } in old.index {
            let (side, record) = if handle.is_large() {
                let record = large[handle.position()].take().expect("a handle is that of a record");
                (record.side, Err(record))
            } else {
                let record = old.arena.at(handle.0);
                (header(record).0, Ok(record))
            };
            let table = if side >> (u32::BITS - 1 - old.depth) & 1 == 1 { &mut high } else { &mut low };
            let handle = match record {
                Ok(record) => adopt(&mut table.arena, record),
                Err(record) => table.keep_large(record),
            };
            table.index.insert_unique(spread(tag), Entry { tag, handle }, |entry| spread(entry.tag));
        }
        *self = low;
        high
    }

    /// Puts a new record with the bytes `first` and `second` in the place of `found`.
    fn replace(
        &mut self,
        found: Option<Handle>,
        form: Form,
        hash: Hash,
        key: &[u8],
        first: &[u8],
        second: &[u8],
    ) -> i64 {
        let before = found.map_or(0, |handle| self.release(handle));
        let value_len = first.len() + second.len();
        let len = HEADER + key.len() + value_len;
        let handle = if len <= LARGEST_BLOCK {
            let address = self.arena.allocate(len);
            let record = &mut self.arena.at_mut(address)[..len];
            write_header(record, hash.side, form, key.len(), value_len);
            let (key_part, value) = record[HEADER..].split_at_mut(key.len());
            key_part.copy_from_slice(key);
            value[..first.len()].copy_from_slice(first);
            value[first.len()..].copy_from_slice(second);
            Handle::small(address)
        } else {
            let bytes = [first, second].concat();
            let content = match form {
                Form::Whole => Content::Bytes(bytes),
                Form::More => Content::More(bytes),
                Form::Nothing => Content::Nothing,
            };
            self.make_large(hash.side, key, content)
        };
        self.place(found, hash.tag, handle);
        self.cost(handle) - before
    }

    /// Points the index to a record.
    fn place(&mut self, found: Option<Handle>, tag: u32, handle: Handle) {
        match found {
            Some(before) if before == handle => {}
            Some(before) => {
                let entry = self.index.find_mut(spread(tag), |entry| entry.handle == before);
                entry.expect("a handle is in the index under its tag").handle = handle;
            }
            None => {
                self.index.insert_unique(spread(tag), Entry { tag, handle }, |entry| spread(entry.tag));
            }
        }
    }

    fn make_large(&mut self, side: u32, key: &[u8], content: Content) -> Handle {
        self.keep_large(Large { side, key: key.into(), content })
    }

    fn keep_large(&mut self, large: Large) -> Handle {
        if let Some(position) = self.vacant.pop() {
            self.large[position as usize] = Some(large);
            return Handle::large(position as usize);
        }
        self.large.push(Some(large));
        Handle::large(self.large.len() - 1)
    }

    /// Frees the place of a record and returns what it cost.
    fn release(&mut self, handle: Handle) -> i64 {
        let cost = self.cost(handle);
        if handle.is_large() {
            self.large[handle.position()] = None;
            self.vacant.push(handle.position() as u32);
        } else {
            let (_, (key, value), _) = header(self.arena.at(handle.0));
            self.arena.release(handle.0, HEADER + key + value);
        }
        cost
    }

    fn cost(&self, handle: Handle) -> i64 {
        let record = if handle.is_large() {
            self.large_at(handle).cost()
        } else {
            let (_, (key, value), _) = header(self.arena.at(handle.0));
            block_size(HEADER + key + value)
        };
        (record + ENTRY_OVERHEAD) as i64
    }

    #[cold]
    fn large_record(&self, handle: Handle) -> (&[u8], Stored<'_>) {
        let large = self.large_at(handle);
        let stored = match &large.content {
            Content::Bytes(bytes) => Stored::Bytes(bytes),
            Content::Map(map) => Stored::Map(map),
            Content::More(_) | Content::Patch(_) | Content::Nothing => panic!("a record of a layer over another"),
        };
        (&large.key, stored)
    }

    fn large_at(&self, handle: Handle) -> &Large {
        self.large[handle.position()].as_ref().expect("a handle is that of a record")
    }

    fn large_at_mut(&mut self, handle: Handle) -> &mut Large {
        self.large[handle.position()].as_mut().expect("a handle is that of a record")
    }
}

/// Copies a small record from one arena to another.
fn adopt(arena: &mut Arena, record: &[u8]) -> Handle {
    let (_, (key, value), _) = header(record);
    let len = HEADER + key + value;
    let address = arena.allocate(len);
    arena.at_mut(address)[..len].copy_from_slice(&record[..len]);
    Handle::small(address)
}
