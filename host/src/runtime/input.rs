//! The incoming side of a subtask: one stream of events out of many channels.
//!
//! Small batches that queue up are joined, up to the next advance of event time, barrier or end of an input, so that a
//! call of the operator is about many records. Channels are read in turn, save those that wait for a barrier to arrive
//! on the others.
//!
//! What always holds: an event comes behind every record that its channel delivered before it.

use std::collections::VecDeque;
use std::task::{Context, Poll};

use super::channel::ChannelReceiver;
use super::output::{BATCH_BYTES, WHOLE_BATCH_RECORDS};
use crate::id::CheckpointId;
use crate::protocol::alignment::{Alignment, Mode};
use crate::protocol::watermark::WatermarkMerge;
use crate::record::{Batch, Message, Watermark};

/// What an input gate has for its subtask.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum InputEvent {
    /// Records of one input.
    Batch { input: u32, batch: Batch },
    /// Event time has come further on all channels.
    Watermark(Watermark),
    /// A barrier has arrived on all channels that have not ended.
    Barrier(CheckpointId),
    /// All channels of an input have ended.
    EndOfInput { input: u32, remaining: u32 },
    /// A sender is gone without an end: it has failed or stopped.
    Lost,
}

/// Reads the channels of a subtask.
pub(super) struct InputGate {
    channels: Vec<Channel>,
    /// The channel to read first, so that none starves.
    turn: usize,
    watermarks: WatermarkMerge,
    alignment: Alignment,
    /// Per input, the number of channels that have not ended.
    open: Vec<usize>,
    /// Events that follow the records handed out last.
    queued: VecDeque<InputEvent>,
    /// Where emptied batches go back to: the channel that the last batch came from.
    last: usize,
}

struct Channel {
    input: u32,
    receiver: Box<dyn ChannelReceiver>,
    /// A batch that was received but could not be joined with the one before.
    held: Option<Batch>,
    ended: bool,
}

impl InputGate {
    /// A gate for the channels of each input, in the order of the inputs.
    pub(super) fn new(inputs: Vec<Vec<Box<dyn ChannelReceiver>>>, mode: Mode) -> Self {
        let open: Vec<usize> = inputs.iter().map(Vec::len).collect();
        let channels = inputs.into_iter().zip(0u32..).flat_map(|(receivers, input)| {
            receivers.into_iter().map(move |receiver| Channel { input, receiver, held: None, ended: false })
        });
        let channels: Vec<Channel> = channels.collect();
        let watermarks = WatermarkMerge::new(channels.len());
        let alignment = Alignment::new(channels.len(), mode);
        Self { channels, turn: 0, watermarks, alignment, open, queued: VecDeque::new(), last: 0 }
    }

    /// Waits for the next event.
    pub(super) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<InputEvent> {
        if let Some(event) = self.queued.pop_front() {
            return Poll::Ready(event);
        }
        let mut joined: Option<(u32, Batch)> = None;
        let count = self.channels.len();
        for step in 0..count {
            let index = (self.turn + step) % count;
            while self.queued.is_empty() && !is_large(joined.as_ref()) {
                match self.receive(index, context) {
                    Poll::Pending => break,
                    Poll::Ready(Some(Message::Batch(batch))) => {
                        if let Some(batch) = self.join(index, &mut joined, batch) {
                            self.channels[index].held = Some(batch);
                            break;
                        }
                    }
                    Poll::Ready(Some(Message::Watermark(watermark))) => {
                        let merged = self.watermarks.advance(index, watermark);
                        self.queued.extend(merged.map(InputEvent::Watermark));
                    }
                    Poll::Ready(Some(Message::Barrier(checkpoint))) => {
                        let arrived = self.alignment.barrier(index, checkpoint);
                        self.queued.extend(arrived.map(InputEvent::Barrier));
                    }
                    Poll::Ready(Some(Message::EndOfInput)) => self.end(index),
                    Poll::Ready(None) => self.queued.push_back(InputEvent::Lost),
                }
            }
        }
        if count > 0 {
            self.turn = (self.turn + 1) % count;
        }
        match joined {
            Some((input, batch)) => Poll::Ready(InputEvent::Batch { input, batch }),
            None => self.queued.pop_front().map_or(Poll::Pending, Poll::Ready),
        }
    }

