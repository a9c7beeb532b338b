//! Channels that deliver late: in order within one, in any order across them.
//!
//! Messages, the room that receivers free and the news that an end is gone all travel for a while or not at all; a channel's room
//! is less than what was asked for. Batches that are handed back get lost now and then. The rules of the trait are checked on both sides.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tidegate::id::{ChannelId, CheckpointId};
use tidegate::protocol::key_group;
use tidegate::random::Random;
use tidegate::record::{Batch, Message, Watermark};
use tidegate::runtime::channel::{ChannelReceiver, ChannelSender, ReceiverGone, Transport};

use super::counters::Counters;
use super::executor::{Handle, Timer, Wait};
use super::trace::Label;

/// A message or the room for one travels for less than this, by how slow the channel is.
const DELAYS_NS: [u64; 4] = [1, 20_000, 500_000, 5_000_000];
/// The rooms of channels, in bytes; never more than what was asked for.
const CAPACITIES: [usize; 6] = [1, 32, 128, 1024, 8192, usize::MAX];
/// A message that arrived behind a barrier and was not received for so long was held back.
const HELD_BACK_NS: u64 = 100_000;
/// How many batches are kept for a sender.
const MOST_SPARE: usize = 3;

/// Makes channels in a simulated world.
pub struct SimTransport {
    handle: Handle,
    seed: u64,
    counters: Arc<Counters>,
}

impl SimTransport {
    /// A transport whose delays and capacities follow from the seed.
    #[must_use]
    pub fn new(handle: Handle, seed: u64, counters: Arc<Counters>) -> Self {
        Self { handle, seed, counters }
    }
}

impl fmt::Debug for SimTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimTransport").field("seed", &self.seed).finish_non_exhaustive()
    }
}

impl Transport for SimTransport {
    fn channel(&self, id: &ChannelId, capacity_bytes: usize) -> (Box<dyn ChannelSender>, Box<dyn ChannelReceiver>) {
        let name = id.to_string();
        let mut random = Random::for_purpose(self.seed, &name, &[]);
        let mut draw = |bound: usize| usize::try_from(random.below(bound as u64)).expect("below a usize");
        let capacity_bytes = CAPACITIES[draw(CAPACITIES.len())].min(capacity_bytes).max(1);
        let delay_ns = DELAYS_NS[draw(DELAYS_NS.len())];
        let line = Line {
            label: self.handle.label(&name),
            handle: self.handle.clone(),
            counters: Arc::clone(&self.counters),
            capacity_bytes,
            delay_ns,
            state: Mutex::new(State {
                random,
                travelling: VecDeque::new(),
                last_arrival_ns: 0,
                bytes: 0,
                room_at_ns: 0,
                spare: Vec::new(),
                receiver: Waiter::default(),
                sender: Waiter::default(),
                sender_gone_at_ns: None,
                receiver_gone: false,
            }),
        };
        let line = Arc::new(line);
        (
            Box::new(SimSender { line: Arc::clone(&line), admitted: false }),
            Box::new(SimReceiver { line, ended: false, barrier_at_ns: None }),
        )
    }
}

struct Line {
    label: Label,
    handle: Handle,
    counters: Arc<Counters>,
    capacity_bytes: usize,
    delay_ns: u64,
    state: Mutex<State>,
}

struct State {
    random: Random,
    /// Messages that were sent and not received, each with its arrival.
    travelling: VecDeque<(u64, Message)>,
    /// No message overtakes one sent before it.
    last_arrival_ns: u64,
    bytes: usize,
    /// When the sender learns of the room that was freed last.
    room_at_ns: u64,
    spare: Vec<Batch>,
    receiver: Waiter,
    sender: Waiter,
    sender_gone_at_ns: Option<u64>,
    receiver_gone: bool,
}

/// One end that waits: for an event that has not been caused, or for a moment at which it shows.
#[derive(Default)]
struct Waiter {
    waker: Option<Waker>,
    timer: Option<Timer>,
}

impl Waiter {
    /// Waits for something that nobody has caused yet.
    fn wait(&mut self, context: &Context<'_>) {
        self.timer = None;
        if !self.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            self.waker = Some(context.waker().clone());
        }
    }

    /// Waits for a moment.
    fn wait_until(&mut self, handle: &Handle, at_ns: u64, context: &Context<'_>) {
        self.waker = None;
        self.arm(handle, at_ns, context.waker());
    }

    fn arm(&mut self, handle: &Handle, at_ns: u64, waker: &Waker) {
        if self.timer.as_ref().is_none_or(|timer| timer.deadline_ns() != at_ns) {
            self.timer = Some(handle.timer(at_ns));
        }
        if let Some(timer) = &mut self.timer {
            timer.arm(waker);
        }
    }

    /// What was waited for has been caused and shows at this moment. The waker is returned if that is now.
    fn caused(&mut self, handle: &Handle, now_ns: u64, at_ns: u64) -> Option<Waker> {
        let waker = self.waker.take()?;
        if at_ns <= now_ns {
            return Some(waker);
        }
        self.arm(handle, at_ns, &waker);
        None
    }
}

impl Line {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A moment from now on; half the time it is now.
    fn arrival(&self, random: &mut Random, now_ns: u64) -> u64 {
        if random.below(2) == 0 { now_ns } else { now_ns + random.below(self.delay_ns) }
    }
}

