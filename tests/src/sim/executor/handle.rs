//! The way into an executor for those that run on it: their clock, where they spawn and compute, and what they tell the
//! trace. Whoever plays the world crashes and pauses groups of tasks through it.

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, MutexGuard};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tidegate::clock::Clock;
use tidegate::task::{Compute, Spawner};

use super::super::timers::TimerId;
use super::super::trace::{Label, What};
use super::{Group, Shared, State, TaskSlot, TaskWaker, Wait};

/// Where the virtual wall clock begins: noon on the first of January 2026, UTC.
const WALL_START: Duration = Duration::from_secs(1_767_268_800);
/// A timer may be late by this much.
const LONGEST_TIMER_DELAY_NS: u64 = 200_000;
/// Off-thread work may take this long.
const LONGEST_COMPUTE_NS: u64 = 1_000_000;

/// The way into an executor, for those that run on it.
#[derive(Clone)]
pub struct Handle {
    pub(super) shared: Arc<Shared>,
    group: Group,
}

impl Handle {
    pub(super) fn new(shared: Arc<Shared>, group: Group) -> Self {
        Self { shared, group }
    }

    /// The way in, for tasks of another group.
    #[must_use]
    pub fn for_group(&self, group: Group) -> Self {
        Self::new(Arc::clone(&self.shared), group)
    }

    pub(super) fn start(&self, name: &str, future: BoxFuture<'static, ()>) {
        let mut state = self.shared.lock();
        let (task, label) = (state.tasks.len(), state.trace.label(name));
        let wake = Arc::new(TaskWaker { task, queued: AtomicBool::new(false), ready: Arc::clone(&self.shared.ready) });
        let waker = Waker::from(Arc::clone(&wake));
        wake.wake_by_ref();
        let group = self.group;
        let waits = Vec::new();
        state.tasks.push(TaskSlot { label, group, future: Some(future), doomed: false, wake, waker, waits });
        state.live.push(task);
    }

    /// Drops all tasks of a group where they stand, as a crash does.
    pub fn crash(&self, group: Group) {
        let state = self.shared.lock();
        let doomed = state.live_in(group);
        self.drop_tasks(state, doomed);
    }

    /// Drops one task of a group where it stands: the one of this number, counted around. Returns its name, or none if
    /// the group has no tasks.
    pub fn crash_one(&self, group: Group, number: u64) -> Option<String> {
        let state = self.shared.lock();
        let mut candidates = state.live_in(group);
        candidates.sort_unstable();
        let chosen = usize::try_from(number.checked_rem(candidates.len() as u64)?).expect("an index");
        let task = candidates[chosen];
        let name = state.trace.name(state.tasks[task].label).to_owned();
        self.drop_tasks(state, vec![task]);
        Some(name)
    }

    fn drop_tasks(&self, mut guard: MutexGuard<'_, State>, doomed: Vec<usize>) {
        let state = &mut *guard;
        state.live.retain(|task| !doomed.contains(task));
        let mut futures = Vec::with_capacity(doomed.len());
        for task in doomed {
            let slot = &mut state.tasks[task];
            slot.doomed = true;
            futures.push(slot.future.take());
            state.trace.record(state.step, state.now_ns, slot.label, What::Dropped);
        }
        drop(guard);
        // Their destructors wake and spawn others.
        drop(futures);
    }

    /// No task of the group is polled until it goes on, as when a process is stopped by a signal.
    pub fn pause(&self, group: Group) {
        self.shared.lock().paused.insert(group);
    }

    /// Lets the tasks of a paused group go on.
    pub fn go_on(&self, group: Group) {
        let state = &mut *self.shared.lock();
        state.paused.remove(&group);
        let tasks = &state.tasks;
        let woken: Vec<usize> = state.parked.extract_if(.., |task| tasks[*task].group == group).collect();
        self.shared.ready.lock().extend(woken);
    }

    /// The tasks of a group that have not ended.
    #[must_use]
    pub fn tasks(&self, group: Group) -> Vec<String> {
        let state = self.shared.lock();
        state.live_in(group).into_iter().map(|task| state.trace.name(state.tasks[task].label).to_owned()).collect()
    }

    /// Virtual time since the start, in nanoseconds.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.shared.lock().now_ns
    }

    /// Gives the trace a name to report events under.
    #[must_use]
    pub fn label(&self, name: &str) -> Label {
        self.shared.lock().trace.label(name)
    }

    /// Reports something to the trace.
    pub fn event(&self, label: Label, event: &'static str, number: u64) {
        let state = &mut *self.shared.lock();
        state.trace.record(state.step, state.now_ns, label, What::Event(event, number));
    }

    /// Says what the task that is being polled waits for, for the report of a deadlock.
    pub fn waits_for(&self, wait: Wait) {
        let mut state = self.shared.lock();
        if let Some(task) = state.current
            && let Some(slot) = state.tasks.get_mut(task)
        {
            slot.waits.push(wait);
        }
    }

    /// A timer for a moment of virtual time.
    #[must_use]
    pub fn timer(&self, deadline_ns: u64) -> Timer {
        Timer { shared: Arc::clone(&self.shared), deadline_ns, set: None }
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("group", &self.group).finish_non_exhaustive()
    }
}

impl Clock for Handle {
    fn wall(&self) -> Duration {
        WALL_START + self.monotonic()
    }

    fn monotonic(&self) -> Duration {
        Duration::from_nanos(self.now_ns())
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let mut state = self.shared.lock();
        let late_ns = if state.random.below(4) == 0 { state.random.below(LONGEST_TIMER_DELAY_NS) } else { 0 };
        let duration_ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let deadline_ns = state.now_ns.saturating_add(duration_ns).saturating_add(late_ns);
        drop(state);
        Box::pin(self.timer(deadline_ns))
    }
}

impl Spawner for Handle {
    fn spawn(&self, name: &str, future: BoxFuture<'static, ()>) {
        self.start(name, future);
    }
}

impl Compute for Handle {
    fn run(&self, name: &'static str, work: Box<dyn FnOnce() + Send>) {
        let begin_ns = {
            let mut state = self.shared.lock();
            state.now_ns + state.random.below(LONGEST_COMPUTE_NS)
        };
        let timer = self.timer(begin_ns);
        self.start(
            name,
            Box::pin(async move {
                timer.await;
                work();
            }),
        );
    }
}

/// A future of a moment in virtual time.
pub struct Timer {
    shared: Arc<Shared>,
    deadline_ns: u64,
    set: Option<TimerId>,
}

impl Timer {
    /// The moment, in nanoseconds.
    #[must_use]
    pub fn deadline_ns(&self) -> u64 {
        self.deadline_ns
    }

    /// Lets this waker be woken at the moment, in place of any before it.
    pub fn arm(&mut self, waker: &Waker) {
        let mut state = self.shared.lock();
        let before = if let Some(id) = self.set {
            state.timers.replace_waker(id, waker)
        } else {
            self.set = Some(state.timers.set(self.deadline_ns, waker.clone()));
            None
        };
        drop(state);
        drop(before);
    }
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timer").field("deadline_ns", &self.deadline_ns).finish_non_exhaustive()
    }
}

impl Future for Timer {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.shared.lock().now_ns >= self.deadline_ns {
            return Poll::Ready(());
        }
        self.arm(context.waker());
        let handle = Handle::new(Arc::clone(&self.shared), Group(0));
        handle.waits_for(Wait::Until(self.deadline_ns));
        Poll::Pending
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        if let Some(id) = self.set {
            let waker = self.shared.lock().timers.cancel(id);
            drop(waker);
        }
    }
}
