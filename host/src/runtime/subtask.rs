//! A subtask's loop: takes events from its source or its channels, and drives the chain of stages with them.
//!
//! One task, one loop. Between two events it looks whether it is to stop and lets other tasks run; before it waits, it
//! lets go of everything that is being gathered, which is what keeps latency low when records are few.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use futures_util::future::BoxFuture;

use super::chain::{self, Outputs, Stage};
use super::error::{Failure, JobError};
use super::input::{InputEvent, InputGate};
use super::metrics::SubtaskMetrics;
use super::operator_stage::{OperatorSetup, OperatorStage};
use super::signals::Signals;
use super::sink_stage::{SinkStage, Written};
use super::splits::SplitClient;
use crate::clock::Clock;
use crate::connectors::{ConnectorError, ReaderEvent, SourceReader, Split};
use crate::id::{OutputId, SubtaskId};
use crate::record::Watermark;
use crate::task::yield_now;

/// Everything that a subtask needs to begin.
pub(super) struct SubtaskSetup {
    pub(super) head: Head,
    pub(super) stages: Vec<StageSetup>,
    pub(super) signals: Signals,
}

/// Where the events of a subtask come from.
pub(super) enum Head {
    Source(SourceHead),
    Channels(InputGate),
}

/// A stage before its operator has been made.
pub(super) enum StageSetup {
    Operator(Box<OperatorSetup>),
    Sink(SinkStage),
}

/// How a subtask ended, when it did not fail.
#[derive(Debug)]
pub(super) struct SubtaskEnd {
    /// Whether it has seen the end of its input.
    pub(super) finished: bool,
    /// What its sinks have to be committed.
    pub(super) written: Vec<Written>,
}

/// A reader at the head of a chain.
pub(super) struct SourceHead {
    pub(super) subtask: SubtaskId,
    pub(super) reader: Box<dyn SourceReader>,
    pub(super) splits: SplitClient,
    pub(super) outputs: Outputs,
    pub(super) metrics: Arc<SubtaskMetrics>,
    pub(super) clock: Arc<dyn Clock>,
}

/// Runs a subtask to its end.
pub(super) async fn run(setup: SubtaskSetup) -> Result<SubtaskEnd, JobError> {
    let SubtaskSetup { head, stages: setups, signals } = setup;
    let mut stages = Vec::with_capacity(setups.len());
    let result = drive(head, setups, &mut stages, &signals).await;
    let finished = match result {
        Ok(()) => true,
        Err(Failure::Stopped) => false,
        Err(Failure::Job(error)) => return Err(*error),
    };
    if signals.has_failed() {
        return Ok(SubtaskEnd { finished, written: Vec::new() });
    }
    match chain::prepare(&mut stages).await {
        Ok(written) => Ok(SubtaskEnd { finished, written }),
        Err(Failure::Stopped) => Ok(SubtaskEnd { finished: false, written: Vec::new() }),
        Err(Failure::Job(error)) => Err(*error),
    }
}

async fn drive(head: Head, setups: Vec<StageSetup>, stages: &mut Vec<Stage>, signals: &Signals) -> Result<(), Failure> {
    for setup in setups {
        stages.push(match setup {
            StageSetup::Operator(setup) => Stage::Operator(Box::new(OperatorStage::create(*setup).await?)),
            StageSetup::Sink(stage) => Stage::Sink(stage),
        });
    }
    match head {
        Head::Source(source) => source.run(stages, signals).await,
        Head::Channels(gate) => run_on_channels(gate, stages, signals).await,
    }
}

