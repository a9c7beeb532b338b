//! The checks of a job graph, on the shapes of its nodes.
//!
//! A shape is what the checks need of a node. It can be had before connectors are made and components compiled, so that
//! a job file can be checked before anything slow happens; what is not known yet is not held against the node.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::graph_error::GraphError;
use super::job_graph::{DEAD_LETTER, Edge, InputSpec, NodeKind, NodeSpec, Partition};
use crate::closest::closest;
use crate::id::{NodeId, OutputId};
use crate::operator::{Descriptor, OnError};
use crate::protocol::key_group::LARGEST_MAX_PARALLELISM;

/// What the checks need of a node.
pub(crate) struct NodeShape<'a> {
    /// Its name.
    pub(crate) name: &'a str,
    /// How many subtasks it has.
    pub(crate) parallelism: u32,
    /// What it does.
    pub(crate) kind: ShapeKind<'a>,
    /// Where its records come from.
    pub(crate) inputs: &'a [InputSpec],
}

/// What a node does, as far as the checks care.
pub(crate) enum ShapeKind<'a> {
    /// Brings records in.
    Source {
        /// Whether its records have keys; none if that is not known.
        keyed: Option<bool>,
    },
    /// Makes records of records.
    Operator {
        /// What it declares; none if that is not known.
        descriptor: Option<&'a Descriptor>,
        /// What becomes of records on which it fails.
        on_error: OnError,
    },
    /// Takes records out.
    Sink,
}

impl<'a> NodeShape<'a> {
    /// The shape of a node of which everything is known.
    pub(crate) fn of(spec: &'a NodeSpec) -> Self {
        let kind = match &spec.kind {
            NodeKind::Source(source) => ShapeKind::Source { keyed: Some(source.shape().keyed) },
            NodeKind::Operator(operator) => {
                ShapeKind::Operator { descriptor: Some(operator.factory.descriptor()), on_error: operator.on_error }
            }
            NodeKind::Sink(_) => ShapeKind::Sink,
        };
        Self { name: &spec.name, parallelism: spec.parallelism, kind, inputs: &spec.inputs }
    }
}

