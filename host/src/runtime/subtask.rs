//! A subtask's loop: takes events from its source or its channels, and drives the chain of stages with them.
//!
//! One task, one loop. Between two events it looks whether it is to stop and lets other tasks run; before it waits, it
//! lets go of everything that is being gathered, which is what keeps latency low when records are few.
//!
//! At a barrier the task passes it on, cuts off what its stages hold, and goes on; the cut becomes durable meanwhile.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use super::chain::{self, Outputs, Stage};
use super::cut::{Cut, CutPart, Held};
use super::epochs::{Epochs, Notices};
use super::error::{Failure, JobError};
use super::input::{InputEvent, InputGate};
use super::metrics::SubtaskMetrics;
use super::operator_stage::{OperatorSetup, OperatorStage};
use super::signals::Signals;
use super::sink_stage::SinkStage;
use super::splits::{SourceOrder, SplitClient};
use crate::clock::Clock;
use crate::connectors::{ConnectorError, ReaderEvent, SourceReader};
use crate::id::{CheckpointId, NodeId, OutputId, SubtaskId};
use crate::record::Watermark;
use crate::task::yield_now;

/// Everything that a subtask needs to begin.
pub(super) struct SubtaskSetup {
    pub(super) head: Head,
    pub(super) stages: Vec<StageSetup>,
    pub(super) signals: Signals,
    pub(super) epochs: Epochs,
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

/// A reader at the head of a chain.
pub(super) struct SourceHead {
    pub(super) node: NodeId,
    pub(super) subtask: SubtaskId,
    /// All readers of the source had come to the end in an earlier attempt.
    pub(super) finished: bool,
    pub(super) reader: Box<dyn SourceReader>,
    pub(super) splits: SplitClient,
    pub(super) outputs: Outputs,
    pub(super) metrics: Arc<SubtaskMetrics>,
    pub(super) clock: Arc<dyn Clock>,
}

/// How a subtask ended, when it did not fail.
#[derive(Debug)]
pub(super) struct SubtaskEnd {
    /// What it holds; nothing when all was to be thrown away.
    pub(super) cut: Cut,
    /// The last checkpoint whose barrier it passed on.
    pub(super) last_barrier: Option<CheckpointId>,
}

/// Runs a subtask to its end.
pub(super) async fn run(setup: SubtaskSetup) -> Result<SubtaskEnd, JobError> {
    let SubtaskSetup { mut head, stages: setups, signals, epochs } = setup;
    let mut task = SubtaskLoop { stages: Vec::with_capacity(setups.len()), signals, epochs };
    let result = task.drive(&mut head, setups).await;
    let cut = match result {
        Ok(()) => task.final_cut(head.cut(), true).await,
        Err(Failure::Stopped) if task.signals.has_failed() => Err(Failure::Stopped),
        Err(Failure::Stopped) => task.final_cut(head.cut(), false).await,
        Err(failure) => Err(failure),
    };
    let cut = match cut {
        Ok(cut) => cut,
        Err(Failure::Stopped) => Cut { finished: false, parts: Vec::new() },
        Err(Failure::Job(error)) => return Err(*error),
    };
    Ok(SubtaskEnd { cut, last_barrier: task.epochs.last_barrier() })
}

impl Head {
    /// What a source holds; channels hold nothing.
    fn cut(&self) -> Option<CutPart> {
        match self {
            Self::Source(source) => Some(source.cut()),
            Self::Channels(_) => None,
        }
    }
}

/// The stages of a task and who tells it what to do.
struct SubtaskLoop {
    stages: Vec<Stage>,
    signals: Signals,
    epochs: Epochs,
}

/// What a task on channels waits for.
enum Wake {
    Input(InputEvent),
    News(Notices),
}

impl SubtaskLoop {
    async fn drive(&mut self, head: &mut Head, setups: Vec<StageSetup>) -> Result<(), Failure> {
        for setup in setups {
            self.stages.push(match setup {
                StageSetup::Operator(setup) => Stage::Operator(Box::new(OperatorStage::create(*setup).await?)),
                StageSetup::Sink(stage) => Stage::Sink(stage),
            });
        }
        match head {
            Head::Source(source) => source.run(self).await,
            Head::Channels(gate) => self.run_on_channels(gate).await,
        }
    }

