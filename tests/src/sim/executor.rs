//! A seeded executor: one thread, virtual time, and a random ready task at each step.
//!
//! Owns tasks, timers and the trace. What tasks do to each other through channels, sources and sinks belongs to the
//! world. The same handle is the `Clock`, `Spawner` and `Compute` of the code that runs on it, so nothing that happens
//! depends on anything but the seed.
//!
//! Invariants: a task is polled only while no lock is held, and never while its group is paused; virtual time never
//! falls; when no task is ready and no timer is set, nothing can ever happen again, and that is reported as a deadlock.

mod handle;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tidegate::random::Random;

pub use self::handle::{Handle, Timer};
use super::timers::Timers;
use super::trace::{Label, Trace, What};

/// A step takes up to this much virtual time, so that a task which waits by yielding does not stop the clock.
const LONGEST_STEP_NS: u64 = 2_000;
/// For so many steps the same tasks are favoured, when any are.
const FAVOUR_STEPS: u64 = 512;

/// The tasks that end together when their group crashes: those of one process, or of one part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Group(pub u32);

/// What a task waits for, as far as the world knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// A moment of virtual time, in nanoseconds.
    Until(u64),
    /// A message on a channel.
    Message(Label),
    /// Room in a channel.
    Room(Label),
}

/// Why a run did not come to its end.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Stuck {
    /// No task is ready and no timer is set.
    #[error("deadlock: no task is ready and no timer is set\n{}", .waiting.join("\n"))]
    Deadlock {
        /// Every task with what it waits for.
        waiting: Vec<String>,
    },
    /// The run took more steps than it may.
    #[error("no end after {steps} steps\n{}", .waiting.join("\n"))]
    StepLimit {
        /// The limit.
        steps: u64,
        /// Every task with what it waits for.
        waiting: Vec<String>,
    },
}

/// How the executor makes a run unlike others, all drawn from the seed.
#[derive(Clone, Copy, Debug)]
struct Manner {
    /// Some tasks run more often than others for a while.
    favours: bool,
    /// One step in so many polls a task that nobody woke; none do when 0. Such polls are legal, and hide lost wakeups.
    unasked_one_in: u64,
}

/// The executor.
pub struct Executor {
    handle: Handle,
    manner: Manner,
    step_limit: u64,
}

struct Shared {
    ready: Arc<ReadyList>,
    state: Mutex<State>,
}

/// Apart from the rest of the state, because wakers come here while others hold that.
#[derive(Default)]
struct ReadyList(Mutex<Vec<usize>>);

struct State {
    now_ns: u64,
    step: u64,
    random: Random,
    tasks: Vec<TaskSlot>,
    /// The tasks that have not ended, in no order that means anything.
    live: Vec<usize>,
    current: Option<usize>,
    /// The groups of which no task is polled.
    paused: BTreeSet<Group>,
    /// Tasks of paused groups that would be ready.
    parked: Vec<usize>,
    timers: Timers,
    trace: Trace,
}

/// A task. Slots are not used again, so that a stale waker finds nobody.
struct TaskSlot {
    label: Label,
    group: Group,
    /// None while the task is polled and once it has ended.
    future: Option<BoxFuture<'static, ()>>,
    /// Crashed, possibly while it was polled.
    doomed: bool,
    wake: Arc<TaskWaker>,
    waker: Waker,
    waits: Vec<Wait>,
}

struct TaskWaker {
    task: usize,
    queued: AtomicBool,
    ready: Arc<ReadyList>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::Relaxed) {
            self.ready.lock().push(self.task);
        }
    }
}

