//! What an attempt starts from: nothing, or a checkpoint matched to the job's graph.
//!
//! A node finds what is its own by its name. What does not fit is refused before anything starts, with what differs: state
//! of a node that the job does not have any more, a state whose kind or version changed, other key groups.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::api::{Edge, JobGraph, Node, NodeKind};
use crate::checkpoint::metadata::{CheckpointMetadata, NodeMetadata, SavedNodeKind, SavedState, StateHandle};
use crate::checkpoint::metadata_file::CheckpointFiles;
use crate::connectors::{Committable, RestoredSource, Split};
use crate::id::{NodeId, SubtaskId};
use crate::operator::StateDescriptor;
use crate::protocol::alignment::Mode;
use crate::random::Random;
use crate::record::Watermark;
use crate::state::snapshot::{SnapshotState, StateChange, compare_states};

/// Why a job cannot start from a checkpoint.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// Keys would be placed in other groups.
    #[error(
        "it was taken with max-parallelism = {stored}, which is fixed for the life of the state; the job has {now}"
    )]
    MaxParallelism {
        /// That of the checkpoint.
        stored: u32,
        /// That of the job.
        now: u32,
    },
    /// A node with something to restore is not there any more.
    #[error(
        "it has {what} of node {node}, which the job does not have: give the node its name back, say what it is called \
         now with --rename {node}=NEW, or give the {what} up with --allow-non-restored-state"
    )]
    NodeMissing {
        /// The node.
        node: String,
        /// What would be lost.
        what: &'static str,
    },
    /// A node is of another kind now.
    #[error("node {node} was {stored} when it was taken and is {now} now: give the node a name of its own")]
    NodeKind {
        /// The node.
        node: String,
        /// What it was.
        stored: &'static str,
        /// What it is.
        now: &'static str,
    },
    /// The states of an operator are not those of the checkpoint.
    #[error("the states of operator {node} are not what they were when it was taken: {difference}")]
    States {
        /// The node.
        node: String,
        /// What differs.
        difference: String,
    },
    /// A node that had finished would get input again.
    #[error("node {node} had finished when it was taken, and now has an input from {from}, which had not")]
    Unfinished {
        /// The node.
        node: String,
        /// The node before it.
        from: String,
    },
    /// A renaming names a node that is not there.
    #[error("--rename {from}={to}: {problem}")]
    Rename {
        /// The old name.
        from: String,
        /// The new name.
        to: String,
        /// What is wrong.
        problem: &'static str,
    },
}

/// How the nodes of a checkpoint are matched to those of the job.
#[derive(Clone, Debug, Default)]
pub(super) struct RestoreRules {
    /// Whether what no node claims is given up instead of being an error.
    pub(super) allow_non_restored_state: bool,
    /// Old and new names of nodes.
    pub(super) renames: Vec<(String, String)>,
}

/// What an attempt starts from.
#[derive(Clone, Default)]
pub(super) struct Restored {
    checkpoint: Option<RestoredCheckpoint>,
}

#[derive(Clone)]
struct RestoredCheckpoint {
    metadata: Arc<CheckpointMetadata>,
    files: CheckpointFiles,
    /// The place of each node in the metadata.
    nodes: BTreeMap<NodeId, usize>,
    /// Whether every subtask is the one of the same number: the job has the nodes, inputs and parallelism that it had.
    same_shape: bool,
}

/// What one subtask of an operator starts from.
#[derive(Default)]
pub(super) struct RestoredOperator {
    /// It had seen the end of its input, and must not hear of it again.
    pub(super) finished: bool,
    pub(super) watermark: Option<Watermark>,
    /// Snapshots in which some of its keys may be, each with whose it was.
    pub(super) state: Vec<(SubtaskId, StateHandle)>,
    pub(super) files: Option<CheckpointFiles>,
}

