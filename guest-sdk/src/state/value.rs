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

    /// Puts what `fold` makes of the value of the key in its place, and returns that.
    #[inline]
    pub(super) fn fold(&self, context: &mut Context, fold: impl FnOnce(Option<T>) -> T) -> Result<T, Error>
    where
        T: Clone,
    {
        let mut table = self.0.borrow_mut();
        let slot = table.enter(context)?;
        let value = fold(table.read(slot)?.clone());
        table.write(context.position(), slot, Some(value.clone()));
        Ok(value)
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
        table.read(slot)?;
        table.known[slot] = Known::Changed;
        Ok(change(&mut table.values[slot]))
    }
}

/// Values up to this size are decoded together.
const SMALL_BYTES: usize = 64;

/// So many values are asked for while it is unknown how large they are.
const UNSEEN_SLOTS: usize = 64;

/// What this call knows of the value of a slot.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Known {
    /// Nothing: nobody has asked yet.
    Unread,
    /// It is as the host has it.
    Read,
    /// It is to be written back.
    Changed,
}

struct ValueTable<T, C> {
    identity: Identity,
    /// The call that the rest is about.
    call: u64,
    /// What is known of each slot, and beside it the values: both in one would be moved about more than needs be.
    known: Vec<Known>,
    values: Vec<Option<T>>,
    /// What the host has, one string per slot, once asked for all of them.
    stored: Option<Column>,
    /// The largest encoded value met so far, also in earlier calls; none before the first.
    widest: Option<usize>,
    /// What the record at a position found, so that it can be put back.
    before: Before<T>,
    /// What goes to the host, kept for its capacity.
    slots: Vec<u32>,
    encoded: Column,
    codec: std::marker::PhantomData<fn() -> C>,
}

struct Before<T> {
    position: u32,
    slot: usize,
    known: Known,
    value: Option<T>,
}

impl<T, C: Codec<T>> ValueTable<T, C> {
    fn new(identity: Identity) -> Self {
        Self {
            identity,
            call: 0,
            known: Vec::new(),
            values: Vec::new(),
            stored: None,
            widest: None,
            before: Before { position: NO_POSITION, slot: 0, known: Known::Unread, value: None },
            slots: Vec::new(),
            encoded: Column::default(),
            codec: std::marker::PhantomData,
        }
    }

    /// The slot of the record; forgets what an earlier call left.
    #[inline(always)]
    fn enter(&mut self, context: &mut Context) -> Result<usize, Error> {
        let slot = context.slot()?;
        if self.call != context.call() {
            self.begin(context);
        }
        Ok(slot)
    }

    fn begin(&mut self, context: &Context) {
        self.call = context.call();
        self.known.clear();
        self.known.resize(context.slot_count(), Known::Unread);
        self.values.clear();
        self.values.resize_with(context.slot_count(), || None);
        self.stored = None;
        self.before.position = NO_POSITION;
    }

    #[inline(always)]
    fn read(&mut self, slot: usize) -> Result<&Option<T>, Error> {
        if self.known[slot] == Known::Unread {
            self.fetch(slot)?;
        }
        Ok(&self.values[slot])
    }

    #[inline(always)]
    fn write(&mut self, position: u32, slot: usize, value: Option<T>) {
        let known = mem::replace(&mut self.known[slot], Known::Changed);
        let value = mem::replace(&mut self.values[slot], value);
        if self.before.position != position {
            self.before = Before { position, slot, known, value };
        }
    }

    /// Reads a slot from the host.
    fn fetch(&mut self, slot: usize) -> Result<(), Error> {
        if self.stored.is_none() {
            match self.widest {
                Some(widest) if widest.saturating_mul(self.known.len()) <= TRANSFER_BYTES => self.load(widest),
                _ => return self.load_some(slot),
            }
        }
        if let (Known::Unread, Some(stored)) = (self.known[slot], &self.stored) {
            let value = C::decode(stored.get(slot)).map_err(|error| self.identity.undecodable(error))?;
            self.values[slot] = Some(value);
            self.known[slot] = Known::Read;
        }
        Ok(())
    }

