//! The checkpoints of one attempt of a job: when they are triggered, who is awaited, how each one ends.
//!
//! The coordinator's side of asynchronous barrier snapshotting (Carbone et al.: Lightweight Asynchronous Snapshots for
//! Distributed Dataflows, 2015), with the rules of Apache Flink: pause and timeout, consecutive failures, tasks that
//! finish early (its FLIP-147), and a final checkpoint when all have.
//!
//! Owns the life of each checkpoint: triggered, collecting, persisting, committing. Snapshots, files, messages and the
//! clock belong to the driver, which tells what happened and carries out the actions, in their order.
//!
//! Invariants: at most one checkpoint is under way; ids grow; a checkpoint is persisted only when every task has
//! acknowledged it or had finished before it saw the barrier; once that write has begun, only its outcome decides.

use std::collections::VecDeque;
use std::time::Duration;

use crate::id::CheckpointId;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

/// How long after a failed final checkpoint the next one comes, or after the interval if that is shorter. Nothing runs
/// any more that the wait could spare; it only keeps a failure that comes at once from using up all tries.
pub const FINAL_RETRY_PAUSE: Duration = Duration::from_secs(1);

/// How many aborted checkpoints are remembered, the newest ones, so that late acknowledgements of them are told from
/// repeated ones of checkpoints that completed.
pub const REMEMBERED_ABORTS: usize = 1024;

/// When checkpoints are made and given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointRules {
    /// From one periodic trigger to the next. A shorter one than `min_pause` counts as that.
    pub interval: Duration,
    /// At least so long after the last checkpoint that succeeded. Failed ones do not count.
    pub min_pause: Duration,
    /// A checkpoint for which so long after its trigger something is still awaited is given up.
    pub timeout: Duration,
    /// How many checkpoints in a row may fail; one more fails the job.
    pub tolerable_failures: u32,
}

/// A subtask that takes part in checkpoints, counted from 0 over the whole job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TaskIndex(pub u32);

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Time passed; see [`Coordinator::next_wakeup`].
    Tick,
    /// A user wants a checkpoint now. If one is under way, the next follows it at once.
    TriggerNow,
    /// The states of all enumerators for the checkpoint are at hand. It comes once for each trigger, also when there are
    /// no enumerators.
    EnumeratorsSnapshotted(CheckpointId),
    /// An enumerator could not tell its state.
    EnumeratorsFailed(CheckpointId),
    /// The task's snapshot is durable.
    Acknowledged(TaskIndex, CheckpointId),
    /// The task cannot make the snapshot.
    Declined(TaskIndex, CheckpointId),
    /// The task ended in good order and its final snapshot is durable. It has acknowledged or declined every barrier that
    /// it saw before; for one that it did not see the final snapshot stands in.
    TaskFinished(TaskIndex),
    /// The checkpoint is durable: from here on it has happened.
    Persisted(CheckpointId),
    /// The checkpoint is certainly not durable and never will be.
    PersistFailed(CheckpointId),
    /// What the checkpoint's sinks had prepared is committed.
    Committed(CheckpointId),
    /// The job is being cancelled or a task has failed: no checkpoint is triggered any more.
    Stop,
}

/// What the driver is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Snapshot the enumerators, then have the sources that still run inject the barrier.
    Trigger(CheckpointId),
    /// Write the metadata and make the checkpoint durable.
    Persist(CheckpointId),
    /// Commit what the sinks prepared up to this checkpoint.
    Commit(CheckpointId),
    /// Tell the tasks that the checkpoint will not be, and delete its files.
    Abort {
        /// The checkpoint.
        id: CheckpointId,
        /// Why.
        reason: AbortReason,
    },
    /// Delete the files of an acknowledgement that came too late or for a checkpoint that never was.
    Discard(TaskIndex, CheckpointId),
    /// Fail the job. No checkpoint is triggered any more.
    FailJob(TooManyFailures),
    /// All tasks have finished and this checkpoint, the final one, is committed: the job is finished.
    AllFinished(CheckpointId),
}

/// Why a checkpoint was given up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AbortReason {
    /// Something was still awaited when the time was over: the enumerators if no task.
    #[error("not complete within {timeout:?}: {} awaited", list(.awaited))]
    Expired {
        /// The rule's timeout.
        timeout: Duration,
        /// The tasks that had neither acknowledged nor finished.
        awaited: Vec<TaskIndex>,
    },
    /// A task could not make its snapshot.
    #[error("task {} declined", .0.0)]
    Declined(TaskIndex),
    /// An enumerator could not tell its state.
    #[error("the state of the sources' enumerators is not known")]
    EnumeratorsFailed,
    /// The metadata could not be written.
    #[error("it was not put on record")]
    PersistFailed,
    /// The job was cancelled or a task failed. This is no failure of the checkpoint.
    #[error("the job stopped")]
    Stopped,
}

