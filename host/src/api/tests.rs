//! What graphs are refused, and how the others are joined.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::*;
use crate::connectors::{
    Boundedness, Commit, Committable, Committer, ConnectorError, ReaderContext, RestoredSource, Sink, SinkWriter,
    Source, SourceReader, SplitEnumerator, StreamShape, TargetStart, WriterContext,
};
use crate::env::Env;
use crate::id::{NodeId, OutputId, SubtaskId};
use crate::operator::{
    Descriptor, Fault, Limits, OnError, Operator, OperatorFactory, SideOutput, StateDescriptor, StateKind,
};

/// A source, operator or sink that is only looked at.
#[derive(Default)]
struct Shape {
    keyed: bool,
    descriptor: Descriptor,
}

impl Source for Shape {
    fn boundedness(&self) -> Boundedness {
        Boundedness::Bounded
    }

    fn shape(&self) -> StreamShape {
        StreamShape { keyed: self.keyed, timed: false }
    }

    fn cannot_replay(&self) -> Option<String> {
        None
    }

    fn enumerator(&self, _: &Env, _: Option<RestoredSource>) -> Box<dyn SplitEnumerator> {
        unreachable!("the job is not started")
    }

    fn reader(&self, _: ReaderContext) -> Box<dyn SourceReader> {
        unreachable!("the job is not started")
    }
}

impl Sink for Shape {
    fn commit(&self) -> Commit {
        Commit::AtOnce
    }

    fn prepare_target<'a>(
        &'a self,
        _: &'a Env,
        _: TargetStart,
    ) -> BoxFuture<'a, Result<Vec<Committable>, ConnectorError>> {
        unreachable!("the job is not started")
    }

    fn writer(&self, _: WriterContext) -> Box<dyn SinkWriter> {
        unreachable!("the job is not started")
    }

    fn committer(&self, _: &Env) -> Box<dyn Committer> {
        unreachable!("the job is not started")
    }
}

impl OperatorFactory for Shape {
    fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    fn create<'a>(&'a self, _: &'a SubtaskId) -> BoxFuture<'a, Result<Box<dyn Operator>, Fault>> {
        unreachable!("the job is not started")
    }
}

fn node(name: &str, kind: NodeKind, inputs: &[&str]) -> NodeSpec {
    let inputs = inputs.iter().map(|from| match from.split_once(':') {
        Some((partition, from)) => {
            let all = [Partition::Forward, Partition::Rebalance, Partition::Hash, Partition::Broadcast];
            let partition = all.into_iter().find(|known| known.to_string() == partition);
            InputSpec { from: from.to_owned(), partition: Some(partition.expect("a partition")) }
        }
        None => InputSpec { from: (*from).to_owned(), partition: None },
    });
    NodeSpec { name: name.to_owned(), parallelism: 1, kind, inputs: inputs.collect(), chain: true }
}

fn source(name: &str) -> NodeSpec {
    node(name, NodeKind::Source(Arc::new(Shape::default())), &[])
}

fn sink(name: &str, inputs: &[&str]) -> NodeSpec {
    node(name, NodeKind::Sink(Arc::new(Shape::default())), inputs)
}

fn operator_with(name: &str, descriptor: Descriptor, on_error: OnError, inputs: &[&str]) -> NodeSpec {
    let factory = Arc::new(Shape { keyed: false, descriptor });
    node(name, NodeKind::Operator(OperatorNode { factory, limits: Limits::default(), on_error }), inputs)
}

fn operator(name: &str, inputs: &[&str]) -> NodeSpec {
    operator_with(name, Descriptor::default(), OnError::Fail, inputs)
}

fn times(parallelism: u32, node: NodeSpec) -> NodeSpec {
    NodeSpec { parallelism, ..node }
}

fn build(nodes: Vec<NodeSpec>) -> Result<JobGraph, Vec<GraphError>> {
    nodes.into_iter().fold(JobGraphBuilder::new("job"), JobGraphBuilder::node).build_or_all_errors()
}

/// The messages about nodes, each with what to do.
fn refused(nodes: Vec<NodeSpec>) -> Vec<String> {
    let errors = build(nodes).expect_err("the nodes do not make a job");
    errors.iter().map(|error| format!("{error}: {}", error.help())).collect()
}

#[test]
fn nodes_are_joined_in_any_order() {
    let late = SideOutput { id: 7, name: "late".into() };
    let descriptor = Descriptor { side_outputs: vec![late], ..Descriptor::default() };
    let graph = build(vec![
        sink("out", &["split.late", "split.dead-letter"]),
        times(2, operator_with("split", descriptor, OnError::DeadLetter, &["lines", "broadcast:lines"])),
        source("lines"),
    ])
    .unwrap();
    let edge = |from, output, partition| Edge { from: NodeId(from), output, partition };
    let out = [edge(1, OutputId(7), Partition::Rebalance), edge(1, OutputId::DEAD_LETTER, Partition::Rebalance)];
    assert_eq!(graph.nodes()[0].inputs, out);
    let split = [edge(2, OutputId::MAIN, Partition::Rebalance), edge(2, OutputId::MAIN, Partition::Broadcast)];
    assert_eq!(graph.nodes()[1].inputs, split);
    let behind: Vec<_> = graph.edges_from(NodeId(2)).map(|(edge, to, input)| (edge.partition, to, input)).collect();
    assert_eq!(behind, [(Partition::Rebalance, NodeId(1), 0), (Partition::Broadcast, NodeId(1), 1)]);
}