async fn run_on_channels(mut gate: InputGate, stages: &mut [Stage], signals: &Signals) -> Result<(), Failure> {
    loop {
        if signals.is_stopped() {
            return Err(Failure::Stopped);
        }
        let at_once = poll_fn(|context| Poll::Ready(gate.poll_next(context))).await;
        let event = match at_once {
            Poll::Ready(event) => event,
            Poll::Pending => {
                chain::flush(stages).await?;
                signals.unless_stopped(poll_fn(|context| gate.poll_next(context))).await?
            }
        };
        match event {
            InputEvent::Batch { input, batch } => {
                if let Some(spare) = chain::process(stages, input, batch).await? {
                    gate.recycle(spare);
                }
            }
            InputEvent::Watermark(watermark) => chain::watermark(stages, watermark).await?,
            InputEvent::EndOfInput { input, remaining } => {
                chain::end_of_input(stages, input, remaining).await?;
                if remaining == 0 {
                    return Ok(());
                }
            }
            // The sender's own task knows why it is gone.
            InputEvent::Lost => return Err(Failure::Stopped),
        }
        yield_now().await;
    }
}

/// A request for a split that has not been answered; its answer is none when the enumerator is gone.
type SplitRequest = BoxFuture<'static, Option<Result<Option<Split>, ConnectorError>>>;

/// What a source subtask waits for.
enum SourceEvent {
    Split(Option<Result<Option<Split>, ConnectorError>>),
    Reader(Result<ReaderEvent, ConnectorError>),
}

impl SourceHead {
    async fn run(mut self, stages: &mut [Stage], signals: &Signals) -> Result<(), Failure> {
        let mut request: Option<SplitRequest> = None;
        let (mut splits, mut more) = (0usize, true);
        while more || splits > 0 {
            if signals.is_stopped() {
                return Err(Failure::Stopped);
            }
            if more && request.is_none() && (splits == 0 || self.reader.takes_more_splits()) {
                request = Some(self.splits.next_split(self.subtask.index));
            }
            match self.next_event(&mut request, splits, stages, signals).await? {
                SourceEvent::Split(answer) => {
                    request = None;
                    match answer {
                        None => return Err(Failure::Stopped),
                        Some(Err(error)) => return Err(self.failed(error)),
                        Some(Ok(None)) => more = false,
                        Some(Ok(Some(split))) => {
                            splits += 1;
                            self.reader.add_split(split).map_err(|error| self.failed(error))?;
                        }
                    }
                }
                SourceEvent::Reader(Err(error)) => return Err(self.failed(error)),
                SourceEvent::Reader(Ok(ReaderEvent::SplitFinished(_))) => splits -= 1,
                SourceEvent::Reader(Ok(ReaderEvent::Batch(batch))) => {
                    self.metrics.records_in.add(batch.len() as u64);
                    self.outputs.send(stages, OutputId::MAIN, batch).await?;
                }
            }
            self.metrics.progress.set(self.reader.progress());
            yield_now().await;
        }
        self.outputs.watermark(Watermark::MAX).await?;
        chain::watermark(stages, Watermark::MAX).await?;
        self.outputs.end().await?;
        chain::end_of_input(stages, 0, 0).await
    }

    /// Waits for a split or records, whichever comes first; lets go of what is being gathered before it waits.
    async fn next_event(
        &mut self,
        request: &mut Option<SplitRequest>,
        splits: usize,
        stages: &mut [Stage],
        signals: &Signals,
    ) -> Result<SourceEvent, Failure> {
        let Self { reader, outputs, metrics, clock, .. } = self;
        let mut reading = (splits > 0).then(|| reader.next());
        let mut either = poll_fn(|context| {
            if let Some(request) = request
                && let Poll::Ready(answer) = request.as_mut().poll(context)
            {
                return Poll::Ready(SourceEvent::Split(answer));
            }
            match &mut reading {
                Some(reading) => reading.as_mut().poll(context).map(SourceEvent::Reader),
                None => Poll::Pending,
            }
        });
        let start = clock.monotonic();
        let at_once = poll_fn(|context| Poll::Ready(std::pin::Pin::new(&mut either).poll(context))).await;
        metrics.add_busy(start, clock.monotonic());
        if let Poll::Ready(event) = at_once {
            return Ok(event);
        }
        outputs.flush().await?;
        chain::flush(stages).await?;
        signals.unless_stopped(either).await
    }

    fn failed(&self, source: ConnectorError) -> Failure {
        JobError::Connector { place: format!("source {}", self.subtask), source }.into()
    }
}
