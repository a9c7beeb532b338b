//! An operator within a chain: its calls, and what becomes of the records on which they fail.
//!
//! With `on-error = "fail"` output streams out while a call runs, and any fault fails the job; the record at fault is
//! then looked for by dry runs whose effects are thrown away. With `skip` and `dead-letter` output is held back until a
//! call has returned, a failed batch is bisected on fresh instances, and only records that fail by themselves are given
//! up. `runtime::fault_search` decides what is tried; this module makes the calls.
//!
//! What always holds: what a failed call wrote or held back is gone, and output leaves in the order of the records.

use std::future::poll_fn;
use std::ops::Range;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::chain::{Outputs, Stage};
use super::cut::{CutPart, Held, HeldState};
use super::error::{Failure, JobError};
use super::failed_record::{DeadLetter, describe};
use super::fault_search::FaultSearch;
use super::load_state::load_state;
use super::metrics::SubtaskMetrics;
use super::output::{BATCH_BYTES, BATCH_RECORDS};
use super::restored::RestoredOperator;
use super::skip_budget::SkipBudget;
use crate::clock::Clock;
use crate::env::Env;
use crate::id::{CheckpointId, NodeId, OutputId, SubtaskId};
use crate::operator::{
    Call, CallContext, Collector, EmitMode, EmitSlot, Fault, GuestFault, KeyedState, Limits, OnError, Operator,
    OperatorFactory, Rejection,
};
use crate::protocol::bisection::Step;
use crate::record::{Batch, Watermark};
use crate::state::MemoryBackend;
use crate::state::snapshot::{SnapshotHeader, SnapshotState};

/// A call gets at most this many bytes, unless one record alone is larger.
const CALL_BYTES: usize = 16 * BATCH_BYTES;

/// One answer of keyed state to an operator may take this many bytes.
const RESULT_BYTES: u64 = 16 << 20;

/// An operator, its context and what it sends to.
pub(super) struct OperatorStage {
    pub(super) node: NodeId,
    pub(super) subtask: SubtaskId,
    pub(super) factory: Arc<dyn OperatorFactory>,
    pub(super) operator: Box<dyn Operator>,
    pub(super) context: CallContext,
    /// What snapshots of its state begin with.
    pub(super) header: SnapshotHeader,
    /// It had seen the end of its input before the restore, and does not hear of it again.
    pub(super) finished: bool,
    pub(super) slot: Arc<EmitSlot>,
    pub(super) limits: Limits,
    pub(super) on_error: OnError,
    pub(super) skips: SkipBudget,
    pub(super) outputs: Outputs,
    pub(super) metrics: Arc<SubtaskMetrics>,
    pub(super) clock: Arc<dyn Clock>,
}

/// An operator that has not been made yet.
pub(super) struct OperatorSetup {
    pub(super) node: NodeId,
    pub(super) subtask: SubtaskId,
    pub(super) factory: Arc<dyn OperatorFactory>,
    pub(super) limits: Limits,
    pub(super) on_error: OnError,
    /// Which inputs are partitioned by key.
    pub(super) keyed_inputs: Vec<bool>,
    pub(super) key_groups: Range<u32>,
    pub(super) max_parallelism: u32,
    pub(super) max_record_bytes: usize,
    pub(super) state_budget_bytes: u64,
    pub(super) seed: u64,
    /// The job's name.
    pub(super) job: String,
    pub(super) restored: RestoredOperator,
    pub(super) env: Env,
    pub(super) outputs: Outputs,
    pub(super) metrics: Arc<SubtaskMetrics>,
}

/// How a call failed: by itself, or because what it led to did.
enum CallFailure {
    Fault(Fault),
    Elsewhere(Failure),
}

impl From<Failure> for CallFailure {
    fn from(failure: Failure) -> Self {
        Self::Elsewhere(failure)
    }
}

