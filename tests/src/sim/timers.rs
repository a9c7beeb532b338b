//! Virtual timers, earliest first.
//!
//! Invariant: a timer that was dropped wakes nobody and does not keep time from standing still.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::task::Waker;

/// Names a timer. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TimerId {
    sequence: u64,
    slot: usize,
}

/// All timers that are set.
#[derive(Default)]
pub(super) struct Timers {
    /// Deadlines, those of dropped timers included until they come up.
    queue: BinaryHeap<Reverse<(u64, TimerId)>>,
    slots: Vec<Option<(TimerId, Waker)>>,
    free: Vec<usize>,
    sequence: u64,
}

impl Timers {
    pub(super) fn set(&mut self, deadline_ns: u64, waker: Waker) -> TimerId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.sequence += 1;
        let id = TimerId { sequence: self.sequence, slot };
        self.slots[slot] = Some((id, waker));
        self.queue.push(Reverse((deadline_ns, id)));
        id
    }

    /// Lets another waker be woken, if the timer has not fired.
    pub(super) fn replace_waker(&mut self, id: TimerId, waker: &Waker) -> Option<Waker> {
        match &mut self.slots[id.slot] {
            Some((owner, old)) if *owner == id => {
                if old.will_wake(waker) {
                    None
                } else {
                    Some(std::mem::replace(old, waker.clone()))
                }
            }
            _ => None,
        }
    }

    /// Forgets a timer, if it has not fired. The waker is returned so that it is dropped outside of any lock.
    pub(super) fn cancel(&mut self, id: TimerId) -> Option<Waker> {
        let slot = &mut self.slots[id.slot];
        if slot.as_ref().is_none_or(|(owner, _)| *owner != id) {
            return None;
        }
        self.free.push(id.slot);
        slot.take().map(|(_, waker)| waker)
    }

    /// The earliest deadline.
    pub(super) fn next_deadline(&mut self) -> Option<u64> {
        while let Some(Reverse((deadline, id))) = self.queue.peek() {
            if self.slots[id.slot].as_ref().is_some_and(|(owner, _)| owner == id) {
                return Some(*deadline);
            }
            self.queue.pop();
        }
        None
    }

    /// Takes a timer that is due.
    pub(super) fn fire(&mut self, now_ns: u64) -> Option<Waker> {
        if self.next_deadline()? > now_ns {
            return None;
        }
        let Reverse((_, id)) = self.queue.pop()?;
        self.cancel(id)
    }
}