/// Checkpoints failed one after the other, more than the rules tolerate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{id} failed; that makes {failures} in a row, and checkpoint.tolerable-failures is {tolerable}")]
pub struct TooManyFailures {
    /// The last of them.
    pub id: CheckpointId,
    /// How many they are.
    pub failures: u32,
    /// The rule.
    pub tolerable: u32,
    /// Why the last one failed.
    #[source]
    pub reason: AbortReason,
}

/// Whom an expired checkpoint still waited for, in a few words.
fn list(awaited: &[TaskIndex]) -> String {
    match awaited {
        [] => "the enumerators' state is".to_owned(),
        [TaskIndex(task)] => format!("task {task} is"),
        [TaskIndex(task), others @ ..] => format!("task {task} and {} more are", others.len()),
    }
}

/// The state of all checkpoints of an attempt.
#[derive(Clone, Debug)]
pub struct Coordinator {
    rules: CheckpointRules,
    tasks: Vec<Task>,
    unfinished: usize,
    state: State,
    first_id: CheckpointId,
    next_id: CheckpointId,
    /// Of the last event.
    now: Duration,
    /// When the next periodic checkpoint is due.
    periodic_at: Duration,
    /// When the pause after the last success is over.
    paused_until: Duration,
    /// When the final checkpoint may be tried, once all tasks have finished.
    final_at: Duration,
    /// A user waits for the next checkpoint.
    requested: bool,
    /// How many checkpoints failed since the last success.
    failures: u32,
    /// Whether checkpoints are still triggered: not after the job failed, stopped or finished.
    open: bool,
    /// In order, at most [`REMEMBERED_ABORTS`].
    aborted: VecDeque<CheckpointId>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Task {
    finished: bool,
    /// The newest checkpoint under way that the task acknowledged.
    acknowledged: Option<CheckpointId>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Idle,
    Collecting(Collecting),
    /// The write may be durable at any moment, so the checkpoint must not be given up unless the driver says it is not.
    Persisting(Round),
    /// The next trigger waits for this, so that commits cannot pile up.
    Committing(Round),
}

/// One checkpoint.
#[derive(Clone, Copy, Debug)]
struct Round {
    id: CheckpointId,
    /// All tasks had finished when it was triggered.
    is_final: bool,
}

#[derive(Clone, Copy, Debug)]
struct Collecting {
    round: Round,
    deadline: Duration,
    enumerators_awaited: bool,
    /// How many tasks have neither acknowledged nor finished.
    tasks_awaited: usize,
}

impl Coordinator {
    /// An attempt starts `now`, with so many tasks, all running. The first checkpoint is due an interval later and has
    /// the id `first_id`, which is above every id ever seen in the job's directory.
    ///
    /// # Panics
    /// When there are no tasks: no job is without.
    #[must_use]
    pub fn new(rules: CheckpointRules, tasks: u32, first_id: CheckpointId, now: Duration) -> Self {
        assert!(tasks > 0, "a job has at least one task");
        let rules = CheckpointRules { interval: rules.interval.max(rules.min_pause), ..rules };
        let tasks = vec![Task::default(); tasks as usize];
        Self {
            rules,
            unfinished: tasks.len(),
            tasks,
            state: State::Idle,
            first_id,
            next_id: first_id,
            now,
            periodic_at: now.saturating_add(rules.interval),
            paused_until: now,
            final_at: now,
            requested: false,
            failures: 0,
            open: true,
            aborted: VecDeque::new(),
        }
    }

    /// Something happened. Returns what is to be done, in order.
    ///
    /// # Panics
    /// When the event cannot be: time went back, there is no such task, a task finished twice or acknowledged a barrier
    /// after it had finished, an outcome is told of a checkpoint that was not waiting for it.
    #[must_use = "the driver carries out the actions"]
    pub fn on(&mut self, now: Duration, event: Event) -> Vec<Action> {
        assert!(now >= self.now, "time went back from {:?} to {now:?}", self.now);
        self.now = now;
        let mut actions = Vec::new();
        self.state = self.step(event, &mut actions);
        self.state = self.time_passed(&mut actions);
        actions
    }

