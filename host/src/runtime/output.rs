//! The outgoing side of a link: which channels get which records.
//!
//! Records gather in one builder per destination and leave when they are many, when the sender would go idle, or when
//! event time, a barrier or the end must not overtake them. Sending waits while a channel is full; that wait is backpressure, and
//! it is counted.
//!
//! What always holds: on every channel a watermark, a barrier or the end comes behind all records that were emitted
//! before it.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use super::channel::{ChannelSender, ReceiverGone};
use super::error::{Failure, JobError};
use super::metrics::SubtaskMetrics;
use super::signals::Signals;
use crate::api::Partition;
use crate::clock::Clock;
use crate::id::{CheckpointId, OutputId, SubtaskId};
use crate::protocol::key_group;
use crate::record::{Batch, Message, Watermark};

/// A builder leaves when it has this many records.
pub(super) const BATCH_RECORDS: usize = 4096;

/// A builder leaves when it has this many bytes.
pub(super) const BATCH_BYTES: usize = 64 << 10;

/// A batch of at least this many records is worth a call by itself: it moves on as it is instead of being copied into a
/// builder, and is not joined with others.
pub(super) const WHOLE_BATCH_RECORDS: usize = 512;

/// One edge of the graph, as one sending subtask sees it.
pub(super) struct OutputEdge {
    output: OutputId,
    partition: Partition,
    sender: String,
    receiver: String,
    max_parallelism: u32,
    destinations: Vec<Destination>,
    /// Where the next batch of a rebalancing edge goes.
    turn: usize,
}

struct Destination {
    channel: Box<dyn ChannelSender>,
    builder: Batch,
}

/// What sending needs besides the edge: whose time it counts, and who may end the wait.
pub(super) struct Pressure {
    pub(super) signals: Signals,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) metrics: Arc<SubtaskMetrics>,
}

impl OutputEdge {
    pub(super) fn new(
        output: OutputId,
        partition: Partition,
        sender: &SubtaskId,
        receiver: String,
        max_parallelism: u32,
        channels: Vec<Box<dyn ChannelSender>>,
    ) -> Self {
        let destinations = channels.into_iter().map(|channel| Destination { channel, builder: Batch::new() });
        Self {
            output,
            partition,
            sender: sender.node.clone(),
            receiver,
            max_parallelism,
            destinations: destinations.collect(),
            // Subtasks begin at different destinations, so that the first batches do not all go to the same one.
            turn: sender.index as usize,
        }
    }

    pub(super) fn output(&self) -> OutputId {
        self.output
    }

    /// Sends records on their way. Gives the batch back when it was copied.
    pub(super) async fn write(&mut self, mut batch: Batch, pressure: &Pressure) -> Result<Option<Batch>, Failure> {
        if self.partition == Partition::Hash {
            if !batch.is_keyed() {
                let (sender, receiver) = (self.sender.clone(), self.receiver.clone());
                return Err(JobError::NoKeys { sender, receiver }.into());
            }
            batch.set_hashes(key_group::hash);
        }
        let count = self.destinations.len();
        match self.partition {
            Partition::Hash if count > 1 => {
                let parallelism = u32::try_from(count).expect("parallelism is a u32");
                for record in 0..batch.len() {
                    let group = key_group::group_of(batch.hashes()[record], self.max_parallelism);
                    let owner = key_group::owner_of(group, parallelism, self.max_parallelism) as usize;
                    let destination = &mut self.destinations[owner];
                    destination.builder.push_from(&batch, record);
                    if destination.is_full() {
                        destination.flush(pressure).await?;
                    }
                }
                Ok(Some(batch))
            }
            Partition::Broadcast => {
                for destination in &mut self.destinations {
                    destination.append(&batch, pressure).await?;
                }
                Ok(Some(batch))
            }
            Partition::Hash | Partition::Forward | Partition::Rebalance => {
                self.turn = (self.turn + 1) % count;
                let turn = if self.partition == Partition::Rebalance { self.turn } else { 0 };
                self.destinations[turn].take(batch, pressure).await
            }
        }
    }

    /// Lets go of what is still being gathered.
    pub(super) async fn flush(&mut self, pressure: &Pressure) -> Result<(), Failure> {
        for destination in &mut self.destinations {
            destination.flush(pressure).await?;
        }
        Ok(())
    }

    /// Sends a watermark behind all records.
    pub(super) async fn watermark(&mut self, watermark: Watermark, pressure: &Pressure) -> Result<(), Failure> {
        self.flush(pressure).await?;
        self.destinations.iter_mut().for_each(|to| to.channel.send(Message::Watermark(watermark)));
        Ok(())
    }

    /// Sends a barrier behind all records.
    pub(super) async fn barrier(&mut self, checkpoint: CheckpointId, pressure: &Pressure) -> Result<(), Failure> {
        self.flush(pressure).await?;
        self.destinations.iter_mut().for_each(|to| to.channel.send(Message::Barrier(checkpoint)));
        Ok(())
    }

    /// Sends the end behind all records.
    pub(super) async fn end(&mut self, pressure: &Pressure) -> Result<(), Failure> {
        self.flush(pressure).await?;
        self.destinations.iter_mut().for_each(|to| to.channel.send(Message::EndOfInput));
        Ok(())
    }
}

impl Destination {
    fn is_full(&self) -> bool {
        self.builder.len() >= BATCH_RECORDS || self.builder.byte_size() >= BATCH_BYTES
    }

    /// Moves a batch on as it is when that keeps the order and is worth it, else copies it.
    async fn take(&mut self, batch: Batch, pressure: &Pressure) -> Result<Option<Batch>, Failure> {
        if batch.len() < WHOLE_BATCH_RECORDS && batch.byte_size() < BATCH_BYTES {
            self.append(&batch, pressure).await?;
            return Ok(Some(batch));
        }
        self.flush(pressure).await?;
        self.send(batch, pressure).await?;
        Ok(self.channel.spare_batch())
    }

    async fn append(&mut self, batch: &Batch, pressure: &Pressure) -> Result<(), Failure> {
        if !self.builder.same_shape(batch) {
            self.flush(pressure).await?;
        }
        self.builder.extend_range(batch, 0..batch.len());
        if self.is_full() { self.flush(pressure).await } else { Ok(()) }
    }

    async fn flush(&mut self, pressure: &Pressure) -> Result<(), Failure> {
        if self.builder.is_empty() {
            return Ok(());
        }
        let next = self.channel.spare_batch().unwrap_or_default();
        let batch = std::mem::replace(&mut self.builder, next);
        self.send(batch, pressure).await
    }

    async fn send(&mut self, batch: Batch, pressure: &Pressure) -> Result<(), Failure> {
        let channel = &mut self.channel;
        let at_once = poll_fn(|context| Poll::Ready(channel.poll_ready(context))).await;
        let ready = match at_once {
            Poll::Ready(ready) => ready,
            Poll::Pending => {
                let start = pressure.clock.monotonic();
                let ready = pressure.signals.unless_stopped(poll_fn(|context| channel.poll_ready(context))).await;
                let waited = pressure.clock.monotonic().saturating_sub(start);
                pressure.metrics.backpressured_ns.add(u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX));
                ready?
            }
        };
        // Whoever received has stopped, and why is its own affair: this subtask stops as well.
        ready.map_err(|ReceiverGone| Failure::Stopped)?;
        self.channel.send(Message::Batch(batch));
        Ok(())
    }
}
