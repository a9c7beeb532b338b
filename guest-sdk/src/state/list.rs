//! A list per key.

use std::cell::RefCell;
use std::rc::Rc;

use super::{Identity, TRANSFER_BYTES};
use crate::Error;
use crate::bindings::tidegate::operator::types::ListsParam;
use crate::codec::{Codec, Postcard};
use crate::context::{Context, Table};
use crate::imports::keyed_state;
use crate::output::NO_POSITION;
use crate::record::Column;

/// A list per key. Adding reads nothing; a list is read whole when asked for.
pub struct ListState<T, C = Postcard>(Rc<RefCell<ListTable<T, C>>>);

impl<T: 'static, C: Codec<T> + 'static> ListState<T, C> {
    pub(crate) fn new(id: u32, name: &str) -> (Self, Rc<RefCell<dyn Table>>) {
        let table = Rc::new(RefCell::new(ListTable::new(Identity { id, name: name.to_owned() })));
        (Self(Rc::clone(&table)), table)
    }

    /// Adds an item at the end of the key's list.
    ///
    /// # Errors
    /// When no record with a key is being processed, or the item cannot be encoded.
    #[inline]
    pub fn add(&self, context: &mut Context, item: T) -> Result<(), Error> {
        let mut table = self.0.borrow_mut();
        let slot = table.enter(context)?;
        table.add(context, slot, item)
    }

    /// The key's list, empty when there is none.
    ///
    /// # Errors
    /// When no record with a key is being processed, or a stored item cannot be decoded.
    pub fn get(&self, context: &mut Context) -> Result<Vec<T>, Error>
    where
        T: Clone,
    {
        self.with(context, <[T]>::to_vec)
    }

    /// Looks at the key's list where it lies.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn with<R>(&self, context: &mut Context, look: impl FnOnce(&[T]) -> R) -> Result<R, Error> {
        let mut table = self.0.borrow_mut();
        let slot = table.enter(context)?;
        Ok(look(table.read(context, slot)?))
    }

    /// Puts items in the place of the key's list; none of them removes it.
    ///
    /// # Errors
    /// When no record with a key is being processed.
    pub fn set(&self, context: &mut Context, items: Vec<T>) -> Result<(), Error> {
        let mut table = self.0.borrow_mut();
        let slot = table.enter(context)?;
        table.set(context, slot, items);
        Ok(())
    }

    /// Removes the key's list.
    ///
    /// # Errors
    /// When no record with a key is being processed.
    pub fn clear(&self, context: &mut Context) -> Result<(), Error> {
        self.set(context, Vec::new())
    }
}

/// What a slot's list is, as far as this call knows.
enum Cell<T> {
    /// Nobody has asked; there may be items to append.
    Unread,
    /// As the host has it, with the items to append behind.
    Read(Vec<T>),
    /// To be put in the place of what the host has.
    Replaced(Vec<T>),
}

struct ListTable<T, C> {
    identity: Identity,
    /// The call that the rest is about.
    call: u64,
    cells: Vec<Cell<T>>,
    /// Items to append, and whose they are.
    appended: Column,
    appended_slots: Vec<u32>,
    /// How many items there were to append before the record at a position.
    mark: (u32, usize),
    /// How long the replaced list of a slot was before the record at a position.
    grown: (u32, usize, usize),
    codec: std::marker::PhantomData<fn() -> C>,
}

impl<T, C: Codec<T>> ListTable<T, C> {
    fn new(identity: Identity) -> Self {
        Self {
            identity,
            call: 0,
            cells: Vec::new(),
            appended: Column::default(),
            appended_slots: Vec::new(),
            mark: (NO_POSITION, 0),
            grown: (NO_POSITION, 0, 0),
            codec: std::marker::PhantomData,
        }
    }

    #[inline]
    fn enter(&mut self, context: &mut Context) -> Result<usize, Error> {
        let slot = context.slot()?;
        if self.call != context.call() {
            self.call = context.call();
            self.cells.clear();
            self.cells.resize_with(context.slot_count(), || Cell::Unread);
            self.appended.clear();
            self.appended_slots.clear();
            self.mark = (NO_POSITION, 0);
            self.grown = (NO_POSITION, 0, 0);
        }
        Ok(slot)
    }