impl ReadyList {
    fn lock(&self) -> MutexGuard<'_, Vec<usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    /// A panic of a task passes through no code that holds the lock.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Executor {
    /// An executor without tasks, at virtual time 0.
    #[must_use]
    pub fn new(seed: u64, step_limit: u64) -> Self {
        let mut random = Random::for_purpose(seed, "executor", &[]);
        let manner =
            Manner { favours: random.below(2) == 0, unasked_one_in: if random.below(3) == 0 { 16 } else { 0 } };
        let state = State {
            now_ns: 0,
            step: 0,
            random,
            tasks: Vec::new(),
            live: Vec::new(),
            current: None,
            paused: BTreeSet::new(),
            parked: Vec::new(),
            timers: Timers::default(),
            trace: Trace::new(),
        };
        let shared = Arc::new(Shared { ready: Arc::default(), state: Mutex::new(state) });
        Self { handle: Handle::new(shared, Group(0)), manner, step_limit }
    }

    /// The way in, for tasks of a group.
    #[must_use]
    pub fn handle(&self, group: Group) -> Handle {
        self.handle.for_group(group)
    }

    /// Runs until this future has its result; other tasks may be left.
    ///
    /// # Errors
    /// When it can never have one, or not within the limit of steps.
    pub fn run<T: Send + 'static>(
        &mut self,
        name: &str,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Stuck> {
        let result = Arc::new(Mutex::new(None));
        let slot = Arc::clone(&result);
        self.handle.start(
            name,
            Box::pin(async move {
                let value = future.await;
                *slot.lock().expect("no panic under this lock") = Some(value);
            }),
        );
        loop {
            if let Some(value) = result.lock().expect("no panic under this lock").take() {
                return Ok(value);
            }
            if !self.step()? {
                return Err(Stuck::Deadlock { waiting: self.waiting() });
            }
        }
    }

    /// Runs what is left until all of it has ended.
    ///
    /// # Errors
    /// When tasks are left that can never end, or not within the limit of steps.
    pub fn finish(&mut self) -> Result<(), Stuck> {
        while self.step()? {}
        let waiting = self.waiting();
        if waiting.is_empty() { Ok(()) } else { Err(Stuck::Deadlock { waiting }) }
    }

    /// Makes so many steps, or fewer if nothing is left to do.
    ///
    /// # Errors
    /// When the limit of steps is reached.
    pub fn run_steps(&mut self, steps: u64) -> Result<(), Stuck> {
        for _ in 0..steps {
            if !self.step()? {
                break;
            }
        }
        Ok(())
    }

    /// A number that two runs share if they did the same.
    #[must_use]
    pub fn trace_hash(&self) -> u64 {
        self.handle.shared.lock().trace.hash()
    }

    /// The last lines of what happened.
    #[must_use]
    pub fn trace_tail(&self) -> String {
        self.handle.shared.lock().trace.tail()
    }

    /// How many steps were made.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.handle.shared.lock().step
    }

    /// Every task that has not ended, with what it waits for.
    #[must_use]
    pub fn waiting(&self) -> Vec<String> {
        let state = self.handle.shared.lock();
        let mut live = state.live.clone();
        live.sort_unstable();
        live.into_iter().map(|task| state.describe(task)).collect()
    }

    /// Polls one task, after moving time on if that is what it takes. False when there is nothing to do.
    fn step(&mut self) -> Result<bool, Stuck> {
        let shared = Arc::clone(&self.handle.shared);
        let (task, what, mut future, waker) = loop {
            shared.fire_timers();
            let mut state = shared.lock();
            let Some((task, what)) = state.pick(&shared.ready, self.manner) else {
                let Some(deadline) = state.timers.next_deadline() else { return Ok(false) };
                state.now_ns = state.now_ns.max(deadline);
                continue;
            };
            // Whoever wakes a task that has ended wakes nobody.
            let Some(future) = state.tasks[task].future.take() else { continue };
            if state.step >= self.step_limit {
                state.tasks[task].future = Some(future);
                drop(state);
                return Err(Stuck::StepLimit { steps: self.step_limit, waiting: self.waiting() });
            }
            state.step += 1;
            state.now_ns += state.random.below(LONGEST_STEP_NS);
            state.current = Some(task);
            let slot = &mut state.tasks[task];
            slot.waits.clear();
            break (task, what, future, slot.waker.clone());
        };
        let poll = future.as_mut().poll(&mut Context::from_waker(&waker));
        let mut state = shared.lock();
        state.current = None;
        let slot = &mut state.tasks[task];
        let (label, doomed) = (slot.label, slot.doomed);
        let what = if poll.is_ready() { What::Ended } else { what };
        let ended = if poll.is_pending() && !doomed {
            slot.future = Some(future);
            None
        } else {
            state.live.retain(|live| *live != task);
            Some(future)
        };
        let (step, now_ns) = (state.step, state.now_ns);
        state.trace.record(step, now_ns, label, what);
        // Its destructor wakes others.
        drop(state);
        drop(ended);
        Ok(true)
    }
}

