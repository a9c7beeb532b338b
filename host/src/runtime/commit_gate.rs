//! Whether a job is making output visible, which must not be broken off, and whether it still may.
//!
//! What always holds: once the gate is closed nothing is committed, and it does not close while something is.

use std::sync::atomic::{AtomicU32, Ordering};

/// No commit is under way, and none will be.
const CLOSED: u32 = u32::MAX;

/// Stands before every commit of a job.
#[derive(Debug, Default)]
pub struct CommitGate(AtomicU32);

/// A commit that is under way, until it is dropped.
#[derive(Debug)]
pub(super) struct Committing<'a>(&'a CommitGate);

impl CommitGate {
    /// Begins a commit; none if the gate is closed.
    pub(super) fn begin(&self) -> Option<Committing<'_>> {
        let more = |commits: u32| if commits == CLOSED { None } else { commits.checked_add(1) };
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok().map(|_| Committing(self))
    }

    /// Closes the gate for good, unless a commit is under way. Returns whether it is closed.
    pub fn close(&self) -> bool {
        match self.0.compare_exchange(0, CLOSED, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => true,
            Err(commits) => commits == CLOSED,
        }
    }
}

impl Committing<'_> {
    /// It was the last one: the job is over but for saying so, and is not broken off any more.
    pub(super) fn was_last(self) {
        std::mem::forget(self);
    }
}

impl Drop for Committing<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_is_not_broken_off_and_none_begins_afterwards() {
        let gate = CommitGate::default();
        let (one, other) = (gate.begin().unwrap(), gate.begin().unwrap());
        assert!(!gate.close());
        drop(one);
        assert!(!gate.close());
        drop(other);
        assert!(gate.close() && gate.close());
        assert!(gate.begin().is_none());
        let gate = CommitGate::default();
        gate.begin().unwrap().was_last();
        assert!(!gate.close());
    }
}
