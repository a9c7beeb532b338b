//! Key groups: how keys find their subtask, at any parallelism.
//!
//! A key belongs to a group for the life of its state; groups move between subtasks when a job is rescaled. The hash
//! only places a key: identity is the key's bytes, and hash tables mix a secret into the hash.
//!
//! Invariant: at every parallelism each group has exactly one owner, and the groups of a subtask are consecutive.

use std::ops::Range;

use xxhash_rust::xxh3::xxh3_64;

/// The number of key groups unless the job file says otherwise.
pub const DEFAULT_MAX_PARALLELISM: u32 = 128;

/// The largest number of key groups, and so of subtasks of a node.
pub const LARGEST_MAX_PARALLELISM: u32 = 32_768;

/// The placement hash of a key. Part of every format that keeps keyed state: it must never change.
#[inline]
#[must_use]
pub fn hash(key: &[u8]) -> u64 {
    xxh3_64(key)
}

/// The group of a key with this hash.
#[inline]
#[must_use]
pub fn group_of(hash: u64, max_parallelism: u32) -> u32 {
    u32::try_from(hash % u64::from(max_parallelism)).expect("below max_parallelism")
}

/// The subtask that owns a group.
#[inline]
#[must_use]
pub fn owner_of(group: u32, parallelism: u32, max_parallelism: u32) -> u32 {
    u32::try_from(u64::from(group) * u64::from(parallelism) / u64::from(max_parallelism)).expect("below parallelism")
}

/// The groups that a subtask owns.
#[must_use]
pub fn groups_of(subtask: u32, parallelism: u32, max_parallelism: u32) -> Range<u32> {
    // The least group with `group * parallelism >= subtask * max_parallelism`.
    let start = |subtask: u32| {
        let product = u64::from(subtask) * u64::from(max_parallelism);
        u32::try_from(product.div_ceil(u64::from(parallelism))).expect("at most max_parallelism")
    };
    start(subtask)..start(subtask + 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Snapshots depend on these numbers, which the reference implementation in C gives as well.
    #[test]
    fn the_hash_is_pinned() {
        assert_eq!(hash(b""), 0x2d06_8005_38d3_94c2);
        assert_eq!(hash(b"tidegate"), 0x8b24_8326_36a0_c0cc);
        assert_eq!(hash(&[0xff; 300]), 0xa6eb_8a92_d637_e066);
    }

    proptest! {
        /// Every group has one owner, which names it among its own, so rescaling moves whole groups.
        #[test]
        fn every_group_has_one_owner(parallelism in 1u32..=64, spare in 0u32..=1024) {
            let groups = parallelism + spare;
            let owned: Vec<u32> = (0..parallelism).flat_map(|subtask| groups_of(subtask, parallelism, groups)).collect();
            prop_assert_eq!(owned, (0..groups).collect::<Vec<_>>());
            for group in 0..groups {
                prop_assert!(groups_of(owner_of(group, parallelism, groups), parallelism, groups).contains(&group));
            }
        }
    }
}