impl Drop for Executor {
    /// Tasks hold handles, and handles hold tasks: only this undoes the circle.
    fn drop(&mut self) {
        self.handle.shared.lock().live.clear();
        loop {
            let tasks = std::mem::take(&mut self.handle.shared.lock().tasks);
            if tasks.is_empty() {
                return;
            }
        }
    }
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor").field("steps", &self.steps()).finish_non_exhaustive()
    }
}

impl State {
    /// Chooses who is polled next.
    fn pick(&mut self, ready: &ReadyList, manner: Manner) -> Option<(usize, What)> {
        let mut ready = ready.lock();
        if !self.paused.is_empty() {
            // They stay marked as queued, so that nothing queues them again before they go on.
            let is_paused = |task: &mut usize| self.paused.contains(&self.tasks[*task].group);
            self.parked.extend(ready.extract_if(.., is_paused));
        }
        if ready.is_empty() {
            return None;
        }
        // Some primitives wake in an order of their own random numbers.
        ready.sort_unstable();
        if manner.unasked_one_in > 0 && self.random.below(manner.unasked_one_in) == 0 && !self.live.is_empty() {
            let chosen = self.below(self.live.len());
            let chosen = self.live[chosen];
            if !self.paused.contains(&self.tasks[chosen].group) {
                return Some((chosen, What::PolledUnasked));
            }
        }
        let mut chosen = self.below(ready.len());
        if manner.favours {
            let other = self.below(ready.len());
            let period = self.step / FAVOUR_STEPS;
            let favour = |task: usize| Random::for_purpose(period, "favour", &[task as u64]).next_u64();
            chosen = std::cmp::max_by_key(chosen, other, |index| favour(ready[*index]));
        }
        let task = ready.remove(chosen);
        if let Some(slot) = self.tasks.get(task) {
            slot.wake.queued.store(false, Ordering::Relaxed);
        }
        Some((task, What::Polled))
    }

    fn live_in(&self, group: Group) -> Vec<usize> {
        self.live.iter().copied().filter(|task| self.tasks[*task].group == group).collect()
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.random.below(bound as u64)).expect("below a usize")
    }

    fn describe(&self, task: usize) -> String {
        let slot = &self.tasks[task];
        let waits: Vec<String> = slot.waits.iter().map(|wait| self.describe_wait(*wait)).collect();
        let waits = if waits.is_empty() { "something unknown".to_owned() } else { waits.join(", ") };
        format!("  {} waits for {waits}", self.trace.name(slot.label))
    }

    fn describe_wait(&self, wait: Wait) -> String {
        match wait {
            Wait::Until(deadline_ns) => format!("{:?}", Duration::from_nanos(deadline_ns)),
            Wait::Message(channel) => format!("a message on {}", self.trace.name(channel)),
            Wait::Room(channel) => format!("room in {}", self.trace.name(channel)),
        }
    }
}

impl Shared {
    fn fire_timers(&self) {
        loop {
            let mut state = self.lock();
            let now_ns = state.now_ns;
            let Some(waker) = state.timers.fire(now_ns) else { return };
            drop(state);
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests;
