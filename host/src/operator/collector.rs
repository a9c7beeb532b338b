//! Where an operator's output goes during a call.
//!
//! Streaming output fills a slot of one batch and suspends the emitter until whoever drives the call has taken the
//! batch and dealt with it, so that a record which becomes ten million needs the memory of one batch. Held output waits
//! for the end of the call, up to a limit, because a call that may fail must not have told anyone. Discarded output is
//! that of a dry run.
//!
//! Owns neither channels nor the links behind: the driver (`runtime::chain`) takes what the slot holds.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use super::{Fault, GuestFault, RuleViolation};
use crate::id::OutputId;
use crate::record::Batch;

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
pub struct EmitSlot(Mutex<Option<(OutputId, Batch)>>);

impl EmitSlot {
    /// Takes the batch, which lets the emitter go on.
    pub fn take(&self) -> Option<(OutputId, Batch)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn put(&self, output: OutputId, batch: Batch) {
        let before = self.0.lock().unwrap_or_else(PoisonError::into_inner).replace((output, batch));
        assert!(before.is_none(), "the emitter was resumed before its batch was taken");
    }

    fn is_full(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

/// The output side of a call context.
#[derive(Debug)]
pub struct Collector {
    slot: Arc<EmitSlot>,
    /// The ids that may be used, rising; 0 is among them.
    outputs: Vec<OutputId>,
    mode: EmitMode,
    held: Vec<(OutputId, Batch)>,
    held_bytes: u64,
}

impl Collector {
    /// A collector for the outputs with these ids besides the main one.
    #[must_use]
    pub fn new(slot: Arc<EmitSlot>, side_outputs: impl IntoIterator<Item = u32>) -> Self {
        let mut outputs: Vec<OutputId> = side_outputs.into_iter().map(OutputId).collect();
        outputs.push(OutputId::MAIN);
        outputs.sort_unstable();
        Self { slot, outputs, mode: EmitMode::Stream, held: Vec::new(), held_bytes: 0 }
    }

    /// Says what happens to records emitted from now on.
    pub fn set_mode(&mut self, mode: EmitMode) {
        self.mode = mode;
    }

    /// Sends records to an output. Suspends the caller while what was emitted before has not left.
    ///
    /// # Errors
    /// When the output was not declared, or held output passes its limit.
    pub async fn emit(&mut self, output: u32, batch: Batch) -> Result<(), Fault> {
        let id = OutputId(output);
        if self.outputs.binary_search(&id).is_err() {
            return Err(RuleViolation::UnknownOutput { output }.into());
        }
        if batch.is_empty() {
            return Ok(());
        }
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

    /// Takes what was held back, in the order in which it was emitted.
    pub fn take_held(&mut self) -> Vec<(OutputId, Batch)> {
        self.held_bytes = 0;
        std::mem::take(&mut self.held)
    }
}