/// A number for the trace that tells messages apart.
fn digest(message: &Message) -> (&'static str, u64) {
    match message {
        Message::Batch(batch) => {
            let data = key_group::hash(batch.keys().data()) ^ key_group::hash(batch.values().data()).rotate_left(1);
            ("batch", data ^ batch.len() as u64)
        }
        Message::Watermark(Watermark(time)) => ("watermark", time.cast_unsigned()),
        Message::Barrier(CheckpointId(id)) => ("barrier", *id),
        Message::EndOfInput => ("end of input", 0),
    }
}

struct SimSender {
    line: Arc<Line>,
    admitted: bool,
}

impl ChannelSender for SimSender {
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ReceiverGone>> {
        let line = &*self.line;
        let now_ns = line.handle.now_ns();
        let mut state = line.lock();
        if state.receiver_gone {
            return Poll::Ready(Err(ReceiverGone));
        }
        if state.bytes < line.capacity_bytes {
            if now_ns >= state.room_at_ns {
                self.admitted = true;
                return Poll::Ready(Ok(()));
            }
            let at_ns = state.room_at_ns;
            state.sender.wait_until(&line.handle, at_ns, context);
        } else {
            state.sender.wait(context);
        }
        drop(state);
        line.counters.full_channels.fetch_add(1, Relaxed);
        line.handle.waits_for(Wait::Room(line.label));
        Poll::Pending
    }

    fn send(&mut self, message: Message) {
        let line = &*self.line;
        let (event, number) = digest(&message);
        line.handle.event(line.label, event, number);
        let now_ns = line.handle.now_ns();
        let mut guard = line.lock();
        let state = &mut *guard;
        if state.receiver_gone {
            return;
        }
        if message.byte_size() > 0 {
            assert!(self.admitted, "records were sent without asking for room");
            self.admitted = false;
            state.bytes += message.byte_size();
        }
        let at_ns = line.arrival(&mut state.random, now_ns).max(state.last_arrival_ns);
        let counter = if at_ns > now_ns { &line.counters.delayed_messages } else { &line.counters.prompt_messages };
        counter.fetch_add(1, Relaxed);
        state.last_arrival_ns = at_ns;
        state.travelling.push_back((at_ns, message));
        let waker = state.receiver.caused(&line.handle, now_ns, at_ns);
        drop(guard);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn spare_batch(&mut self) -> Option<Batch> {
        self.line.lock().spare.pop()
    }
}

impl Drop for SimSender {
    fn drop(&mut self) {
        let line = &*self.line;
        let now_ns = line.handle.now_ns();
        let mut guard = line.lock();
        let state = &mut *guard;
        let at_ns = line.arrival(&mut state.random, now_ns).max(state.last_arrival_ns);
        state.sender_gone_at_ns = Some(at_ns);
        let waker = state.receiver.caused(&line.handle, now_ns, at_ns);
        drop(guard);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

struct SimReceiver {
    line: Arc<Line>,
    ended: bool,
    /// When the last message was received, if that was a barrier.
    barrier_at_ns: Option<u64>,
}

impl ChannelReceiver for SimReceiver {
    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<Option<Message>> {
        let line = &*self.line;
        let now_ns = line.handle.now_ns();
        let mut guard = line.lock();
        let state = &mut *guard;
        let shows_at_ns = state.travelling.front().map(|(at_ns, _)| *at_ns).or(state.sender_gone_at_ns);
        match shows_at_ns {
            Some(at_ns) if at_ns <= now_ns => {}
            Some(at_ns) => {
                state.receiver.wait_until(&line.handle, at_ns, context);
                drop(guard);
                line.handle.waits_for(Wait::Message(line.label));
                return Poll::Pending;
            }
            None => {
                state.receiver.wait(context);
                drop(guard);
                line.handle.waits_for(Wait::Message(line.label));
                return Poll::Pending;
            }
        }
        let Some((at_ns, message)) = state.travelling.pop_front() else {
            return Poll::Ready(None);
        };
        let is_barrier = matches!(message, Message::Barrier(_));
        let barrier_at_ns = std::mem::replace(&mut self.barrier_at_ns, is_barrier.then_some(now_ns));
        if barrier_at_ns.is_some_and(|barrier_at_ns| now_ns - at_ns.max(barrier_at_ns) > HELD_BACK_NS) {
            line.counters.held_back_messages.fetch_add(1, Relaxed);
        }
        assert!(!self.ended, "something was received behind the end of input");
        self.ended = message == Message::EndOfInput;
        let was_full = state.bytes >= line.capacity_bytes;
        state.bytes -= message.byte_size();
        let waker = if was_full && state.bytes < line.capacity_bytes {
            state.room_at_ns = line.arrival(&mut state.random, now_ns);
            let at_ns = state.room_at_ns;
            state.sender.caused(&line.handle, now_ns, at_ns)
        } else {
            None
        };
        drop(guard);
        if let Some(waker) = waker {
            waker.wake();
        }
        Poll::Ready(Some(message))
    }

    fn recycle(&mut self, mut batch: Batch) {
        batch.clear();
        let mut state = self.line.lock();
        if state.random.below(2) == 0 && state.spare.len() < MOST_SPARE {
            state.spare.push(batch);
        }
    }
}

impl Drop for SimReceiver {
    fn drop(&mut self) {
        let mut state = self.line.lock();
        state.receiver_gone = true;
        let messages = std::mem::take(&mut state.travelling);
        // A sender that waits for room to show is woken by its timer.
        let waker = state.sender.waker.take();
        drop(state);
        drop(messages);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests;
