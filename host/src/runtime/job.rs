//! The life of a job: where from it starts, attempt after attempt, to its end.
//!
//! Runs on the control threads. A failed attempt is followed by another as the restart strategy says, from the last
//! complete checkpoint, or from the beginning if there is none.
//!
//! What always holds: before anything is restored, swept or committed, the run has been claimed; without checkpoints
//! output is committed only when all tasks have ended and none has failed.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::attempt::{Attempt, AttemptEnd};
use super::checkpoints::CheckpointSetup;
use super::commit::Committers;
use super::cut::{Cut, Held};
use super::error::JobError;
use super::metrics::{JobMetrics, NodeMetrics, SubtaskMetrics};
use super::restored::{Restored, node_metadata};
use super::signals::Signals;
use super::snapshot::{Snapshots, durable};
use super::store::{self, CheckpointStore, Opened, StartError};
use super::targets;
use crate::api::{CheckpointSettings, JobGraph, Node, NodeKind, StartMode};
use crate::connectors::{Committable, ConnectorError, SplitEnumerator, TargetStart};
use crate::env::Env;
use crate::id::{CheckpointId, NodeId, Owner, SubtaskId};
use crate::protocol::alignment::Mode;
use crate::protocol::coordinator::CheckpointRules;
use crate::protocol::restart::{Decision, RestartSettings, RestartState};
use crate::protocol::retention::JobEnd;
use crate::random::Random;

/// How a job is run, besides what its graph says.
#[derive(Clone, Debug)]
pub struct JobOptions {
    /// The bound of each channel between two subtasks, in bytes.
    pub channel_bytes: usize,
    /// The largest record, in bytes.
    pub max_record_bytes: usize,
    /// What the keyed state of one subtask may take, in bytes.
    pub state_budget_bytes: u64,
    /// Who writes what the job writes, unless a directory of checkpoints knows better.
    pub owner: Owner,
    /// State whose snapshot has at most so many bytes is kept in the metadata of a checkpoint, and larger one in a file of
    /// its own. The default is Flink's.
    pub inline_state_bytes: usize,
    /// How checkpoints are taken; none takes none.
    pub checkpoint: Option<CheckpointSettings>,
    /// Whether and when the job restarts after a failure.
    pub restart: RestartSettings,
    /// Where from the job starts.
    pub start: StartMode,
    /// Whether state that no node claims is left behind at a restore, which is an error otherwise.
    pub allow_non_restored_state: bool,
    /// Old and new names of nodes that are called otherwise since the checkpoint to restore was taken.
    pub renames: Vec<(String, String)>,
    /// Whether the job is taken over from another process that still has it, but hangs.
    pub take_over: bool,
    /// The text of the job file, to be kept with the checkpoints.
    pub job_file: String,
}

impl JobOptions {
    /// The defaults, without checkpoints and restarts, for an owner of what is written.
    #[must_use]
    pub fn new(owner: Owner) -> Self {
        Self {
            channel_bytes: 1 << 20,
            max_record_bytes: 16 << 20,
            state_budget_bytes: 4 << 30,
            owner,
            inline_state_bytes: 20 << 10,
            checkpoint: None,
            restart: RestartSettings::None,
            start: StartMode::Default,
            allow_non_restored_state: false,
            renames: Vec::new(),
            take_over: false,
            job_file: String::new(),
        }
    }
}

/// How a job ended.
#[derive(Debug)]
pub enum Outcome {
    /// All input was processed and all output committed.
    Finished,
    /// It was asked to end. Without checkpoints, what was written until then was committed; with them, what the complete
    /// ones hold.
    Cancelled,
    /// It failed. Without checkpoints nothing was committed, unless the error is [`JobError::Commit`]: then a part may
    /// have been. With them, what the complete ones hold was.
    Failed(JobError),
}

/// What there is to go on from when a job has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// What there was before: the job did not start.
    Unknown,
    /// The job takes no checkpoints.
    NoCheckpoints,
    /// Nothing: it finished, came to no checkpoint, or was not to keep any.
    Nothing,
    /// This checkpoint. Output up to it is committed, and none behind it.
    Checkpoint(CheckpointId),
}

/// What a job did, in the end.
#[derive(Debug)]
pub struct JobReport {
    /// What there is to go on from.
    pub left: Left,
    /// How it ended.
    pub outcome: Outcome,
    /// From start to end.
    pub elapsed: Duration,
    /// What sinks say about what they wrote, by node.
    pub summaries: Vec<(String, String)>,
}

/// What every part of a running job needs to know of it.
pub(super) struct JobContext {
    pub(super) graph: JobGraph,
    pub(super) env: Env,
    pub(super) options: JobOptions,
    pub(super) metrics: Arc<JobMetrics>,
    /// Under which all random streams of the job are drawn.
    pub(super) seed: u64,
}

