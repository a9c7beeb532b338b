//! The graph of a job: named nodes and the edges between their outputs and inputs, checked when it is built.
//!
//! A node's name is its identity. What the graph promises to the runtime: names are unique, every edge begins at an
//! output that exists, there is no cycle, sources have no inputs and all others have one or more, a forward edge joins
//! nodes of equal parallelism, and keyed state stands behind a hash edge.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::connectors::{Sink, Source};
use crate::id::{NodeId, OutputId};
use crate::operator::{Limits, OnError, OperatorFactory};
use crate::protocol::key_group::{DEFAULT_MAX_PARALLELISM, LARGEST_MAX_PARALLELISM};

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

/// Why nodes do not make a job. Each error names the node it is about, and the input where there is one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// A name that cannot be used.
    #[error("{name:?} cannot name a node: use 1 to 100 letters, digits, '-' or '_'")]
    Name {
        /// The name.
        name: String,
    },
    /// Two nodes of one name.
    #[error("two nodes are named {node}")]
    Duplicate {
        /// The name.
        node: String,
    },
    /// There is nothing to do.
    #[error("a job needs at least one source and one sink")]
    Nothing,
    /// Parallelism out of range.
    #[error("{node}: parallelism is {parallelism}, but must be from 1 to max-parallelism = {max_parallelism}")]
    Parallelism {
        /// The node.
        node: String,
        /// What was asked for.
        parallelism: u32,
        /// The bound.
        max_parallelism: u32,
    },
    /// The number of key groups is out of range.
    #[error("max-parallelism is {max_parallelism}, but must be from 1 to {LARGEST_MAX_PARALLELISM}")]
    MaxParallelism {
        /// What was asked for.
        max_parallelism: u32,
    },
    /// A node without inputs that is not a source.
    #[error("{node} has no input")]
    NoInput {
        /// The node.
        node: String,
    },
    /// An input that does not exist.
    #[error("{node}: there is no node {from}{}", suggestion(.known))]
    UnknownInput {
        /// The node.
        node: String,
        /// The position of the input.
        input: usize,
        /// What it names.
        from: String,
        /// The closest name that exists.
        known: Option<String>,
    },
    /// A side output that does not exist.
    #[error("{node}: {from} has no output {output}; it has {}", list(.known))]
    UnknownOutput {
        /// The node.
        node: String,
        /// The position of the input.
        input: usize,
        /// The sending node.
        from: String,
        /// The output that it does not have.
        output: String,
        /// The outputs that it has.
        known: Vec<String>,
    },
    /// The dead letters of a node that makes none.
    #[error("{node}: {from} sends no dead letters; set operators.{from}.on-error = \"dead-letter\"")]
    NoDeadLetters {
        /// The node.
        node: String,
        /// The position of the input.
        input: usize,
        /// The sending node.
        from: String,
    },
    /// A sink where a source of records is needed.
    #[error("{node}: {from} is a sink, nothing comes out of it")]
    FromSink {
        /// The node.
        node: String,
        /// The position of the input.
        input: usize,
        /// The sink.
        from: String,
    },
    /// Nodes that feed each other in a circle.
    #[error("the nodes {} feed each other in a circle", .nodes.join(" -> "))]
    Cycle {
        /// The nodes of the circle, in the order of flow.
        nodes: Vec<String>,
    },
    /// A forward edge between nodes of different parallelism.
    #[error(
        "{node}: a forward edge needs equal parallelism, but {from} has {from_parallelism} and {node} has {parallelism}"
    )]
    Forward {
        /// The node.
        node: String,
        /// The position of the input.
        input: usize,
        /// The sending node.
        from: String,
        /// Its parallelism.
        from_parallelism: u32,
        /// The node's own.
        parallelism: u32,
    },
    /// A hash edge behind a source whose records have no keys.
    #[error("{node}: records of the source {from} have no keys to hash; put an operator between that sets keys")]
    NoKeys {
        /// The node.
        node: String,
        /// The position of the input.
        input: usize,
        /// The source.
        from: String,
    },
    /// Keyed state without a hash edge.
    #[error("{node} declares keyed state ({state}), so it needs an input with partition = \"hash\"")]
    NoHash {
        /// The node.
        node: String,
        /// One of its keyed states.
        state: String,
    },
}

