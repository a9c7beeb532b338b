//! Why a job failed, and why a subtask stopped short.

use std::sync::Arc;

use super::load_state::LoadError;
use super::snapshot::SaveError;
use super::store::{PersistError, StartError};
use crate::checkpoint::metadata_file;
use crate::connectors::ConnectorError;
use crate::error_chain::on_one_line;
use crate::id::{CheckpointId, SubtaskId};
use crate::operator::Fault;
use crate::protocol::coordinator::TooManyFailures;
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
    /// What a sink wrote could not be made durable.
    #[error("sink {subtask} failed")]
    Prepare {
        /// The subtask.
        subtask: SubtaskId,
        /// What happened.
        source: Arc<ConnectorError>,
    },
    /// What a subtask held in the end could not be made durable.
    #[error("could not save what was held in the end")]
    Snapshot {
        /// What happened.
        source: SaveError,
    },
    /// It is not known whether a checkpoint is complete, or another process has taken the job over.
    #[error("could not complete {checkpoint}")]
    Persist {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// What happened.
        source: PersistError,
    },
    /// The state of a subtask could not be read back.
    #[error("could not restore {subtask}")]
    Restore {
        /// The subtask.
        subtask: SubtaskId,
        /// What happened.
        source: LoadError,
    },
    /// Too many checkpoints failed in a row.
    #[error("{failures}: {}", .problem.as_deref().map_or(.failures.reason.to_string(), |problem| on_one_line(problem)))]
    Checkpoints {
        /// How many, and why the last one did.
        failures: TooManyFailures,
        /// What happened to the last one, in detail.
        problem: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// The job's directory of checkpoints could not be opened, or does not allow the start.
    #[error("cannot start from {place}")]
    Start {
        /// The directory or checkpoint.
        place: String,
        /// What happened.
        source: StartError,
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

impl JobError {
    /// Whether a restart would meet the same again, or is not allowed any more.
    pub(super) fn is_final(&self) -> bool {
        match self {
            Self::Persist { source, .. } => matches!(source, PersistError::Fenced { .. }),
            Self::Start { source, .. } => match source {
                StartError::Storage(_) | StartError::Log(_) => false,
                StartError::Load(error) => !matches!(error, metadata_file::LoadError::Storage(_)),
                StartError::Directory(_) | StartError::Lock(_) | StartError::Claim(_) | StartError::Restore { .. } => {
                    true
                }
            },
            // What is damaged stays so.
            Self::Restore { source, .. } => matches!(source, LoadError::Damaged { .. } | LoadError::State { .. }),
            Self::NoKeys { .. } | Self::GivenUp => true,
            Self::Operator { .. }
            | Self::TooManySkipped { .. }
            | Self::Connector { .. }
            | Self::Commit { .. }
            | Self::Prepare { .. }
            | Self::Snapshot { .. }
            | Self::Checkpoints { .. }
            | Self::Host { .. } => false,
        }
    }
}

impl From<SaveError> for JobError {
    fn from(error: SaveError) -> Self {
        match error {
            SaveError::Sink { subtask, source } => Self::Prepare { subtask, source },
            source @ (SaveError::Storage { .. } | SaveError::Encoder { .. }) => Self::Snapshot { source },
        }
    }
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
