//! The graph of a job: named nodes and the edges between their outputs and inputs, checked when it is built.
//!
//! A node's name is its identity. What the graph promises to the runtime: names are unique, every edge begins at an
//! output that exists, there is no cycle, sources have no inputs and all others have one or more, a forward edge joins
//! nodes of equal parallelism, and keyed state stands behind a hash edge.

use std::fmt;
use std::sync::Arc;

use super::graph_check::{NodeShape, check, is_name};
use super::graph_error::GraphError;
use crate::connectors::{Sink, Source};
use crate::id::{NodeId, OutputId};
use crate::operator::{Limits, OnError, OperatorFactory};
use crate::protocol::key_group::DEFAULT_MAX_PARALLELISM;

/// The name of the output to which `on-error = "dead-letter"` sends records.
pub const DEAD_LETTER: &str = "dead-letter";

/// How records of an edge find the receiving subtask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Partition {
    /// To the subtask of the same index.
    Forward,
    /// In turn to all subtasks.
    Rebalance,
    /// To the subtask that owns the key's group.
    Hash,
    /// To every subtask.
    Broadcast,
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Forward => "forward",
            Self::Rebalance => "rebalance",
            Self::Hash => "hash",
            Self::Broadcast => "broadcast",
        })
    }
}

/// What a node does.
#[derive(Clone)]
pub enum NodeKind {
    /// Brings records in.
    Source(Arc<dyn Source>),
    /// Makes records of records.
    Operator(OperatorNode),
    /// Takes records out.
    Sink(Arc<dyn Sink>),
}

/// An operator and how it is run.
#[derive(Clone)]
pub struct OperatorNode {
    /// Makes its instances.
    pub factory: Arc<dyn OperatorFactory>,
    /// What an instance may use.
    pub limits: Limits,
    /// What becomes of records on which it fails.
    pub on_error: OnError,
}

impl fmt::Debug for NodeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Source(_) => "Source",
            Self::Operator(_) => "Operator",
            Self::Sink(_) => "Sink",
        })
    }
}

/// A node as its author describes it.
#[derive(Clone, Debug)]
pub struct NodeSpec {
    /// Its name: letters, digits, `-` and `_`.
    pub name: String,
    /// How many subtasks it has.
    pub parallelism: u32,
    /// What it does.
    pub kind: NodeKind,
    /// Where its records come from, in order; empty for a source.
    pub inputs: Vec<InputSpec>,
    /// Whether it may share a task with the node before it.
    pub chain: bool,
}

/// Where records of an input come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputSpec {
    /// `node`, or `node.output` for a side output.
    pub from: String,
    /// How records find their subtask; by default forward at equal parallelism, else rebalance.
    pub partition: Option<Partition>,
}

/// A node of a built graph.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// How many subtasks it has.
    pub parallelism: u32,
    /// What it does.
    pub kind: NodeKind,
    /// Where its records come from, in order.
    pub inputs: Vec<Edge>,
    /// Whether it may share a task with the node before it.
    pub chain: bool,
}

/// Where records of an input come from, resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The sending node.
    pub from: NodeId,
    /// Its output.
    pub output: OutputId,
    /// How records find their subtask.
    pub partition: Partition,
}

/// A checked job.
#[derive(Clone, Debug)]
pub struct JobGraph {
    name: String,
    max_parallelism: u32,
    nodes: Vec<Node>,
}

/// Collects nodes, in any order, and checks them as a whole.
#[derive(Clone, Debug)]
pub struct JobGraphBuilder {
    name: String,
    max_parallelism: u32,
    nodes: Vec<NodeSpec>,
}

impl JobGraphBuilder {
    /// A job without nodes.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), max_parallelism: DEFAULT_MAX_PARALLELISM, nodes: Vec::new() }
    }

    /// Sets the number of key groups.
    #[must_use]
    pub fn max_parallelism(mut self, max_parallelism: u32) -> Self {
        self.max_parallelism = max_parallelism;
        self
    }

    /// Adds a node.
    #[must_use]
    pub fn node(mut self, node: NodeSpec) -> Self {
        self.nodes.push(node);
        self
    }

    /// Checks the nodes and joins them.
    ///
    /// # Errors
    /// When the nodes do not make a job: the first thing found.
    pub fn build(self) -> Result<JobGraph, GraphError> {
        self.build_or_all_errors().map_err(|mut errors| errors.swap_remove(0))
    }

    /// Checks the nodes and joins them.
    ///
    /// # Errors
    /// When the nodes do not make a job: everything found, one error or more.
    pub fn build_or_all_errors(self) -> Result<JobGraph, Vec<GraphError>> {
        let shapes: Vec<_> = self.nodes.iter().map(NodeShape::of).collect();
        let mut errors = Vec::new();
        if !is_name(&self.name) {
            errors.push(GraphError::JobName { name: self.name.clone() });
        }
        let edges = match check(self.max_parallelism, &shapes) {
            Ok(edges) if errors.is_empty() => edges,
            checked => {
                errors.extend(checked.err().into_iter().flatten());
                return Err(errors);
            }
        };
        let join = |(spec, inputs): (NodeSpec, _)| {
            let NodeSpec { name, parallelism, kind, inputs: _, chain } = spec;
            Node { name, parallelism, kind, inputs, chain }
        };
        let nodes = self.nodes.into_iter().zip(edges).map(join).collect();
        Ok(JobGraph { name: self.name, max_parallelism: self.max_parallelism, nodes })
    }
}

impl JobGraph {
    /// The job's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The number of key groups.
    #[must_use]
    pub fn max_parallelism(&self) -> u32 {
        self.max_parallelism
    }

    /// All nodes, by id.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The node with this id.
    #[must_use]
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    /// The ids of all nodes.
    pub fn ids(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.nodes.len()).map(|id| NodeId(u32::try_from(id).expect("nodes are counted in u32")))
    }

    /// The edges that begin at a node, each with the receiving node and the position among its inputs.
    pub fn edges_from(&self, from: NodeId) -> impl Iterator<Item = (&Edge, NodeId, u32)> {
        self.ids().flat_map(move |to| {
            let inputs = self.node(to).inputs.iter().zip(0u32..);
            inputs.filter(move |(edge, _)| edge.from == from).map(move |(edge, input)| (edge, to, input))
        })
    }
}