fn suggestion(known: &Option<String>) -> String {
    known.as_ref().map(|name| format!("; did you mean {name}?")).unwrap_or_default()
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "only its main output".to_owned() } else { names.join(", ") }
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
    /// When the nodes do not make a job.
    pub fn build(self) -> Result<JobGraph, GraphError> {
        if !(1..=LARGEST_MAX_PARALLELISM).contains(&self.max_parallelism) {
            return Err(GraphError::MaxParallelism { max_parallelism: self.max_parallelism });
        }
        let mut ids = BTreeMap::new();
        for (spec, id) in self.nodes.iter().zip(0..) {
            if !is_name(&spec.name) {
                return Err(GraphError::Name { name: spec.name.clone() });
            }
            if ids.insert(spec.name.clone(), NodeId(id)).is_some() {
                return Err(GraphError::Duplicate { node: spec.name.clone() });
            }
            if !(1..=self.max_parallelism).contains(&spec.parallelism) {
                return Err(GraphError::Parallelism {
                    node: spec.name.clone(),
                    parallelism: spec.parallelism,
                    max_parallelism: self.max_parallelism,
                });
            }
        }
        let has = |wanted: fn(&NodeKind) -> bool| self.nodes.iter().any(|node| wanted(&node.kind));
        if !has(|kind| matches!(kind, NodeKind::Source(_))) || !has(|kind| matches!(kind, NodeKind::Sink(_))) {
            return Err(GraphError::Nothing);
        }
        let mut nodes = Vec::with_capacity(self.nodes.len());
        for spec in &self.nodes {
            let inputs = spec.inputs.iter().enumerate();
            let inputs = inputs.map(|(index, input)| resolve(&self.nodes, &ids, spec, index, input));
            nodes.push(Node {
                name: spec.name.clone(),
                parallelism: spec.parallelism,
                kind: spec.kind.clone(),
                inputs: inputs.collect::<Result<_, _>>()?,
                chain: spec.chain,
            });
        }
        let graph = JobGraph { name: self.name, max_parallelism: self.max_parallelism, nodes };
        graph.check_cycles()?;
        graph.nodes.iter().try_for_each(check_inputs)?;
        Ok(graph)
    }
}

fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    (1..=100).contains(&name.len()) && name.bytes().all(allowed)
}

fn resolve(
    specs: &[NodeSpec],
    ids: &BTreeMap<String, NodeId>,
    spec: &NodeSpec,
    input: usize,
    wanted: &InputSpec,
) -> Result<Edge, GraphError> {
    let node = || spec.name.clone();
    let (name, output) = match wanted.from.split_once('.') {
        Some((name, output)) => (name, Some(output)),
        None => (wanted.from.as_str(), None),
    };
    let Some(&from) = ids.get(name) else {
        let known = closest(name, ids.keys()).cloned();
        return Err(GraphError::UnknownInput { node: node(), input, from: name.to_owned(), known });
    };
    let sender = &specs[from.0 as usize];
    let output = match (&sender.kind, output) {
        (NodeKind::Sink(_), _) => {
            return Err(GraphError::FromSink { node: node(), input, from: name.to_owned() });
        }
        (_, None) => OutputId::MAIN,
        (NodeKind::Operator(operator), Some(DEAD_LETTER)) => {
            if operator.on_error != OnError::DeadLetter {
                return Err(GraphError::NoDeadLetters { node: node(), input, from: name.to_owned() });
            }
            OutputId::DEAD_LETTER
        }
        (kind, Some(output)) => {
            let declared = match kind {
                NodeKind::Operator(operator) => operator.factory.descriptor().side_outputs.as_slice(),
                NodeKind::Source(_) | NodeKind::Sink(_) => &[],
            };
            let Some(side) = declared.iter().find(|side| side.name == output) else {
                let known = declared.iter().map(|side| side.name.clone()).collect();
                let (from, output) = (name.to_owned(), output.to_owned());
                return Err(GraphError::UnknownOutput { node: node(), input, from, output, known });
            };
            OutputId(side.id)
        }
    };
    let equal = sender.parallelism == spec.parallelism;
    let partition = wanted.partition.unwrap_or(if equal { Partition::Forward } else { Partition::Rebalance });
    if partition == Partition::Forward && !equal {
        return Err(GraphError::Forward {
            node: node(),
            input,
            from: name.to_owned(),
            from_parallelism: sender.parallelism,
            parallelism: spec.parallelism,
        });
    }
    if partition == Partition::Hash
        && let NodeKind::Source(source) = &sender.kind
        && !source.shape().keyed
    {
        return Err(GraphError::NoKeys { node: node(), input, from: name.to_owned() });
    }
    Ok(Edge { from, output, partition })
}

