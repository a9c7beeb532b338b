//! One value per key.

use std::cell::RefCell;
use std::mem;
use std::rc::Rc;

use super::{Identity, TRANSFER_BYTES};
use crate::Error;
use crate::bindings::tidegate::operator::types::OptionalColumnParam;
use crate::codec::{Codec, Postcard};
use crate::context::{Context, Table};
use crate::imports::keyed_state;
use crate::output::NO_POSITION;
use crate::record::Column;

/// One value per key.
///
/// ```
/// use tidegate_sdk::{Context, Error, ValueState};
///
/// fn count(seen: &ValueState<u64>, context: &mut Context) -> Result<u64, Error> {
///     let count = seen.get(context)?.unwrap_or(0) + 1;
///     seen.set(context, count)?;
///     Ok(count)
/// }
/// ```
pub struct ValueState<T, C = Postcard>(Rc<RefCell<ValueTable<T, C>>>);

impl<T: 'static, C: Codec<T> + 'static> ValueState<T, C> {
    pub(crate) fn new(id: u32, name: &str) -> (Self, Rc<RefCell<dyn Table>>) {
        let table = Rc::new(RefCell::new(ValueTable::new(Identity { id, name: name.to_owned() })));
        (Self(Rc::clone(&table)), table)
    }

    /// The value of the key; none when there is none.
    ///
    /// # Errors
    /// When no record with a key is being processed, or the stored value cannot be decoded.
    #[inline]
    pub fn get(&self, context: &mut Context) -> Result<Option<T>, Error>
    where
        T: Clone,
    {
        self.with(context, |value| value.cloned())
    }

    /// Looks at the value of the key where it lies.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    #[inline]
    pub fn with<R>(&self, context: &mut Context, look: impl FnOnce(Option<&T>) -> R) -> Result<R, Error> {
        let mut table = self.0.borrow_mut();
        let slot = table.enter(context)?;
        Ok(look(table.read(slot)?.as_ref()))
    }

    /// Sets the value of the key.
    ///
    /// # Errors
    /// When no record with a key is being processed.
    #[inline]
    pub fn set(&self, context: &mut Context, value: T) -> Result<(), Error> {
        let mut table = self.0.borrow_mut();
        let slot = table.enter(context)?;
        table.write(context.position(), slot, Some(value));
        Ok(())
    }

    /// Removes the value of the key.
    ///
    /// # Errors
    /// When no record with a key is being processed.
    pub fn clear(&self, context: &mut Context) -> Result<(), Error> {
        let mut table = self.0.borrow_mut();
        let slot = table.enter(context)?;
        table.write(context.position(), slot, None);
        Ok(())
    }

    /// Changes the value of the key where it lies; none means that there is none. For values that are dear to clone.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    #[inline]
    pub fn update<R>(&self, context: &mut Context, change: impl FnOnce(&mut Option<T>) -> R) -> Result<R, Error> {
        let mut table = self.0.borrow_mut();
        let slot = table.enter(context)?;
        // The old value is gone then: keeping a copy of each would cost more than a rejection that is dear.
        context.set_irreversible();
        let mut value = table.take(slot)?;
        let result = change(&mut value);
        table.cells[slot] = Cell::Changed(value);
        Ok(result)
    }
}

/// So many values are asked for while it is unknown how large they are.
const UNSEEN_SLOTS: usize = 64;

/// What a slot holds, as far as this call knows.
enum Cell<T> {
    /// Nobody has asked yet.
    Unread,
    /// As the host has it.
    Read(Option<T>),
    /// To be written back.
    Changed(Option<T>),
}

struct ValueTable<T, C> {
    identity: Identity,
    /// The call that the rest is about.
    call: u64,
    cells: Vec<Cell<T>>,
    /// What the host has, one string per slot, once asked for all of them.
    stored: Option<Column>,
    /// The largest encoded value met so far, also in earlier calls; none before the first.
    widest: Option<usize>,
    /// The cell that the record at a position found, so that it can be taken back.
    before: Before<T>,
    /// What goes to the host, kept for its capacity.
    slots: Vec<u32>,
    values: Column,
    codec: std::marker::PhantomData<fn() -> C>,
}

struct Before<T> {
    position: u32,
    slot: usize,
    cell: Cell<T>,
}

impl<T, C: Codec<T>> ValueTable<T, C> {
    fn new(identity: Identity) -> Self {
        Self {
            identity,
            call: 0,
            cells: Vec::new(),
            stored: None,
            widest: None,
            before: Before { position: NO_POSITION, slot: 0, cell: Cell::Unread },
            slots: Vec::new(),
            values: Column::default(),
            codec: std::marker::PhantomData,
        }
    }

    /// The slot of the record; forgets what an earlier call left.
    #[inline]
    fn enter(&mut self, context: &mut Context) -> Result<usize, Error> {
        let slot = context.slot()?;
        if self.call != context.call() {
            self.begin(context);
        }
        Ok(slot)
    }

    fn begin(&mut self, context: &Context) {
        self.call = context.call();
        self.cells.clear();
        self.cells.resize_with(context.slot_count(), || Cell::Unread);
        self.stored = None;
        self.before.position = NO_POSITION;
    }

