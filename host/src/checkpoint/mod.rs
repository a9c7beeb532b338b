//! What is durable of a job: where it is kept and what it looks like there.
//!
//! Owns storage, the layout of a job's directory, the formats of the files in it and the log that says which of them
//! count. What goes into a checkpoint is gathered by the runtime; subtasks, operators' code and state backends are not
//! known here.

pub mod choose;
pub mod directory;
mod envelope;
pub mod garbage;
pub mod listing;
mod local;
pub mod lock;
pub mod metadata;
pub mod metadata_file;
mod object_store;
pub mod run_log;
mod settle;
pub mod storage;

pub use envelope::EnvelopeError;
pub use object_store::{MemoryOnly, SystemStorage, memory};