impl Restored {
    /// Matches a checkpoint to the job.
    pub(super) fn new(
        graph: &JobGraph,
        metadata: CheckpointMetadata,
        files: CheckpointFiles,
        rules: &RestoreRules,
    ) -> Result<Self, RestoreError> {
        let (stored, now) = (metadata.max_parallelism, graph.max_parallelism());
        if stored != now {
            return Err(RestoreError::MaxParallelism { stored, now });
        }
        let by_name: BTreeMap<&str, NodeId> = graph.ids().map(|id| (graph.node(id).name.as_str(), id)).collect();
        let renamed = check_renames(&metadata, &by_name, rules)?;
        let mut nodes = BTreeMap::new();
        for (place, stored) in metadata.nodes.iter().enumerate() {
            let name = renamed.get(stored.name.as_str()).copied().unwrap_or(&stored.name).as_str();
            match by_name.get(name) {
                Some(&id) => {
                    fits(graph.node(id), stored, rules)?;
                    nodes.insert(id, place);
                }
                None => match at_stake(stored) {
                    Some(what) if !rules.allow_non_restored_state => {
                        return Err(RestoreError::NodeMissing { node: stored.name.clone(), what });
                    }
                    _ => {}
                },
            }
        }
        let now = node_metadata(graph);
        let same = |(id, now): (u32, &NodeMetadata)| {
            let stored = nodes.get(&NodeId(id)).map(|place| &metadata.nodes[*place]);
            stored.is_some_and(|stored| (stored.parallelism, &stored.inputs) == (now.parallelism, &now.inputs))
        };
        let same_shape = metadata.nodes.len() == now.len() && (0..).zip(&now).all(same);
        let metadata = Arc::new(metadata);
        let restored = Self { checkpoint: Some(RestoredCheckpoint { metadata, files, nodes, same_shape }) };
        restored.check_finished(graph)?;
        Ok(restored)
    }

    /// A node that had finished gets nothing any more, so all before it must have finished as well.
    fn check_finished(&self, graph: &JobGraph) -> Result<(), RestoreError> {
        for id in graph.ids().filter(|id| self.has_finished(*id)) {
            let node = graph.node(id);
            if let Some(edge) = node.inputs.iter().find(|edge| !self.has_finished(edge.from)) {
                let from = graph.node(edge.from).name.clone();
                return Err(RestoreError::Unfinished { node: node.name.clone(), from });
            }
        }
        Ok(())
    }

    fn node(&self, id: NodeId) -> Option<&NodeMetadata> {
        let checkpoint = self.checkpoint.as_ref()?;
        checkpoint.nodes.get(&id).map(|place| &checkpoint.metadata.nodes[*place])
    }

    /// Whether there is a checkpoint to start from.
    pub(super) fn is_some(&self) -> bool {
        self.checkpoint.is_some()
    }

    /// Whether all subtasks of a node had seen the end of their input.
    pub(super) fn has_finished(&self, id: NodeId) -> bool {
        self.node(id).is_some_and(|node| node.subtasks.iter().all(|subtask| subtask.finished))
    }

    /// Under which random streams are drawn: others than before the checkpoint, and the same each time from there.
    pub(super) fn seed(&self, job: u64) -> u64 {
        let Some(checkpoint) = &self.checkpoint else { return job };
        Random::for_purpose(job, "epoch", &[checkpoint.metadata.checkpoint.0]).next_u64()
    }

    /// What a source starts from.
    pub(super) fn source(&self, id: NodeId) -> Option<RestoredSource> {
        let node = self.node(id)?;
        let splits = node.subtasks.iter().flat_map(|subtask| subtask.splits.iter().cloned().map(Split::from)).collect();
        Some(RestoredSource { enumerator: node.enumerator.clone()?, splits })
    }

    /// What a subtask of an operator starts from.
    pub(super) fn operator(&self, id: NodeId, inputs: &[Edge], index: u32, mode: Mode) -> RestoredOperator {
        let (Some(node), Some(checkpoint)) = (self.node(id), &self.checkpoint) else {
            return RestoredOperator::default();
        };
        // A source that has not finished may hand its splits to any of its readers, so that a subtask behind one of them
        // which had finished gets records again.
        let gets_nothing = checkpoint.same_shape && inputs.iter().all(|edge| self.has_finished(edge.from));
        let same = gets_nothing && node.subtasks.get(index as usize).is_some_and(|subtask| subtask.finished);
        let finished = same || self.has_finished(id);
        let state = node.subtasks.iter().filter_map(|subtask| {
            let handle = subtask.keyed_state.clone()?;
            Some((SubtaskId { node: node.name.clone(), index: subtask.index }, handle))
        });
        let watermark = match mode {
            // On a rescale each subtask takes over keys of several, and the earliest of their times is safe for all.
            Mode::ExactlyOnce => node.subtasks.iter().map(|subtask| subtask.watermark).min().flatten().map(Watermark),
            // Event time may have come further than the records before the barrier, which would be late when they come again.
            Mode::AtLeastOnce => None,
        };
        RestoredOperator {
            finished,
            watermark,
            state: if self.has_finished(id) { Vec::new() } else { state.collect() },
            files: Some(checkpoint.files.clone()),
        }
    }

    /// What sinks had prepared and may not have committed, by node.
    pub(super) fn committables(&self) -> Vec<(NodeId, Vec<Committable>)> {
        let Some(checkpoint) = &self.checkpoint else { return Vec::new() };
        let of = |(id, place): (&NodeId, &usize)| (*id, committables(&checkpoint.metadata.nodes[*place]));
        checkpoint.nodes.iter().map(of).filter(|(_, committables)| !committables.is_empty()).collect()
    }
}

