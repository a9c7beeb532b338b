//! One run of a job: makes its subtasks, waits for their ends, commits what its sinks prepared.
//!
//! Runs on the control threads. What always holds: output is committed only when no subtask has failed, and only after
//! all of them have ended.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio_util::sync::CancellationToken;

use super::chain::Outputs;
use super::error::JobError;
use super::impatient_writer;
use super::input::InputGate;
use super::metrics::{JobMetrics, NodeMetrics, SubtaskMetrics};
use super::operator_stage::OperatorSetup;
use super::output::Pressure;
use super::plan::{Chain, Chains, Channels};
use super::signals::Signals;
use super::sink_stage::{SinkStage, Written};
use super::splits::{SplitClient, split_exchange};
use super::subtask::{self, Head, SourceHead, StageSetup, SubtaskEnd, SubtaskSetup};
use super::targets;
use crate::api::{CheckpointSettings, JobGraph, Node, NodeKind, Partition, RestartSettings, StartMode};
use crate::connectors::{Committable, ConnectorError, ReaderContext, Sink, TargetStart, WriterContext};
use crate::env::Env;
use crate::id::{NodeId, Owner, SubtaskId};
use crate::protocol::key_group;
use crate::random::Random;
use crate::task::{self, TaskError};

/// How a job is run, besides what its graph says.
#[derive(Clone, Debug)]
pub struct JobOptions {
    /// The bound of each channel between two subtasks, in bytes.
    pub channel_bytes: usize,
    /// The largest record, in bytes.
    pub max_record_bytes: usize,
    /// What the keyed state of one subtask may take, in bytes.
    pub state_budget_bytes: u64,
    /// Who writes, told apart from all other jobs and attempts.
    pub owner: Owner,
    /// How checkpoints are taken; none takes none.
    pub checkpoint: Option<CheckpointSettings>,
    /// Whether and when the job restarts after a failure.
    pub restart: RestartSettings,
    /// Where from the job starts.
    pub start: StartMode,
    /// Whether state that no node claims is left behind at a restore, which is an error otherwise.
    pub allow_non_restored_state: bool,
}

impl JobOptions {
    /// The defaults, without checkpoints and restarts.
    #[must_use]
    pub fn new(owner: Owner) -> Self {
        Self {
            channel_bytes: 1 << 20,
            max_record_bytes: 16 << 20,
            state_budget_bytes: 4 << 30,
            owner,
            checkpoint: None,
            restart: RestartSettings::None,
            start: StartMode::Default,
            allow_non_restored_state: false,
        }
    }
}

/// How a job ended.
#[derive(Debug)]
pub enum Outcome {
    /// All input was processed and all output committed.
    Finished,
    /// It was asked to end, and what was written until then was committed.
    Cancelled,
    /// It failed. Nothing was committed, unless the error is [`JobError::Commit`]: then a part may have been.
    Failed(JobError),
}

/// What a job did, in the end.
#[derive(Debug)]
pub struct JobReport {
    /// How it ended.
    pub outcome: Outcome,
    /// From start to end.
    pub elapsed: Duration,
    /// What sinks say about what they wrote, by node.
    pub summaries: Vec<(String, String)>,
}