/// A job about to run.
pub(crate) struct Job {
    context: JobContext,
    stop: CancellationToken,
}

impl JobContext {
    pub(super) fn subtask_id(&self, node: NodeId, index: u32) -> SubtaskId {
        SubtaskId { node: self.graph.node(node).name.clone(), index }
    }

    pub(super) fn metrics_of(&self, node: NodeId, index: u32) -> Arc<SubtaskMetrics> {
        Arc::clone(&self.metrics.nodes[node.0 as usize].subtasks[index as usize])
    }

    /// The name of a task at some place of the job.
    pub(super) fn task_name(&self, place: &str) -> String {
        format!("{}/{place}", self.graph.name())
    }

    /// What a barrier makes of channels that it has not arrived on.
    pub(super) fn alignment_mode(&self) -> Mode {
        self.options.checkpoint.as_ref().map_or(Mode::ExactlyOnce, |settings| settings.mode)
    }
}

impl Job {
    pub(crate) fn new(graph: JobGraph, env: Env, options: JobOptions, stop: CancellationToken) -> Self {
        let nodes = graph.nodes().iter().map(|node| NodeMetrics {
            name: node.name.clone(),
            subtasks: (0..node.parallelism).map(|_| Arc::default()).collect(),
            extent: OnceLock::new(),
        });
        let metrics = Arc::new(JobMetrics::new(nodes.collect()));
        let seed = Random::for_purpose(env.seed, graph.name(), &[]).next_u64();
        Self { context: JobContext { graph, env, options, metrics, seed }, stop }
    }

    pub(crate) fn metrics(&self) -> &Arc<JobMetrics> {
        &self.context.metrics
    }

    /// Runs the job to its end.
    pub(crate) async fn run(self) -> JobReport {
        let start = self.context.env.clock.monotonic();
        let mut summaries = Vec::new();
        let mut left = Left::Unknown;
        let outcome = match self.run_to_outcome(&mut summaries, &mut left).await {
            Ok(outcome) => outcome,
            Err(error) => Outcome::Failed(error),
        };
        JobReport { left, outcome, elapsed: self.context.env.clock.monotonic().saturating_sub(start), summaries }
    }

    async fn run_to_outcome(
        &self,
        summaries: &mut Vec<(String, String)>,
        left: &mut Left,
    ) -> Result<Outcome, JobError> {
        let JobContext { graph, env, options, .. } = &self.context;
        let committers = Arc::new(Committers::new(graph, env, &self.context.metrics));
        let mut life = match &options.checkpoint {
            None => {
                let restored = self.restored().await?;
                Life { store: None, restored, owner: options.owner.clone(), first: None, failed: false }
            }
            Some(settings) => match self.open(settings).await? {
                Opened::Finished(committables) => {
                    tracing::warn!(job = graph.name(), "the job had finished before: there is nothing left to do");
                    committers.commit(committables).await?;
                    *left = Left::Nothing;
                    return Ok(Outcome::Finished);
                }
                Opened::Ready { store, restored } => {
                    if options.start == StartMode::Resume && !restored.is_some() {
                        tracing::warn!(
                            job = graph.name(),
                            "there is no checkpoint to go on from: the job starts from nothing"
                        );
                    }
                    Life { owner: store.owner(), store: Some(*store), restored, first: None, failed: false }
                }
            },
        };
        *left = life.left();
        // Held until the job has ended.
        let _targets = targets::claim(graph, env, options.take_over).await?;
        let mut restarts = RestartState::new(options.restart.clone());
        let mut started = false;
        loop {
            let error = match self.attempt(&mut life, &committers, &mut started, summaries).await {
                Ok(outcome) => return life.end(outcome, &committers, left).await,
                // What prevents the first start is for whoever started the job, at once. Nothing was touched.
                Err(error) if !started => return Err(error),
                Err(error) => error,
            };
            let Some(after) = self.restarts_after(&error, &mut restarts, life.owner.attempt) else {
                return life.end(Outcome::Failed(error), &committers, left).await;
            };
            let stopped = Signals::new(self.stop.clone()).unless_stopped(env.clock.sleep(after)).await.is_err();
            if stopped {
                return life.end(Outcome::Cancelled, &committers, left).await;
            }
            life.failed = true;
        }
    }