    /// When the next [`Event::Tick`] is due, if nothing else happens before.
    #[must_use]
    pub fn next_wakeup(&self) -> Option<Duration> {
        match self.state {
            State::Idle => self.open.then(|| self.trigger_at()),
            State::Collecting(collecting) => Some(collecting.deadline),
            State::Persisting(_) | State::Committing(_) => None,
        }
    }

    /// The checkpoint that is being collected, and the tasks it waits for. Without any it waits for the enumerators.
    #[must_use]
    pub fn collecting(&self) -> Option<(CheckpointId, impl Iterator<Item = TaskIndex>)> {
        match self.state {
            State::Collecting(Collecting { round: Round { id, .. }, .. }) => Some((id, self.awaited(id))),
            State::Idle | State::Persisting(_) | State::Committing(_) => None,
        }
    }

    fn step(&mut self, event: Event, actions: &mut Vec<Action>) -> State {
        use State::{Collecting as Collects, Committing, Idle, Persisting};
        match (self.state, event) {
            (state, Event::Tick) => state,
            (state, Event::TriggerNow) => {
                self.requested = true;
                state
            }

            (Collects(collecting), Event::EnumeratorsSnapshotted(id)) if id == collecting.round.id => {
                self.collected(Collecting { enumerators_awaited: false, ..collecting }, actions)
            }
            (Collects(collecting), Event::EnumeratorsFailed(id)) if id == collecting.round.id => {
                self.fail(collecting.round, AbortReason::EnumeratorsFailed, actions)
            }
            // Of a checkpoint that was given up meanwhile.
            (state, Event::EnumeratorsSnapshotted(id) | Event::EnumeratorsFailed(id)) => {
                let is_over = !matches!(state, Persisting(round) | Committing(round) if round.id == id);
                assert!(is_over, "the enumerators have told their state for {id} before");
                state
            }

            (Collects(collecting), Event::Acknowledged(task, id)) if id == collecting.round.id => {
                self.acknowledged(collecting, task, actions)
            }
            (state @ (Persisting(round) | Committing(round)), Event::Acknowledged(task, id)) if id == round.id => {
                let first = self.task(task).acknowledged;
                assert!(first == Some(id), "{task:?} saw the barrier of {id} and finished before it acknowledged");
                state
            }
            (state @ (Idle | Collects(_) | Persisting(_) | Committing(_)), Event::Acknowledged(task, id)) => {
                if self.is_late(id) {
                    actions.push(Action::Discard(task, id));
                }
                state
            }

            (Collects(collecting), Event::Declined(task, id)) if id == collecting.round.id => {
                self.fail(collecting.round, AbortReason::Declined(task), actions)
            }
            // Late: the checkpoint is over, or all have acknowledged it and the task contradicts itself.
            (state @ (Idle | Collects(_) | Persisting(_) | Committing(_)), Event::Declined(..)) => state,

            (Collects(collecting), Event::TaskFinished(task)) => {
                let is_awaited = self.task(task).acknowledged != Some(collecting.round.id);
                self.finish(task);
                let tasks_awaited = collecting.tasks_awaited - usize::from(is_awaited);
                self.collected(Collecting { tasks_awaited, ..collecting }, actions)
            }
            (state @ (Idle | Persisting(_) | Committing(_)), Event::TaskFinished(task)) => {
                self.finish(task);
                state
            }

            (Persisting(round), Event::Persisted(id)) if id == round.id => {
                self.failures = 0;
                self.paused_until = self.now.saturating_add(self.rules.min_pause);
                actions.push(Action::Commit(id));
                Committing(round)
            }
            (Persisting(round), Event::PersistFailed(id)) if id == round.id => {
                self.fail(round, AbortReason::PersistFailed, actions)
            }
            (state, Event::Persisted(id) | Event::PersistFailed(id)) => {
                panic!("{id} was not to be persisted in {state:?}")
            }

            (Committing(round), Event::Committed(id)) if id == round.id => {
                if round.is_final {
                    self.open = false;
                    actions.push(Action::AllFinished(id));
                }
                Idle
            }
            (state, Event::Committed(id)) => panic!("{id} was not to be committed in {state:?}"),

            (Collects(collecting), Event::Stop) => {
                self.open = false;
                self.abort(collecting.round.id, AbortReason::Stopped, actions)
            }
            (state @ (Idle | Persisting(_) | Committing(_)), Event::Stop) => {
                self.open = false;
                state
            }
        }
    }

