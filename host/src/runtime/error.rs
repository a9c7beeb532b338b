//! Why a job failed, and why a subtask stopped short.

use crate::connectors::ConnectorError;
use crate::id::SubtaskId;
use crate::operator::Fault;
use crate::task::TaskError;

/// Why a job failed. Names the place where it began.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// An operator failed.
    #[error("operator {subtask} failed{}", .record.as_ref().map(|record| format!(" on the {record}")).unwrap_or_default())]
    Operator {
        /// The subtask.
        subtask: SubtaskId,
        /// The record at fault, described, if it was found.
        record: Option<String>,
        /// What happened.
        source: Fault,
    },
    /// An operator failed on more records than it may.
    #[error(
        "operator {subtask} gave up {skipped} records within a minute, over limits.skipped-per-minute = {limit}; the last one is the {record}"
    )]
    TooManySkipped {
        /// The subtask.
        subtask: SubtaskId,
        /// How many records it gave up.
        skipped: u64,
        /// How many it may.
        limit: u64,
        /// The last of them, described.
        record: String,
        /// What happened to it.
        source: Fault,
    },
    /// A source or sink failed.
    #[error("{place} failed")]
    Connector {
        /// The node, or one subtask of it.
        place: String,
        /// What happened.
        source: ConnectorError,
    },
    /// Whoever runs the job closed its gate for commits before its output was committed.
    #[error("the job was given up before its output was committed")]
    GivenUp,
    /// Output was complete and durable, but could not all be made visible.
    #[error("could not commit the output of sink {sink}")]
    Commit {
        /// The sink.
        sink: String,
        /// What happened.
        source: ConnectorError,
    },
    /// The records of an edge have no keys to hash.
    #[error(
        "{sender} sends records without keys to {receiver}, which hashes keys: set keys in {sender}, or use another partition"
    )]
    NoKeys {
        /// The sending node.
        sender: String,
        /// The receiving node.
        receiver: String,
    },
    /// The host failed.
    #[error("the host failed at {place}; this is a bug in tidegate")]
    Host {
        /// Where.
        place: String,
        /// What happened.
        source: TaskError,
    },
}

/// Why a subtask stopped short of the end of its input.
#[derive(Debug)]
pub(super) enum Failure {
    /// It was told to, or whoever it sends to has stopped.
    Stopped,
    /// It failed.
    Job(Box<JobError>),
}

impl From<JobError> for Failure {
    fn from(error: JobError) -> Self {
        Self::Job(Box::new(error))
    }
}
