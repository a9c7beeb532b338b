//! Staged writes of a list state.
//!
//! Items lie in one column in the order in which they were handed over, linked slot by slot. A slot that was cleared or
//! got another list forgets what the backend has.

use super::super::Fault;
use super::scope::Scope;
use super::slot_map::SlotMap;
use super::{Target, check_result};
use crate::record::{Column, Lists};
use crate::state::StateError;

/// The end of a chain.
const NONE: u32 = u32::MAX;

/// What was written to one slot.
#[derive(Clone, Copy, Debug)]
struct Chain {
    first: u32,
    last: u32,
    /// The items take the place of the backend's list, and are not behind it.
    replaces: bool,
}

impl Default for Chain {
    fn default() -> Self {
        Self { first: NONE, last: NONE, replaces: false }
    }
}

/// Staged writes of a list state.
#[derive(Debug, Default)]
pub(super) struct StagedLists {
    chains: SlotMap<Chain>,
    items: Column,
    /// The item behind each item in its list.
    next: Vec<u32>,
}

impl StagedLists {
    /// Forgets everything.
    pub(super) fn reset(&mut self) {
        self.chains.reset();
        self.items.clear();
        self.next.clear();
    }

    /// The bytes that are staged.
    pub(super) fn byte_size(&self) -> usize {
        self.items.byte_size() + self.next.len() * size_of::<u32>()
    }

    /// Empties the list of one of `slots` slots.
    pub(super) fn clear(&mut self, slots: usize, slot: u32) {
        *self.chains.touch(slots, slot) = Chain { replaces: true, ..Chain::default() };
    }

    /// Appends an item to the list of one of `slots` slots.
    pub(super) fn append(&mut self, slots: usize, slot: u32, item: &[u8]) {
        let position = self.next.len() as u32;
        let chain = self.chains.touch(slots, slot);
        let before = std::mem::replace(&mut chain.last, position);
        if before == NONE {
            chain.first = position;
        } else {
            self.next[before as usize] = position;
        }
        self.items.push(item);
        self.next.push(NONE);
    }

    fn staged(&self, slot: u32) -> Chain {
        self.chains.get(slot).unwrap_or_default()
    }

    fn items(&self, chain: Chain) -> impl Iterator<Item = &[u8]> + Clone {
        let mut at = chain.first;
        std::iter::from_fn(move || {
            let item = (at != NONE).then_some(at as usize)?;
            at = self.next[item];
            Some(self.items.get(item))
        })
    }

    /// The lists of some slots, of which the scope has each.
    pub(super) fn load(&self, target: &mut Target<'_>, scope: &Scope, slots: &[u32]) -> Result<Lists, Fault> {
        let unreplaced = slots.iter().filter(|&&slot| !self.staged(slot).replaces);
        let positions: Vec<u32> = unreplaced.map(|&slot| scope.position(slot)).collect();
        let mut read = Lists::new();
        let mut bytes = target.backend.load_lists(target.state, scope.keys(&positions), target.limit, &mut read)?;
        check_result("load-lists", bytes, target.limit)?;
        if self.chains.touched().is_empty() {
            return Ok(read);
        }
        let mut out = Lists::new();
        let mut unreplaced = 0;
        for &slot in slots {
            let chain = self.staged(slot);
            let items = self.items(chain);
            bytes += items.clone().map(|item| (item.len() + size_of::<u32>()) as u64).sum::<u64>();
            check_result("load-lists", bytes, target.limit)?;
            if chain.replaces {
                out.push(items);
            } else {
                out.push(read.get(unreplaced).chain(items));
                unreplaced += 1;
            }
        }
        Ok(out)
    }

    /// Writes what is staged to the backend.
    pub(super) fn commit(&self, target: &mut Target<'_>, scope: &Scope) -> Result<(), StateError> {
        let positions = |choose: &dyn Fn(Chain) -> bool| -> Vec<u32> {
            let chosen = self.chains.touched().iter().filter(|&&slot| choose(self.staged(slot)));
            chosen.map(|&slot| scope.position(slot)).collect()
        };
        let replaced = positions(&|chain| chain.replaces);
        if !replaced.is_empty() {
            target.backend.clear(target.state, scope.keys(&replaced))?;
        }
        let appended = positions(&|chain| chain.first != NONE);
        if !appended.is_empty() {
            let mut lists = Lists::new();
            let chains = self.chains.touched().iter().map(|&slot| self.staged(slot));
            chains.filter(|chain| chain.first != NONE).for_each(|chain| lists.push(self.items(chain)));
            target.backend.append_lists(target.state, scope.keys(&appended), &lists)?;
        }
        Ok(())
    }
}
