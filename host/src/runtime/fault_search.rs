//! The search for the records at fault in a failed batch: `protocol::bisection` with what happened to each record and a
//! bound on the time that it takes.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use crate::operator::{GuestFault, Limits};
use crate::protocol::bisection::{Bisection, Step};

/// The search may take so many times the time that one call may take.
const SEARCH_CALLS: u32 = 10;

/// A search over the records of one failed batch.
pub(super) struct FaultSearch {
    bisection: Bisection,
    /// What happened to the records that are known to be at fault.
    faults: BTreeMap<usize, GuestFault>,
    first: GuestFault,
    budget: Duration,
    deadline: Duration,
}

impl FaultSearch {
    /// Begins with the fault of the whole batch of `records`, at a moment of monotonic time.
    pub(super) fn new(records: usize, first: GuestFault, limits: &Limits, now: Duration) -> Self {
        let budget = limits.call * SEARCH_CALLS;
        let bisection = Bisection::new(records, first.position());
        let mut search =
            Self { bisection, faults: BTreeMap::new(), first: first.clone(), budget, deadline: now + budget };
        search.note(&(0..records), first);
        search
    }

    /// The next step; none when the batch is settled.
    pub(super) fn next_step(&mut self) -> Option<Step> {
        self.bisection.next_step()
    }

    /// The range of the last [`Step::Try`] failed; the fault counts positions from the start of the range.
    pub(super) fn failed(&mut self, range: Range<usize>, fault: GuestFault) {
        let named = self.note(&range, fault);
        self.bisection.failed(range, named);
    }

    /// Takes what happened to the record of a [`Step::Poison`].
    pub(super) fn take_fault(&mut self, record: usize) -> GuestFault {
        self.faults.remove(&record).expect("a record is poison because a call on it alone failed, or named it")
    }

    /// The fault that the search began with.
    pub(super) fn into_first(self) -> GuestFault {
        self.first
    }

    /// Whether the search has taken all the time that it may.
    pub(super) fn is_over(&self, now: Duration) -> bool {
        now >= self.deadline
    }

    /// Says that the search was given up.
    pub(super) fn given_up(&self) -> String {
        let Self { budget, first, .. } = self;
        format!(
            "gave up the search for the records at fault after {budget:?} ({SEARCH_CALLS} times limits.call); the batch failed because {first}"
        )
    }

    /// Notes the fault of a range; returns the record that it names, counted from the start of the batch.
    fn note(&mut self, range: &Range<usize>, fault: GuestFault) -> Option<usize> {
        let named = fault.position().map(|position| range.start + position).filter(|record| range.contains(record));
        let settled = if range.len() == 1 { Some(range.start) } else { named };
        if let Some(record) = settled {
            self.faults.insert(record, fault);
        }
        named
    }
}