    /// How long after a failure the next attempt begins; none if there is none.
    fn restarts_after(
        &self,
        error: &JobError,
        restarts: &mut RestartState,
        attempt: crate::id::Attempt,
    ) -> Option<Duration> {
        if error.is_final() || self.stop.is_cancelled() {
            return None;
        }
        let JobContext { graph, env, seed, .. } = &self.context;
        let jitter = Random::for_purpose(*seed, "restart", &[attempt.run, attempt.number.into()]).unit();
        match restarts.failed(env.clock.monotonic(), jitter) {
            Decision::Restart { after } => {
                let cause = crate::error_chain::on_one_line(error);
                let help = match error {
                    JobError::Operator { record: Some(_), .. } => {
                        " (if it fails on the same record again, on-error can set that aside, and [restart] says how often \
                         this is tried)"
                    }
                    _ => "",
                };
                tracing::warn!(job = graph.name(), "attempt {attempt} failed: {cause}; restarting in {after:?}{help}");
                Some(after)
            }
            Decision::GiveUp(reason) => {
                tracing::info!(job = graph.name(), "{reason}");
                None
            }
        }
    }

    /// What a job without checkpoints of its own starts from.
    async fn restored(&self) -> Result<Restored, JobError> {
        match &self.context.options.start {
            StartMode::From(path) => store::restore_from(&self.context, path).await.map_err(|source| {
                let place = path.display().to_string();
                JobError::Start { place, source }
            }),
            StartMode::Default | StartMode::Resume | StartMode::Fresh => Ok(Restored::default()),
        }
    }

    async fn open(&self, settings: &CheckpointSettings) -> Result<Opened, JobError> {
        CheckpointStore::open(&self.context, settings).await.map_err(|source| start_error(&self.context, source))
    }

    /// Runs one attempt. Output that it committed stays, whatever comes of it.
    async fn attempt(
        &self,
        life: &mut Life,
        committers: &Arc<Committers>,
        started: &mut bool,
        summaries: &mut Vec<(String, String)>,
    ) -> Result<Outcome, JobError> {
        if life.failed {
            life.next_attempt(&self.context).await?;
            life.failed = false;
        }
        // Input first: where it is missing, what an earlier run wrote must stay.
        let enumerators = self.start_enumerators(&life.restored).await?;
        let first = self.prepare_targets(life).await?;
        *started = true;
        // What the checkpoint holds is output already: its record was the commit, and this only makes it seen.
        committers.commit(life.restored.committables()).await?;
        committers.sweep(&life.owner).await;
        let signals = Signals::new(self.stop.child_token());
        let checkpoints = life.store.take().map(|store| self.checkpoints(life, store, committers, first.clone()));
        let (owner, restored) = (life.owner.clone(), &life.restored);
        let attempt = Attempt { job: &self.context, owner, signals, restored };
        let (end, store) = attempt.run(enumerators, checkpoints).await;
        life.store = store;
        let AttemptEnd { finished, cuts, summaries: said } = end?;
        *summaries = said;
        if life.store.is_none() {
            self.commit_cuts(cuts, first, committers).await?;
        }
        // All that is to be committed is. What was cut off by a cancellation comes again, if the job goes on.
        committers.sweep(&life.owner.next_attempt()).await;
        Ok(if finished { Outcome::Finished } else { Outcome::Cancelled })
    }

    /// Makes the targets of sinks ready. Returns what is to be committed with the first output.
    ///
    /// A job that goes on from a checkpoint named by its path begins a life of its own: what is in a target is not its
    /// output, and the sink's settings say what becomes of it.
    async fn prepare_targets(&self, life: &mut Life) -> Result<Vec<(NodeId, Vec<Committable>)>, JobError> {
        let JobContext { graph, env, options, .. } = &self.context;
        let has_own = life.store.as_ref().is_some_and(|store| store.newest().is_some());
        let goes_on = has_own || (options.start == StartMode::Resume && life.restored.is_some());
        let start = if goes_on || life.first.is_some() { TargetStart::Restored } else { TargetStart::Fresh };
        let mut first = Vec::new();
        for id in graph.ids() {
            let node = graph.node(id);
            if let NodeKind::Sink(sink) = &node.kind {
                let committables = sink.prepare_target(env, start).await;
                first.push((id, committables.map_err(|source| failed_node("sink", node, source))?));
            }
        }
        // Until there is a checkpoint, no attempt has committed what the first one was to.
        let first = life.first.get_or_insert(first);
        Ok(if goes_on { Vec::new() } else { first.clone() })
    }

    /// Lets every source look at its input, before anything runs.
    async fn start_enumerators(
        &self,
        restored: &Restored,
    ) -> Result<BTreeMap<NodeId, Box<dyn SplitEnumerator>>, JobError> {
        let JobContext { graph, env, metrics, .. } = &self.context;
        let mut enumerators = BTreeMap::new();
        for id in graph.ids() {
            let node = graph.node(id);
            if let NodeKind::Source(source) = &node.kind {
                let mut enumerator = source.enumerator(env, restored.source(id));
                enumerator.start().await.map_err(|source| failed_node("source", node, source))?;
                if let Some(extent) = enumerator.extent() {
                    // What the first attempt found is what there is to read in all.
                    let _ = metrics.nodes[id.0 as usize].extent.set(extent);
                }
                enumerators.insert(id, enumerator);
            }
        }
        Ok(enumerators)
    }

