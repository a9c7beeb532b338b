//! The keys of one call: which distinct ones there are, and which record has which.
//!
//! The keys of a batch are told apart at most once per call, when state is first used, with a table that is reused from
//! batch to batch. Placement hashes speed that up; what decides is the bytes of the keys.

use std::sync::Arc;

use super::super::RuleViolation;
use crate::protocol::key_group;
use crate::record::Batch;
use crate::state::{HashSecret, Keys};

/// The scope of a call.
pub(super) struct Scope {
    batch: Option<Arc<Batch>>,
    /// Whether the records are at the subtask that owns their keys.
    placed: bool,
    /// The placement hashes of the batch when it came without.
    hashes: Vec<u64>,
    resolved: bool,
    /// The slot of each record.
    slots: Vec<u32>,
    /// The first record of each slot.
    firsts: Vec<u32>,
    /// Open addressing: 32 bits of the remixed hash, then the slot plus 1; 0 is free.
    buckets: Vec<u64>,
    secret: HashSecret,
    /// For each slot, the round in which it was seen last. For telling slots that are named twice.
    rounds: Vec<u32>,
    round: u32,
}

impl Scope {
    /// No call is running.
    pub(super) fn new() -> Self {
        Self {
            batch: None,
            placed: false,
            hashes: Vec::new(),
            resolved: false,
            slots: Vec::new(),
            firsts: Vec::new(),
            buckets: Vec::new(),
            secret: HashSecret::random(),
            rounds: Vec::new(),
            round: 0,
        }
    }

    /// A call begins, with these records if it is about records, which are `placed` if they came to the owner of their
    /// keys.
    pub(super) fn begin(&mut self, batch: Option<Arc<Batch>>, placed: bool) {
        self.batch = batch;
        self.placed = placed;
        self.resolved = false;
    }

    /// How many records the call is about.
    pub(super) fn records(&self) -> usize {
        self.batch.as_ref().map_or(0, |batch| batch.len())
    }

    /// The slot of each record; none when they have no keys.
    pub(super) fn slots(&mut self) -> Result<&[u32], RuleViolation> {
        match &self.batch {
            None => Err(RuleViolation::Scope { function: "slots", place: "outside process" }),
            Some(batch) if !batch.is_keyed() || !self.placed => Ok(&[]),
            Some(_) => {
                self.resolve();
                Ok(&self.slots)
            }
        }
    }

    /// Lets a function use the keys of the call and returns how many there are.
    #[inline]
    pub(super) fn enter(&mut self, function: &'static str) -> Result<usize, RuleViolation> {
        match &self.batch {
            None => Err(RuleViolation::Scope { function, place: "outside process" }),
            Some(batch) if !batch.is_keyed() => {
                Err(RuleViolation::Scope { function, place: "on an input without keys" })
            }
            Some(_) if !self.placed => {
                Err(RuleViolation::Scope { function, place: "on an input that is not partitioned by key" })
            }
            Some(_) => {
                self.resolve();
                Ok(self.firsts.len())
            }
        }
    }

    /// Checks that the call has these slots.
    #[inline]
    pub(super) fn check_slots(&self, slots: &[u32]) -> Result<(), RuleViolation> {
        let count = self.firsts.len();
        // One pass without a branch per element, so that it vectorises.
        if slots.iter().fold(0, |most, &slot| most.max(slot)) < count as u32 {
            return Ok(());
        }
        match slots.iter().find(|&&slot| slot as usize >= count) {
            Some(&slot) => Err(RuleViolation::Slot { slot, slots: count }),
            None => Ok(()),
        }
    }

    /// Checks that the call has these slots and that none appears twice.
    pub(super) fn check_distinct(&mut self, slots: &[u32]) -> Result<(), RuleViolation> {
        self.check_slots(slots)?;
        self.rounds.resize(self.firsts.len(), 0);
        self.round = self.round.wrapping_add(1);
        if self.round == 0 {
            self.rounds.fill(0);
            self.round = 1;
        }
        for &slot in slots {
            if std::mem::replace(&mut self.rounds[slot as usize], self.round) == self.round {
                return Err(RuleViolation::SlotTwice { slot });
            }
        }
        Ok(())
    }