/// A job about to run.
pub(crate) struct Job {
    graph: JobGraph,
    env: Env,
    options: JobOptions,
    metrics: Arc<JobMetrics>,
    signals: Signals,
    /// Under which all random streams of the job are drawn.
    seed: u64,
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
        Self { graph, env, options, metrics, signals: Signals::new(stop), seed }
    }

    pub(crate) fn metrics(&self) -> &Arc<JobMetrics> {
        &self.metrics
    }

    /// Runs the job to its end.
    pub(crate) async fn run(self) -> JobReport {
        let start = self.env.clock.monotonic();
        let mut summaries = Vec::new();
        let outcome = match self.run_to_outcome(&mut summaries).await {
            Ok(outcome) => outcome,
            Err(error) => Outcome::Failed(error),
        };
        JobReport { outcome, elapsed: self.env.clock.monotonic().saturating_sub(start), summaries }
    }

    async fn run_to_outcome(&self, summaries: &mut Vec<(String, String)>) -> Result<Outcome, JobError> {
        // Input first: where it is missing, what an earlier run wrote must stay.
        let splits = self.start_enumerators().await?;
        // Held until the job has ended.
        let _targets = targets::claim(&self.graph, &self.env).await?;
        let mut committables: BTreeMap<NodeId, Vec<Committable>> = BTreeMap::new();
        for (id, node, sink) in self.sinks() {
            let prepared = sink.prepare_target(&self.env, TargetStart::Fresh).await;
            committables.insert(id, prepared.map_err(|source| failed_node("sink", node, source))?);
        }
        let ends = self.run_subtasks(splits).await;
        let written = match ends {
            Ok(ends) => ends,
            Err(error) => {
                self.discard().await;
                return Err(error);
            }
        };
        let finished = written.iter().all(|end| end.finished);
        let mut by_node: BTreeMap<NodeId, Vec<Written>> = BTreeMap::new();
        for written in written.into_iter().flat_map(|end| end.written) {
            by_node.entry(written.node).or_default().push(written);
        }
        for (id, written) in by_node {
            let node = self.graph.node(id);
            for written in written {
                committables.entry(id).or_default().extend(written.committables);
                summaries.extend(written.summary.map(|summary| match node.parallelism {
                    1 => (node.name.clone(), summary),
                    _ => (node.name.clone(), format!("[{}] {summary}", written.subtask)),
                }));
            }
        }
        self.commit(committables).await?;
        Ok(if finished { Outcome::Finished } else { Outcome::Cancelled })
    }

    /// Lets every source look at its input, before anything runs.
    async fn start_enumerators(&self) -> Result<BTreeMap<NodeId, SplitClient>, JobError> {
        let mut clients = BTreeMap::new();
        for id in self.graph.ids() {
            let node = self.graph.node(id);
            if let NodeKind::Source(source) = &node.kind {
                let mut enumerator = source.enumerator(&self.env, None);
                enumerator.start().await.map_err(|source| failed_node("source", node, source))?;
                if let Some(extent) = enumerator.extent() {
                    // Set once: a job starts its enumerators once.
                    let _ = self.metrics.nodes[id.0 as usize].extent.set(extent);
                }
                let (server, client) = split_exchange(node.parallelism);
                let name = format!("{}/{}/splits", self.graph.name(), node.name);
                drop(task::spawn(&*self.env.control, name, server.serve(enumerator)));
                clients.insert(id, client);
            }
        }
        Ok(clients)
    }

    /// Starts all subtasks and waits for all ends. The first failure ends the others, and is returned.
    async fn run_subtasks(&self, splits: BTreeMap<NodeId, SplitClient>) -> Result<Vec<SubtaskEnd>, JobError> {
        let chains = Chains::of(&self.graph);
        let mut channels = Channels::connect(&self.graph, &chains, &*self.env.transport, self.options.channel_bytes);
        let mut running = FuturesUnordered::new();
        for chain in &chains.chains {
            let head = self.graph.node(chain.nodes[0]);
            for index in 0..head.parallelism {
                let setup = self.subtask(chain, &chains, index, &mut channels, &splits);
                let place = self.subtask_id(chain.nodes[0], index).to_string();
                let name = format!("{}/{place}", self.graph.name());
                let task = task::spawn(&*self.env.workers, name, subtask::run(setup));
                running.push(async move { (place, task.await) });
            }
        }
        drop(splits);
        let (mut ends, mut failure) = (Vec::new(), None);
        while let Some((place, result)) = running.next().await {
            let result: Result<SubtaskEnd, JobError> = match result {
                Ok(result) => result,
                Err(source @ (TaskError::Panicked { .. } | TaskError::Dropped { .. })) => {
                    Err(JobError::Host { place, source })
                }
            };
            match result {
                Ok(end) => ends.push(end),
                Err(error) => {
                    self.signals.fail();
                    failure.get_or_insert(error);
                }
            }
        }
        failure.map_or(Ok(ends), Err)
    }

    fn subtask(
        &self,
        chain: &Chain,
        chains: &Chains,
        index: u32,
        channels: &mut Channels,
        splits: &BTreeMap<NodeId, SplitClient>,
    ) -> SubtaskSetup {
        let head = chain.nodes[0];
        let mut stages = &chain.nodes[..];
        let source = if let NodeKind::Source(source) = &self.graph.node(head).kind {
            stages = &stages[1..];
            let subtask = self.subtask_id(head, index);
            let context = ReaderContext {
                subtask: subtask.clone(),
                env: self.env.clone(),
                max_record_bytes: self.options.max_record_bytes,
            };
            Some(SourceHead {
                subtask,
                reader: source.reader(context),
                splits: splits[&head].clone(),
                outputs: self.outputs(head, index, chains, channels),
                metrics: self.subtask_metrics(head, index),
                clock: Arc::clone(&self.env.clock),
            })
        } else {
            None
        };
        let stages = stages.iter().map(|node| self.stage(*node, index, chains, channels)).collect();
        let head = match source {
            Some(source) => Head::Source(source),
            None => Head::Channels(InputGate::new(channels.take_inputs(head, index))),
        };
        SubtaskSetup { head, stages, signals: self.signals.clone() }
    }

    fn stage(&self, id: NodeId, index: u32, chains: &Chains, channels: &mut Channels) -> StageSetup {
        let node = self.graph.node(id);
        let subtask = self.subtask_id(id, index);
        match &node.kind {
            NodeKind::Operator(operator) => StageSetup::Operator(Box::new(OperatorSetup {
                subtask,
                factory: Arc::clone(&operator.factory),
                limits: operator.limits,
                on_error: operator.on_error,
                keyed_inputs: node.inputs.iter().map(|edge| edge.partition == Partition::Hash).collect(),
                key_groups: key_group::groups_of(index, node.parallelism, self.graph.max_parallelism()),
                max_parallelism: self.graph.max_parallelism(),
                max_record_bytes: self.options.max_record_bytes,
                state_budget_bytes: self.options.state_budget_bytes,
                seed: self.seed,
                outputs: self.outputs(id, index, chains, channels),
                metrics: self.subtask_metrics(id, index),
                clock: Arc::clone(&self.env.clock),
            })),
            NodeKind::Sink(sink) => {
                let (owner, env) = (self.options.owner.clone(), self.env.clone());
                let context = WriterContext { subtask: subtask.clone(), owner, env };
                StageSetup::Sink(SinkStage {
                    node: id,
                    subtask,
                    writer: impatient_writer::writer(&**sink, context, &self.signals),
                    metrics: self.subtask_metrics(id, index),
                    clock: Arc::clone(&self.env.clock),
                })
            }
            NodeKind::Source(_) => unreachable!("a source has no inputs, so it is the head of its chain"),
        }
    }

    fn outputs(&self, node: NodeId, index: u32, chains: &Chains, channels: &mut Channels) -> Outputs {
        Outputs {
            chained: chains.chained_output(node),
            edges: channels.take_outputs(node, index),
            pressure: Pressure {
                signals: self.signals.clone(),
                clock: Arc::clone(&self.env.clock),
                metrics: self.subtask_metrics(node, index),
            },
            gathering: false,
        }
    }

    fn subtask_id(&self, node: NodeId, index: u32) -> SubtaskId {
        SubtaskId { node: self.graph.node(node).name.clone(), index }
    }

    fn subtask_metrics(&self, node: NodeId, index: u32) -> Arc<SubtaskMetrics> {
        Arc::clone(&self.metrics.nodes[node.0 as usize].subtasks[index as usize])
    }

    /// The sinks of the job.
    fn sinks(&self) -> impl Iterator<Item = (NodeId, &Node, &dyn Sink)> {
        self.graph.ids().filter_map(|id| match &self.graph.node(id).kind {
            NodeKind::Sink(sink) => Some((id, self.graph.node(id), &**sink)),
            NodeKind::Source(_) | NodeKind::Operator(_) => None,
        })
    }

    /// Commits what sinks prepared: all of it, or as long as a part of it is missing, nothing.
    async fn commit(&self, mut committables: BTreeMap<NodeId, Vec<Committable>>) -> Result<(), JobError> {
        let failed = |node: &Node, source| JobError::Commit { sink: node.name.clone(), source };
        let mut committers = Vec::new();
        for (id, node, sink) in self.sinks() {
            let (mut committer, committables) =
                (sink.committer(&self.env), committables.remove(&id).unwrap_or_default());
            committer.check(&committables).await.map_err(|source| failed(node, source))?;
            committers.push((node, committer, committables));
        }
        let Some(committing) = self.metrics.commit.begin() else { return Err(JobError::GivenUp) };
        for (node, mut committer, committables) in committers {
            committer.commit(committables).await.map_err(|source| failed(node, source))?;
        }
        committing.was_last();
        Ok(())
    }

    /// Gives up what was written, after a failure that is worth more than one of this.
    async fn discard(&self) {
        let Owner { job, attempt } = self.options.owner.clone();
        let before = Owner { job, attempt: attempt.next() };
        for (_, node, sink) in self.sinks() {
            if let Err(error) = sink.committer(&self.env).sweep(&before).await {
                tracing::warn!(sink = node.name, %error, "could not remove output of the failed run");
            }
        }
    }
}

fn failed_node(kind: &str, node: &Node, source: ConnectorError) -> JobError {
    JobError::Connector { place: format!("{kind} {}", node.name), source }
}
