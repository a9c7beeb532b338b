//! Something for each slot that a call has touched.
//!
//! Slots are few and dense, so it is kept in a vector that grows to the call with the most slots; forgetting takes as
//! long as there are slots that were touched.

/// What there is for each slot that was touched since the last reset.
#[derive(Debug)]
pub(super) struct SlotMap<T> {
    /// By slot; or nothing.
    entries: Vec<Option<T>>,
    touched: Vec<u32>,
}

impl<T> Default for SlotMap<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), touched: Vec::new() }
    }
}

impl<T: Copy + Default> SlotMap<T> {
    /// Forgets everything.
    pub(super) fn reset(&mut self) {
        for slot in self.touched.drain(..) {
            self.entries[slot as usize] = None;
        }
    }

    /// What there is for one of `slots` slots, touched from now on.
    pub(super) fn touch(&mut self, slots: usize, slot: u32) -> &mut T {
        if self.entries.len() < slots {
            self.entries.resize(slots, None);
        }
        let touched = &mut self.touched;
        self.entries[slot as usize].get_or_insert_with(|| {
            touched.push(slot);
            T::default()
        })
    }

    /// What there is for a slot, if it was touched.
    pub(super) fn get(&self, slot: u32) -> Option<T> {
        self.entries.get(slot as usize).copied().flatten()
    }

    /// The slots that were touched, in the order in which they were first.
    pub(super) fn touched(&self) -> &[u32] {
        &self.touched
    }
}
