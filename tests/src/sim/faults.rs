//! What goes wrong besides crashes: errors of sources, sinks and storage, each as often as the seed says.
//!
//! Invariant: nothing strikes once the world is calm.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tidegate::random::Random;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each says what happens")]
pub enum Fault {
    SourceFails,
    EnumeratorFails,
    TargetFails,
    WriteFails,
    PrepareFails,
    /// Nothing or a part was committed.
    CommitFails,
    /// All of it was committed.
    CommitFailsAfterwards,
    SweepFails,
    StorageReadFails,
    /// It did not happen, and that is known.
    StorageChangeFails,
    /// It did not happen, and that is not known.
    StorageChangeLost,
    /// It happened, and that is not known.
    StorageChangeUnclear,
    /// It happens after the answer, which does not know it.
    StorageChangeLate,
}

/// For each fault, how rare it is: one in so many chances, at least. How often there is a chance differs widely.
const RARITIES: [(Fault, u64); 13] = [
    (Fault::SourceFails, 150),
    (Fault::EnumeratorFails, 30),
    (Fault::TargetFails, 30),
    (Fault::WriteFails, 250),
    (Fault::PrepareFails, 60),
    (Fault::CommitFails, 12),
    (Fault::CommitFailsAfterwards, 12),
    (Fault::SweepFails, 10),
    (Fault::StorageReadFails, 40),
    (Fault::StorageChangeFails, 30),
    (Fault::StorageChangeLost, 40),
    (Fault::StorageChangeUnclear, 40),
    (Fault::StorageChangeLate, 40),
];
/// In a storm storage fails so many times as often.
const STORM: u64 = 10;

/// What goes wrong in a world.
#[derive(Debug)]
pub struct Faults(Mutex<State>);

#[derive(Debug)]
struct State {
    random: Random,
    /// One in so many; never when 0.
    one_in: [u64; RARITIES.len()],
    storm: bool,
}

impl Faults {
    /// Nothing ever goes wrong.
    #[must_use]
    pub fn none() -> Self {
        Self(Mutex::new(State { random: Random::new(0), one_in: [0; RARITIES.len()], storm: false }))
    }

    /// What the seed says goes wrong: some kinds never, others often.
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        let mut random = Random::for_purpose(seed, "faults", &[]);
        let one_in = RARITIES.map(|(_, rarity)| match random.below(4) {
            0 => 0,
            1 => rarity * 8,
            _ => rarity,
        });
        Self(Mutex::new(State { random, one_in, storm: false }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this goes wrong now.
    pub fn strikes(&self, fault: Fault) -> bool {
        let state = &mut *self.lock();
        let place = fault as usize;
        let mut one_in = state.one_in[place];
        if one_in == 0 {
            return false;
        }
        if state.storm && place >= Fault::StorageReadFails as usize {
            one_in = one_in.div_ceil(STORM).max(3);
        }
        state.random.below(one_in) == 0
    }

    /// Something random about what goes wrong, below a bound.
    pub fn below(&self, bound: u64) -> u64 {
        self.lock().random.below(bound)
    }

    /// Begins or ends a storm: storage fails far more often.
    pub fn storm(&self, storm: bool) {
        self.lock().storm = storm;
    }

    /// From now on nothing goes wrong.
    pub fn calm(&self) {
        self.lock().one_in = [0; RARITIES.len()];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_in_the_order_of_the_kinds() {
        for (place, (fault, _)) in RARITIES.iter().enumerate() {
            assert_eq!(*fault as usize, place);
        }
    }

    #[test]
    fn nothing_strikes_in_a_calm() {
        let faults = Faults::from_seed(3);
        faults.storm(true);
        let strikes = || (0..10_000).any(|_| RARITIES.iter().any(|(fault, _)| faults.strikes(*fault)));
        assert!(strikes());
        faults.calm();
        assert!(!strikes());
    }
}
