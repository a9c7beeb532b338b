//! Keyed state within a call: slots, the rules of the contract, and staged writes over a backend.
//!
//! Owns what a call wrote until it is known what the call was worth. The backend owns what counts.
//!
//! What always holds: nothing reaches the backend before `commit`; reads see what the same call wrote; no access can
//! name a key that is not in the batch of the call; what a call stages and what a read returns is bounded.

mod entries;
mod lists;
mod scan;
mod scope;
mod slot_map;
#[cfg(test)]
mod tests;
mod values;

use std::fmt;
use std::sync::Arc;

use self::entries::StagedEntries;
use self::lists::StagedLists;
use self::scope::Scope;
use self::values::StagedValues;
use super::{Fault, GuestFault, RuleViolation, StateDescriptor, StateKind};
use crate::record::{Batch, Column, Lists, OptionalColumn};
use crate::state::{FrozenState, StateBackend, StateError, StateIndex};

pub use scan::{EntryCursor, EntryPage, EntryScan};

/// How many entries that a snapshot left behind are moved back after each call, so that no call waits long for it; as
/// many as the call had records, if those are more. Until they are moved, each access looks in two places.
const MERGED_ENTRIES: usize = 512;

/// The most bytes that one call may stage.
const STAGED_LIMIT_BYTES: u64 = 256 << 20;

/// Keyed state within a call.
pub struct KeyedState {
    /// By rising id.
    states: Vec<State>,
    backend: Box<dyn StateBackend>,
    scope: Scope,
    result_limit_bytes: u64,
}

/// A declared state and what the call wrote to it.
struct State {
    id: u32,
    name: String,
    kind: StateKind,
    /// Its place in the backend, if it is keyed.
    index: StateIndex,
    staged: Staged,
}

enum Staged {
    Values(StagedValues),
    Lists(StagedLists),
    Entries(Box<StagedEntries>),
    /// The state belongs to no key.
    Unkeyed,
}

/// Where a read or a commit goes.
struct Target<'a> {
    backend: &'a mut dyn StateBackend,
    state: StateIndex,
    /// The bytes that a result may have.
    limit: u64,
}

impl fmt::Debug for KeyedState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.states.iter().map(|state| state.name.as_str()).collect();
        f.debug_struct("KeyedState").field("states", &names).finish_non_exhaustive()
    }
}

/// Checks that a result is not too large.
#[inline]
fn check_result(what: &'static str, bytes: u64, limit: u64) -> Result<(), RuleViolation> {
    if bytes > limit {
        return Err(RuleViolation::ResultSize { what, bytes, limit });
    }
    Ok(())
}

#[inline]
fn check_lengths(what: &'static str, left: usize, right: usize) -> Result<(), RuleViolation> {
    if left != right {
        return Err(RuleViolation::Lengths { what, left, right });
    }
    Ok(())
}

impl State {
    fn wrong_kind(&self) -> RuleViolation {
        RuleViolation::StateKind { name: self.name.clone(), kind: self.kind.to_string() }
    }

    fn values(&mut self) -> Result<&mut StagedValues, RuleViolation> {
        match self.staged {
            Staged::Values(ref mut values) => Ok(values),
            _ => Err(self.wrong_kind()),
        }
    }

    fn lists(&mut self) -> Result<&mut StagedLists, RuleViolation> {
        match self.staged {
            Staged::Lists(ref mut lists) => Ok(lists),
            _ => Err(self.wrong_kind()),
        }
    }

    fn entries(&mut self) -> Result<&mut StagedEntries, RuleViolation> {
        match self.staged {
            Staged::Entries(ref mut entries) => Ok(entries),
            _ => Err(self.wrong_kind()),
        }
    }

    fn reset(&mut self) {
        match &mut self.staged {
            Staged::Values(values) => values.reset(),
            Staged::Lists(lists) => lists.reset(),
            Staged::Entries(entries) => entries.reset(),
            Staged::Unkeyed => {}
        }
    }

    fn staged_bytes(&self) -> usize {
        match &self.staged {
            Staged::Values(values) => values.byte_size(),
            Staged::Lists(lists) => lists.byte_size(),
            Staged::Entries(entries) => entries.byte_size(),
            Staged::Unkeyed => 0,
        }
    }
}

