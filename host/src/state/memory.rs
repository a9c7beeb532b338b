//! The `memory` backend.

use std::ops::Range;

use super::StateError;
use crate::operator::StateDescriptor;

/// Keyed state in memory.
#[derive(Debug)]
pub struct MemoryBackend {
    states: Vec<StateDescriptor>,
}

impl MemoryBackend {
    /// An empty backend for the key groups `groups` of `max_parallelism`, with a budget in bytes.
    #[must_use]
    pub fn new(
        operator: &str,
        states: Vec<StateDescriptor>,
        groups: Range<u32>,
        max_parallelism: u32,
        budget: u64,
    ) -> Self {
        todo!()
    }
}