/// The nodes of a job as a checkpoint keeps them, without what is held at a barrier.
pub(super) fn node_metadata(graph: &JobGraph) -> Vec<NodeMetadata> {
    let input = |edge: &Edge| {
        let from = &graph.node(edge.from).name;
        format!("{from}.{} {}", edge.output.0, edge.partition)
    };
    let of = |node: &Node| {
        let states = match &node.kind {
            NodeKind::Source(_) | NodeKind::Sink(_) => Vec::new(),
            NodeKind::Operator(operator) => operator.factory.descriptor().states.iter().map(SavedState::from).collect(),
        };
        NodeMetadata {
            name: node.name.clone(),
            kind: saved_kind(&node.kind),
            inputs: node.inputs.iter().map(input).collect(),
            parallelism: node.parallelism,
            states,
            enumerator: None,
            committables: Vec::new(),
            subtasks: Vec::new(),
        }
    };
    graph.nodes().iter().map(of).collect()
}

/// Whether what was saved of a node can go on in what it is now.
fn fits(now: &Node, stored: &NodeMetadata, rules: &RestoreRules) -> Result<(), RestoreError> {
    let node = || stored.name.clone();
    let kind = saved_kind(&now.kind);
    if stored.kind != kind {
        return Err(RestoreError::NodeKind { node: node(), stored: kind_name(stored.kind), now: kind_name(kind) });
    }
    let NodeKind::Operator(operator) = &now.kind else { return Ok(()) };
    let saved: Vec<StateDescriptor> = stored.states.iter().map(StateDescriptor::from).collect();
    let changes = compare_states(&SnapshotState::of(&saved), &operator.factory.descriptor().states);
    let refused = |change: &StateChange| match change {
        StateChange::Removed { .. } => !rules.allow_non_restored_state,
        change => !change.is_harmless(),
    };
    match changes.iter().find(|change| refused(change)) {
        None => Ok(()),
        Some(change) => {
            let help = match change {
                StateChange::Removed { .. } => "; declare it again, or give it up with --allow-non-restored-state",
                _ => "; give the state another name, or go on with the operator as it was",
            };
            Err(RestoreError::States { node: node(), difference: format!("{change}{help}") })
        }
    }
}

fn saved_kind(kind: &NodeKind) -> SavedNodeKind {
    match kind {
        NodeKind::Source(_) => SavedNodeKind::Source,
        NodeKind::Operator(_) => SavedNodeKind::Operator,
        NodeKind::Sink(_) => SavedNodeKind::Sink,
    }
}

fn kind_name(kind: SavedNodeKind) -> &'static str {
    match kind {
        SavedNodeKind::Source => "a source",
        SavedNodeKind::Operator => "an operator",
        SavedNodeKind::Sink => "a sink",
    }
}

/// What a node has prepared, over all of its subtasks.
pub(super) fn committables(node: &NodeMetadata) -> Vec<Committable> {
    let subtasks = node.subtasks.iter().flat_map(|subtask| &subtask.committables);
    node.committables.iter().chain(subtasks).cloned().map(Committable).collect()
}

/// What would be lost with a node, if anything.
fn at_stake(node: &NodeMetadata) -> Option<&'static str> {
    if node.enumerator.is_some() {
        Some("position")
    } else if node.subtasks.iter().any(|subtask| subtask.keyed_state.is_some()) {
        Some("state")
    } else if !committables(node).is_empty() {
        Some("uncommitted output")
    } else {
        None
    }
}

/// The new names of nodes by their old ones.
fn check_renames<'a>(
    metadata: &CheckpointMetadata,
    now: &BTreeMap<&str, NodeId>,
    rules: &'a RestoreRules,
) -> Result<BTreeMap<&'a str, &'a String>, RestoreError> {
    let mut renamed = BTreeMap::new();
    for (from, to) in &rules.renames {
        let wrong = |problem| RestoreError::Rename { from: from.clone(), to: to.clone(), problem };
        if !metadata.nodes.iter().any(|node| node.name == *from) {
            return Err(wrong("the checkpoint has no node of the old name"));
        }
        if !now.contains_key(to.as_str()) {
            return Err(wrong("the job has no node of the new name"));
        }
        let taken =
            |node: &NodeMetadata| node.name == *to && !rules.renames.iter().any(|(other, _)| *other == node.name);
        if metadata.nodes.iter().any(taken) || renamed.values().any(|other| *other == to) {
            return Err(wrong("the new name is that of another node of the checkpoint"));
        }
        renamed.insert(from.as_str(), to);
    }
    Ok(renamed)
}