    fn add(&mut self, context: &mut Context, slot: usize, item: T) -> Result<(), Error> {
        if let Cell::Replaced(items) = &mut self.cells[slot] {
            if self.grown.0 != context.position() {
                self.grown = (context.position(), slot, items.len());
            }
            items.push(item);
            return Ok(());
        }
        if self.mark.0 != context.position() {
            self.mark = (context.position(), self.appended_slots.len());
        }
        if let Err(error) = self.appended.push_with(|data| C::encode(&item, data)) {
            self.appended.truncate(self.appended_slots.len());
            return Err(self.identity.unencodable(error));
        }
        self.appended_slots.push(slot as u32);
        if let Cell::Read(items) = &mut self.cells[slot] {
            items.push(item);
        }
        if self.appended.data.len() >= TRANSFER_BYTES {
            context.set_irreversible();
            self.append();
        }
        Ok(())
    }

    fn set(&mut self, context: &mut Context, slot: usize, items: Vec<T>) {
        // What was to be appended goes first, since the list takes the place of that as well.
        if self.appended_slots.contains(&(slot as u32)) {
            self.append();
        }
        context.set_irreversible();
        self.cells[slot] = Cell::Replaced(items);
    }

    fn read(&mut self, context: &mut Context, slot: usize) -> Result<&[T], Error> {
        if let Cell::Unread = self.cells[slot] {
            if self.appended_slots.contains(&(slot as u32)) {
                context.set_irreversible();
                self.append();
            }
            let lists = keyed_state::load_lists(self.identity.id, &[slot as u32]);
            let stored = Column::from(lists.items);
            let items = (0..stored.len()).map(|index| C::decode(stored.get(index))).collect::<Result<Vec<T>, Error>>();
            self.cells[slot] = Cell::Read(items.map_err(|error| self.identity.undecodable(error))?);
        }
        match &self.cells[slot] {
            Cell::Read(items) | Cell::Replaced(items) => Ok(items),
            Cell::Unread => unreachable!("the cell was just filled"),
        }
    }

    /// Sends off what is to be appended.
    fn append(&mut self) {
        if !self.appended_slots.is_empty() {
            keyed_state::append(self.identity.id, &self.appended_slots, self.appended.lent());
        }
        self.appended.clear();
        self.appended_slots.clear();
        self.mark = (NO_POSITION, 0);
    }

    fn write_back(&mut self) -> Result<(), Error> {
        self.append();
        let (mut slots, mut bounds, mut items) = (Vec::new(), vec![0], Column::default());
        for (slot, cell) in (0u32..).zip(&self.cells) {
            if let Cell::Replaced(list) = cell {
                for item in list {
                    let encoded = items.push_with(|data| C::encode(item, data));
                    encoded.map_err(|error| self.identity.unencodable(error))?;
                }
                slots.push(slot);
                bounds.push(items.len() as u32);
                if items.data.len() >= TRANSFER_BYTES {
                    let lists = ListsParam { bounds: &bounds, items: items.lent() };
                    keyed_state::replace_lists(self.identity.id, &slots, lists);
                    slots.clear();
                    bounds.truncate(1);
                    items.clear();
                }
            }
        }
        if !slots.is_empty() {
            let lists = ListsParam { bounds: &bounds, items: items.lent() };
            keyed_state::replace_lists(self.identity.id, &slots, lists);
        }
        Ok(())
    }
}

impl<T, C: Codec<T>> Table for ListTable<T, C> {
    fn flush(&mut self, call: u64) -> Result<(), Error> {
        if self.call == call { self.write_back() } else { Ok(()) }
    }

    fn undo(&mut self, call: u64, position: u32) {
        if self.call != call {
            return;
        }
        if self.grown.0 == position {
            let (_, slot, length) = std::mem::replace(&mut self.grown, (NO_POSITION, 0, 0));
            if let Cell::Replaced(items) = &mut self.cells[slot] {
                items.truncate(length);
            }
        }
        if self.mark.0 == position {
            let (_, kept) = std::mem::replace(&mut self.mark, (NO_POSITION, 0));
            self.appended.truncate(kept);
            for slot in self.appended_slots.drain(kept..) {
                // A record has one key, so these are the last items of its list.
                if let Cell::Read(items) = &mut self.cells[slot as usize] {
                    items.pop();
                }
            }
        }
    }
}
