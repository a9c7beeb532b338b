//! Commits what sinks prepared: all of it, or, as far as can be seen beforehand, nothing.

use std::sync::Arc;
use std::time::Duration;

use super::error::JobError;
use super::metrics::JobMetrics;
use crate::api::{JobGraph, NodeKind};
use crate::connectors::{Committable, Committer, ConnectorError, Sink};
use crate::env::Env;
use crate::id::{NodeId, Owner};

/// How often a commit is tried. It is idempotent, and what failed once for want of a connection may succeed.
const TRIES: u32 = 3;

/// How long after a failed try the next one comes.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// The committers of a job's sinks.
pub(super) struct Committers {
    sinks: Vec<(NodeId, String, Arc<dyn Sink>)>,
    env: Env,
    metrics: Arc<JobMetrics>,
}

impl Committers {
    pub(super) fn new(graph: &JobGraph, env: &Env, metrics: &Arc<JobMetrics>) -> Self {
        let sinks = graph.ids().filter_map(|id| {
            let node = graph.node(id);
            let NodeKind::Sink(sink) = &node.kind else { return None };
            Some((id, node.name.clone(), Arc::clone(sink)))
        });
        Self { sinks: sinks.collect(), env: env.clone(), metrics: Arc::clone(metrics) }
    }

    /// Commits, after a look whether everything is there, so that output of which a part is gone is not committed by
    /// halves over several sinks.
    pub(super) async fn commit(&self, committables: Vec<(NodeId, Vec<Committable>)>) -> Result<(), JobError> {
        let _committing = self.metrics.commit.begin().ok_or(JobError::GivenUp)?;
        self.commit_or_try_again(committables).await
    }

    /// The same for what the job's tasks held in the end, after which nothing is left to be broken off.
    pub(super) async fn commit_last(&self, committables: Vec<(NodeId, Vec<Committable>)>) -> Result<(), JobError> {
        let committing = self.metrics.commit.begin().ok_or(JobError::GivenUp)?;
        self.commit_or_try_again(committables).await?;
        committing.was_last();
        Ok(())
    }

    async fn commit_or_try_again(&self, mut committables: Vec<(NodeId, Vec<Committable>)>) -> Result<(), JobError> {
        committables.retain(|(_, committables)| !committables.is_empty());
        let mut tries = 0;
        loop {
            let Err((sink, source)) = self.try_commit(&committables).await else { return Ok(()) };
            tries += 1;
            if tries == TRIES {
                return Err(JobError::Commit { sink: sink.to_owned(), source });
            }
            tracing::warn!(sink, error = crate::error_chain::on_one_line(&source), "could not commit, trying again");
            self.env.clock.sleep(RETRY_PAUSE).await;
        }
    }

    async fn try_commit<'a>(
        &'a self,
        committables: &[(NodeId, Vec<Committable>)],
    ) -> Result<(), (&'a str, ConnectorError)> {
        let mut ready: Vec<(&str, Box<dyn Committer>, &Vec<Committable>)> = Vec::new();
        for (node, committables) in committables {
            let sink = self.sinks.iter().find(|(id, ..)| id == node);
            let (_, name, sink) = sink.expect("only sinks have something to commit");
            let mut committer = sink.committer(&self.env);
            committer.check(committables).await.map_err(|source| (name.as_str(), source))?;
            ready.push((name, committer, committables));
        }
        for (name, mut committer, committables) in ready {
            committer.commit(committables.clone()).await.map_err(|source| (name, source))?;
        }
        Ok(())
    }

    /// Removes what attempts before this one of the same job wrote and will never commit.
    pub(super) async fn sweep(&self, before: &Owner) {
        for (_, name, sink) in &self.sinks {
            if let Err(error) = sink.committer(&self.env).sweep(before).await {
                let error = crate::error_chain::on_one_line(&error);
                tracing::warn!(sink = name, error, "could not remove uncommitted output of an earlier attempt");
            }
        }
    }
}