impl OperatorStage {
    /// Makes the first instance and its context.
    pub(super) async fn create(setup: OperatorSetup) -> Result<Self, Failure> {
        let OperatorSetup {
            node, subtask, factory, limits, on_error, outputs, metrics, key_groups, restored, env, ..
        } = setup;
        let clock = Arc::clone(&env.clock);
        let created = factory.create(&subtask).await;
        let operator = created.map_err(|source| operator_failed(&subtask, source))?;
        let descriptor = factory.descriptor();
        let keyed: Vec<_> = descriptor.states.iter().filter(|state| state.kind.is_keyed()).cloned().collect();
        let header = SnapshotHeader {
            job: setup.job,
            node: subtask.node.clone(),
            subtask: subtask.index,
            checkpoint: CheckpointId(0),
            max_parallelism: setup.max_parallelism,
            first_group: key_groups.start,
            end_group: key_groups.end,
            states: SnapshotState::of(&keyed),
        };
        let (groups, budget) = (key_groups.clone(), setup.state_budget_bytes);
        let backend = MemoryBackend::new(&subtask.node, keyed, groups, setup.max_parallelism, budget);
        let start = clock.monotonic();
        let loaded = load_state(backend, &restored, key_groups, &env).await;
        let (backend, bytes) = loaded.map_err(|source| JobError::Restore { subtask: subtask.clone(), source })?;
        if bytes > 0 {
            let took = clock.monotonic().saturating_sub(start);
            tracing::info!(%subtask, bytes, ?took, "read the state back");
        }
        let state = KeyedState::new(&descriptor.states, Box::new(backend), RESULT_BYTES);
        metrics.state_bytes.set(state.byte_size());
        let slot = Arc::new(EmitSlot::default());
        let collector = Collector::new(Arc::clone(&slot), &descriptor.side_outputs, setup.max_record_bytes);
        let mut context = CallContext::new(subtask.clone(), state, collector, Arc::clone(&clock), setup.seed)
            .with_keyed_inputs(setup.keyed_inputs);
        if let Some(watermark) = restored.watermark {
            context.set_watermark(watermark);
        }
        let skips = SkipBudget::new(limits.skipped_per_minute, Duration::from_secs(60));
        Ok(Self {
            node,
            subtask,
            factory,
            operator,
            context,
            header,
            finished: restored.finished,
            slot,
            limits,
            on_error,
            skips,
            outputs,
            metrics,
            clock,
        })
    }

    /// Processes records, in as many calls as it takes.
    pub(super) async fn process(
        &mut self,
        rest: &mut [Stage],
        input: u32,
        batch: Batch,
    ) -> Result<Option<Batch>, Failure> {
        assert!(!self.finished, "{} had seen the end of its input", self.subtask);
        self.metrics.records_in.add(batch.len() as u64);
        if let Some(pieces) = pieces(&batch) {
            for piece in pieces {
                self.process_piece(rest, input, Arc::new(batch.slice(piece))).await?;
            }
            return Ok(Some(batch));
        }
        let batch = Arc::new(batch);
        self.process_piece(rest, input, Arc::clone(&batch)).await?;
        Ok(Arc::try_unwrap(batch).ok())
    }

    async fn process_piece(&mut self, rest: &mut [Stage], input: u32, batch: Arc<Batch>) -> Result<(), Failure> {
        match self.on_error {
            OnError::Fail => self.process_or_fail(rest, input, batch).await,
            OnError::Skip | OnError::DeadLetter => self.process_or_skip(rest, input, batch).await,
        }
    }

    async fn process_or_fail(&mut self, rest: &mut [Stage], input: u32, batch: Arc<Batch>) -> Result<(), Failure> {
        let call = Call::Process { input, batch: Arc::clone(&batch) };
        let fault = match self.invoke(rest, call, EmitMode::Stream).await {
            Ok(()) => match self.context.take_rejections().into_iter().next() {
                None => return self.accept().await,
                Some(rejection) => rejected(rejection).into(),
            },
            Err(CallFailure::Elsewhere(failure)) => return Err(failure),
            Err(CallFailure::Fault(fault)) => fault,
        };
        self.context.abandon();
        let (record, source) = match fault {
            Fault::Guest(fault) => self.locate(rest, input, &batch, fault).await?,
            fault @ (Fault::State(_) | Fault::Host(_)) => (None, fault),
        };
        let record = record.map(|record| describe(&batch, record));
        Err(JobError::Operator { subtask: self.subtask.clone(), record, source }.into())
    }

    /// Looks for the first record on which calls fail, by dry runs. Returns it with what happened to it, or the first
    /// fault when no record fails by itself or the search takes too long.
    async fn locate(
        &mut self,
        rest: &mut [Stage],
        input: u32,
        batch: &Batch,
        first: GuestFault,
    ) -> Result<(Option<usize>, Fault), Failure> {
        let mut search = FaultSearch::new(batch.len(), first, &self.limits, self.clock.monotonic());
        // The job fails whatever is found, so nothing ends this.
        self.context.repeats = true;
        while !search.is_over(self.clock.monotonic()) {
            match search.next_step() {
                Some(Step::Poison(record)) => return Ok((Some(record), search.take_fault(record).into())),
                None => break,
                Some(Step::Try(range)) => {
                    self.renew().await?;
                    let call = Call::Process { input, batch: Arc::new(batch.slice(range.clone())) };
                    let fault = match self.invoke(rest, call, EmitMode::Discard).await {
                        Ok(()) => self.context.take_rejections().into_iter().next().map(rejected),
                        Err(CallFailure::Fault(Fault::Guest(fault))) => Some(fault),
                        // A dry run must not hide why the job fails.
                        Err(CallFailure::Fault(_)) => break,
                        Err(CallFailure::Elsewhere(failure)) => return Err(failure),
                    };
                    self.context.abandon();
                    if let Some(fault) = fault {
                        search.failed(range, fault);
                    }
                }
            }
        }
        Ok((None, search.into_first().into()))
    }