impl KeyedState {
    /// All declared states, keyed or not so that a wrong kind can be named, over the backend of the keyed ones. The
    /// result of one read may take `result_limit_bytes`.
    ///
    /// # Panics
    /// When the backend's states are not the keyed ones that were declared.
    #[must_use]
    pub fn new(declared: &[StateDescriptor], backend: Box<dyn StateBackend>, result_limit_bytes: u64) -> Self {
        let mut states: Vec<State> = Vec::with_capacity(declared.len());
        let mut keyed = 0;
        for state in declared {
            let index = StateIndex(keyed);
            let staged = match state.kind {
                StateKind::KeyedValue => Staged::Values(StagedValues::default()),
                StateKind::KeyedList => Staged::Lists(StagedLists::default()),
                StateKind::KeyedMap => Staged::Entries(Box::new(StagedEntries::new())),
                StateKind::SplitList | StateKind::UnionList | StateKind::BroadcastMap => Staged::Unkeyed,
            };
            if state.kind.is_keyed() {
                assert_eq!(backend.states().get(keyed), Some(state), "the backend was made for the declared states");
                keyed += 1;
            }
            states.push(State { id: state.id, name: state.name.clone(), kind: state.kind, index, staged });
        }
        states.sort_by_key(|state| state.id);
        Self { states, backend, scope: Scope::new(), result_limit_bytes }
    }

    /// Opens the scope of the keys of a batch. There is none without a batch, without keys, or when the records are not
    /// `placed`: then their keys may belong to other subtasks.
    pub(super) fn begin(&mut self, batch: Option<Arc<Batch>>, placed: bool) {
        self.states.iter_mut().for_each(State::reset);
        self.scope.begin(batch, placed);
    }

    /// Applies what was staged and closes the scope.
    pub(super) fn commit(&mut self) -> Result<(), StateError> {
        let outcome = self.write_staged();
        let records = self.scope.records();
        self.abandon();
        // Whether there is more is seen after the next call.
        let _ = self.backend.merge(records.max(MERGED_ENTRIES));
        outcome
    }

    fn write_staged(&mut self) -> Result<(), StateError> {
        for state in &mut self.states {
            let mut target = Target { backend: &mut *self.backend, state: state.index, limit: self.result_limit_bytes };
            match &mut state.staged {
                Staged::Values(values) => values.commit(&mut target, &self.scope)?,
                Staged::Lists(lists) => lists.commit(&mut target, &self.scope)?,
                Staged::Entries(entries) => entries.commit(&mut target, &self.scope)?,
                Staged::Unkeyed => {}
            }
        }
        Ok(())
    }

    /// Forgets what was staged and closes the scope.
    pub(super) fn abandon(&mut self) {
        self.states.iter_mut().for_each(State::reset);
        self.scope.begin(None, false);
    }

    /// The slot of each record of the batch; nothing when the input is not keyed.
    ///
    /// # Errors
    /// When the call is not about records.
    pub fn slots(&mut self) -> Result<&[u32], Fault> {
        Ok(self.scope.slots()?)
    }

    /// The single value of one slot. Dear compared with [`KeyedState::load`]: it allocates.
    ///
    /// # Errors
    /// When a rule is broken, or the backend cannot read.
    pub fn get(&mut self, state: u32, slot: u32) -> Result<Option<Vec<u8>>, Fault> {
        self.scope.enter("get")?;
        let (state, scope, mut target) = self.parts(state)?;
        let values = state.values()?;
        scope.check_slots(&[slot])?;
        let read = values.load_some("get", &mut target, scope, &[slot])?;
        Ok(read.get(0).map(<[u8]>::to_vec))
    }

    /// Sets the single value of one slot.
    ///
    /// # Errors
    /// When a rule is broken.
    pub fn put(&mut self, state: u32, slot: u32, value: &[u8]) -> Result<(), Fault> {
        let slots = self.scope.enter("put")?;
        self.admit(value.len())?;
        let (state, scope, _) = self.parts(state)?;
        let values = state.values()?;
        scope.check_slots(&[slot])?;
        values.patch(slots, slot, Some(value));
        Ok(())
    }

    /// The single values of all slots; position `i` is slot `i`.
    ///
    /// # Errors
    /// When a rule is broken, or the backend cannot read.
    pub fn load(&mut self, state: u32) -> Result<OptionalColumn, Fault> {
        let slots = self.scope.enter("load")?;
        let (state, scope, mut target) = self.parts(state)?;
        state.values()?.load(&mut target, scope, slots)
    }

