//! State backends: where keyed state lives.
//!
//! A backend keeps values, lists and maps by state and key for the key groups of one operator subtask. It knows nothing
//! of slots, batches or staging: `operator::KeyedState` stands between it and a call.

mod backend;
mod memory;
mod secret;

pub use backend::{Keys, MapPage, StateBackend, StateError, StateIndex};
pub use memory::MemoryBackend;
pub(crate) use secret::HashSecret;
