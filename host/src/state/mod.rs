//! State backends: where keyed state lives.
//!
//! A backend keeps values, lists and maps by state and key for the key groups of one operator subtask. It knows nothing
//! of slots, batches or staging: `operator::KeyedState` stands between it and a call.

mod backend;
mod frame;
mod frozen;
mod memory;
mod secret;
pub mod snapshot;

pub use backend::{Keys, MapPage, StateBackend, StateError, StateIndex};
pub use frame::Framed;
pub use frozen::{FrozenState, Payload, Place};
pub use memory::MemoryBackend;
pub(crate) use secret::HashSecret;