    /// What follows from the time alone.
    fn time_passed(&mut self, actions: &mut Vec<Action>) -> State {
        let state = match self.state {
            State::Collecting(collecting) if self.now >= collecting.deadline => {
                let awaited = self.awaited(collecting.round.id).collect();
                let reason = AbortReason::Expired { timeout: self.rules.timeout, awaited };
                self.fail(collecting.round, reason, actions)
            }
            state @ (State::Idle | State::Collecting(_) | State::Persisting(_) | State::Committing(_)) => state,
        };
        match state {
            State::Idle if self.open && self.now >= self.trigger_at() => self.trigger(actions),
            State::Idle | State::Collecting(_) | State::Persisting(_) | State::Committing(_) => state,
        }
    }

    /// When the next checkpoint is to be triggered if none is under way.
    fn trigger_at(&self) -> Duration {
        if self.requested {
            self.now
        } else if self.unfinished == 0 {
            self.final_at
        } else {
            self.periodic_at.max(self.paused_until)
        }
    }

    fn trigger(&mut self, actions: &mut Vec<Action>) -> State {
        let id = self.next_id;
        self.next_id = CheckpointId(id.0 + 1);
        self.requested = false;
        if self.now >= self.periodic_at {
            self.periodic_at = self.now.saturating_add(self.rules.interval);
        }
        actions.push(Action::Trigger(id));
        State::Collecting(Collecting {
            round: Round { id, is_final: self.unfinished == 0 },
            deadline: self.now.saturating_add(self.rules.timeout),
            enumerators_awaited: true,
            tasks_awaited: self.unfinished,
        })
    }

    fn acknowledged(&mut self, collecting: Collecting, index: TaskIndex, actions: &mut Vec<Action>) -> State {
        let id = collecting.round.id;
        let task = self.task(index);
        if task.acknowledged == Some(id) {
            return State::Collecting(collecting);
        }
        assert!(!task.finished, "{index:?} saw the barrier of {id} and finished before it acknowledged");
        task.acknowledged = Some(id);
        self.collected(Collecting { tasks_awaited: collecting.tasks_awaited - 1, ..collecting }, actions)
    }

    /// Goes on to persist if nothing is awaited any more.
    fn collected(&mut self, collecting: Collecting, actions: &mut Vec<Action>) -> State {
        let Collecting { round, enumerators_awaited, tasks_awaited, .. } = collecting;
        if enumerators_awaited || tasks_awaited > 0 {
            return State::Collecting(collecting);
        }
        assert!(self.awaited(round.id).next().is_none(), "{} is persisted before all have acknowledged", round.id);
        actions.push(Action::Persist(round.id));
        State::Persisting(round)
    }

    /// The checkpoint failed, and with it perhaps the job.
    fn fail(&mut self, round: Round, reason: AbortReason, actions: &mut Vec<Action>) -> State {
        let Round { id, is_final } = round;
        let state = self.abort(id, reason.clone(), actions);
        if is_final {
            self.final_at = self.now.saturating_add(FINAL_RETRY_PAUSE.min(self.rules.interval));
        }
        self.failures = self.failures.saturating_add(1);
        let tolerable = self.rules.tolerable_failures;
        if self.failures > tolerable {
            // A job that is stopping does not fail on top of it.
            if self.open {
                actions.push(Action::FailJob(TooManyFailures { id, failures: self.failures, tolerable, reason }));
            }
            self.open = false;
        }
        state
    }

    fn abort(&mut self, id: CheckpointId, reason: AbortReason, actions: &mut Vec<Action>) -> State {
        if self.aborted.len() == REMEMBERED_ABORTS {
            self.aborted.pop_front();
        }
        self.aborted.push_back(id);
        actions.push(Action::Abort { id, reason });
        State::Idle
    }

    fn finish(&mut self, index: TaskIndex) {
        let task = self.task(index);
        assert!(!task.finished, "{index:?} finished twice");
        task.finished = true;
        self.unfinished -= 1;
    }

    /// Whether the files of an acknowledgement are of no use. Otherwise it repeats one that was taken: the checkpoint
    /// completed, and its metadata names the files.
    fn is_late(&self, id: CheckpointId) -> bool {
        let was_triggered = (self.first_id..self.next_id).contains(&id);
        !was_triggered || self.aborted.binary_search(&id).is_ok()
    }

    fn awaited(&self, id: CheckpointId) -> impl Iterator<Item = TaskIndex> {
        let indexed = (0..).map(TaskIndex).zip(&self.tasks);
        indexed.filter(move |(_, task)| !task.finished && task.acknowledged != Some(id)).map(|(index, _)| index)
    }

    fn task(&mut self, index: TaskIndex) -> &mut Task {
        self.tasks.get_mut(index.0 as usize).expect("a task of this job")
    }
}