#[test]
fn an_edge_is_forward_at_equal_parallelism() {
    let graph = build(vec![source("lines"), sink("out", &["lines"])]).unwrap();
    assert_eq!(graph.nodes()[1].inputs[0].partition, Partition::Forward);
    let unequal = vec![times(2, source("lines")), sink("out", &["forward:lines"])];
    assert_eq!(
        refused(unequal),
        ["partition \"forward\" joins nodes of equal parallelism, but lines has 2 and out has 1: give lines and out \
          the same parallelism, or use partition = \"rebalance\" or \"hash\""]
    );
}

#[test]
fn all_mistakes_are_found_at_once() {
    assert_eq!(
        refused(vec![source("a.b"), times(200, operator("count", &["liens"])), operator("count", &[])]),
        [
            "\"a.b\" cannot name a node: a name has 1 to 100 letters, digits, '-' or '_'; a dot would mean a side output",
            "count has parallelism 200, which is not from 1 to max-parallelism = 128: use a number from 1 to 128, or \
             raise max-parallelism",
            "two nodes are named count: sources, operators and sinks share one set of names; rename one of the two",
            "the job has no sink: add a table such as [sinks.out]",
            "count reads from liens, but there is no node of that name: it can read from a.b",
            "count has no input: say where its records come from: input = \"the name of a node\"",
        ]
    );
}

#[test]
fn circles_are_found_wherever_they_are() {
    let circle = vec![
        source("lines"),
        operator("before", &["lines"]),
        operator("a", &["before", "c"]),
        operator("b", &["a"]),
        operator("c", &["b"]),
        sink("out", &["c"]),
    ];
    let errors = build(circle).unwrap_err();
    assert_eq!(errors, [GraphError::Cycle { nodes: ["a", "b", "c", "a"].map(str::to_owned).into() }]);
    let own = build(vec![source("lines"), operator("a", &["lines", "a"]), sink("out", &["a"])]).unwrap_err();
    assert_eq!(own, [GraphError::Cycle { nodes: ["a", "a"].map(str::to_owned).into() }]);
}

#[test]
fn two_ways_to_one_node_are_no_circle() {
    let diamond = vec![
        source("lines"),
        operator("left", &["lines"]),
        operator("right", &["lines"]),
        operator("both", &["left", "right"]),
        sink("out", &["both"]),
    ];
    assert!(build(diamond).is_ok());
}

#[test]
fn outputs_must_exist() {
    let late = SideOutput { id: 1, name: "late".into() };
    let descriptor = Descriptor { side_outputs: vec![late], ..Descriptor::default() };
    let nodes = vec![
        source("lines"),
        operator_with("split", descriptor, OnError::Skip, &["lines"]),
        sink("out", &["split.early", "split.dead-letter", "lines.late", "copy"]),
        sink("copy", &["split"]),
    ];
    assert_eq!(
        refused(nodes),
        [
            "out reads from split.early, but split has no output of that name: it has late",
            "out reads the dead letters of split, but split sends none: set operators.split.on-error = \"dead-letter\"",
            "out reads from lines.late, but lines has no output of that name: it has only its main output; write \
             lines alone",
            "out reads from copy, but copy is a sink: nothing comes out of it: read from the node that feeds the sink \
             instead",
        ]
    );
}

#[test]
fn keys_come_before_keyed_state() {
    let state =
        StateDescriptor { id: 0, name: "sum".into(), kind: StateKind::KeyedValue, ttl: None, schema_version: 1 };
    let counting = |input: &str| {
        let descriptor = Descriptor { states: vec![state.clone()], ..Descriptor::default() };
        operator_with("count", descriptor, OnError::Fail, &[input])
    };
    let job = |input| vec![source("lines"), operator("split", &["lines"]), counting(input), sink("out", &["count"])];
    assert!(build(job("hash:split")).is_ok());
    let no_hash = GraphError::NoHash { node: "count".into(), state: "sum".into() };
    assert_eq!(build(job("split")).unwrap_err(), [no_hash]);
    let no_keys = GraphError::NoKeys { node: "count".into(), input: 0, from: "lines".into() };
    assert_eq!(build(job("hash:lines")).unwrap_err(), [no_keys]);
}

#[test]
fn the_number_of_key_groups_is_bounded() {
    let build = |max| {
        let builder = JobGraphBuilder::new("job").max_parallelism(max);
        builder.node(source("lines")).node(sink("out", &["lines"])).build().map(|graph| graph.max_parallelism())
    };
    assert_eq!(build(0), Err(GraphError::MaxParallelism { max_parallelism: 0 }));
    assert_eq!(build(32_768), Ok(32_768));
    assert_eq!(build(32_769), Err(GraphError::MaxParallelism { max_parallelism: 32_769 }));
}
