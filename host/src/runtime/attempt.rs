//! One start of all tasks of a job: makes the subtasks and the channels between them, and waits for all ends.
//!
//! Runs on the control threads. The first failure ends the other tasks. What always holds: when an attempt is over, none
//! of its tasks runs any more, and none of its cuts is still on its way to storage.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};

use super::chain::Outputs;
use super::checkpoints::{CheckpointSetup, Checkpoints, Progress};
use super::cut::{Cut, CutPart, Held};
use super::epochs::{EpochLink, Epochs};
use super::error::JobError;
use super::impatient_writer;
use super::input::InputGate;
use super::job::JobContext;
use super::operator_stage::OperatorSetup;
use super::output::Pressure;
use super::plan::{Chain, Chains, Channels};
use super::restored::Restored;
use super::signals::Signals;
use super::sink_stage::SinkStage;
use super::splits::{SplitClient, split_exchange};
use super::store::CheckpointStore;
use super::subtask::{self, Head, SourceHead, StageSetup, SubtaskEnd, SubtaskSetup};
use crate::api::{NodeKind, Partition};
use crate::connectors::{ReaderContext, SplitEnumerator, WriterContext};
use crate::id::{NodeId, Owner};
use crate::protocol::coordinator::TaskIndex;
use crate::protocol::key_group;
use crate::task::{self, TaskError};

/// How an attempt ended, when it did not fail.
pub(super) struct AttemptEnd {
    /// Whether all input was processed; else it was asked to end.
    pub(super) finished: bool,
    /// What the tasks held in the end, to be committed; nothing where checkpoints see to that.
    pub(super) cuts: Vec<Cut>,
    /// What sinks say about what they wrote, by node.
    pub(super) summaries: Vec<(String, String)>,
}

/// One start of all tasks.
pub(super) struct Attempt<'a> {
    pub(super) job: &'a JobContext,
    pub(super) owner: Owner,
    pub(super) signals: Signals,
    pub(super) restored: &'a Restored,
}

/// A subtask that runs, and what it comes to.
type Running = BoxFuture<'static, (Role, Result<Result<SubtaskEnd, JobError>, TaskError>)>;

/// An enumerator that runs, and how its task ends.
type Serving = BoxFuture<'static, (String, Result<(), TaskError>)>;

/// Which subtask it is.
struct Role {
    task: TaskIndex,
    place: String,
}