    async fn process_or_skip(&mut self, rest: &mut [Stage], input: u32, batch: Arc<Batch>) -> Result<(), Failure> {
        let Some(first) = self.attempt(rest, input, &batch, 0..batch.len()).await? else { return Ok(()) };
        let mut search = FaultSearch::new(batch.len(), first, &self.limits, self.clock.monotonic());
        self.context.repeats = true;
        while let Some(step) = search.next_step() {
            match step {
                Step::Poison(record) => {
                    let fault = search.take_fault(record);
                    self.give_up(rest, &batch, record, fault).await?;
                }
                Step::Try(range) => {
                    if search.is_over(self.clock.monotonic()) {
                        return Err(self.failed(Fault::Host(search.given_up())));
                    }
                    if let Some(fault) = self.attempt(rest, input, &batch, range.clone()).await? {
                        search.failed(range, fault);
                    }
                }
            }
        }
        self.context.repeats = false;
        Ok(())
    }

    /// Tries records for real: they take effect as a whole, or the fault that prevented it is returned, its position
    /// counted from the start of the range.
    async fn attempt(
        &mut self,
        rest: &mut [Stage],
        input: u32,
        batch: &Arc<Batch>,
        range: Range<usize>,
    ) -> Result<Option<GuestFault>, Failure> {
        let whole = range.len() == batch.len();
        let part = if whole { Arc::clone(batch) } else { Arc::new(batch.slice(range)) };
        let mode = EmitMode::Hold { limit_bytes: self.limits.output_bytes };
        let call = Call::Process { input, batch: Arc::clone(&part) };
        match self.invoke(rest, call, mode).await {
            Ok(()) => {
                let rejections = self.context.take_rejections();
                let held = self.context.collector.take_held();
                self.accept().await?;
                for (output, emitted) in held {
                    self.outputs.send(rest, output, emitted).await?;
                }
                for rejection in rejections {
                    let record = rejection.position as usize;
                    self.give_up(rest, &part, record, rejected(rejection)).await?;
                }
                Ok(None)
            }
            Err(CallFailure::Fault(Fault::Guest(fault))) => {
                self.context.abandon();
                self.renew().await?;
                Ok(Some(fault))
            }
            Err(CallFailure::Fault(fault)) => Err(self.failed(fault)),
            Err(CallFailure::Elsewhere(failure)) => Err(failure),
        }
    }

    /// Drops a record for good, or sends it to the dead letters.
    async fn give_up(
        &mut self,
        rest: &mut [Stage],
        batch: &Batch,
        record: usize,
        fault: GuestFault,
    ) -> Result<(), Failure> {
        if let Err(skipped) = self.skips.spend(self.clock.monotonic()) {
            let (record, limit) = (describe(batch, record), self.limits.skipped_per_minute);
            let subtask = self.subtask.clone();
            return Err(JobError::TooManySkipped { subtask, skipped, limit, record, source: fault.into() }.into());
        }
        if self.on_error == OnError::DeadLetter {
            self.metrics.dead_letters.add(1);
            let letter = DeadLetter::new(&self.subtask, &fault, batch, record);
            let mut letters = Batch::new();
            letters.push(None, letter.to_json().as_bytes(), batch.timestamps().get(record).copied());
            self.outputs.send(rest, OutputId::DEAD_LETTER, letters).await?;
        } else {
            self.metrics.skipped.add(1);
            tracing::debug!(subtask = %self.subtask, %fault, record = describe(batch, record), "skipped a record");
        }
        Ok(())
    }

    /// Lets event time come further.
    pub(super) async fn watermark(&mut self, rest: &mut [Stage], watermark: Watermark) -> Result<(), Failure> {
        // After a restore the inputs may have to catch up with how far event time had come.
        let before = self.context.watermark();
        let watermark = before.map_or(watermark, |before| before.max(watermark));
        self.context.set_watermark(watermark);
        if !self.finished && before < Some(watermark) {
            self.call_without_records(rest, Call::Watermark).await?;
        }
        self.outputs.watermark(watermark).await
    }