    /// Asks the host for all values.
    fn load(&mut self, widest: usize) {
        let loaded = keyed_state::load(self.identity.id);
        for missing in loaded.missing {
            if let known @ Known::Unread = &mut self.known[missing as usize] {
                *known = Known::Read;
            }
        }
        let stored = self.measured(loaded.values.into());
        if widest <= SMALL_BYTES {
            // One loop is cheaper than coming back for each. What cannot be decoded is met again by who wants it.
            for ((known, value), bounds) in self.known.iter_mut().zip(&mut self.values).zip(stored.offsets.windows(2)) {
                if *known == Known::Unread
                    && let Ok(decoded) = C::decode(&stored.data[bounds[0] as usize..bounds[1] as usize])
                {
                    *value = Some(decoded);
                    *known = Known::Read;
                }
            }
        }
        self.stored = Some(stored);
    }

    /// Asks the host for values from a slot on, few enough that they fit.
    #[cold]
    fn load_some(&mut self, slot: usize) -> Result<(), Error> {
        let most = self.widest.map_or(UNSEEN_SLOTS, |widest| (TRANSFER_BYTES / widest.max(1)).max(1));
        self.slots.clear();
        let unread = (slot..self.known.len()).filter(|&slot| self.known[slot] == Known::Unread);
        self.slots.extend(unread.take(most).map(|slot| slot as u32));
        let loaded = keyed_state::load_some(self.identity.id, &self.slots);
        let stored = self.measured(loaded.values.into());
        let mut missing = loaded.missing.iter().peekable();
        for (index, &slot) in self.slots.iter().enumerate() {
            if missing.next_if(|&&missing| missing as usize == index).is_none() {
                let value = C::decode(stored.get(index)).map_err(|error| self.identity.undecodable(error))?;
                self.values[slot as usize] = Some(value);
            }
            self.known[slot as usize] = Known::Read;
        }
        Ok(())
    }

    /// Takes note of how large values are.
    fn measured(&mut self, values: Column) -> Column {
        let widest = values.offsets.windows(2).map(|bounds| (bounds[1] - bounds[0]) as usize).max();
        self.widest = Some(self.widest.max(widest).unwrap_or(0));
        values
    }

    /// Writes changed values back: the whole column when all have changed, as is usual, else only those.
    fn write_back(&mut self) -> Result<(), Error> {
        let mut encoded = mem::take(&mut self.encoded);
        encoded.clear();
        self.slots.clear();
        let mut removed = Vec::new();
        for (slot, (known, value)) in (0u32..).zip(self.known.iter().zip(&self.values)) {
            if *known != Known::Changed {
                continue;
            }
            match value {
                Some(value) => {
                    let done = encoded.push_with(|data| C::encode(value, data));
                    done.map_err(|error| self.identity.unencodable(error))?;
                    self.slots.push(slot);
                }
                None => removed.push(slot),
            }
        }
        let encoded = self.measured(encoded);
        let id = self.identity.id;
        let all = !self.slots.is_empty() && self.slots.len() == self.known.len();
        if all && encoded.data.len() <= TRANSFER_BYTES {
            keyed_state::store(id, OptionalColumnParam { values: encoded.lent(), missing: &[] });
        } else {
            update(id, &self.slots, &encoded);
        }
        if !removed.is_empty() {
            keyed_state::clear(id, &removed);
        }
        self.encoded = encoded;
        Ok(())
    }
}

/// Sets the values of slots, in as many calls as it takes.
fn update(id: u32, slots: &[u32], values: &Column) {
    let mut part = Column::default();
    let mut start = 0;
    while start < slots.len() {
        let fits = |&end: &usize| (values.offsets[end] - values.offsets[start]) as usize <= TRANSFER_BYTES;
        let end = (start + 2..=slots.len()).take_while(fits).last().unwrap_or(start + 1);
        if end - start == slots.len() {
            keyed_state::update(id, slots, values.lent());
        } else {
            part.clear();
            part.extend_from(values, start, end);
            keyed_state::update(id, &slots[start..end], part.lent());
        }
        start = end;
    }
}

impl<T, C: Codec<T>> Table for ValueTable<T, C> {
    fn flush(&mut self, call: u64) -> Result<(), Error> {
        if self.call == call { self.write_back() } else { Ok(()) }
    }

    fn undo(&mut self, call: u64, position: u32) {
        if self.call == call && self.before.position == position {
            self.before.position = NO_POSITION;
            let slot = self.before.slot;
            self.known[slot] = self.before.known;
            self.values[slot] = self.before.value.take();
        }
    }
}