impl Attempt<'_> {
    /// Runs all tasks to their ends. Where checkpoints are kept comes back, in whatever state the attempt left it.
    pub(super) async fn run(
        self,
        started: BTreeMap<NodeId, Box<dyn SplitEnumerator>>,
        checkpoints: Option<CheckpointSetup>,
    ) -> (Result<AttemptEnd, JobError>, Option<CheckpointStore>) {
        let chains = Chains::of(&self.job.graph);
        let (mut splits, mut enumerators, mut servers) =
            (BTreeMap::new(), Vec::new(), FuturesUnordered::<Serving>::new());
        for (node, enumerator) in started {
            let (server, client, readers) = split_exchange(self.job.graph.node(node).parallelism);
            let place = format!("the splits of {}", self.job.graph.node(node).name);
            let task = task::spawn(&*self.job.env.control, self.job.task_name(&place), server.serve(enumerator));
            servers.push(async move { (place, task.await) }.boxed());
            enumerators.push((node, client));
            splits.insert(node, readers.into_iter().map(Some).collect());
        }
        let tasks = chains.chains.iter().map(|chain| self.job.graph.node(chain.nodes[0]).parallelism).sum();
        let mut checkpoints = checkpoints.map(|setup| setup.start(tasks, enumerators));
        let mut running = self.spawn_subtasks(&chains, splits, checkpoints.as_ref().map(Checkpoints::link));
        let outcome = self.wait(&mut running, &mut servers, &mut checkpoints).await;
        let (store, joined) = match checkpoints {
            Some(checkpoints) => {
                let (store, joined) = checkpoints.join().await;
                (Some(store), joined)
            }
            None => (None, Ok(())),
        };
        // With the last of their clients gone the enumerators have ended as well.
        while servers.next().await.is_some() {}
        match joined {
            Err(error) if outcome.is_ok() => (Err(error), store),
            Ok(()) | Err(_) => (outcome, store),
        }
    }

    /// Starts all subtasks.
    fn spawn_subtasks(
        &self,
        chains: &Chains,
        mut splits: BTreeMap<NodeId, Vec<Option<SplitClient>>>,
        link: Option<EpochLink>,
    ) -> FuturesUnordered<Running> {
        let JobContext { graph, env, options, .. } = self.job;
        let mut channels = Channels::connect(graph, chains, &*env.transport, options.channel_bytes);
        let running = FuturesUnordered::new();
        let mut tasks = (0..).map(TaskIndex);
        for chain in &chains.chains {
            let head = chain.nodes[0];
            for index in 0..graph.node(head).parallelism {
                let task = tasks.next().expect("tasks are counted in u32");
                let client = splits
                    .get_mut(&head)
                    .map(|clients| clients[index as usize].take().expect("each reader is made once"));
                let epochs = Epochs::new(task, link.clone());
                let setup = self.subtask(chain, chains, index, &mut channels, client, epochs);
                let place = self.job.subtask_id(head, index).to_string();
                let handle = task::spawn(&*env.workers, self.job.task_name(&place), subtask::run(setup));
                running.push(async move { (Role { task, place }, handle.await) }.boxed());
            }
        }
        running
    }

    /// Waits for the ends of all subtasks, and for what checkpoints have left to do then.
    async fn wait(
        &self,
        running: &mut FuturesUnordered<Running>,
        servers: &mut FuturesUnordered<Serving>,
        checkpoints: &mut Option<Checkpoints>,
    ) -> Result<AttemptEnd, JobError> {
        let (mut cuts, mut summaries, mut failure) = (Vec::new(), Vec::new(), None);
        let (mut finished, mut committed) = (true, checkpoints.is_none());
        // Once all tasks have finished there is the final checkpoint to wait for.
        while !running.is_empty() || (failure.is_none() && finished && !committed) {
            let outcome = tokio::select! {
                biased;
                Some((role, ended)) = running.next(), if !running.is_empty() => match ended {
                    Ok(Ok(end)) => {
                        finished &= end.cut.finished;
                        summaries.extend(end.cut.parts.iter().filter_map(|part| self.summary(part)));
                        match checkpoints {
                            Some(checkpoints) if end.cut.finished => checkpoints.finished(role.task, end),
                            Some(checkpoints) => checkpoints.give_up(),
                            None => cuts.push(end.cut),
                        }
                        Ok(())
                    }
                    Ok(Err(error)) => Err(error),
                    Err(source) => Err(JobError::Host { place: role.place, source }),
                },
                Some((place, ended)) = servers.next(), if !servers.is_empty() => match ended {
                    // It ends when its clients are gone.
                    Ok(()) => Ok(()),
                    Err(source) => Err(JobError::Host { place, source }),
                },
                progress = advance(checkpoints) => progress.map(|progress| committed = progress == Progress::Done),
            };
            if let Err(error) = outcome {
                self.signals.fail();
                checkpoints.iter_mut().for_each(Checkpoints::give_up);
                failure.get_or_insert(error);
            }
        }
        match failure {
            Some(error) => Err(error),
            None if finished => Ok(AttemptEnd { finished, cuts, summaries }),
            None => {
                assert!(self.signals.is_stopped(), "a task stopped short although nothing failed and nobody asked");
                Ok(AttemptEnd { finished, cuts, summaries })
            }
        }
    }

    fn subtask(
        &self,
        chain: &Chain,
        chains: &Chains,
        index: u32,
        channels: &mut Channels,
        splits: Option<SplitClient>,
        epochs: Epochs,
    ) -> SubtaskSetup {
        let head = chain.nodes[0];
        let mut stages = &chain.nodes[..];
        let source = if let NodeKind::Source(source) = &self.job.graph.node(head).kind {
            stages = &stages[1..];
            let subtask = self.job.subtask_id(head, index);
            let context = ReaderContext {
                subtask: subtask.clone(),
                env: self.job.env.clone(),
                max_record_bytes: self.job.options.max_record_bytes,
            };
            Some(SourceHead {
                node: head,
                subtask,
                finished: self.restored.has_finished(head),
                reader: source.reader(context),
                splits: splits.expect("a source has an enumerator"),
                outputs: self.outputs(head, index, chains, channels),
                metrics: self.job.metrics_of(head, index),
                clock: Arc::clone(&self.job.env.clock),
            })
        } else {
            None
        };
        let stages = stages.iter().map(|node| self.stage(*node, index, chains, channels)).collect();
        let head = match source {
            Some(source) => Head::Source(source),
            None => Head::Channels(InputGate::new(channels.take_inputs(head, index), self.job.alignment_mode())),
        };
        SubtaskSetup { head, stages, signals: self.signals.clone(), epochs }
    }

    fn stage(&self, id: NodeId, index: u32, chains: &Chains, channels: &mut Channels) -> StageSetup {
        let node = self.job.graph.node(id);
        let subtask = self.job.subtask_id(id, index);
        match &node.kind {
            NodeKind::Operator(operator) => StageSetup::Operator(Box::new(OperatorSetup {
                node: id,
                subtask,
                factory: Arc::clone(&operator.factory),
                limits: operator.limits,
                on_error: operator.on_error,
                keyed_inputs: node.inputs.iter().map(|edge| edge.partition == Partition::Hash).collect(),
                key_groups: key_group::groups_of(index, node.parallelism, self.job.graph.max_parallelism()),
                max_parallelism: self.job.graph.max_parallelism(),
                max_record_bytes: self.job.options.max_record_bytes,
                state_budget_bytes: self.job.options.state_budget_bytes,
                seed: self.restored.seed(self.job.seed),
                job: self.job.graph.name().to_owned(),
                restored: self.restored.operator(id, &node.inputs, index, self.job.alignment_mode()),
                env: self.job.env.clone(),
                outputs: self.outputs(id, index, chains, channels),
                metrics: self.job.metrics_of(id, index),
            })),
            NodeKind::Sink(sink) => {
                let context =
                    WriterContext { subtask: subtask.clone(), owner: self.owner.clone(), env: self.job.env.clone() };
                let (metrics, clock) = (self.job.metrics_of(id, index), Arc::clone(&self.job.env.clock));
                StageSetup::Sink(SinkStage::new(
                    id,
                    subtask,
                    impatient_writer::writer(&**sink, context, &self.signals),
                    metrics,
                    clock,
                ))
            }
            NodeKind::Source(_) => unreachable!("a source has no inputs, so it is the head of its chain"),
        }
    }

    /// What the sink of a chain says about what it wrote.
    fn summary(&self, part: &CutPart) -> Option<(String, String)> {
        let Held::Sink { summary: Some(summary), .. } = &part.held else { return None };
        let node = self.job.graph.node(part.node);
        let summary = match node.parallelism {
            1 => summary.clone(),
            _ => format!("[{}] {summary}", part.subtask.index),
        };
        Some((node.name.clone(), summary))
    }

    fn outputs(&self, node: NodeId, index: u32, chains: &Chains, channels: &mut Channels) -> Outputs {
        Outputs {
            chained: chains.chained_output(node),
            edges: channels.take_outputs(node, index),
            pressure: Pressure {
                signals: self.signals.clone(),
                clock: Arc::clone(&self.job.env.clock),
                metrics: self.job.metrics_of(node, index),
            },
            gathering: false,
        }
    }
}

/// Lets checkpoints go on; never ends when there are none.
async fn advance(checkpoints: &mut Option<Checkpoints>) -> Result<Progress, JobError> {
    match checkpoints {
        Some(checkpoints) => checkpoints.advance().await,
        None => std::future::pending().await,
    }
}
