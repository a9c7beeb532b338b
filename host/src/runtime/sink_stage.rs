//! A sink at the end of a chain.

use std::sync::Arc;

use super::error::{Failure, JobError};
use super::metrics::SubtaskMetrics;
use crate::clock::Clock;
use crate::connectors::{Committable, ConnectorError, SinkWriter};
use crate::id::{NodeId, SubtaskId};
use crate::record::Batch;

/// What one subtask of a sink has written and made durable, to be committed.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) node: NodeId,
    pub(super) subtask: u32,
    pub(super) committables: Vec<Committable>,
    pub(super) summary: Option<String>,
}

/// A sink's writer, driven by its subtask.
pub(super) struct SinkStage {
    pub(super) node: NodeId,
    pub(super) subtask: SubtaskId,
    pub(super) writer: Box<dyn SinkWriter>,
    pub(super) metrics: Arc<SubtaskMetrics>,
    pub(super) clock: Arc<dyn Clock>,
}

impl SinkStage {
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

    pub(super) async fn prepare(&mut self) -> Result<Written, Failure> {
        let prepared = self.writer.prepare().await.map_err(|source| self.failed(source))?;
        let committables = prepared.await.map_err(|source| self.failed(source))?;
        Ok(Written { node: self.node, subtask: self.subtask.index, committables, summary: self.writer.summary() })
    }

    fn failed(&self, source: ConnectorError) -> Failure {
        JobError::Connector { place: format!("sink {}", self.subtask), source }.into()
    }
}
