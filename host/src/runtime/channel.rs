//! Channels between subtasks, behind the `Transport` seam.
//!
//! A channel is first in, first out, and bounded in bytes by itself: backpressure is a full channel and nothing else is.
//! A message larger than the bound is admitted when the channel is empty; messages that control the flow take no room.
//! Nothing here assumes that sender and receiver share memory; the way in which emptied batches go back to the sender
//! is an optimisation that a transport may leave out.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::id::ChannelId;
use crate::record::{Batch, Message};

/// How many emptied batches a channel keeps for its sender.
const MOST_SPARE: usize = 8;

/// The receiver of a channel is gone; what is sent has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the receiver is gone")]
pub struct ReceiverGone;

/// Makes channels.
pub trait Transport: Send + Sync {
    /// Makes a channel that holds so many bytes.
    fn channel(&self, id: &ChannelId, capacity_bytes: usize) -> (Box<dyn ChannelSender>, Box<dyn ChannelReceiver>);
}

/// The sending end of a channel.
pub trait ChannelSender: Send {
    /// Waits until a message can be sent.
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ReceiverGone>>;

    /// Sends a message: one that takes room only after `poll_ready`, one that takes none at any time.
    fn send(&mut self, message: Message);

    /// An emptied batch whose buffers can be used again, if there is one.
    fn spare_batch(&mut self) -> Option<Batch>;
}

/// The receiving end of a channel.
pub trait ChannelReceiver: Send {
    /// Waits for the next message; none when the sender is gone.
    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<Option<Message>>;

    /// Hands a batch that is not needed any more back to the sender.
    fn recycle(&mut self, batch: Batch);
}

/// Channels in the memory of this process.
#[derive(Clone, Copy, Debug)]
pub struct InProcess;

impl Transport for InProcess {
    fn channel(&self, _id: &ChannelId, capacity_bytes: usize) -> (Box<dyn ChannelSender>, Box<dyn ChannelReceiver>) {
        let shared = Arc::new(Shared { capacity_bytes, queue: Mutex::default() });
        (Box::new(InProcessSender { shared: Arc::clone(&shared) }), Box::new(InProcessReceiver { shared }))
    }
}

struct Shared {
    capacity_bytes: usize,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    messages: VecDeque<Message>,
    bytes: usize,
    spare: Vec<Batch>,
    receiver: Option<Waker>,
    sender: Option<Waker>,
    sender_gone: bool,
    receiver_gone: bool,
}

impl Shared {
    /// No user code runs under the lock, so a poisoned one is as good as any.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct InProcessSender {
    shared: Arc<Shared>,
}

impl ChannelSender for InProcessSender {
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ReceiverGone>> {
        let mut queue = self.shared.lock();
        if queue.receiver_gone {
            return Poll::Ready(Err(ReceiverGone));
        }
        // Full means at or over the bound, so a message that is larger than the bound enters an emptier channel whole.
        if queue.bytes < self.shared.capacity_bytes {
            return Poll::Ready(Ok(()));
        }
        if !queue.sender.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            queue.sender = Some(context.waker().clone());
        }
        Poll::Pending
    }

    fn send(&mut self, message: Message) {
        let mut queue = self.shared.lock();
        if queue.receiver_gone {
            return;
        }
        queue.bytes += message.byte_size();
        queue.messages.push_back(message);
        let receiver = queue.receiver.take();
        drop(queue);
        if let Some(receiver) = receiver {
            receiver.wake();
        }
    }

    fn spare_batch(&mut self) -> Option<Batch> {
        self.shared.lock().spare.pop()
    }
}

impl Drop for InProcessSender {
    fn drop(&mut self) {
        let mut queue = self.shared.lock();
        queue.sender_gone = true;
        let receiver = queue.receiver.take();
        drop(queue);
        if let Some(receiver) = receiver {
            receiver.wake();
        }
    }
}

struct InProcessReceiver {
    shared: Arc<Shared>,
}

impl ChannelReceiver for InProcessReceiver {
    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<Option<Message>> {
        let mut queue = self.shared.lock();
        let Some(message) = queue.messages.pop_front() else {
            if queue.sender_gone {
                return Poll::Ready(None);
            }
            if !queue.receiver.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
                queue.receiver = Some(context.waker().clone());
            }
            return Poll::Pending;
        };
        queue.bytes -= message.byte_size();
        let sender = if queue.bytes < self.shared.capacity_bytes { queue.sender.take() } else { None };
        drop(queue);
        if let Some(sender) = sender {
            sender.wake();
        }
        Poll::Ready(Some(message))
    }

    fn recycle(&mut self, mut batch: Batch) {
        batch.clear();
        let mut queue = self.shared.lock();
        if queue.spare.len() < MOST_SPARE {
            queue.spare.push(batch);
        }
    }
}

impl Drop for InProcessReceiver {
    fn drop(&mut self) {
        let mut queue = self.shared.lock();
        queue.receiver_gone = true;
        let messages = std::mem::take(&mut queue.messages);
        let sender = queue.sender.take();
        drop(queue);
        drop(messages);
        if let Some(sender) = sender {
            sender.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::task::noop_waker_ref;

    use super::*;
    use crate::id::{OutputId, SubtaskId};
    use crate::record::Watermark;

    fn channel(capacity_bytes: usize) -> (Box<dyn ChannelSender>, Box<dyn ChannelReceiver>) {
        let subtask = |node: &str| SubtaskId { node: node.into(), index: 0 };
        let id = ChannelId { from: subtask("a"), output: OutputId::MAIN, to: subtask("b"), input: 0 };
        InProcess.channel(&id, capacity_bytes)
    }

    fn batch(bytes: usize) -> Message {
        let mut batch = Batch::new();
        batch.push(None, &vec![0; bytes], None);
        Message::Batch(batch)
    }

    #[test]
    fn a_full_channel_holds_back_records_but_nothing_else() {
        let mut context = Context::from_waker(noop_waker_ref());
        let (mut sender, mut receiver) = channel(100);
        assert!(sender.poll_ready(&mut context).is_ready());
        sender.send(batch(1000)); // Larger than the bound, and admitted since the channel is empty.
        assert!(sender.poll_ready(&mut context).is_pending());
        sender.send(Message::Watermark(Watermark(1)));
        assert_eq!(receiver.poll_receive(&mut context), Poll::Ready(Some(batch(1000))));
        assert!(sender.poll_ready(&mut context).is_ready());
        assert_eq!(receiver.poll_receive(&mut context), Poll::Ready(Some(Message::Watermark(Watermark(1)))));
        assert!(receiver.poll_receive(&mut context).is_pending());
    }

    #[test]
    fn each_end_notices_that_the_other_is_gone() {
        let mut context = Context::from_waker(noop_waker_ref());
        let (mut sender, mut receiver) = channel(100);
        sender.send(Message::EndOfInput);
        drop(sender);
        assert_eq!(receiver.poll_receive(&mut context), Poll::Ready(Some(Message::EndOfInput)));
        assert_eq!(receiver.poll_receive(&mut context), Poll::Ready(None));
        let (mut sender, receiver) = channel(100);
        drop(receiver);
        assert_eq!(sender.poll_ready(&mut context), Poll::Ready(Err(ReceiverGone)));
    }
}