    #[inline]
    fn read(&mut self, slot: usize) -> Result<&Option<T>, Error> {
        if let Cell::Unread = self.cells[slot] {
            self.fetch(slot)?;
        }
        match &self.cells[slot] {
            Cell::Read(value) | Cell::Changed(value) => Ok(value),
            Cell::Unread => unreachable!("fetch fills the cell"),
        }
    }

    #[inline]
    fn take(&mut self, slot: usize) -> Result<Option<T>, Error> {
        self.read(slot)?;
        match mem::replace(&mut self.cells[slot], Cell::Unread) {
            Cell::Read(value) | Cell::Changed(value) => Ok(value),
            Cell::Unread => unreachable!("read fills the cell"),
        }
    }

    /// Fills a cell with what the host has.
    fn fetch(&mut self, slot: usize) -> Result<(), Error> {
        if self.stored.is_none() {
            match self.widest {
                Some(widest) if widest.saturating_mul(self.cells.len()) <= TRANSFER_BYTES => self.load(),
                _ => return self.load_some(slot),
            }
        }
        if let (Cell::Unread, Some(stored)) = (&self.cells[slot], &self.stored) {
            let value = C::decode(stored.get(slot)).map_err(|error| self.identity.undecodable(error))?;
            self.cells[slot] = Cell::Read(Some(value));
        }
        Ok(())
    }

    /// Asks the host for all values. They are decoded when somebody wants them.
    fn load(&mut self) {
        let loaded = keyed_state::load(self.identity.id);
        for missing in loaded.missing {
            if let cell @ Cell::Unread = &mut self.cells[missing as usize] {
                *cell = Cell::Read(None);
            }
        }
        self.stored = Some(self.measured(loaded.values.into()));
    }

    /// Asks the host for values from a slot on, few enough that they fit.
    #[cold]
    fn load_some(&mut self, slot: usize) -> Result<(), Error> {
        let most = self.widest.map_or(UNSEEN_SLOTS, |widest| (TRANSFER_BYTES / widest.max(1)).max(1));
        self.slots.clear();
        let unread = (slot..self.cells.len()).filter(|&slot| matches!(self.cells[slot], Cell::Unread));
        self.slots.extend(unread.take(most).map(|slot| slot as u32));
        let loaded = keyed_state::load_some(self.identity.id, &self.slots);
        let values = self.measured(loaded.values.into());
        let mut missing = loaded.missing.iter().peekable();
        for (index, &slot) in self.slots.iter().enumerate() {
            let value = match missing.next_if(|&&missing| missing as usize == index) {
                Some(_) => None,
                None => Some(C::decode(values.get(index)).map_err(|error| self.identity.undecodable(error))?),
            };
            self.cells[slot as usize] = Cell::Read(value);
        }
        Ok(())
    }

    /// Takes note of how large values are.
    fn measured(&mut self, values: Column) -> Column {
        let widest = values.offsets.windows(2).map(|bounds| (bounds[1] - bounds[0]) as usize).max();
        self.widest = Some(self.widest.max(widest).unwrap_or(0));
        values
    }

    #[inline]
    fn write(&mut self, position: u32, slot: usize, value: Option<T>) {
        let cell = mem::replace(&mut self.cells[slot], Cell::Changed(value));
        if self.before.position != position {
            self.before = Before { position, slot, cell };
        }
    }

    /// Writes changed values back: the whole column when all have changed, as is usual, else only those.
    fn write_back(&mut self) -> Result<(), Error> {
        let Self { identity, cells, slots, values, widest, .. } = self;
        slots.clear();
        values.clear();
        let mut removed = Vec::new();
        for (slot, cell) in (0u32..).zip(&*cells) {
            match cell {
                Cell::Changed(Some(value)) => {
                    let before = values.data.len();
                    let encoded = values.push_with(|data| C::encode(value, data));
                    encoded.map_err(|error| identity.unencodable(error))?;
                    slots.push(slot);
                    *widest = (*widest).max(Some(values.data.len() - before));
                    if values.data.len() >= TRANSFER_BYTES {
                        keyed_state::update(identity.id, slots, values.lent());
                        slots.clear();
                        values.clear();
                    }
                }
                Cell::Changed(None) => removed.push(slot),
                Cell::Read(_) | Cell::Unread => {}
            }
        }
        if !slots.is_empty() && slots.len() == cells.len() {
            keyed_state::store(identity.id, OptionalColumnParam { values: values.lent(), missing: &[] });
            return Ok(());
        }
        if !slots.is_empty() {
            keyed_state::update(identity.id, slots, values.lent());
        }
        if !removed.is_empty() {
            keyed_state::clear(identity.id, &removed);
        }
        Ok(())
    }
}

impl<T, C: Codec<T>> Table for ValueTable<T, C> {
    fn flush(&mut self, call: u64) -> Result<(), Error> {
        if self.call == call { self.write_back() } else { Ok(()) }
    }

    fn undo(&mut self, call: u64, position: u32) {
        if self.call == call && self.before.position == position {
            let slot = self.before.slot;
            self.before.position = NO_POSITION;
            self.cells[slot] = mem::replace(&mut self.before.cell, Cell::Unread);
        }
    }
}
