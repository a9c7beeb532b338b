//! A running job: follow it, cancel it, wait for its end.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::JobGraph;
use crate::connectors::ConnectorError;
use crate::env::Env;
use crate::id::SubtaskId;
use crate::operator::Fault;
use crate::runtime::metrics::JobMetrics;
use crate::task::{Task, TaskError};

/// How a job is run, besides what its graph says.
#[derive(Clone, Debug)]
pub struct JobOptions {
    /// The bound of each channel between two subtasks, in bytes.
    pub channel_bytes: usize,
    /// The largest record, in bytes.
    pub max_record_bytes: usize,
    /// What the keyed state of one subtask may take, in bytes.
    pub state_budget_bytes: u64,
    /// Distinguishes this life of the job from all others; safe in a file name.
    pub run: String,
}

/// How a job ended.
#[derive(Debug)]
pub enum Outcome {
    /// All input was processed and all output committed.
    Finished,
    /// It was asked to end, and what was written until then was committed.
    Cancelled,
    /// It failed; nothing was committed.
    Failed(JobError),
}

/// Why a job failed. Names the subtask where it began.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// An operator failed.
    #[error("operator {subtask} failed{}", .record.as_ref().map(|record| format!(" on {record}")).unwrap_or_default())]
    Operator {
        /// The subtask.
        subtask: SubtaskId,
        /// The record at fault, described, if it was found.
        record: Option<String>,
        /// What happened.
        source: Fault,
    },
    /// A source or sink failed.
    #[error("connector {subtask} failed")]
    Connector {
        /// The subtask.
        subtask: SubtaskId,
        /// What happened.
        source: ConnectorError,
    },
    /// The records on an edge are not what the edge needs.
    #[error("{subtask}: {problem}")]
    Stream {
        /// The sending subtask.
        subtask: SubtaskId,
        /// What is wrong and what to do.
        problem: String,
    },
    /// The host failed: a bug.
    #[error("the host failed at {subtask}; this is a bug in tidegate")]
    Host {
        /// The subtask.
        subtask: SubtaskId,
        /// What happened.
        source: TaskError,
    },
}

/// What a job did, in the end.
#[derive(Debug)]
pub struct JobReport {
    /// How it ended.
    pub outcome: Outcome,
    /// From start to end.
    pub elapsed: Duration,
    /// What sinks say about what they wrote, by node.
    pub summaries: Vec<(String, String)>,
}

/// A running job.
#[derive(Debug)]
pub struct JobHandle {
    cancel: CancellationToken,
    metrics: Arc<JobMetrics>,
    job: Task<JobReport>,
}

impl JobHandle {
    /// Asks the job to end in good order.
    pub fn cancel(&self) {
        self.cancel.cancel();
    }

    /// What the job has done so far.
    #[must_use]
    pub fn metrics(&self) -> &Arc<JobMetrics> {
        &self.metrics
    }

    /// Waits for the end of the job. Cancel-safe: what was reported is kept until it is returned.
    ///
    /// # Errors
    /// When the job's own task died: a bug.
    pub async fn wait(&mut self) -> Result<JobReport, TaskError> {
        (&mut self.job).await
    }
}

/// Starts a job.
#[must_use]
pub fn start(graph: JobGraph, env: Env, options: JobOptions) -> JobHandle {
    todo!("the runtime")
}