/// The name nearest to `name`, if one is near enough to be meant.
fn closest<'a>(name: &str, known: impl Iterator<Item = &'a String>) -> Option<&'a String> {
    let distance = |other: &String| edit_distance(name.as_bytes(), other.as_bytes());
    known.map(|other| (distance(other), other)).filter(|(distance, _)| *distance <= 2).min().map(|(_, other)| other)
}

/// Levenshtein distance, row by row.
fn edit_distance(left: &[u8], right: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in right.iter().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[right.len()]
}

fn check_inputs(node: &Node) -> Result<(), GraphError> {
    match &node.kind {
        NodeKind::Source(_) => {}
        NodeKind::Operator(_) | NodeKind::Sink(_) if node.inputs.is_empty() => {
            return Err(GraphError::NoInput { node: node.name.clone() });
        }
        NodeKind::Operator(operator) => {
            let keyed = operator.factory.descriptor().states.iter().find(|state| state.kind.is_keyed());
            if let Some(state) = keyed
                && !node.inputs.iter().any(|edge| edge.partition == Partition::Hash)
            {
                return Err(GraphError::NoHash { node: node.name.clone(), state: state.name.clone() });
            }
        }
        NodeKind::Sink(_) => {}
    }
    Ok(())
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

    /// Follows inputs upwards from every node; a node met again on the way up closes a circle.
    fn check_cycles(&self) -> Result<(), GraphError> {
        #[derive(Clone, Copy, PartialEq)]
        enum Mark {
            New,
            OnPath,
            Done,
        }
        let mut marks = vec![Mark::New; self.nodes.len()];
        for start in self.ids() {
            // The path upwards, each node with the number of its inputs that were followed.
            let mut path: Vec<(NodeId, usize)> = vec![(start, 0)];
            if marks[start.0 as usize] != Mark::New {
                continue;
            }
            marks[start.0 as usize] = Mark::OnPath;
            while let Some((id, followed)) = path.last_mut() {
                let Some(edge) = self.node(*id).inputs.get(*followed) else {
                    marks[id.0 as usize] = Mark::Done;
                    path.pop();
                    continue;
                };
                *followed += 1;
                match marks[edge.from.0 as usize] {
                    Mark::Done => {}
                    Mark::New => {
                        marks[edge.from.0 as usize] = Mark::OnPath;
                        path.push((edge.from, 0));
                    }
                    Mark::OnPath => {
                        let circle = path.iter().skip_while(|(id, _)| *id != edge.from);
                        let mut nodes: Vec<String> = circle.map(|(id, _)| self.node(*id).name.clone()).collect();
                        nodes.reverse();
                        nodes.push(nodes[0].clone());
                        return Err(GraphError::Cycle { nodes });
                    }
                }
            }
        }
        Ok(())
    }
}
