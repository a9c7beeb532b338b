//! Staged writes of a value state.
//!
//! A `store` is kept as it came, without a copy; writes of single slots lie over it as patches, and reads look through
//! both. The usual call, one `load` and one `store`, so costs nothing per record here.

use super::super::Fault;
use super::scope::Scope;
use super::{Target, check_result};
use crate::record::OptionalColumn;
use crate::state::StateError;

/// A slot without a patch.
const UNTOUCHED: Patch = Patch { start: 0, len: 0, capacity: 0, kind: PatchKind::None };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PatchKind {
    None,
    Removed,
    Value,
}

/// What was written to one slot: `bytes[start..start + len]`, with room for `capacity`.
#[derive(Clone, Copy, Debug)]
struct Patch {
    start: u32,
    len: u32,
    capacity: u32,
    kind: PatchKind,
}

/// Staged writes of a value state.
#[derive(Debug, Default)]
pub(super) struct StagedValues {
    /// The value of every slot, under the patches.
    stored: Option<OptionalColumn>,
    /// For each slot; or nothing.
    patches: Vec<Patch>,
    /// The slots with a patch, in the order in which they got it.
    touched: Vec<u32>,
    bytes: Vec<u8>,
    /// Buffers of values that are not needed any more.
    read: OptionalColumn,
    /// Positions of keys to read.
    positions: Vec<u32>,
}

impl StagedValues {
    /// Forgets everything.
    pub(super) fn reset(&mut self) {
        if let Some(stored) = self.stored.take() {
            self.read = stored;
        }
        self.reset_patches();
    }

    fn reset_patches(&mut self) {
        for slot in self.touched.drain(..) {
            self.patches[slot as usize] = UNTOUCHED;
        }
        self.bytes.clear();
    }

    /// The bytes that are staged.
    pub(super) fn byte_size(&self) -> usize {
        self.bytes.len() + self.stored.as_ref().map_or(0, |stored| stored.values().byte_size())
    }

    /// Sets all slots.
    pub(super) fn store(&mut self, values: OptionalColumn) {
        self.reset_patches();
        self.stored = Some(values);
    }

    /// Sets or removes the value of one of `slots` slots.
    #[inline]
    pub(super) fn patch(&mut self, slots: usize, slot: u32, value: Option<&[u8]>) {
        if self.patches.len() < slots {
            self.patches.resize(slots, UNTOUCHED);
        }
        let patch = &mut self.patches[slot as usize];
        if patch.kind == PatchKind::None {
            self.touched.push(slot);
        }
        let Some(value) = value else {
            patch.kind = PatchKind::Removed;
            return;
        };
        patch.kind = PatchKind::Value;
        patch.len = value.len() as u32;
        if value.len() > patch.capacity as usize {
            // A value that grows write by write gets room ahead, so that what it leaves behind stays below what it takes.
            let capacity = if patch.capacity == 0 { value.len() } else { value.len() + value.len() / 2 };
            patch.start = self.bytes.len() as u32;
            patch.capacity = capacity as u32;
            self.bytes.extend_from_slice(value);
            self.bytes.resize(patch.start as usize + capacity, 0);
        } else {
            let start = patch.start as usize;
            self.bytes[start..start + value.len()].copy_from_slice(value);
        }
    }

    /// What was written to a slot, if something was.
    #[inline]
    fn staged(&self, slot: u32) -> Option<Option<&[u8]>> {
        match self.patches.get(slot as usize) {
            Some(Patch { kind: PatchKind::Removed, .. }) => Some(None),
            Some(patch @ Patch { kind: PatchKind::Value, .. }) => {
                Some(Some(&self.bytes[patch.start as usize..(patch.start + patch.len) as usize]))
            }
            _ => self.stored.as_ref().map(|stored| stored.get(slot as usize)),
        }
    }

    /// The values of all slots.
    pub(super) fn load(
        &mut self,
        target: &mut Target<'_>,
        scope: &Scope,
        slots: usize,
    ) -> Result<OptionalColumn, Fault> {
        match (&self.stored, self.touched.is_empty()) {
            (None, true) => {
                // The buffers of what the call before stored are about as large as is needed.
                let mut out = std::mem::take(&mut self.read);
                out.clear();
                let bytes = target.backend.load_values(target.state, scope.all_keys(), target.limit, &mut out)?;
                check_result("load", bytes, target.limit)?;
                Ok(out)
            }
            (Some(stored), true) => {
                check_result("load", stored.values().data().len() as u64, target.limit)?;
                Ok(stored.clone())
            }
            (_, false) => {
                let all: Vec<u32> = (0..slots as u32).collect();
                self.load_some("load", target, scope, &all)
            }
        }
    }

    /// The values of some slots, of which the scope has each.
    pub(super) fn load_some(
        &mut self,
        what: &'static str,
        target: &mut Target<'_>,
        scope: &Scope,
        slots: &[u32],
    ) -> Result<OptionalColumn, Fault> {
        let mut out = OptionalColumn::new();
        self.positions.clear();
        if self.stored.is_none() && self.touched.is_empty() {
            self.positions.extend(slots.iter().map(|&slot| scope.position(slot)));
            let keys = scope.keys(&self.positions);
            let bytes = target.backend.load_values(target.state, keys, target.limit, &mut out)?;
            check_result(what, bytes, target.limit)?;
            return Ok(out);
        }
        let mut positions = std::mem::take(&mut self.positions);
        positions.extend(slots.iter().filter(|&&slot| self.staged(slot).is_none()).map(|&slot| scope.position(slot)));
        let mut read = std::mem::take(&mut self.read);
        read.clear();
        let mut bytes = target.backend.load_values(target.state, scope.keys(&positions), target.limit, &mut read)?;
        check_result(what, bytes, target.limit)?;
        let mut unstaged = read.iter();
        for &slot in slots {
            let value = match self.staged(slot) {
                Some(value) => {
                    bytes += value.map_or(0, <[u8]>::len) as u64;
                    check_result(what, bytes, target.limit)?;
                    value
                }
                None => unstaged.next().expect("one value per key that is not staged"),
            };
            out.push(value);
        }
        drop(unstaged);
        (self.positions, self.read) = (positions, read);
        Ok(out)
    }

    /// Writes what is staged to the backend.
    pub(super) fn commit(&mut self, target: &mut Target<'_>, scope: &Scope) -> Result<(), StateError> {
        match &self.stored {
            Some(stored) if self.touched.is_empty() => {
                target.backend.write_values(target.state, scope.all_keys(), stored)?;
            }
            Some(stored) => {
                let values: OptionalColumn = (0..stored.len() as u32).map(|slot| self.staged(slot).flatten()).collect();
                target.backend.write_values(target.state, scope.all_keys(), &values)?;
            }
            None if self.touched.is_empty() => {}
            None => {
                let mut values = std::mem::take(&mut self.read);
                values.clear();
                self.touched.iter().for_each(|&slot| values.push(self.staged(slot).flatten()));
                self.positions.clear();
                self.positions.extend(self.touched.iter().map(|&slot| scope.position(slot)));
                target.backend.write_values(target.state, scope.keys(&self.positions), &values)?;
                self.read = values;
            }
        }
        Ok(())
    }
}
