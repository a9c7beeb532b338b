//! What a call can reach: the state of its keys, its collector, time, randomness, metrics and the log.
//!
//! One context lives as long as its subtask and is lent to the operator for each call; a Wasm operator moves it into
//! its store meanwhile. `begin` opens the scope of a call. The driver then decides what the call was worth: `commit`
//! makes what it wrote count, `abandon` undoes it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::{Call, Collector, Fault, KeyedState, RuleViolation, UserMetrics};
use crate::clock::Clock;
use crate::id::SubtaskId;
use crate::random::Random;
use crate::record::{Batch, Watermark};

/// How long a reason for a rejection is kept, in bytes.
const LONGEST_REASON: usize = 4096;

/// A record that the operator gave up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The position of the record in the batch.
    pub position: u32,
    /// What the operator said.
    pub reason: String,
}

/// What a call can reach. See the module.
pub struct CallContext {
    /// The state of the keys at hand.
    pub state: KeyedState,
    /// Where output goes.
    pub collector: Collector,
    /// The operator's own numbers.
    pub metrics: UserMetrics,
    /// Random numbers for this call.
    pub random: Random,
    /// Whether the records of the call have been in one that failed, so that what it has to say may have been said.
    pub repeats: bool,
    subtask: SubtaskId,
    clock: Arc<dyn Clock>,
    seed: u64,
    calls: u64,
    processing_time: Duration,
    watermark: Option<Watermark>,
    batch: Option<Arc<Batch>>,
    /// By position, so that a record is given up once.
    rejections: BTreeMap<u32, String>,
    /// The inputs whose records are placed by key. Only those may touch keyed state.
    keyed_inputs: Option<Vec<bool>>,
}

impl std::fmt::Debug for CallContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CallContext").field("subtask", &self.subtask).finish_non_exhaustive()
    }
}

impl CallContext {
    /// The context of a subtask.
    #[must_use]
    pub fn new(subtask: SubtaskId, state: KeyedState, collector: Collector, clock: Arc<dyn Clock>, seed: u64) -> Self {
        Self {
            state,
            collector,
            metrics: UserMetrics::default(),
            random: Random::new(seed),
            repeats: false,
            subtask,
            processing_time: clock.wall(),
            clock,
            seed,
            calls: 0,
            watermark: None,
            batch: None,
            rejections: BTreeMap::new(),
            keyed_inputs: None,
        }
    }

    /// Says which inputs are partitioned by key; until then all of them count as such. Keyed state is out of reach while
    /// records of another input are processed.
    #[must_use]
    pub fn with_keyed_inputs(mut self, keyed_inputs: Vec<bool>) -> Self {
        self.keyed_inputs = Some(keyed_inputs);
        self
    }

    /// Opens the scope of a call: time and randomness are fixed, and keyed state is that of the batch's keys.
    pub fn begin(&mut self, call: &Call) {
        self.processing_time = self.clock.wall();
        let parts = [u64::from(self.subtask.index), self.calls];
        self.random = Random::for_purpose(self.seed, &self.subtask.node, &parts);
        self.calls += 1;
        self.rejections.clear();
        let mut placed = false;
        self.batch = match call {
            Call::Process { input, batch } => {
                placed = self.keyed_inputs.as_ref().is_none_or(|inputs| inputs[*input as usize]);
                Some(Arc::clone(batch))
            }
            Call::Watermark | Call::EndOfInput { .. } | Call::Close => None,
        };
        self.state.begin(self.batch.clone(), placed);
    }

    /// Closes the scope and makes what the call wrote count.
    ///
    /// # Errors
    /// When the state backend fails; the task must fail then, since only a part may have been written.
    pub fn commit(&mut self) -> Result<(), Fault> {
        self.batch = None;
        self.state.commit()?;
        Ok(())
    }

    /// Closes the scope as if the call had not been made.
    pub fn abandon(&mut self) {
        self.batch = None;
        self.metrics.abandon();
        self.rejections.clear();
        self.state.abandon();
        self.collector.take_held();
    }

    /// The event time has come this far.
    pub fn set_watermark(&mut self, watermark: Watermark) {
        self.watermark = Some(watermark);
    }

    /// The subtask that the context belongs to.
    #[must_use]
    pub fn subtask(&self) -> &SubtaskId {
        &self.subtask
    }

    /// The records of the call, if it is about records.
    #[must_use]
    pub fn batch(&self) -> Option<&Arc<Batch>> {
        self.batch.as_ref()
    }

    /// Processing time since 1970, constant within the call.
    #[must_use]
    pub fn processing_time(&self) -> Duration {
        self.processing_time
    }

    /// Time since an unspecified moment, never falling.
    #[must_use]
    pub fn monotonic_time(&self) -> Duration {
        self.clock.monotonic()
    }

    /// How far event time has come; none before the first watermark.
    #[must_use]
    pub fn watermark(&self) -> Option<Watermark> {
        self.watermark
    }

    /// Sends records to an output. See [`Collector::emit`].
    ///
    /// # Errors
    /// When the output was not declared, or held output passes its limit.
    pub async fn emit(&mut self, output: u32, records: Batch) -> Result<(), Fault> {
        self.collector.emit(output, records).await
    }

    /// Gives up one record of the batch.
    ///
    /// # Errors
    /// When the call is not about records, or has no such record.
    pub fn reject(&mut self, position: u32, reason: &str) -> Result<(), RuleViolation> {
        let Some(batch) = &self.batch else {
            return Err(RuleViolation::Scope { function: "reject", place: "outside process" });
        };
        if position as usize >= batch.len() {
            return Err(RuleViolation::Position { position, records: batch.len() });
        }
        let mut reason = reason.to_owned();
        reason.truncate(reason.floor_char_boundary(LONGEST_REASON));
        self.rejections.entry(position).or_insert(reason);
        Ok(())
    }

    /// Takes what the call gave up, in the order of the records.
    pub fn take_rejections(&mut self) -> Vec<Rejection> {
        let rejections = std::mem::take(&mut self.rejections).into_iter();
        rejections.map(|(position, reason)| Rejection { position, reason }).collect()
    }
}