    /// A checkpoint was given up, and all before it: no channel waits for its barrier any more.
    pub(super) fn abort(&mut self, checkpoint: CheckpointId) {
        self.alignment.abort(checkpoint);
    }

    /// Gives a batch that is not needed any more back to where batches come from.
    pub(super) fn recycle(&mut self, batch: Batch) {
        if let Some(channel) = self.channels.get_mut(self.last) {
            channel.receiver.recycle(batch);
        }
    }

    fn receive(&mut self, index: usize, context: &mut Context<'_>) -> Poll<Option<Message>> {
        let channel = &mut self.channels[index];
        if channel.ended || self.alignment.is_blocked(index) {
            return Poll::Pending;
        }
        match channel.held.take() {
            Some(batch) => Poll::Ready(Some(Message::Batch(batch))),
            None => channel.receiver.poll_receive(context),
        }
    }

    /// Joins a batch to those before it, or gives it back.
    fn join(&mut self, index: usize, joined: &mut Option<(u32, Batch)>, batch: Batch) -> Option<Batch> {
        let input = self.channels[index].input;
        let Some((before, gathered)) = joined else {
            self.last = index;
            *joined = Some((input, batch));
            return None;
        };
        if *before != input || !gathered.same_shape(&batch) || batch.len() >= WHOLE_BATCH_RECORDS {
            return Some(batch);
        }
        gathered.extend_range(&batch, 0..batch.len());
        self.channels[index].receiver.recycle(batch);
        None
    }

    fn end(&mut self, index: usize) {
        let channel = &mut self.channels[index];
        channel.ended = true;
        let input = channel.input;
        // The barrier first: the end, and what event time makes of it, are not part of its checkpoint.
        self.queued.extend(self.alignment.ended(index).map(InputEvent::Barrier));
        self.queued.extend(self.watermarks.end(index).map(InputEvent::Watermark));
        self.open[input as usize] -= 1;
        if self.open[input as usize] == 0 {
            let remaining = self.open.iter().filter(|open| **open > 0).count();
            let remaining = u32::try_from(remaining).expect("inputs are counted in u32");
            self.queued.push_back(InputEvent::EndOfInput { input, remaining });
        }
    }
}

fn is_large(joined: Option<&(u32, Batch)>) -> bool {
    joined.is_some_and(|(_, batch)| batch.len() >= WHOLE_BATCH_RECORDS || batch.byte_size() >= BATCH_BYTES)
}

#[cfg(test)]
mod tests {
    use futures_util::task::noop_waker_ref;

    use super::*;
    use crate::id::{ChannelId, OutputId, SubtaskId};
    use crate::runtime::channel::{ChannelSender, InProcess, Transport};

    /// A gate with so many channels per input, and their senders.
    fn gate(inputs: &[usize]) -> (Vec<Vec<Box<dyn ChannelSender>>>, InputGate) {
        let subtask = |index| SubtaskId { node: "n".into(), index };
        let channel = |index| {
            let id = ChannelId { from: subtask(index), output: OutputId::MAIN, to: subtask(0), input: 0 };
            InProcess.channel(&id, 1 << 20)
        };
        let ends = inputs.iter().map(|count| (0..*count).map(|_| channel(0)).unzip());
        let (senders, receivers) = ends.unzip();
        (senders, InputGate::new(receivers, Mode::ExactlyOnce))
    }

    fn batch(values: &[&str]) -> Batch {
        let mut batch = Batch::new();
        values.iter().for_each(|value| batch.push(None, value.as_bytes(), None));
        batch
    }

    fn drain(gate: &mut InputGate) -> Vec<InputEvent> {
        let mut context = Context::from_waker(noop_waker_ref());
        let mut events = Vec::new();
        while let Poll::Ready(event) = gate.poll_next(&mut context) {
            let lost = event == InputEvent::Lost;
            events.push(event);
            if lost {
                break;
            }
        }
        events
    }

