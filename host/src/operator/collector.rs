//! Where an operator's output goes during a call.
//!
//! Streaming output fills a slot of one batch and suspends the emitter until whoever drives the call has taken the
//! batch and dealt with it, so that a record which becomes ten million needs the memory of one batch. Held output waits
//! for the end of the call, up to a limit, because a call that may fail must not have told anyone. Discarded output is
//! that of a dry run.
//!
//! Owns neither channels nor the links behind: the driver (`runtime::chain`) takes what the slot holds.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use super::{Fault, GuestFault, RuleViolation, SideOutput};
use crate::id::OutputId;
use crate::record::{Batch, StreamShape};

/// What happens to emitted records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmitMode {
    /// They leave at once.
    Stream,
    /// They are held back, up to so many bytes.
    Hold {
        /// The bound in bytes.
        limit_bytes: u64,
    },
    /// They are dropped.
    Discard,
}

/// Room for one emitted batch, between an operator and the driver of its call.
///
/// Both sides are polled within one task, the driver's: it takes the batch and polls the call again, so no waker is kept.
#[derive(Debug, Default)]
pub struct EmitSlot(Mutex<SlotContent>);

#[derive(Debug, Default)]
struct SlotContent {
    emitted: Option<(OutputId, Batch)>,
    /// A batch that the driver is done with, for the next one to be built in.
    spare: Option<Batch>,
}

impl EmitSlot {
    /// Takes the batch, which lets the emitter go on.
    pub fn take(&self) -> Option<(OutputId, Batch)> {
        self.lock().emitted.take()
    }

    /// Gives back a batch that is not needed any more.
    pub fn recycle(&self, mut batch: Batch) {
        batch.clear();
        self.lock().spare = Some(batch);
    }

    fn put(&self, output: OutputId, batch: Batch) {
        let before = self.lock().emitted.replace((output, batch));
        assert!(before.is_none(), "the emitter was resumed before its batch was taken");
    }

    fn is_full(&self) -> bool {
        self.lock().emitted.is_some()
    }

    /// No user code runs under the lock, so a poisoned one is as good as any.
    fn lock(&self) -> MutexGuard<'_, SlotContent> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One output, and what its records have looked like so far.
#[derive(Debug)]
struct Output {
    id: OutputId,
    name: String,
    shape: Option<StreamShape>,
}

/// The output side of a call context.
#[derive(Debug)]
pub struct Collector {
    slot: Arc<EmitSlot>,
    /// The outputs that may be used, by rising id; the main one is among them.
    outputs: Vec<Output>,
    max_record_bytes: usize,
    mode: EmitMode,
    held: Vec<(OutputId, Batch)>,
    held_bytes: u64,
}

impl Collector {
    /// A collector for the main output and these side outputs, for records of at most so many bytes.
    #[must_use]
    pub fn new(slot: Arc<EmitSlot>, side_outputs: &[SideOutput], max_record_bytes: usize) -> Self {
        let output = |id, name: &str| Output { id, name: name.to_owned(), shape: None };
        let mut outputs = vec![output(OutputId::MAIN, "main")];
        outputs.extend(side_outputs.iter().map(|side| output(OutputId(side.id), &side.name)));
        outputs.sort_unstable_by_key(|output| output.id);
        Self { slot, outputs, max_record_bytes, mode: EmitMode::Stream, held: Vec::new(), held_bytes: 0 }
    }

    /// An empty batch to build output in, with buffers that were used before if there are any.
    #[must_use]
    pub fn spare_batch(&self) -> Batch {
        self.slot.lock().spare.take().unwrap_or_default()
    }

    /// Says what happens to records emitted from now on.
    pub fn set_mode(&mut self, mode: EmitMode) {
        self.mode = mode;
    }

    /// Sends records to an output. Suspends the caller while what was emitted before has not left.
    ///
    /// # Errors
    /// When the output was not declared, a record is too large, an output's records have keys or timestamps sometimes
    /// and sometimes not, or held output passes its limit.
    pub async fn emit(&mut self, output: u32, batch: Batch) -> Result<(), Fault> {
        let id = OutputId(output);
        let Ok(index) = self.outputs.binary_search_by_key(&id, |output| output.id) else {
            return Err(RuleViolation::UnknownOutput { output }.into());
        };
        if batch.is_empty() {
            return Ok(());
        }
        self.check(index, &batch)?;
        match self.mode {
            EmitMode::Stream => {
                self.slot.put(id, batch);
                poll_fn(|_| if self.slot.is_full() { Poll::Pending } else { Poll::Ready(()) }).await;
            }
            EmitMode::Hold { limit_bytes } => {
                self.held_bytes += batch.byte_size() as u64;
                if self.held_bytes > limit_bytes {
                    return Err(GuestFault::Output { limit: limit_bytes }.into());
                }
                self.held.push((id, batch));
            }
            EmitMode::Discard => {}
        }
        Ok(())
    }

    fn check(&mut self, index: usize, batch: &Batch) -> Result<(), RuleViolation> {
        let limit = self.max_record_bytes;
        if batch.byte_size() > limit {
            // As sources have it: a key or a value may be as large, whatever the record takes around it.
            let of_key = |record| batch.key(record).map_or(0, <[u8]>::len);
            let sizes = (0..batch.len()).map(|record| batch.values().get(record).len().max(of_key(record)));
            if let Some(bytes) = sizes.into_iter().find(|bytes| *bytes > limit) {
                return Err(RuleViolation::RecordSize { bytes, limit });
            }
        }
        let now = batch.shape();
        let output = &mut self.outputs[index];
        let before = *output.shape.get_or_insert(now);
        if before != now {
            let (before, now) = (before.describe(), now.describe());
            return Err(RuleViolation::Shape { output: output.name.clone(), before, now });
        }
        Ok(())
    }

    /// Takes what was held back, in the order in which it was emitted.
    pub fn take_held(&mut self) -> Vec<(OutputId, Batch)> {
        self.held_bytes = 0;
        std::mem::take(&mut self.held)
    }
}