    fn checkpoints(
        &self,
        life: &Life,
        store: CheckpointStore,
        committers: &Arc<Committers>,
        first_committables: Vec<(NodeId, Vec<Committable>)>,
    ) -> CheckpointSetup {
        let JobContext { graph, env, options, .. } = &self.context;
        let settings = options.checkpoint.as_ref().expect("there is a store because there are checkpoints");
        let CheckpointSettings { interval, min_pause, timeout, tolerable_failures, .. } = *settings;
        CheckpointSetup {
            rules: CheckpointRules { interval, min_pause, timeout, tolerable_failures },
            env: env.clone(),
            snapshots: Arc::new(Snapshots {
                env: env.clone(),
                storage: store.storage(),
                directory: store.directory().clone(),
                attempt: life.owner.attempt,
                nonce: store.nonce(),
                files: AtomicU64::new(0),
                job: graph.name().to_owned(),
                inline_bytes: options.inline_state_bytes,
            }),
            nodes: node_metadata(graph),
            committers: Arc::clone(committers),
            metrics: Arc::clone(&self.context.metrics),
            store,
            first_committables,
        }
    }

    /// Commits what tasks held in the end, when no checkpoint has.
    async fn commit_cuts(
        &self,
        cuts: Vec<Cut>,
        first: Vec<(NodeId, Vec<Committable>)>,
        committers: &Committers,
    ) -> Result<(), JobError> {
        let mut by_node: BTreeMap<NodeId, Vec<Committable>> = first.into_iter().collect();
        for part in cuts.into_iter().flat_map(|cut| cut.parts) {
            if let Held::Sink { prepared, .. } = part.held {
                let failed = |source| JobError::Prepare { subtask: part.subtask, source };
                let prepared = durable(prepared).await.map_err(failed)?;
                by_node.entry(part.node).or_default().extend(prepared);
            }
        }
        committers.commit_last(by_node.into_iter().collect()).await
    }
}

/// A job's life between attempts.
struct Life {
    /// Where checkpoints are kept; none without checkpoints, or while an attempt has it.
    store: Option<CheckpointStore>,
    /// What the next attempt starts from.
    restored: Restored,
    owner: Owner,
    /// What is to be committed with the first output; none before the targets of sinks were made ready.
    first: Option<Vec<(NodeId, Vec<Committable>)>>,
    /// The last attempt has failed, and the next one has not begun.
    failed: bool,
}

impl Life {
    /// What there is to go on from if nothing more happens.
    fn left(&self) -> Left {
        match &self.store {
            None => Left::NoCheckpoints,
            Some(store) => store.newest().map_or(Left::Nothing, Left::Checkpoint),
        }
    }

    /// Turns to the next attempt, from the last complete checkpoint.
    async fn next_attempt(&mut self, job: &JobContext) -> Result<(), JobError> {
        match &mut self.store {
            None => self.owner.attempt = self.owner.attempt.next(),
            Some(store) => {
                self.restored = store.recover(job).await.map_err(|source| start_error(job, source))?;
                self.owner = store.owner();
            }
        }
        Ok(())
    }

    /// The job has ended, one way or the other.
    async fn end(self, outcome: Outcome, committers: &Committers, left: &mut Left) -> Result<Outcome, JobError> {
        let end = match &outcome {
            Outcome::Finished => JobEnd::Finished,
            Outcome::Cancelled => JobEnd::Cancelled,
            Outcome::Failed(_) => JobEnd::Failed,
        };
        match self.store {
            // With checkpoints, output of a complete one may be among what is not committed.
            None if end == JobEnd::Failed => committers.sweep(&self.owner.next_attempt()).await,
            None => {}
            Some(store) => {
                *left = store.newest_after(end).map_or(Left::Nothing, Left::Checkpoint);
                if let Err(error) = store.close(end).await {
                    let error = crate::error_chain::on_one_line(&error);
                    tracing::warn!("could not put the end of the job on record: {error}");
                }
            }
        }
        Ok(outcome)
    }
}

fn start_error(job: &JobContext, source: StartError) -> JobError {
    let settings = job.options.checkpoint.as_ref();
    JobError::Start { place: settings.map_or_else(String::new, |settings| settings.storage.to_string()), source }
}

fn failed_node(kind: &str, node: &Node, source: ConnectorError) -> JobError {
    JobError::Connector { place: format!("{kind} {}", node.name), source }
}
