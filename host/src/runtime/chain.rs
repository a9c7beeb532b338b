//! Chains: operators and a sink that share a task, without channels between them.
//!
//! What an operator emits is handed to the stage behind while the emitter is suspended, so a chain holds one batch per
//! link however much a record turns into. Watermarks, barriers and ends enter between the head's calls and pass the stages in
//! order.

use futures_util::future::BoxFuture;

use super::cut::CutPart;
use super::error::Failure;
use super::operator_stage::OperatorStage;
use super::output::{OutputEdge, Pressure};
use super::sink_stage::SinkStage;
use crate::id::{CheckpointId, OutputId};
use crate::record::{Batch, Watermark};

/// One part of a chain.
pub(super) enum Stage {
    Operator(Box<OperatorStage>),
    Sink(SinkStage),
}

/// Hands records to the first stage. Gives back a batch whose buffers can be used again, if there is one.
pub(super) fn process<'a>(
    stages: &'a mut [Stage],
    input: u32,
    batch: Batch,
) -> BoxFuture<'a, Result<Option<Batch>, Failure>> {
    Box::pin(async move {
        match stages.split_first_mut() {
            Some((Stage::Operator(stage), rest)) => stage.process(rest, input, batch).await,
            Some((Stage::Sink(stage), _)) => stage.write(batch).await.map(Some),
            None => Ok(Some(batch)),
        }
    })
}

/// Lets a watermark pass all stages.
pub(super) async fn watermark(stages: &mut [Stage], watermark: Watermark) -> Result<(), Failure> {
    for index in 0..stages.len() {
        let (stage, rest) = stages[index..].split_first_mut().expect("the index is in range");
        if let Stage::Operator(stage) = stage {
            stage.watermark(rest, watermark).await?;
        }
    }
    Ok(())
}

/// Tells the first stage that an input has ended and, when it was the last one, all stages behind in order.
pub(super) async fn end_of_input(stages: &mut [Stage], input: u32, remaining: u32) -> Result<(), Failure> {
    for index in 0..stages.len() {
        let (stage, rest) = stages[index..].split_first_mut().expect("the index is in range");
        // Stages behind the first have one input each, which ends with the first stage's last.
        let input = if index == 0 { input } else { 0 };
        if let Stage::Operator(stage) = stage {
            stage.end_of_input(rest, input, remaining).await?;
        }
        if remaining > 0 {
            break;
        }
    }
    Ok(())
}

/// Lets go of everything that is being gathered, since nothing is at hand.
pub(super) async fn flush(stages: &mut [Stage]) -> Result<(), Failure> {
    for stage in stages {
        match stage {
            Stage::Operator(stage) => stage.flush().await?,
            Stage::Sink(stage) => stage.flush().await?,
        }
    }
    Ok(())
}

/// Lets a barrier pass all stages, and takes what each of them holds at that point.
pub(super) async fn barrier(stages: &mut [Stage], checkpoint: CheckpointId) -> Result<Vec<CutPart>, Failure> {
    let mut parts = Vec::with_capacity(stages.len() + 1);
    for stage in stages {
        parts.push(match stage {
            Stage::Operator(stage) => stage.barrier(checkpoint).await?,
            Stage::Sink(stage) => stage.cut(Some(checkpoint)).await?,
        });
    }
    Ok(parts)
}

/// Takes what each stage holds when nothing more will happen.
pub(super) async fn final_cut(stages: &mut [Stage]) -> Result<Vec<CutPart>, Failure> {
    let mut parts = Vec::with_capacity(stages.len() + 1);
    for stage in stages {
        parts.push(match stage {
            Stage::Operator(stage) => stage.cut(),
            Stage::Sink(stage) => stage.cut(None).await?,
        });
    }
    Ok(parts)
}

/// A checkpoint has been committed, and all before it.
pub(super) fn committed(stages: &mut [Stage], checkpoint: CheckpointId) {
    for stage in stages {
        if let Stage::Sink(stage) = stage {
            stage.committed(checkpoint);
        }
    }
}

/// The outgoing side of a stage or source: the edges to other tasks, and the output that the next stage consumes.
pub(super) struct Outputs {
    /// The output that feeds the next stage of the chain, if there is one.
    pub(super) chained: Option<OutputId>,
    pub(super) edges: Vec<OutputEdge>,
    pub(super) pressure: Pressure,
    /// Whether anything may be gathered in a builder.
    pub(super) gathering: bool,
}

impl Outputs {
    /// Sends records on their way, to channels and to the stages behind. Gives back a batch whose buffers can be used
    /// again, if there is one.
    pub(super) async fn send(
        &mut self,
        rest: &mut [Stage],
        output: OutputId,
        batch: Batch,
    ) -> Result<Option<Batch>, Failure> {
        self.pressure.metrics.records_out.add(batch.len() as u64);
        let chained = self.chained == Some(output);
        let last_edge = self.edges.iter().rposition(|edge| edge.output() == output);
        let mut batch = Some(batch);
        for index in 0..last_edge.map_or(0, |last| last + 1) {
            if self.edges[index].output() != output {
                continue;
            }
            self.gathering = true;
            // The last consumer gets the batch itself, the others copies.
            let last = Some(index) == last_edge && !chained;
            let copy = if last { batch.take() } else { batch.clone() };
            let Some(copy) = copy else { break };
            let spare = self.edges[index].write(copy, &self.pressure).await?;
            if last {
                return Ok(spare);
            }
        }
        match batch {
            Some(batch) if chained => process(rest, 0, batch).await,
            batch => Ok(batch),
        }
    }

    pub(super) async fn flush(&mut self) -> Result<(), Failure> {
        if std::mem::take(&mut self.gathering) {
            for edge in &mut self.edges {
                edge.flush(&self.pressure).await?;
            }
        }
        Ok(())
    }

    pub(super) async fn watermark(&mut self, watermark: Watermark) -> Result<(), Failure> {
        for edge in &mut self.edges {
            edge.watermark(watermark, &self.pressure).await?;
        }
        Ok(())
    }

    pub(super) async fn barrier(&mut self, checkpoint: CheckpointId) -> Result<(), Failure> {
        for edge in &mut self.edges {
            edge.barrier(checkpoint, &self.pressure).await?;
        }
        Ok(())
    }

    pub(super) async fn end(&mut self) -> Result<(), Failure> {
        for edge in &mut self.edges {
            edge.end(&self.pressure).await?;
        }
        Ok(())
    }
}
