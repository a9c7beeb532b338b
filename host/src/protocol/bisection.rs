//! Finding the records that a call fails on.
//!
//! A batch failed as a whole. The search hands out ranges to try, in the order of the records, so that effects which
//! are kept are kept in order; a failing range is halved until one record is left, which is the poison. A failure that
//! names its record shortens the search: only that record is suspect, what is around it is tried whole.
//!
//! Invariant: the ranges that succeeded and the records found poisonous together are the batch, in order, each once.

use std::ops::Range;

/// A search over the records of one failed batch.
#[derive(Clone, Debug)]
pub struct Bisection {
    /// Ranges that are still to be settled, the next one last. Those marked are known to hold exactly one record that
    /// is given up without another try.
    open: Vec<Piece>,
}

#[derive(Clone, Debug)]
enum Piece {
    Try(Range<usize>),
    Poison(usize),
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Call with these records and report how it went.
    Try(Range<usize>),
    /// This record is the poison; nothing is to be reported.
    Poison(usize),
}

impl Bisection {
    /// Begins with the failure of the whole batch of `records`, at a record if the failure named one.
    ///
    /// # Panics
    /// When there are no records: then no record is at fault.
    #[must_use]
    pub fn new(records: usize, position: Option<usize>) -> Self {
        assert!(records > 0, "a batch without records has no poison in it");
        let mut search = Self { open: Vec::new() };
        search.failed(0..records, position);
        search
    }

    /// The next step; none when the batch is settled.
    pub fn next_step(&mut self) -> Option<Step> {
        self.open.pop().map(|piece| match piece {
            Piece::Try(range) => Step::Try(range),
            Piece::Poison(record) => Step::Poison(record),
        })
    }

    /// The range of the last [`Step::Try`] failed, at a record (counted from the start of the batch) if the failure
    /// named one.
    pub fn failed(&mut self, range: Range<usize>, position: Option<usize>) {
        if range.len() == 1 {
            self.open.push(Piece::Poison(range.start));
        } else if let Some(record) = position.filter(|record| range.contains(record)) {
            self.open_range(record + 1..range.end);
            self.open.push(Piece::Poison(record));
            self.open_range(range.start..record);
        } else {
            let middle = range.start + range.len() / 2;
            self.open_range(middle..range.end);
            self.open_range(range.start..middle);
        }
    }

    fn open_range(&mut self, range: Range<usize>) {
        if !range.is_empty() {
            self.open.push(Piece::Try(range));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Exactly the poisonous records are found, and all others succeed, once each and in order.
        #[test]
        fn exactly_the_poison_is_found(records in 1usize..200, poison in prop::collection::btree_set(0usize..200, 1..20), named: bool) {
            let poison: BTreeSet<usize> = poison.into_iter().map(|record| record % records).collect();
            let first_in = |range: &Range<usize>| poison.range(range.clone()).next().copied();
            let name = |record: Option<usize>| record.filter(|_| named);
            let mut search = Bisection::new(records, name(first_in(&(0..records))));
            let (mut seen, mut tries) = (Vec::new(), 0);
            while let Some(step) = search.next_step() {
                match step {
                    Step::Poison(record) => {
                        prop_assert!(poison.contains(&record));
                        seen.push(record);
                    }
                    Step::Try(range) => {
                        tries += 1;
                        match first_in(&range) {
                            Some(record) => search.failed(range, name(Some(record))),
                            None => seen.extend(range),
                        }
                    }
                }
            }
            prop_assert_eq!(seen, (0..records).collect::<Vec<_>>());
            // Halving visits at most two ranges a level and poison; naming tries at most both sides of each.
            let bound = if named { 2 * poison.len() } else { 2 * poison.len() * (records.ilog2() as usize + 2) };
            prop_assert!(tries <= bound, "{} tries", tries);
        }
    }
}