    /// The single values of the given slots; position `i` is `slots[i]`.
    ///
    /// # Errors
    /// When a rule is broken, or the backend cannot read.
    pub fn load_some(&mut self, state: u32, slots: &[u32]) -> Result<OptionalColumn, Fault> {
        self.scope.enter("load-some")?;
        let (state, scope, mut target) = self.parts(state)?;
        let values = state.values()?;
        scope.check_slots(slots)?;
        values.load_some("load-some", &mut target, scope, slots)
    }

    /// Sets the single values of all slots; position `i` is slot `i`, a missing one is removed.
    ///
    /// # Errors
    /// When a rule is broken.
    pub fn store(&mut self, state: u32, values: OptionalColumn) -> Result<(), Fault> {
        let slots = self.scope.enter("store")?;
        self.admit(values.values().byte_size())?;
        let (state, ..) = self.parts(state)?;
        let staged = state.values()?;
        check_lengths("slots and values", slots, values.len())?;
        staged.store(values);
        Ok(())
    }

    /// Sets the single value of `slots[i]` to string `i`. If a slot appears twice, the later value stays.
    ///
    /// # Errors
    /// When a rule is broken.
    pub fn update(&mut self, state: u32, slots: &[u32], values: &Column) -> Result<(), Fault> {
        let count = self.scope.enter("update")?;
        self.admit(values.byte_size())?;
        let (state, scope, _) = self.parts(state)?;
        let staged = state.values()?;
        check_lengths("slots and values", slots.len(), values.len())?;
        scope.check_slots(slots)?;
        slots.iter().zip(values.iter()).for_each(|(&slot, value)| staged.patch(count, slot, Some(value)));
        Ok(())
    }

    /// Removes all that the slots hold in a state, of any keyed kind.
    ///
    /// # Errors
    /// When a rule is broken.
    pub fn clear(&mut self, state: u32, slots: &[u32]) -> Result<(), Fault> {
        let count = self.scope.enter("clear")?;
        let (state, scope, _) = self.parts(state)?;
        if !state.kind.is_keyed() {
            return Err(state.wrong_kind().into());
        }
        scope.check_slots(slots)?;
        for &slot in slots {
            match &mut state.staged {
                Staged::Values(values) => values.patch(count, slot, None),
                Staged::Lists(lists) => lists.clear(count, slot),
                Staged::Entries(entries) => entries.clear(count, slot),
                Staged::Unkeyed => {}
            }
        }
        Ok(())
    }

    /// The lists of the given slots: list `i` is that of `slots[i]`. No slot may appear twice.
    ///
    /// # Errors
    /// When a rule is broken, or the backend cannot read.
    pub fn load_lists(&mut self, state: u32, slots: &[u32]) -> Result<Lists, Fault> {
        self.scope.enter("load-lists")?;
        let (state, scope, mut target) = self.parts(state)?;
        let lists = state.lists()?;
        scope.check_distinct(slots)?;
        lists.load(&mut target, scope, slots)
    }

    /// Appends string `i` of `items` to the list of `slots[i]`.
    ///
    /// # Errors
    /// When a rule is broken.
    pub fn append(&mut self, state: u32, slots: &[u32], items: &Column) -> Result<(), Fault> {
        let count = self.scope.enter("append")?;
        self.admit(items.byte_size())?;
        let (state, scope, _) = self.parts(state)?;
        let lists = state.lists()?;
        check_lengths("slots and items", slots.len(), items.len())?;
        scope.check_slots(slots)?;
        slots.iter().zip(items.iter()).for_each(|(&slot, item)| lists.append(count, slot, item));
        Ok(())
    }

    /// Puts list `i` of `items` in the place of the list of `slots[i]`. No slot may appear twice.
    ///
    /// # Errors
    /// When a rule is broken.
    pub fn replace_lists(&mut self, state: u32, slots: &[u32], items: &Lists) -> Result<(), Fault> {
        let count = self.scope.enter("replace-lists")?;
        self.admit(items.items().byte_size())?;
        let (state, scope, _) = self.parts(state)?;
        let lists = state.lists()?;
        check_lengths("slots and lists", slots.len(), items.len())?;
        scope.check_distinct(slots)?;
        for (list, &slot) in slots.iter().enumerate() {
            lists.clear(count, slot);
            items.get(list).for_each(|item| lists.append(count, slot, item));
        }
        Ok(())
    }

