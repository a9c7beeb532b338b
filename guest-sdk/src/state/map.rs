//! A map per key.

use std::cell::RefCell;
use std::hash::{BuildHasher, Hasher};
use std::mem;
use std::rc::Rc;

use foldhash::fast::FixedState;
use hashbrown::HashTable;

use super::{Identity, TRANSFER_BYTES};
use crate::Error;
use crate::bindings::tidegate::operator::types::ColumnParam;
use crate::codec::{Codec, Postcard};
use crate::context::{Context, Table};
use crate::imports::keyed_state;
use crate::output::NO_POSITION;
use crate::record::Column;

/// So many entries at most come with one page of a scan.
const PAGE_ENTRIES: u32 = 1024;

/// A map per key. Entries are read one by one when asked for and kept for the batch.
pub struct MapState<K, V, KC = Postcard, VC = Postcard>(Rc<RefCell<MapTable<K, V, KC, VC>>>);

impl<K: 'static, V: 'static, KC: Codec<K> + 'static, VC: Codec<V> + 'static> MapState<K, V, KC, VC> {
    pub(crate) fn new(id: u32, name: &str) -> (Self, Rc<RefCell<dyn Table>>) {
        let table = Rc::new(RefCell::new(MapTable::new(Identity { id, name: name.to_owned() })));
        (Self(Rc::clone(&table)), table)
    }

    /// The value of an entry of the key's map; none when there is no such entry.
    ///
    /// # Errors
    /// When no record with a key is being processed, or the stored value cannot be decoded.
    #[inline]
    pub fn get(&self, context: &mut Context, entry: &K) -> Result<Option<V>, Error>
    where
        V: Clone,
    {
        self.with(context, entry, |value| value.cloned())
    }

    /// Looks at the value of an entry of the key's map where it lies.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    #[inline]
    pub fn with<R>(&self, context: &mut Context, entry: &K, look: impl FnOnce(Option<&V>) -> R) -> Result<R, Error> {
        let mut table = self.0.borrow_mut();
        let slot = table.enter(context)?;
        let cell = table.find(slot, entry)?;
        Ok(look(table.read(cell)?.as_ref()))
    }

    /// Sets an entry of the key's map.
    ///
    /// # Errors
    /// When no record with a key is being processed, or the entry's key cannot be encoded.
    #[inline]
    pub fn put(&self, context: &mut Context, entry: &K, value: V) -> Result<(), Error> {
        self.write(context, entry, Some(value))
    }

    /// Removes an entry of the key's map, if there is one.
    ///
    /// # Errors
    /// As for [`put`](Self::put).
    pub fn remove(&self, context: &mut Context, entry: &K) -> Result<(), Error> {
        self.write(context, entry, None)
    }

    /// Changes an entry of the key's map where it lies; none means that there is none.
    ///
    /// # Errors
    /// As for [`get`](Self::get) and [`put`](Self::put).
    #[inline]
    pub fn update<R>(
        &self,
        context: &mut Context,
        entry: &K,
        change: impl FnOnce(&mut Option<V>) -> R,
    ) -> Result<R, Error> {
        let mut table = self.0.borrow_mut();
        let slot = table.enter(context)?;
        let cell = table.find(slot, entry)?;
        table.read(cell)?;
        context.set_irreversible();
        let (Content::Read(mut value) | Content::Changed(mut value)) =
            mem::replace(&mut table.cells[cell].content, Content::Unread)
        else {
            unreachable!("read fills the cell");
        };
        let result = change(&mut value);
        table.cells[cell].content = Content::Changed(value);
        Ok(result)
    }

    /// Removes all entries of the key's map.
    ///
    /// # Errors
    /// When no record with a key is being processed.
    pub fn clear(&self, context: &mut Context) -> Result<(), Error> {
        let mut table = self.0.borrow_mut();
        let slot = table.enter(context)?;
        table.write_back()?;
        context.set_irreversible();
        keyed_state::clear(table.identity.id, &[slot as u32]);
        table.forget();
        Ok(())
    }

