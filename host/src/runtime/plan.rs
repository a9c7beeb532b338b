//! From a job's graph to the subtasks that run it: which nodes share a task, and which channels join the tasks.
//!
//! A node joins the task of the node before it when that is its only input, along a forward edge, and no other node has
//! joined there. Chaining changes nothing about identity: metrics, errors and state are by node.

use std::collections::BTreeMap;

use super::channel::{ChannelReceiver, ChannelSender, Transport};
use super::output::OutputEdge;
use crate::api::{JobGraph, Partition};
use crate::id::{ChannelId, NodeId, OutputId, SubtaskId};

/// Nodes that share a task, in the order of flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chain {
    pub(super) nodes: Vec<NodeId>,
}

/// Which nodes share a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chains {
    pub(super) chains: Vec<Chain>,
    /// Per node, the output that feeds the next node of its chain.
    next: BTreeMap<NodeId, (NodeId, OutputId)>,
}

impl Chains {
    /// Finds the chains of a graph.
    pub(super) fn of(graph: &JobGraph) -> Self {
        let mut next: BTreeMap<NodeId, (NodeId, OutputId)> = BTreeMap::new();
        let mut heads = Vec::new();
        for id in graph.ids() {
            let node = graph.node(id);
            match node.inputs.as_slice() {
                [edge] if node.chain && edge.partition == Partition::Forward && !next.contains_key(&edge.from) => {
                    next.insert(edge.from, (id, edge.output));
                }
                _ => heads.push(id),
            }
        }
        let chain = |head: NodeId| {
            let following = |id: &NodeId| next.get(id).map(|(node, _)| *node);
            Chain { nodes: std::iter::successors(Some(head), following).collect() }
        };
        Self { chains: heads.into_iter().map(chain).collect(), next }
    }

    /// The output of a node that feeds the next node of its chain.
    pub(super) fn chained_output(&self, node: NodeId) -> Option<OutputId> {
        self.next.get(&node).map(|(_, output)| *output)
    }

    fn is_chained(&self, from: NodeId, to: NodeId) -> bool {
        self.next.get(&from).is_some_and(|(node, _)| *node == to)
    }
}

/// The incoming ends of a subtask, by input.
type Receivers = Vec<Vec<Box<dyn ChannelReceiver>>>;

/// The ends of all channels of a job, by the subtasks that hold them.
#[derive(Default)]
pub(super) struct Channels {
    outputs: BTreeMap<(NodeId, u32), Vec<OutputEdge>>,
    inputs: BTreeMap<(NodeId, u32), Receivers>,
}

impl Channels {
    /// Makes the channels between tasks.
    pub(super) fn connect(graph: &JobGraph, chains: &Chains, transport: &dyn Transport, capacity_bytes: usize) -> Self {
        let mut all = Self::default();
        for to in graph.ids() {
            let receiver = graph.node(to);
            for (edge, input) in receiver.inputs.iter().zip(0u32..) {
                if chains.is_chained(edge.from, to) {
                    continue;
                }
                let sender = graph.node(edge.from);
                for receiving in 0..receiver.parallelism {
                    let inputs = all.inputs.entry((to, receiving)).or_default();
                    inputs.resize_with(receiver.inputs.len(), Vec::new);
                }
                for sending in 0..sender.parallelism {
                    let from = SubtaskId { node: sender.name.clone(), index: sending };
                    let targets = match edge.partition {
                        Partition::Forward => sending..sending + 1,
                        Partition::Hash | Partition::Rebalance | Partition::Broadcast => 0..receiver.parallelism,
                    };
                    let mut senders: Vec<Box<dyn ChannelSender>> = Vec::new();
                    for receiving in targets {
                        let to_subtask = SubtaskId { node: receiver.name.clone(), index: receiving };
                        let id = ChannelId { from: from.clone(), output: edge.output, to: to_subtask, input };
                        let (sending_end, receiving_end) = transport.channel(&id, capacity_bytes);
                        senders.push(sending_end);
                        let inputs = all.inputs.get_mut(&(to, receiving)).expect("made above");
                        inputs[input as usize].push(receiving_end);
                    }
                    all.outputs.entry((edge.from, sending)).or_default().push(OutputEdge::new(
                        edge.output,
                        edge.partition,
                        &from,
                        receiver.name.clone(),
                        graph.max_parallelism(),
                        senders,
                    ));
                }
            }
        }
        all
    }

    /// Takes the outgoing ends of a subtask.
    pub(super) fn take_outputs(&mut self, node: NodeId, subtask: u32) -> Vec<OutputEdge> {
        self.outputs.remove(&(node, subtask)).unwrap_or_default()
    }

    /// Takes the incoming ends of a subtask, by input.
    pub(super) fn take_inputs(&mut self, node: NodeId, subtask: u32) -> Receivers {
        self.inputs.remove(&(node, subtask)).unwrap_or_default()
    }
}