    async fn run_on_channels(&mut self, gate: &mut InputGate) -> Result<(), Failure> {
        loop {
            if self.signals.is_stopped() {
                return Err(Failure::Stopped);
            }
            if let Some(notices) = self.epochs.news() {
                self.hear(notices, Some(gate));
            }
            let event = match self.next_event(gate).await? {
                Wake::Input(event) => event,
                Wake::News(notices) => {
                    self.hear(notices, Some(gate));
                    continue;
                }
            };
            match event {
                InputEvent::Batch { input, batch } => {
                    if let Some(spare) = chain::process(&mut self.stages, input, batch).await? {
                        gate.recycle(spare);
                    }
                }
                InputEvent::Watermark(watermark) => chain::watermark(&mut self.stages, watermark).await?,
                InputEvent::Barrier(checkpoint) => {
                    let parts = chain::barrier(&mut self.stages, checkpoint).await?;
                    self.epochs.save(checkpoint, Cut { finished: false, parts });
                }
                InputEvent::EndOfInput { input, remaining } => {
                    chain::end_of_input(&mut self.stages, input, remaining).await?;
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

    /// Waits for input or news; lets go of what is being gathered before it waits.
    async fn next_event(&mut self, gate: &mut InputGate) -> Result<Wake, Failure> {
        let at_once = poll_fn(|context| Poll::Ready(gate.poll_next(context))).await;
        if let Poll::Ready(event) = at_once {
            return Ok(Wake::Input(event));
        }
        chain::flush(&mut self.stages).await?;
        let mut news = pin!(self.epochs.wait_for_news());
        let either = poll_fn(|context| {
            if let Poll::Ready(notices) = news.as_mut().poll(context) {
                return Poll::Ready(Wake::News(notices));
            }
            gate.poll_next(context).map(Wake::Input)
        });
        self.signals.unless_stopped(either).await
    }

    /// Acts on what the coordinator lets all subtasks know.
    fn hear(&mut self, notices: Notices, gate: Option<&mut InputGate>) {
        if let Some(aborted) = notices.aborted {
            self.epochs.abort(aborted);
            if let Some(gate) = gate {
                gate.abort(aborted);
            }
        }
        if let Some(committed) = notices.committed {
            chain::committed(&mut self.stages, committed);
        }
    }

    /// What the task holds when nothing more will happen.
    async fn final_cut(&mut self, head: Option<CutPart>, finished: bool) -> Result<Cut, Failure> {
        let mut parts = Vec::from_iter(head);
        parts.append(&mut chain::final_cut(&mut self.stages).await?);
        Ok(Cut { finished, parts })
    }
}

/// What a source subtask waits for.
enum SourceEvent {
    /// None when the enumerator is gone.
    Order(Option<SourceOrder>),
    Reader(Result<ReaderEvent, ConnectorError>),
    News(Notices),
}

impl SourceHead {
    async fn run(&mut self, task: &mut SubtaskLoop) -> Result<(), Failure> {
        let (mut splits, mut more, mut requested) = (0usize, true, false);
        while more || splits > 0 {
            if task.signals.is_stopped() {
                return Err(Failure::Stopped);
            }
            if more && !requested && (splits == 0 || self.reader.takes_more_splits()) {
                self.splits.request_split();
                requested = true;
            }
            match self.next_event(splits, task).await? {
                SourceEvent::Order(None) => return Err(Failure::Stopped),
                SourceEvent::Order(Some(SourceOrder::Failed(error))) => return Err(self.failed(error)),
                SourceEvent::Order(Some(SourceOrder::NoMoreSplits)) => (more, requested) = (false, false),
                SourceEvent::Order(Some(SourceOrder::Split(split))) => {
                    requested = false;
                    splits += 1;
                    self.reader.add_split(split).map_err(|error| self.failed(error))?;
                }
                SourceEvent::Order(Some(SourceOrder::Barrier(checkpoint))) => {
                    self.barrier(checkpoint, task).await?;
                }
                SourceEvent::Reader(Err(error)) => return Err(self.failed(error)),
                SourceEvent::Reader(Ok(ReaderEvent::SplitFinished(split))) => {
                    splits -= 1;
                    self.splits.finished(split);
                }
                SourceEvent::Reader(Ok(ReaderEvent::Batch(batch))) => {
                    self.metrics.records_in.add(batch.len() as u64);
                    self.outputs.send(&mut task.stages, OutputId::MAIN, batch).await?;
                }
                SourceEvent::News(notices) => task.hear(notices, None),
            }
            self.metrics.progress.set(self.reader.progress());
            yield_now().await;
        }
        self.outputs.watermark(Watermark::MAX).await?;
        chain::watermark(&mut task.stages, Watermark::MAX).await?;
        self.outputs.end().await?;
        chain::end_of_input(&mut task.stages, 0, 0).await
    }

    async fn barrier(&mut self, checkpoint: CheckpointId, task: &mut SubtaskLoop) -> Result<(), Failure> {
        self.outputs.barrier(checkpoint).await?;
        let mut parts = vec![self.cut()];
        parts.append(&mut chain::barrier(&mut task.stages, checkpoint).await?);
        task.epochs.save(checkpoint, Cut { finished: false, parts });
        Ok(())
    }

    fn cut(&self) -> CutPart {
        let held = Held::Source { splits: self.reader.snapshot() };
        CutPart { node: self.node, subtask: self.subtask.clone(), finished: self.finished, held }
    }

    /// Waits for an order, records or news, whichever comes first; lets go of what is being gathered before it waits.
    async fn next_event(&mut self, splits: usize, task: &mut SubtaskLoop) -> Result<SourceEvent, Failure> {
        let Self { reader, splits: client, outputs, metrics, clock, .. } = self;
        let SubtaskLoop { stages, signals, epochs } = task;
        if let Some(notices) = epochs.news() {
            return Ok(SourceEvent::News(notices));
        }
        let mut reading = (splits > 0).then(|| reader.next());
        let mut either = poll_fn(|context| {
            // Orders first: a barrier must not wait behind a reader that always has records.
            if let Poll::Ready(order) = client.poll_order(context) {
                return Poll::Ready(SourceEvent::Order(order));
            }
            match &mut reading {
                Some(reading) => reading.as_mut().poll(context).map(SourceEvent::Reader),
                None => Poll::Pending,
            }
        });
        let start = clock.monotonic();
        let at_once = poll_fn(|context| Poll::Ready(Pin::new(&mut either).poll(context))).await;
        metrics.add_busy(start, clock.monotonic());
        if let Poll::Ready(event) = at_once {
            return Ok(event);
        }
        outputs.flush().await?;
        chain::flush(stages).await?;
        let mut news = pin!(epochs.wait_for_news());
        let any = poll_fn(|context| match news.as_mut().poll(context) {
            Poll::Ready(notices) => Poll::Ready(SourceEvent::News(notices)),
            Poll::Pending => Pin::new(&mut either).poll(context),
        });
        signals.unless_stopped(any).await
    }

    fn failed(&self, source: ConnectorError) -> Failure {
        JobError::Connector { place: format!("source {}", self.subtask), source }.into()
    }
}