    /// The record that shows the key of a slot.
    #[inline]
    pub(super) fn position(&self, slot: u32) -> u32 {
        self.firsts[slot as usize]
    }

    /// The keys at these positions, in a call that was entered.
    #[inline]
    pub(super) fn keys<'a>(&'a self, positions: &'a [u32]) -> Keys<'a> {
        let batch = self.batch.as_deref().expect("the call was entered");
        let hashes = if batch.hashes().len() == batch.len() { batch.hashes() } else { &self.hashes };
        Keys { column: batch.keys(), hashes, positions }
    }

    /// The keys of all slots, in a call that was entered.
    #[inline]
    pub(super) fn all_keys(&self) -> Keys<'_> {
        self.keys(&self.firsts)
    }

    fn resolve(&mut self) {
        if self.resolved {
            return;
        }
        let batch = self.batch.as_deref().expect("a batch is at hand");
        let (keys, records) = (batch.keys(), batch.len());
        let hashes = if batch.hashes().len() == records {
            batch.hashes()
        } else {
            self.hashes.clear();
            self.hashes.extend(keys.iter().map(key_group::hash));
            &self.hashes
        };
        // Half full at most. A smaller batch uses the front part, so that clearing costs what the batch costs.
        let size = (records * 2).next_power_of_two();
        if self.buckets.len() < size {
            self.buckets.resize(size, 0);
        }
        let buckets = &mut self.buckets[..size];
        buckets.fill(0);
        self.slots.clear();
        self.firsts.clear();
        for (record, (key, &hash)) in keys.iter().zip(hashes).enumerate() {
            let remixed = self.secret.remix(hash);
            let tag = remixed >> 32;
            let mut bucket = remixed as usize & (size - 1);
            let slot = loop {
                let found = buckets[bucket];
                if found == 0 {
                    let slot = self.firsts.len() as u32;
                    buckets[bucket] = tag << 32 | u64::from(slot + 1);
                    self.firsts.push(record as u32);
                    break slot;
                }
                let slot = found as u32 - 1;
                if found >> 32 == tag && keys.get(self.firsts[slot as usize] as usize) == key {
                    break slot;
                }
                bucket = (bucket + 1) & (size - 1);
            };
            self.slots.push(slot);
        }
        self.resolved = true;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn batch(keys: &[Vec<u8>]) -> Arc<Batch> {
        let mut batch = Batch::new();
        keys.iter().for_each(|key| batch.push(Some(key), b"", None));
        Arc::new(batch)
    }

    proptest! {
        /// Equal keys have equal slots, in the order in which they first appear, whatever came in earlier batches.
        #[test]
        fn slots_follow_first_appearance(batches in prop::collection::vec(prop::collection::vec("[ab]{0,3}", 1..40), 1..4)) {
            let mut scope = Scope::new();
            for keys in batches {
                let keys: Vec<Vec<u8>> = keys.into_iter().map(String::into_bytes).collect();
                scope.begin(Some(batch(&keys)), true);
                let mut distinct: Vec<&Vec<u8>> = Vec::new();
                let expected: Vec<u32> = keys.iter().map(|key| {
                    distinct.iter().position(|seen| *seen == key).unwrap_or_else(|| {
                        distinct.push(key);
                        distinct.len() - 1
                    }) as u32
                }).collect();
                prop_assert_eq!(scope.slots().unwrap(), &expected);
                let all: Vec<&[u8]> = scope.all_keys().iter().map(|(key, _)| key).collect();
                prop_assert_eq!(all, distinct.iter().map(|key| key.as_slice()).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn keys_with_one_hash_are_told_apart_by_their_bytes() {
        let mut records = Batch::new();
        for key in ["a", "b", "a", "c"] {
            records.push(Some(key.as_bytes()), b"", None);
        }
        records.set_hashes(|_| 7);
        let mut scope = Scope::new();
        scope.begin(Some(Arc::new(records)), true);
        assert_eq!(scope.slots().unwrap(), [0, 1, 0, 2]);
        assert_eq!(scope.check_slots(&[2, 3]), Err(RuleViolation::Slot { slot: 3, slots: 3 }));
        assert_eq!(scope.check_distinct(&[2, 0]), Ok(()));
        assert_eq!(scope.check_distinct(&[2, 0, 2]), Err(RuleViolation::SlotTwice { slot: 2 }));
    }
}
