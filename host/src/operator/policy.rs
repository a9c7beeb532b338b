//! What an operator may use, and what becomes of the records it fails on.

use std::time::Duration;

/// What a job does with a record on which an operator fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// The attempt fails, naming the record.
    #[default]
    Fail,
    /// The record is dropped and counted.
    Skip,
    /// The record goes to the node's output `dead-letter`, with the error.
    DeadLetter,
}

/// The largest `record-limit` of a job with operators. What crosses to and from an operator is copied in one go, which
/// takes about 8 ms for each 16 MiB, and meanwhile nothing else runs on the thread.
pub const LARGEST_RECORD_LIMIT: u64 = 128 << 20;

/// What one instance of an operator may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Linear memory, in bytes.
    pub memory_bytes: u64,
    /// Time in one call during which the guest runs; waiting for the host does not count.
    pub call: Duration,
    /// Output held back in one call, in bytes.
    pub output_bytes: u64,
    /// How many records one subtask may give up within a minute before the job fails.
    pub skipped_per_minute: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory_bytes: 256 << 20,
            call: Duration::from_secs(10),
            output_bytes: 64 << 20,
            skipped_per_minute: 10_000,
        }
    }
}
