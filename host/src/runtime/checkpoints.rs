//! Drives the checkpoints of one attempt: `protocol::coordinator` decides, this module acts.
//!
//! Everything that takes long runs in a task of its own and comes back as a report, so that one step never waits for
//! anything but the next report or the next moment at which something is due.
//!
//! What always holds: output is committed only from a checkpoint whose record is in the run log, and what a task held in
//! the end stands only for checkpoints whose barriers it did not pass on.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::commit::Committers;
use super::cut::{Cut, CutPart};
use super::epochs::{EpochLink, Notices, Report, spawn_reporting};
use super::error::JobError;
use super::metrics::JobMetrics;
use super::restored::committables;
use super::snapshot::{Saved, Snapshots};
use super::splits::EnumeratorClient;
use super::store::{CheckpointStore, PersistError};
use super::subtask::SubtaskEnd;
use crate::checkpoint::metadata::NodeMetadata;
use crate::connectors::Committable;
use crate::env::Env;
use crate::id::{CheckpointId, NodeId};
use crate::protocol::coordinator::{AbortReason, Action, CheckpointRules, Coordinator, Event, TaskIndex};
use crate::task::{self, TaskError};

/// How the checkpoints of an attempt are made.
pub(super) struct CheckpointSetup {
    pub(super) rules: CheckpointRules,
    pub(super) env: Env,
    pub(super) snapshots: Arc<Snapshots>,
    /// The nodes of the job by their ids, without what is held at a barrier.
    pub(super) nodes: Vec<NodeMetadata>,
    pub(super) committers: Arc<Committers>,
    pub(super) metrics: Arc<JobMetrics>,
    pub(super) store: CheckpointStore,
    /// What is to be committed with the first checkpoint, by node.
    pub(super) first_committables: Vec<(NodeId, Vec<Committable>)>,
}

/// How far checkpoints have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// There is more to come.
    Going,
    /// All tasks have finished, and what they held in the end has been committed.
    Done,
}

/// The checkpoints of a running attempt.
pub(super) struct Checkpoints {
    coordinator: Coordinator,
    env: Env,
    snapshots: Arc<Snapshots>,
    nodes: Vec<NodeMetadata>,
    committers: Arc<Committers>,
    metrics: Arc<JobMetrics>,
    /// None while a checkpoint is being persisted.
    store: Option<CheckpointStore>,
    first_committables: Vec<(NodeId, Vec<Committable>)>,
    enumerators: Vec<(NodeId, EnumeratorClient)>,
    notices: watch::Sender<Notices>,
    reports: mpsc::UnboundedReceiver<Report>,
    reporting: mpsc::UnboundedSender<Report>,
    over: CancellationToken,
    /// The checkpoint that is being collected.
    round: Round,
    /// Tasks that have ended but whose last barrier is still to be acknowledged.
    held_back: Vec<(TaskIndex, SubtaskEnd)>,
    /// What tasks held in the end, not yet durable: needed once a checkpoint is made while others go on.
    ended: BTreeMap<TaskIndex, Cut>,
    /// What tasks held in the end, durable.
    finals: BTreeMap<TaskIndex, Vec<Saved>>,
    /// Per node, how many subtasks have not finished.
    unfinished: Vec<u32>,
    /// An acknowledgement for a checkpoint that is not being collected.
    late: Vec<Saved>,
    /// What went wrong with the last checkpoint that was given up.
    problem: Option<Problem>,
    done: bool,
}

/// What has come in for one checkpoint.
#[derive(Default)]
struct Round {
    id: Option<CheckpointId>,
    enumerators: Vec<(NodeId, Vec<u8>)>,
    acknowledged: BTreeMap<TaskIndex, Vec<Saved>>,
    /// What is to be committed once it is persisted, by node.
    committables: Vec<(NodeId, Vec<Committable>)>,
    /// Why it cannot be completed, to tell with the failure.
    problem: Option<Problem>,
}

/// What went wrong with a checkpoint, in detail.
type Problem = Box<dyn std::error::Error + Send + Sync>;