    #[test]
    fn small_batches_are_joined_up_to_the_next_advance_of_event_time() {
        let (mut senders, mut gate) = gate(&[1]);
        let sender = &mut senders[0][0];
        for message in [
            Message::Batch(batch(&["a"])),
            Message::Batch(batch(&["b", "c"])),
            Message::Watermark(Watermark(5)),
            Message::Batch(batch(&["d"])),
            Message::EndOfInput,
        ] {
            sender.send(message);
        }
        let expected = [
            InputEvent::Batch { input: 0, batch: batch(&["a", "b", "c"]) },
            InputEvent::Watermark(Watermark(5)),
            InputEvent::Batch { input: 0, batch: batch(&["d"]) },
            InputEvent::Watermark(Watermark::MAX),
            InputEvent::EndOfInput { input: 0, remaining: 0 },
        ];
        assert_eq!(drain(&mut gate), expected);
    }

    #[test]
    fn event_time_waits_for_all_channels_and_an_input_for_all_of_its_own() {
        let (mut senders, mut gate) = gate(&[2, 1]);
        senders[0][0].send(Message::Watermark(Watermark(7)));
        senders[0][1].send(Message::Watermark(Watermark(3)));
        assert_eq!(drain(&mut gate), []);
        senders[1][0].send(Message::Watermark(Watermark(4)));
        assert_eq!(drain(&mut gate), [InputEvent::Watermark(Watermark(3))]);
        senders[0][1].send(Message::EndOfInput);
        assert_eq!(drain(&mut gate), [InputEvent::Watermark(Watermark(4))]);
        senders[0][0].send(Message::EndOfInput);
        assert_eq!(drain(&mut gate), [InputEvent::EndOfInput { input: 0, remaining: 1 }]);
        senders[1].clear();
        assert_eq!(drain(&mut gate), [InputEvent::Lost]);
    }

    #[test]
    fn inputs_are_not_mixed() {
        let (mut senders, mut gate) = gate(&[1, 1]);
        senders[0][0].send(Message::Batch(batch(&["left"])));
        senders[1][0].send(Message::Batch(batch(&["right"])));
        let mut events = drain(&mut gate);
        events.sort_by_key(|event| if let InputEvent::Batch { input, .. } = event { *input } else { u32::MAX });
        let expected = [
            InputEvent::Batch { input: 0, batch: batch(&["left"]) },
            InputEvent::Batch { input: 1, batch: batch(&["right"]) },
        ];
        assert_eq!(events, expected);
    }

    #[test]
    fn records_behind_a_barrier_wait_until_it_has_arrived_everywhere() {
        let (mut senders, mut gate) = gate(&[2, 1]);
        let (first, barrier) = (CheckpointId(1), Message::Barrier(CheckpointId(1)));
        senders[0][0].send(barrier.clone());
        senders[0][0].send(Message::Batch(batch(&["behind"])));
        senders[0][1].send(Message::Batch(batch(&["before"])));
        senders[0][1].send(barrier);
        assert_eq!(drain(&mut gate), [InputEvent::Batch { input: 0, batch: batch(&["before"]) }]);
        // An end is as good as the barrier, and comes behind it.
        senders[1][0].send(Message::EndOfInput);
        let expected = [
            InputEvent::Barrier(first),
            InputEvent::EndOfInput { input: 1, remaining: 1 },
            InputEvent::Batch { input: 0, batch: batch(&["behind"]) },
        ];
        assert_eq!(drain(&mut gate), expected);
    }

    #[test]
    fn a_checkpoint_that_is_given_up_holds_nothing_back() {
        let (mut senders, mut gate) = gate(&[2]);
        senders[0][0].send(Message::Barrier(CheckpointId(1)));
        senders[0][0].send(Message::Batch(batch(&["behind"])));
        assert_eq!(drain(&mut gate), []);
        gate.abort(CheckpointId(1));
        assert_eq!(drain(&mut gate), [InputEvent::Batch { input: 0, batch: batch(&["behind"]) }]);
    }
}