    /// The values of the map entries (`slots[i]`, string `i` of `keys`), one per `i`.
    ///
    /// # Errors
    /// When a rule is broken, or the backend cannot read.
    pub fn get_entries(&mut self, state: u32, slots: &[u32], keys: &Column) -> Result<OptionalColumn, Fault> {
        self.scope.enter("get-entries")?;
        let (state, scope, mut target) = self.parts(state)?;
        let entries = state.entries()?;
        check_lengths("slots and keys", slots.len(), keys.len())?;
        scope.check_slots(slots)?;
        entries.get(&mut target, scope, slots, keys)
    }

    /// Sets the map entry (`slots[i]`, string `i` of `keys`) to string `i` of `values`.
    ///
    /// # Errors
    /// When a rule is broken.
    pub fn put_entries(&mut self, state: u32, slots: &[u32], keys: &Column, values: &Column) -> Result<(), Fault> {
        let count = self.scope.enter("put-entries")?;
        self.admit(keys.byte_size() + values.byte_size())?;
        let (state, scope, _) = self.parts(state)?;
        let entries = state.entries()?;
        check_lengths("slots and keys", slots.len(), keys.len())?;
        check_lengths("slots and values", slots.len(), values.len())?;
        scope.check_slots(slots)?;
        for (&slot, (key, value)) in slots.iter().zip(keys.iter().zip(values.iter())) {
            entries.write(count, slot, key, Some(value));
        }
        Ok(())
    }

    /// Removes the map entries (`slots[i]`, string `i` of `keys`) that exist.
    ///
    /// # Errors
    /// When a rule is broken.
    pub fn remove_entries(&mut self, state: u32, slots: &[u32], keys: &Column) -> Result<(), Fault> {
        let count = self.scope.enter("remove-entries")?;
        self.admit(keys.byte_size())?;
        let (state, scope, _) = self.parts(state)?;
        let entries = state.entries()?;
        check_lengths("slots and keys", slots.len(), keys.len())?;
        scope.check_slots(slots)?;
        slots.iter().zip(keys.iter()).for_each(|(&slot, key)| entries.write(count, slot, key, None));
        Ok(())
    }

    /// One page of map entries: at most `limit` of them, fewer when the page is large enough, and at least one unless
    /// none is left.
    ///
    /// # Errors
    /// When a rule is broken, or the backend cannot read.
    pub fn scan_entries(
        &mut self,
        state: u32,
        scan: &EntryScan,
        resume: Option<&EntryCursor>,
        limit: u32,
    ) -> Result<EntryPage, Fault> {
        self.scope.enter("scan-entries")?;
        let (state, scope, mut target) = self.parts(state)?;
        let entries = state.entries()?;
        scope.check_slots(&scan.slots)?;
        scan::scan(entries, &mut target, scope, scan, resume, limit)
    }

    /// Takes hold of all that calls have written so far; none when no state belongs to keys. Between two calls only.
    pub(crate) fn freeze(&mut self) -> Option<Box<dyn FrozenState>> {
        (!self.backend.states().is_empty()).then(|| self.backend.freeze())
    }

    /// The bytes that the backend holds.
    #[must_use]
    pub fn byte_size(&self) -> u64 {
        self.backend.byte_size()
    }

    /// A declared state, the scope, and where its reads go.
    #[inline]
    fn parts(&mut self, id: u32) -> Result<(&mut State, &mut Scope, Target<'_>), RuleViolation> {
        let Ok(position) = self.states.binary_search_by_key(&id, |state| state.id) else {
            return Err(RuleViolation::UnknownState { state: id });
        };
        let state = &mut self.states[position];
        let target = Target { backend: &mut *self.backend, state: state.index, limit: self.result_limit_bytes };
        Ok((state, &mut self.scope, target))
    }

    /// Checks that so many bytes more may be staged.
    fn admit(&self, bytes: usize) -> Result<(), GuestFault> {
        let staged: usize = self.states.iter().map(State::staged_bytes).sum();
        if (staged + bytes) as u64 > STAGED_LIMIT_BYTES {
            return Err(GuestFault::TooMuchData { limit: STAGED_LIMIT_BYTES });
        }
        Ok(())
    }
}
