//! A sink at the end of a chain.
//!
//! At a barrier the epoch's output is cut off and made durable in the background. It rides in every cut from then on
//! until its commit is known, so that a checkpoint that is given up strands nothing.

use std::collections::VecDeque;
use std::sync::Arc;

use super::cut::{CutPart, Held, PreparedEpoch};
use super::error::{Failure, JobError};
use super::metrics::SubtaskMetrics;
use crate::clock::Clock;
use crate::connectors::{ConnectorError, SinkWriter};
use crate::id::{CheckpointId, NodeId, SubtaskId};
use crate::record::Batch;

/// A sink's writer, driven by its subtask.
pub(super) struct SinkStage {
    node: NodeId,
    subtask: SubtaskId,
    writer: Box<dyn SinkWriter>,
    metrics: Arc<SubtaskMetrics>,
    clock: Arc<dyn Clock>,
    /// What was cut off and is not known to be committed, by the checkpoint that cut it off, the oldest first.
    uncommitted: VecDeque<(CheckpointId, PreparedEpoch)>,
}

impl SinkStage {
    pub(super) fn new(
        node: NodeId,
        subtask: SubtaskId,
        writer: Box<dyn SinkWriter>,
        metrics: Arc<SubtaskMetrics>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self { node, subtask, writer, metrics, clock, uncommitted: VecDeque::new() }
    }

    pub(super) async fn write(&mut self, batch: Batch) -> Result<Batch, Failure> {
        self.metrics.records_in.add(batch.len() as u64);
        let start = self.clock.monotonic();
        let result = self.writer.write(&batch).await;
        self.metrics.add_busy(start, self.clock.monotonic());
        result.map_err(|source| self.failed(source))?;
        self.metrics.records_out.add(batch.len() as u64);
        Ok(batch)
    }

    pub(super) async fn flush(&mut self) -> Result<(), Failure> {
        let result = self.writer.flush().await;
        result.map_err(|source| self.failed(source))
    }

    /// Cuts off what was written since the last cut: for a checkpoint, or for good.
    pub(super) async fn cut(&mut self, checkpoint: Option<CheckpointId>) -> Result<CutPart, Failure> {
        let prepared = self.writer.prepare().await.map_err(|source| self.failed(source))?;
        let epoch = PreparedEpoch::new(prepared);
        let mut epochs: Vec<_> = self.uncommitted.iter().map(|(_, epoch)| epoch.clone()).collect();
        epochs.push(epoch.clone());
        // Behind the last cut nothing follows that could carry it once more: its owner keeps it.
        self.uncommitted.extend(checkpoint.map(|checkpoint| (checkpoint, epoch)));
        let held = Held::Sink { prepared: epochs, summary: self.writer.summary() };
        Ok(CutPart { node: self.node, subtask: self.subtask.clone(), finished: false, held })
    }

    /// A checkpoint has been committed, and all before it.
    pub(super) fn committed(&mut self, checkpoint: CheckpointId) {
        while self.uncommitted.front().is_some_and(|(cut, _)| *cut <= checkpoint) {
            self.uncommitted.pop_front();
        }
    }

    fn failed(&self, source: ConnectorError) -> Failure {
        JobError::Connector { place: format!("sink {}", self.subtask), source }.into()
    }
}