impl CheckpointSetup {
    /// Begins, for so many tasks.
    pub(super) fn start(self, tasks: u32, enumerators: Vec<(NodeId, EnumeratorClient)>) -> Checkpoints {
        let first = self.store.next_checkpoint();
        let (reporting, reports) = mpsc::unbounded_channel();
        Checkpoints {
            coordinator: Coordinator::new(self.rules, tasks, first, self.env.clock.monotonic()),
            env: self.env,
            snapshots: self.snapshots,
            unfinished: self.nodes.iter().map(|node| node.parallelism).collect(),
            nodes: self.nodes,
            committers: self.committers,
            metrics: self.metrics,
            store: Some(self.store),
            first_committables: self.first_committables,
            enumerators,
            notices: watch::Sender::new(Notices::default()),
            reports,
            reporting,
            over: CancellationToken::new(),
            round: Round::default(),
            held_back: Vec::new(),
            ended: BTreeMap::new(),
            finals: BTreeMap::new(),
            late: Vec::new(),
            problem: None,
            done: false,
        }
    }
}

impl Checkpoints {
    /// What subtasks are given to take part.
    pub(super) fn link(&self) -> EpochLink {
        EpochLink {
            notices: self.notices.subscribe(),
            reports: self.reporting.clone(),
            snapshots: Arc::clone(&self.snapshots),
            over: self.over.clone(),
        }
    }

