//! What a channel carries, in order.

use super::Batch;
use crate::id::CheckpointId;

/// Event time in milliseconds since 1970, possibly negative.
pub type Timestamp = i64;

/// A promise that no record of an earlier or equal event time follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Watermark(pub Timestamp);

impl Watermark {
    /// The watermark behind the last record of a bounded stream.
    pub const MAX: Self = Self(Timestamp::MAX);
}

/// One element of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Records.
    Batch(Batch),
    /// Event time has come this far on this channel.
    Watermark(Watermark),
    /// What came before belongs to the checkpoint, what follows does not.
    Barrier(CheckpointId),
    /// Nothing follows.
    EndOfInput,
}

impl Message {
    /// The bytes that count against the bound of a channel: those of records, and none for what controls the flow,
    /// which must never wait for room.
    #[must_use]
    pub fn byte_size(&self) -> usize {
        match self {
            Self::Batch(batch) => batch.byte_size(),
            Self::Watermark(_) | Self::Barrier(_) | Self::EndOfInput => 0,
        }
    }
}
