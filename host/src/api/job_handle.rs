//! A running job: follow it, cancel it, wait for its end.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::JobGraph;
use crate::env::Env;
use crate::runtime::metrics::JobMetrics;
use crate::runtime::{Job, JobOptions, JobReport};
use crate::task::{self, Task, TaskError};

/// A running job. Dropping the handle lets the job run on.
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

    /// Waits for the end of the job. Dropping the future and waiting again later is fine; once the report was returned
    /// there is nothing more to wait for.
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
    let cancel = CancellationToken::new();
    let name = graph.name().to_owned();
    let control = Arc::clone(&env.control);
    let job = Job::new(graph, env, options, cancel.clone());
    let metrics = Arc::clone(job.metrics());
    let job = task::spawn(&*control, name, job.run());
    JobHandle { cancel, metrics, job }
}