    /// Waits for the next thing to happen and acts on it. Cancel-safe.
    pub(super) async fn advance(&mut self) -> Result<Progress, JobError> {
        if self.done {
            return Ok(Progress::Done);
        }
        let due = self.coordinator.next_wakeup().map(|at| at.saturating_sub(self.env.clock.monotonic()));
        let clock = Arc::clone(&self.env.clock);
        let due = async {
            match due {
                Some(left) => clock.sleep(left).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            Some(report) = self.reports.recv() => self.hear(report).map_err(|error| *error)?,
            () = due => self.on(Event::Tick).map_err(|error| *error)?,
        }
        Ok(if self.done { Progress::Done } else { Progress::Going })
    }

    /// A task has seen the end of its input.
    pub(super) fn finished(&mut self, task: TaskIndex, end: SubtaskEnd) {
        let waits = end.last_barrier.is_some() && end.last_barrier == self.round.id;
        if waits && !self.round.acknowledged.contains_key(&task) {
            self.held_back.push((task, end));
        } else {
            self.end(task, end);
        }
    }

    fn end(&mut self, task: TaskIndex, end: SubtaskEnd) {
        for part in &end.cut.parts {
            self.unfinished[part.node.0 as usize] -= 1;
        }
        self.ended.insert(task, end.cut);
        if self.round.id.is_some() {
            return self.save_finals(|_| true);
        }
        // Nobody will ask for the state of a node of which all subtasks have finished.
        let unfinished = std::mem::take(&mut self.unfinished);
        let over = |part: &CutPart| unfinished[part.node.0 as usize] == 0;
        for part in self.ended.values_mut().flat_map(|cut| &mut cut.parts).filter(|part| over(part)) {
            part.held.drop_state();
        }
        self.save_finals(|cut| cut.parts.iter().all(over));
        self.unfinished = unfinished;
    }

    /// Makes durable what tasks held in the end.
    fn save_finals(&mut self, which: impl Fn(&Cut) -> bool) {
        for (task, cut) in self.ended.extract_if(.., |_, cut| which(cut)) {
            let snapshots = Arc::clone(&self.snapshots);
            let place = format!("what task {} held in the end", task.0);
            let (over, checkpoint) = (self.over.clone(), self.round.id.unwrap_or(CheckpointId(0)));
            let saving = async move {
                Some(match snapshots.save(checkpoint, cut, &over).await? {
                    Ok(saved) => Report::Ended { task, saved },
                    Err(source) => Report::Failed(source),
                })
            };
            spawn_reporting(&*self.env.control, place, &self.reporting, saving);
        }
    }

    /// Acts on what a task of the attempt or of this module has to tell.
    fn hear(&mut self, report: Report) -> Result<(), Box<JobError>> {
        match report {
            Report::Acknowledged { task, checkpoint, saved } => {
                if self.round.id == Some(checkpoint) {
                    self.round.acknowledged.insert(task, saved);
                } else {
                    self.late = saved;
                }
                self.on(Event::Acknowledged(task, checkpoint))?;
                self.let_go(|other, end| other == task && end.last_barrier == Some(checkpoint));
                Ok(())
            }
            Report::Declined { task, checkpoint, source } => {
                if self.round.id == Some(checkpoint) {
                    self.round.problem = Some(Box::new(source));
                }
                self.on(Event::Declined(task, checkpoint))?;
                self.let_go(|other, end| other == task && end.last_barrier == Some(checkpoint));
                Ok(())
            }
            Report::Ended { task, saved } => {
                self.finals.insert(task, saved);
                self.on(Event::TaskFinished(task))
            }
            Report::Failed(source) => Err(Box::new(source.into())),
            Report::Died { place } => {
                let source = TaskError::Dropped { name: place.clone() };
                Err(Box::new(JobError::Host { place, source }))
            }
            Report::Enumerators { checkpoint, states: Some(states) } => {
                if self.round.id == Some(checkpoint) {
                    self.round.enumerators = states;
                }
                self.on(Event::EnumeratorsSnapshotted(checkpoint))
            }
            Report::Enumerators { checkpoint, states: None } => self.on(Event::EnumeratorsFailed(checkpoint)),
            Report::Persisted { checkpoint, store, outcome } => {
                self.store = Some(*store);
                match outcome {
                    Ok(()) => {
                        self.metrics.checkpoints.completed.add(1);
                        self.on(Event::Persisted(checkpoint))
                    }
                    Err(error @ (PersistError::Failed(_) | PersistError::Taken)) => {
                        self.round.problem = Some(Box::new(error));
                        self.on(Event::PersistFailed(checkpoint))
                    }
                    Err(error) => Err(Box::new(JobError::Persist { checkpoint, source: error })),
                }
            }
            Report::Committed { checkpoint, outcome } => {
                outcome?;
                self.first_committables.clear();
                self.notices.send_modify(|notices| notices.committed = Some(checkpoint));
                self.round = Round::default();
                self.on(Event::Committed(checkpoint))
            }
        }
    }

    /// Tells the coordinator, and does what it says.
    fn on(&mut self, event: Event) -> Result<(), Box<JobError>> {
        let now = self.env.clock.monotonic();
        for action in self.coordinator.on(now, event) {
            match action {
                Action::Trigger(checkpoint) => self.trigger(checkpoint),
                Action::Persist(checkpoint) => self.persist(checkpoint),
                Action::Commit(checkpoint) => self.commit(checkpoint),
                Action::Abort { id, reason } => self.abort(id, &reason),
                Action::Discard(..) => {
                    self.metrics.checkpoints.late_acknowledgements.add(1);
                    let late = std::mem::take(&mut self.late);
                    self.delete(late);
                }
                Action::FailJob(failures) => {
                    return Err(Box::new(JobError::Checkpoints { failures, problem: self.problem.take() }));
                }
                Action::AllFinished(_) => self.done = true,
            }
        }
        Ok(())
    }

    /// Tasks that had ended wait no longer for what becomes of their last barriers.
    fn let_go(&mut self, which: impl Fn(TaskIndex, &SubtaskEnd) -> bool) {
        let held_back = self.held_back.extract_if(.., |(task, end)| which(*task, end));
        for (task, end) in held_back.collect::<Vec<_>>() {
            self.end(task, end);
        }
    }

    fn trigger(&mut self, checkpoint: CheckpointId) {
        self.round = Round { id: Some(checkpoint), ..Round::default() };
        self.store.as_mut().expect("nothing is being persisted").used(checkpoint);
        let enumerators = self.enumerators.clone();
        let asking = async move {
            let mut states = Some(Vec::with_capacity(enumerators.len()));
            for (node, enumerator) in enumerators {
                let state = enumerator.begin(checkpoint).await;
                states = states.zip(state).map(|(mut states, state)| {
                    states.push((node, state));
                    states
                });
            }
            Some(Report::Enumerators { checkpoint, states })
        };
        self.spawn(format!("enumerators of {checkpoint}"), asking);
        self.save_finals(|_| true);
    }

    fn persist(&mut self, checkpoint: CheckpointId) {
        let mut nodes = self.nodes.clone();
        for (node, state) in std::mem::take(&mut self.round.enumerators) {
            nodes[node.0 as usize].enumerator = Some(state);
        }
        for (node, committables) in &self.first_committables {
            nodes[node.0 as usize].committables =
                committables.iter().map(|committable| committable.0.clone()).collect();
        }
        // What a task held in the end stands in where it did not see the barrier.
        let (acknowledged, finals) = (&self.round.acknowledged, &self.finals);
        let finals = finals.iter().filter(|(task, _)| !acknowledged.contains_key(task));
        for (node, subtask) in acknowledged.iter().chain(finals).flat_map(|(_, saved)| saved) {
            nodes[node.0 as usize].subtasks.push(subtask.clone());
        }
        nodes.iter_mut().for_each(|node| node.subtasks.sort_by_key(|subtask| subtask.index));
        self.round.committables = (0..).map(NodeId).zip(&nodes).map(|(id, node)| (id, committables(node))).collect();
        let store = self.store.take().expect("one checkpoint is persisted at a time");
        let persisting = async move {
            let mut store = store;
            let outcome = store.persist(checkpoint, nodes).await;
            Some(Report::Persisted { checkpoint, store: Box::new(store), outcome })
        };
        self.spawn(checkpoint.to_string(), persisting);
    }

    fn commit(&mut self, checkpoint: CheckpointId) {
        let committables = std::mem::take(&mut self.round.committables);
        let committers = Arc::clone(&self.committers);
        let committing = async move {
            let outcome = committers.commit(committables).await;
            Some(Report::Committed { checkpoint, outcome })
        };
        self.spawn(format!("commit of {checkpoint}"), committing);
    }

    /// A checkpoint will not be.
    fn abort(&mut self, checkpoint: CheckpointId, reason: &AbortReason) {
        let round = std::mem::take(&mut self.round);
        let detail = round.problem.as_deref().map(|problem| format!(": {}", crate::error_chain::on_one_line(problem)));
        tracing::warn!(job = self.snapshots.job, "{checkpoint} was given up: {reason}{}", detail.unwrap_or_default());
        self.problem = round.problem;
        let counters = &self.metrics.checkpoints;
        counters.aborted.add(1);
        match reason {
            AbortReason::Expired { .. } => counters.expired.add(1),
            AbortReason::Declined(_) => counters.declined.add(1),
            AbortReason::EnumeratorsFailed | AbortReason::PersistFailed | AbortReason::Stopped => {}
        }
        self.notices.send_modify(|notices| notices.aborted = Some(checkpoint));
        self.delete(round.acknowledged.into_values().flatten().collect());
        self.let_go(|_, _| true);
    }

    /// Starts a task that acts for the coordinator.
    fn spawn(&self, place: String, work: impl Future<Output = Option<Report>> + Send + 'static) {
        spawn_reporting(&*self.env.control, place, &self.reporting, work);
    }

    /// Deletes what was saved for a checkpoint that will not be. What this misses is collected at the next claim.
    fn delete(&self, saved: Vec<Saved>) {
        let snapshots = Arc::clone(&self.snapshots);
        let handles: Vec<_> = saved.into_iter().filter_map(|(_, subtask)| subtask.keyed_state).collect();
        if handles.is_empty() {
            return;
        }
        // Held until it is done, so that an attempt is over only when nothing of it touches storage any more.
        let reports = self.reporting.clone();
        let deleting = async move {
            for handle in handles {
                snapshots.delete(handle).await;
            }
            drop(reports);
        };
        drop(task::spawn(&*self.env.control, "delete an aborted checkpoint", deleting));
    }

    /// No checkpoint is made any more: a task has failed, or the job is to end.
    pub(super) fn give_up(&mut self) {
        self.over.cancel();
        // What it would do with an error is what is being done.
        let _ = self.on(Event::Stop);
    }

    /// Waits for everything that is on its way, after all tasks have ended. A checkpoint whose record is being written
    /// may be durable at any moment, and is committed if it is.
    pub(super) async fn join(self) -> (CheckpointStore, Result<(), JobError>) {
        let Self { mut reports, reporting, committers, mut store, round, .. } = self;
        drop(reporting);
        let mut outcome = Ok(());
        while let Some(report) = reports.recv().await {
            match report {
                Report::Persisted { checkpoint, store: back, outcome: persisted } => {
                    store = Some(*back);
                    outcome = match persisted {
                        Ok(()) => committers.commit(round.committables.clone()).await,
                        Err(PersistError::Failed(_) | PersistError::Taken) => Ok(()),
                        Err(source) => Err(JobError::Persist { checkpoint, source }),
                    };
                }
                Report::Committed { outcome: committed, .. } => outcome = committed,
                Report::Acknowledged { .. }
                | Report::Declined { .. }
                | Report::Ended { .. }
                | Report::Failed(_)
                | Report::Died { .. }
                | Report::Enumerators { .. } => {}
            }
        }
        (store.expect("it comes back with the report"), outcome)
    }
}