    /// Visits all entries of the key's map, in the order of their encoded keys, which is that of the keys themselves
    /// with the codecs [`Ordered`](crate::codec::Ordered) and [`Raw`](crate::codec::Raw).
    ///
    /// # Errors
    /// When no record with a key is being processed, an entry cannot be decoded, or `visit` returns an error.
    pub fn for_each(
        &self,
        context: &mut Context,
        mut visit: impl FnMut(K, V) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut table = self.0.borrow_mut();
        let slot = table.enter(context)?;
        if table.has_changes() {
            // The host visits what it knows.
            context.set_irreversible();
            table.write_back()?;
        }
        let identity = &table.identity;
        let slots = [slot as u32];
        let mut next: Option<keyed_state::CursorResult> = None;
        loop {
            let scan = keyed_state::Scan { slots: &slots, start: &[], end: None };
            let resume = next.as_ref().map(|next| keyed_state::CursorParam { position: next.position, key: &next.key });
            let page = keyed_state::scan_entries(identity.id, scan, resume, PAGE_ENTRIES);
            let (keys, values) = (Column::from(page.keys), Column::from(page.values));
            for index in 0..keys.len() {
                let key = KC::decode(keys.get(index)).map_err(|error| identity.undecodable(error))?;
                let value = VC::decode(values.get(index)).map_err(|error| identity.undecodable(error))?;
                visit(key, value)?;
            }
            match page.next {
                Some(cursor) => next = Some(cursor),
                None => return Ok(()),
            }
        }
    }

    #[inline]
    fn write(&self, context: &mut Context, entry: &K, value: Option<V>) -> Result<(), Error> {
        let mut table = self.0.borrow_mut();
        let slot = table.enter(context)?;
        let cell = table.find(slot, entry)?;
        let content = mem::replace(&mut table.cells[cell].content, Content::Changed(value));
        table.remember(context.position(), cell, content);
        Ok(())
    }
}

/// What an entry holds, as far as this call knows.
enum Content<V> {
    Unread,
    Read(Option<V>),
    Changed(Option<V>),
}

struct Cell<V> {
    slot: u32,
    content: Content<V>,
}

struct MapTable<K, V, KC, VC> {
    identity: Identity,
    /// The call that the rest is about.
    call: u64,
    /// The entries met in this call, in the order of meeting; their encoded keys are in `keys`.
    cells: Vec<Cell<V>>,
    keys: Column,
    /// Finds a cell by slot and encoded key.
    index: HashTable<u32>,
    /// What the record at a position found, oldest first.
    before: Vec<(usize, Content<V>)>,
    before_position: u32,
    codec: std::marker::PhantomData<fn(K) -> (KC, VC)>,
}

fn hash(slot: u32, key: &[u8]) -> u64 {
    // Within one call only; where it is stored is the host's affair.
    let mut hasher = FixedState::default().build_hasher();
    hasher.write_u32(slot);
    hasher.write(key);
    hasher.finish()
}

impl<K, V, KC: Codec<K>, VC: Codec<V>> MapTable<K, V, KC, VC> {
    fn new(identity: Identity) -> Self {
        Self {
            identity,
            call: 0,
            cells: Vec::new(),
            keys: Column::default(),
            index: HashTable::new(),
            before: Vec::new(),
            before_position: NO_POSITION,
            codec: std::marker::PhantomData,
        }
    }

    #[inline]
    fn enter(&mut self, context: &mut Context) -> Result<usize, Error> {
        let slot = context.slot()?;
        if self.call != context.call() {
            self.call = context.call();
            self.forget();
        }
        Ok(slot)
    }

    fn forget(&mut self) {
        self.cells.clear();
        self.keys.clear();
        self.index.clear();
        self.before.clear();
        self.before_position = NO_POSITION;
    }