    /// An input has ended; with the last one the instance ends as well.
    pub(super) async fn end_of_input(&mut self, rest: &mut [Stage], input: u32, remaining: u32) -> Result<(), Failure> {
        if !self.finished {
            self.call_without_records(rest, Call::EndOfInput { input, remaining }).await?;
        }
        if remaining > 0 {
            return Ok(());
        }
        self.call_without_records(rest, Call::Close).await?;
        self.outputs.end().await
    }

    /// Passes a barrier on, behind all output, and takes what is held at that point.
    pub(super) async fn barrier(&mut self, checkpoint: CheckpointId) -> Result<CutPart, Failure> {
        self.outputs.barrier(checkpoint).await?;
        Ok(self.cut())
    }

    /// Takes what is held now.
    pub(super) fn cut(&mut self) -> CutPart {
        let header = &self.header;
        let state = self.context.state.freeze().map(|frozen| HeldState { header: header.clone(), frozen });
        let held = Held::Operator { watermark: self.context.watermark(), state };
        CutPart { node: self.node, subtask: self.subtask.clone(), finished: self.finished, held }
    }

    /// Lets go of what is being gathered.
    pub(super) async fn flush(&mut self) -> Result<(), Failure> {
        self.outputs.flush().await
    }

    /// A call that is about no record: no record can be given up for it, so a fault fails the job.
    async fn call_without_records(&mut self, rest: &mut [Stage], call: Call) -> Result<(), Failure> {
        match self.invoke(rest, call, EmitMode::Stream).await {
            Ok(()) => self.accept().await,
            Err(CallFailure::Fault(fault)) => Err(self.failed(fault)),
            Err(CallFailure::Elsewhere(failure)) => Err(failure),
        }
    }

    /// Makes one call, and sends what it emits on its way while it is suspended.
    async fn invoke(&mut self, rest: &mut [Stage], call: Call, mode: EmitMode) -> Result<(), CallFailure> {
        let Self { operator, context, slot, outputs, metrics, clock, .. } = self;
        context.collector.set_mode(mode);
        context.begin(&call);
        let signals = outputs.pressure.signals.clone();
        let mut started = clock.monotonic();
        let mut running = operator.call(call, context);
        loop {
            let step = poll_fn(|task| match running.as_mut().poll(task) {
                Poll::Ready(result) => Poll::Ready(Err(result)),
                Poll::Pending => slot.take().map_or(Poll::Pending, |emitted| Poll::Ready(Ok(emitted))),
            });
            let step = signals.unless_stopped(step).await;
            metrics.add_busy(started, clock.monotonic());
            match step? {
                Err(result) => return result.map_err(CallFailure::Fault),
                Ok((output, emitted)) => {
                    if let Some(spare) = outputs.send(rest, output, emitted).await? {
                        slot.recycle(spare);
                    }
                    started = clock.monotonic();
                }
            }
        }
    }

    /// Makes the last call count.
    async fn accept(&mut self) -> Result<(), Failure> {
        self.context.commit().map_err(|fault| self.failed(fault))?;
        if self.context.metrics.commit() {
            self.metrics.show_own(&self.context.metrics);
        }
        self.metrics.state_bytes.set(self.context.state.byte_size());
        if self.operator.is_worn() {
            self.renew().await?;
        }
        Ok(())
    }

    /// Puts a fresh instance in the place of this one.
    async fn renew(&mut self) -> Result<(), Failure> {
        let created = self.factory.create(&self.subtask).await;
        self.operator = created.map_err(|fault| self.failed(fault))?;
        Ok(())
    }

    fn failed(&self, source: Fault) -> Failure {
        operator_failed(&self.subtask, source)
    }
}

fn operator_failed(subtask: &SubtaskId, source: Fault) -> Failure {
    JobError::Operator { subtask: subtask.clone(), record: None, source }.into()
}

fn rejected(Rejection { position, reason }: Rejection) -> GuestFault {
    GuestFault::Rejected { reason, position }
}

/// Cuts a batch into what one call may get; none when that is all of it.
fn pieces(batch: &Batch) -> Option<Vec<Range<usize>>> {
    if batch.len() <= BATCH_RECORDS && batch.byte_size() <= CALL_BYTES {
        return None;
    }
    let (mut pieces, mut start, mut bytes) = (Vec::new(), 0, 0);
    for record in 0..batch.len() {
        let size = batch.record_byte_size(record);
        if record > start && (record - start == BATCH_RECORDS || bytes + size > CALL_BYTES) {
            pieces.push(start..record);
            (start, bytes) = (record, 0);
        }
        bytes += size;
    }
    pieces.push(start..batch.len());
    Some(pieces)
}
