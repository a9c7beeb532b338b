//! The secret that is mixed into placement hashes before they place anything in a hash table.
//!
//! Raw placement hashes do not serve there: all keys of a key group agree in them modulo the number of groups, and they
//! are public, so that whoever chooses the keys could choose the collisions as well.

use std::hash::{BuildHasher, RandomState};

/// A secret of one user of hashes. Drawn from the system; nothing that leaves the process may depend on it.
#[derive(Clone, Copy)]
pub(crate) struct HashSecret {
    mask: u64,
    multiplier: u64,
}

impl HashSecret {
    /// A fresh secret.
    pub(crate) fn random() -> Self {
        let source = RandomState::new();
        Self { mask: source.hash_one(0u8), multiplier: source.hash_one(1u8) | 1 }
    }

    /// Another hash of what `hash` is the hash of: every bit depends on every bit and on the secret.
    #[inline]
    pub(crate) fn remix(self, hash: u64) -> u64 {
        let product = u128::from(hash ^ self.mask) * u128::from(self.multiplier);
        (product as u64) ^ ((product >> 64) as u64)
    }
}