/// Checks nodes as a whole and resolves their inputs: the edges of each node, or all that is wrong.
pub(crate) fn check(max_parallelism: u32, nodes: &[NodeShape<'_>]) -> Result<Vec<Vec<Edge>>, Vec<GraphError>> {
    let mut errors = Vec::new();
    if !(1..=LARGEST_MAX_PARALLELISM).contains(&max_parallelism) {
        errors.push(GraphError::MaxParallelism { max_parallelism });
    }
    let mut ids = BTreeMap::new();
    for (node, id) in nodes.iter().zip(0..) {
        let name = || node.name.to_owned();
        if !is_name(node.name) {
            errors.push(GraphError::Name { name: name() });
        }
        // The first of two stays, so that the second is the only mistake.
        match ids.entry(node.name) {
            Entry::Vacant(vacant) => drop(vacant.insert(NodeId(id))),
            Entry::Occupied(_) => errors.push(GraphError::Duplicate { node: name() }),
        }
        let parallelism = node.parallelism;
        if !(1..=max_parallelism.max(1)).contains(&parallelism) {
            errors.push(GraphError::Parallelism { node: name(), parallelism, max_parallelism });
        }
    }
    let has = |wanted: fn(&ShapeKind<'_>) -> bool| nodes.iter().any(|node| wanted(&node.kind));
    if !has(|kind| matches!(kind, ShapeKind::Source { .. })) {
        errors.push(GraphError::NoSource);
    }
    if !has(|kind| matches!(kind, ShapeKind::Sink)) {
        errors.push(GraphError::NoSink);
    }
    let mut edges = Vec::with_capacity(nodes.len());
    for node in nodes {
        let resolved = node.inputs.iter().enumerate().map(|(index, input)| resolve(nodes, &ids, node, index, input));
        let (good, bad): (Vec<_>, Vec<_>) = resolved.partition(Result::is_ok);
        errors.extend(bad.into_iter().filter_map(Result::err));
        edges.push(good.into_iter().filter_map(Result::ok).collect());
    }
    errors.extend(find_cycle(nodes, &edges));
    errors.extend(nodes.iter().filter_map(check_inputs));
    if errors.is_empty() { Ok(edges) } else { Err(errors) }
}

/// Whether it can name a node or a job: safe in the name of a file or directory, in a log and in a metric.
pub(crate) fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    (1..=100).contains(&name.len()) && name.bytes().all(allowed)
}

fn resolve(
    nodes: &[NodeShape<'_>],
    ids: &BTreeMap<&str, NodeId>,
    node: &NodeShape<'_>,
    input: usize,
    wanted: &InputSpec,
) -> Result<Edge, GraphError> {
    let (name, output) = match wanted.from.split_once('.') {
        // A node with a dot in its name is a mistake, but only one.
        Some((name, output)) if !ids.contains_key(wanted.from.as_str()) => (name, Some(output)),
        _ => (wanted.from.as_str(), None),
    };
    let (at, sender_name) = (|| node.name.to_owned(), || name.to_owned());
    let Some(&from) = ids.get(name) else {
        // Only what has an output could have been meant, and not the node itself.
        let senders = nodes.iter().filter(|other| !matches!(other.kind, ShapeKind::Sink) && other.name != node.name);
        let names: Vec<&str> = senders.map(|other| other.name).collect();
        let guess = closest(name, names.iter().copied()).map(str::to_owned);
        let known = names.into_iter().map(str::to_owned).collect();
        return Err(GraphError::UnknownInput { node: at(), input, from: sender_name(), guess, known });
    };
    let sender = &nodes[from.0 as usize];
    let output = match (&sender.kind, output) {
        (ShapeKind::Sink, _) => return Err(GraphError::FromSink { node: at(), input, from: sender_name() }),
        (_, None) => OutputId::MAIN,
        (ShapeKind::Operator { on_error, .. }, Some(DEAD_LETTER)) => {
            if *on_error != OnError::DeadLetter {
                return Err(GraphError::NoDeadLetters { node: at(), input, from: sender_name() });
            }
            OutputId::DEAD_LETTER
        }
        (ShapeKind::Operator { descriptor: None, .. }, Some(_)) => OutputId::MAIN,
        (kind, Some(output)) => {
            let declared = match kind {
                ShapeKind::Operator { descriptor: Some(descriptor), .. } => descriptor.side_outputs.as_slice(),
                ShapeKind::Operator { descriptor: None, .. } | ShapeKind::Source { .. } | ShapeKind::Sink => &[],
            };
            let Some(side) = declared.iter().find(|side| side.name == output) else {
                let known = declared.iter().map(|side| side.name.clone()).collect();
                let (from, output) = (sender_name(), output.to_owned());
                return Err(GraphError::UnknownOutput { node: at(), input, from, output, known });
            };
            OutputId(side.id)
        }
    };
    let equal = sender.parallelism == node.parallelism;
    let partition = wanted.partition.unwrap_or(if equal { Partition::Forward } else { Partition::Rebalance });
    if partition == Partition::Forward && !equal {
        return Err(GraphError::Forward {
            node: at(),
            input,
            from: sender_name(),
            from_parallelism: sender.parallelism,
            parallelism: node.parallelism,
        });
    }
    if partition == Partition::Hash && matches!(sender.kind, ShapeKind::Source { keyed: Some(false) }) {
        return Err(GraphError::NoKeys { node: at(), input, from: sender_name() });
    }
    Ok(Edge { from, output, partition })
}

fn check_inputs(node: &NodeShape<'_>) -> Option<GraphError> {
    match &node.kind {
        ShapeKind::Source { .. } if node.inputs.is_empty() => None,
        ShapeKind::Source { .. } => Some(GraphError::SourceInput { node: node.name.to_owned() }),
        ShapeKind::Operator { .. } | ShapeKind::Sink if node.inputs.is_empty() => {
            Some(GraphError::NoInput { node: node.name.to_owned() })
        }
        ShapeKind::Operator { descriptor: Some(descriptor), .. } => {
            let state = descriptor.states.iter().find(|state| state.kind.is_keyed())?;
            let hashed = node.inputs.iter().any(|input| input.partition == Some(Partition::Hash));
            (!hashed).then(|| GraphError::NoHash { node: node.name.to_owned(), state: state.name.clone() })
        }
        ShapeKind::Operator { descriptor: None, .. } | ShapeKind::Sink => None,
    }
}

/// Follows inputs upwards from every node; a node met again on the way up closes a circle.
fn find_cycle(nodes: &[NodeShape<'_>], edges: &[Vec<Edge>]) -> Option<GraphError> {
    #[derive(Clone, Copy, PartialEq)]
    enum Mark {
        New,
        OnPath,
        Done,
    }
    let mut marks = vec![Mark::New; nodes.len()];
    for start in 0..nodes.len() {
        if marks[start] != Mark::New {
            continue;
        }
        marks[start] = Mark::OnPath;
        // The path upwards, each node with the number of its inputs that were followed.
        let mut path = vec![(start, 0)];
        while let Some((node, followed)) = path.last_mut() {
            let Some(edge) = edges[*node].get(*followed) else {
                marks[*node] = Mark::Done;
                path.pop();
                continue;
            };
            *followed += 1;
            let from = edge.from.0 as usize;
            match marks[from] {
                Mark::Done => {}
                Mark::New => {
                    marks[from] = Mark::OnPath;
                    path.push((from, 0));
                }
                Mark::OnPath => {
                    let on_circle = path.iter().map(|(node, _)| *node).skip_while(|node| *node != from);
                    let mut circle: Vec<usize> = on_circle.collect();
                    // In the order of flow, and beginning with the node that comes first in the job.
                    circle.reverse();
                    let first = (0..circle.len()).min_by_key(|at| circle[*at]).unwrap_or(0);
                    circle.rotate_left(first);
                    circle.push(circle[0]);
                    let circle = circle.into_iter().map(|node| nodes[node].name.to_owned()).collect();
                    return Some(GraphError::Cycle { nodes: circle });
                }
            }
        }
    }
    None
}