    /// The cell of an entry, made if there is none.
    fn find(&mut self, slot: usize, entry: &K) -> Result<usize, Error> {
        // The key is encoded where it would stay, and cut off again if it is there already.
        let cell = self.cells.len();
        if let Err(error) = self.keys.push_with(|data| KC::encode(entry, data)) {
            self.keys.truncate(cell);
            return Err(self.identity.unencodable(error));
        }
        let slot = slot as u32;
        let Self { cells, keys, index, .. } = self;
        let hashed = hash(slot, keys.get(cell));
        let same = |&other: &u32| cells[other as usize].slot == slot && keys.get(other as usize) == keys.get(cell);
        if let Some(&found) = index.find(hashed, same) {
            keys.truncate(cell);
            return Ok(found as usize);
        }
        index.insert_unique(hashed, cell as u32, |&other| hash(cells[other as usize].slot, keys.get(other as usize)));
        cells.push(Cell { slot, content: Content::Unread });
        Ok(cell)
    }

    #[inline]
    fn read(&mut self, cell: usize) -> Result<&Option<V>, Error> {
        if let Content::Unread = self.cells[cell].content {
            self.fetch(cell)?;
        }
        match &self.cells[cell].content {
            Content::Read(value) | Content::Changed(value) => Ok(value),
            Content::Unread => unreachable!("fetch fills the cell"),
        }
    }

    fn fetch(&mut self, cell: usize) -> Result<(), Error> {
        let key = self.keys.get(cell);
        let offsets = [0, key.len() as u32];
        let column = ColumnParam { data: key, offsets: &offsets };
        let found = keyed_state::get_entries(self.identity.id, &[self.cells[cell].slot], column);
        let value = if found.missing.is_empty() {
            let stored = Column::from(found.values);
            Some(VC::decode(stored.get(0)).map_err(|error| self.identity.undecodable(error))?)
        } else {
            None
        };
        self.cells[cell].content = Content::Read(value);
        Ok(())
    }

    #[inline]
    fn remember(&mut self, position: u32, cell: usize, content: Content<V>) {
        if self.before_position != position {
            self.before.clear();
            self.before_position = position;
        }
        self.before.push((cell, content));
    }

    fn has_changes(&self) -> bool {
        self.cells.iter().any(|cell| matches!(cell.content, Content::Changed(_)))
    }

    /// Writes changed entries back; they count as read from then on.
    fn write_back(&mut self) -> Result<(), Error> {
        let (mut put_slots, mut put_keys, mut put_values) = (Vec::new(), Column::default(), Column::default());
        let (mut removed_slots, mut removed_keys) = (Vec::new(), Column::default());
        for (index, cell) in self.cells.iter_mut().enumerate() {
            match &cell.content {
                Content::Changed(Some(value)) => {
                    let encoded = put_values.push_with(|data| VC::encode(value, data));
                    encoded.map_err(|error| self.identity.unencodable(error))?;
                    put_slots.push(cell.slot);
                    put_keys.push(self.keys.get(index));
                }
                Content::Changed(None) => {
                    removed_slots.push(cell.slot);
                    removed_keys.push(self.keys.get(index));
                }
                Content::Read(_) | Content::Unread => continue,
            }
            if let Content::Changed(value) = mem::replace(&mut cell.content, Content::Unread) {
                cell.content = Content::Read(value);
            }
            if put_keys.data.len() + put_values.data.len() >= TRANSFER_BYTES {
                keyed_state::put_entries(self.identity.id, &put_slots, put_keys.lent(), put_values.lent());
                put_slots.clear();
                put_keys.clear();
                put_values.clear();
            }
        }
        if !put_slots.is_empty() {
            keyed_state::put_entries(self.identity.id, &put_slots, put_keys.lent(), put_values.lent());
        }
        if !removed_slots.is_empty() {
            keyed_state::remove_entries(self.identity.id, &removed_slots, removed_keys.lent());
        }
        Ok(())
    }
}

impl<K, V, KC: Codec<K>, VC: Codec<V>> Table for MapTable<K, V, KC, VC> {
    fn flush(&mut self, call: u64) -> Result<(), Error> {
        if self.call == call { self.write_back() } else { Ok(()) }
    }

    fn undo(&mut self, call: u64, position: u32) {
        if self.call != call || self.before_position != position {
            return;
        }
        self.before_position = NO_POSITION;
        while let Some((cell, content)) = self.before.pop() {
            self.cells[cell].content = content;
        }
    }
}
