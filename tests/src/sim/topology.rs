//! The jobs that are simulated: their graphs, their input, and what must come out.
//!
//! A topology says what is joined to what; the seed says the rest: parallelism of each node, how edges are partitioned,
//! what is chained, how much input there is and in which splits.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use tidegate::api::{InputSpec, JobGraph, JobGraphBuilder, NodeKind, NodeSpec, OperatorNode, Partition};
use tidegate::connectors::{Boundedness, StreamShape};
use tidegate::operator::{Limits, OnError, OperatorFactory};
use tidegate::random::Random;

use super::checker::Expectation;
use super::operators::{self, BIG_ABOVE, Complaint};
use super::record::Record;
use super::sink::{Output, SimSink};
use super::source::{Pace, SimSource};
use super::surroundings::Surroundings;

/// What is joined to what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Topology {
    /// Lines are split into tokens, which are added up by key.
    Chain,
    /// One source feeds two branches, which meet in a keyed sum with two inputs.
    Diamond,
    /// Several sources feed one keyed sum.
    Sources,
    /// Every subtask of an operator hears all of its second input.
    Broadcast,
    /// An operator routes records to three outputs, which go their own ways.
    SideOutputs,
    /// A keyed sum skips the records that it cannot add.
    Skip,
    /// A keyed sum sends them to a sink of their own.
    DeadLetter,
    /// A keyed sum fails on them, and the job with it.
    Fail,
    /// Some sources end long before another.
    EarlyEnds,
    /// All records have one of two keys, so that subtasks have nothing to do.
    FewKeys,
}

impl Topology {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Chain,
        Self::Diamond,
        Self::Sources,
        Self::Broadcast,
        Self::SideOutputs,
        Self::Skip,
        Self::DeadLetter,
        Self::Fail,
        Self::EarlyEnds,
        Self::FewKeys,
    ];
}

/// What a seed makes of a topology.
pub struct Plan {
    /// The job.
    pub graph: JobGraph,
    /// Its nodes, of which other graphs can be made.
    nodes: Vec<NodeSpec>,
    /// The node whose parallelism shows in the output.
    fixed: Option<&'static str>,
    /// The bound of each channel.
    pub channel_bytes: usize,
    /// What each sink holds, and what it must hold in the end.
    pub sinks: BTreeMap<&'static str, (Arc<Output>, Expectation)>,
    /// Whether the job must fail: it has input that it cannot process.
    pub fails: bool,
    /// How many records are given up.
    pub given_up: u64,
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for node in self.graph.nodes() {
            write!(f, "{} x{}{}", node.name, node.parallelism, if node.chain { "" } else { " unchained" })?;
            for edge in &node.inputs {
                write!(
                    f,
                    " <- {} {}.{}",
                    edge.partition,
                    self.graph.node(edge.from).name,
                    edge.output.0.cast_signed()
                )?;
            }
            f.write_str("; ")?;
        }
        write!(f, "max-parallelism {}, channels {} bytes", self.graph.max_parallelism(), self.channel_bytes)
    }
}

/// What differs between runs of one seed.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// How long steps of sources and sinks take, in microseconds, at most.
    pub delay_us: u64,
    /// Whether sources end.
    pub boundedness: Boundedness,
    /// Whether all values are 1, so that results do not depend on the order of arrival.
    pub ones: bool,
    /// The most records of a source, or lines' worth of them.
    pub most_input: u64,
}

impl Plan {
    /// What the seed makes of the topology.
    #[must_use]
    pub fn new(seed: u64, topology: Topology, style: Style, around: &Arc<Surroundings>) -> Self {
        let mut drawing = Drawing::new(seed, style, around);
        match topology {
            Topology::Chain => drawing.chain(),
            Topology::Diamond => drawing.diamond(),
            Topology::Sources => drawing.sources(),
            Topology::Broadcast => drawing.broadcast(),
            Topology::SideOutputs => drawing.side_outputs(),
            Topology::Skip => drawing.poison(OnError::Skip),
            Topology::DeadLetter => drawing.poison(OnError::DeadLetter),
            Topology::Fail => drawing.poison(OnError::Fail),
            Topology::EarlyEnds => drawing.early_ends(),
            Topology::FewKeys => drawing.few_keys(),
        }
        drawing.finish()
    }

    /// The same job with other parallelism.
    #[must_use]
    pub fn rescaled(&self, random: &mut Random) -> JobGraph {
        let groups = self.graph.max_parallelism();
        let rescale = |mut node: NodeSpec| {
            if self.fixed != Some(&node.name) && random.below(2) == 0 {
                node.parallelism = parallelism(random).min(groups);
            }
            node
        };
        build(self.nodes.iter().cloned().map(rescale), groups)
    }
}

fn parallelism(random: &mut Random) -> u32 {
    1 + u32::try_from(random.below(4)).expect("small")
}

fn build(nodes: impl Iterator<Item = NodeSpec>, groups: u32) -> JobGraph {
    let builder = JobGraphBuilder::new("simulated").max_parallelism(groups);
    nodes.fold(builder, JobGraphBuilder::node).build().expect("topologies make jobs")
}

/// A plan in the making.
struct Drawing<'a> {
    random: Random,
    style: Style,
    around: &'a Arc<Surroundings>,
    most_records: u64,
    timed: bool,
    nodes: Vec<NodeSpec>,
    fixed: Option<&'static str>,
    sinks: BTreeMap<&'static str, (Arc<Output>, Expectation)>,
    fails: bool,
    given_up: u64,
}

/// What each kind of node is given as input.
type Inputs<'a> = &'a [(&'a str, Option<Partition>)];

const HASH: Option<Partition> = Some(Partition::Hash);
const ANY: Option<Partition> = None;

impl<'a> Drawing<'a> {
    fn new(seed: u64, style: Style, around: &'a Arc<Surroundings>) -> Self {
        let mut random = Random::for_purpose(seed, "plan", &[]);
        let most_records = [1, 4, 40, 2000][random.below(4) as usize];
        let timed = random.below(2) == 0;
        let (nodes, sinks) = (Vec::new(), BTreeMap::new());
        Self { random, style, around, most_records, timed, nodes, fixed: None, sinks, fails: false, given_up: 0 }
    }

    fn finish(mut self) -> Plan {
        let least = self.nodes.iter().map(|node| node.parallelism).max().unwrap_or(1);
        let groups = least + u32::try_from(self.random.below(13)).expect("small");
        let channel_bytes = [16, 300, 64 << 10][self.random.below(3) as usize];
        // The order of nodes must not matter.
        for left in (1..self.nodes.len()).rev() {
            let other = self.random.below(left as u64 + 1) as usize;
            self.nodes.swap(left, other);
        }
        let graph = build(self.nodes.iter().cloned(), groups);
        let Self { nodes, fixed, sinks, fails, given_up, .. } = self;
        Plan { graph, nodes, fixed, channel_bytes, sinks, fails, given_up }
    }

    fn pace(&mut self) -> Pace {
        let delay_us = if self.random.below(3) == 0 { 0 } else { self.style.delay_us };
        Pace { most_records: self.most_records, delay_us }
    }

    fn node(&mut self, name: &str, kind: NodeKind, inputs: Inputs<'_>) {
        let input = |&(from, partition): &(&str, Option<Partition>)| InputSpec { from: from.to_owned(), partition };
        let parallelism = parallelism(&mut self.random);
        let (inputs, chain) = (inputs.iter().map(input).collect(), self.random.below(4) > 0);
        self.nodes.push(NodeSpec { name: name.to_owned(), parallelism, kind, inputs, chain });
    }

    fn source(&mut self, name: &'static str, keyed: bool, records: Vec<Record>) {
        let mut splits = vec![Vec::new(); 1 + self.random.below(6) as usize];
        for record in records {
            let split = self.random.below(splits.len() as u64) as usize;
            splits[split].push(record);
        }
        let source = SimSource {
            name,
            splits: splits.into_iter().map(Arc::new).collect(),
            shape: StreamShape { keyed, timed: self.timed },
            pace: self.pace(),
            boundedness: self.style.boundedness,
            around: Arc::clone(self.around),
        };
        self.node(name, NodeKind::Source(Arc::new(source)), &[]);
    }

    fn operator(&mut self, name: &str, factory: Arc<dyn OperatorFactory>, on_error: OnError, inputs: Inputs<'_>) {
        let operator = OperatorNode { factory, limits: Limits::default(), on_error };
        self.node(name, NodeKind::Operator(operator), inputs);
    }

    fn sink(&mut self, name: &'static str, from: &str, expectation: Expectation) {
        let output = Arc::new(Output::default());
        let (pace, around) = (self.pace(), Arc::clone(self.around));
        let sink = SimSink { name, output: Arc::clone(&output), pace, around };
        let partition = match self.random.below(4) {
            0 => Some(Partition::Rebalance),
            1 => Some(Partition::Hash),
            _ => None,
        };
        // Dead letters have no keys to hash.
        let partition = partition.filter(|_| !from.ends_with("dead-letter"));
        self.node(name, NodeKind::Sink(Arc::new(sink)), &[(from, partition)]);
        self.sinks.insert(name, (output, expectation));
    }

    fn key(&mut self) -> Vec<u8> {
        // The empty key is a key.
        match self.random.below(12) {
            0 => Vec::new(),
            key => format!("k{key}").into_bytes(),
        }
    }

    fn value(&mut self) -> i64 {
        if self.style.ones { 1 } else { 1 + self.random.below(9).cast_signed() }
    }

    fn pairs(&mut self) -> Vec<(Vec<u8>, i64)> {
        // Rarely so many that batches leave because they are full.
        let most = [1, 30, 250, if self.random.below(8) == 0 { 6_000 } else { 60 }][self.random.below(4) as usize];
        let most = most.min(self.style.most_input);
        (0..self.random.below(most + 1)).map(|_| (self.key(), self.value())).collect()
    }

    fn records(&mut self, pairs: &[(Vec<u8>, i64)]) -> Vec<Record> {
        // With ones, the records of a key are all equal, so that it does not matter which comes first.
        let time = |random: &mut Random| if self.style.ones { 0 } else { random.below(1000).cast_signed() - 500 };
        let mut record = |(key, value): &(Vec<u8>, i64)| Record {
            key: Some(key.clone()),
            value: value.to_string().into_bytes(),
            timestamp: self.timed.then(|| time(&mut self.random)),
        };
        pairs.iter().map(&mut record).collect()
    }

    fn chain(&mut self) {
        let pairs = self.pairs();
        let mut lines = vec![Vec::new()];
        for (key, value) in &pairs {
            let line = lines.last_mut().expect("never empty");
            line.extend_from_slice(key);
            line.extend_from_slice(format!("={value} ").as_bytes());
            if self.random.below(5) == 0 {
                lines.push(Vec::new());
            }
        }
        let timestamp = self.timed.then_some(0);
        let lines = lines.into_iter().map(|value| Record { key: None, value, timestamp }).collect();
        self.source("lines", false, lines);
        self.operator("tokens", operators::tokens(), OnError::Fail, &[("lines", ANY)]);
        self.operator("sum", operators::running_sum(Complaint::Named), OnError::Fail, &[("tokens", HASH)]);
        self.sink("out", "sum", Expectation::RunningSums(pairs));
    }

    fn diamond(&mut self) {
        let pairs = self.pairs();
        let records = self.records(&pairs);
        self.source("numbers", true, records);
        let (left, right) = if self.style.ones { (1, 1) } else { (2, 3) };
        self.operator("left", operators::times(left), OnError::Fail, &[("numbers", ANY)]);
        self.operator("right", operators::times(right), OnError::Skip, &[("numbers", ANY)]);
        let sum = operators::running_sum(Complaint::Named);
        self.operator("sum", sum, OnError::Fail, &[("left", HASH), ("right", HASH)]);
        let both = pairs.iter().flat_map(|(key, value)| [(key.clone(), value * left), (key.clone(), value * right)]);
        self.sink("out", "sum", Expectation::RunningSums(both.collect()));
    }

    fn sources(&mut self) {
        let names = &["first", "second", "third", "fourth"][..2 + self.random.below(3) as usize];
        let mut all = Vec::new();
        for name in names {
            let pairs = self.pairs();
            let records = self.records(&pairs);
            self.source(name, true, records);
            all.extend(pairs);
        }
        let inputs: Vec<_> = names.iter().map(|name| (*name, HASH)).collect();
        self.operator("sum", operators::running_sum(Complaint::Named), OnError::Fail, &inputs);
        self.sink("out", "sum", Expectation::RunningSums(all));
    }

    fn broadcast(&mut self) {
        let (pairs, rules) = (self.pairs(), self.pairs());
        let records = self.records(&pairs);
        self.source("numbers", true, records.clone());
        let rules = self.records(&rules);
        self.source("rules", true, rules.clone());
        let inputs = [("numbers", ANY), ("rules", Some(Partition::Broadcast))];
        self.operator("listener", operators::listener(), OnError::Fail, &inputs);
        let subtasks = self.nodes.last().map_or(1, |node| node.parallelism);
        self.fixed = Some("listener");
        let heard = |rule: &Record| {
            let record = |subtask: u32| Record {
                key: Some(subtask.to_string().into_bytes()),
                value: rule.value.clone(),
                timestamp: None,
            };
            (0..subtasks).map(record).collect::<Vec<_>>()
        };
        self.sink("heard", "listener.heard", Expectation::Records(rules.iter().flat_map(heard).collect()));
        self.sink("out", "listener", Expectation::Records(records));
    }

    fn early_ends(&mut self) {
        let (long, mut all) = (self.pairs(), self.pairs());
        let records = self.records(&all);
        let delay_us = std::mem::replace(&mut self.style.delay_us, 0);
        self.source("short", true, records);
        self.style.delay_us = delay_us;
        self.source("empty", true, Vec::new());
        let records = self.records(&long);
        self.source("long", true, records);
        all.extend(long);
        self.operator("times", operators::times(1), OnError::Fail, &[("short", ANY), ("empty", ANY)]);
        let sum = operators::running_sum(Complaint::Named);
        self.operator("sum", sum, OnError::Fail, &[("times", HASH), ("long", HASH)]);
        self.sink("out", "sum", Expectation::RunningSums(all));
    }

    fn few_keys(&mut self) {
        let mut pairs = self.pairs();
        for (key, _) in &mut pairs {
            *key = if self.random.below(4) == 0 { b"rare".to_vec() } else { b"common".to_vec() };
        }
        let records = self.records(&pairs);
        self.source("numbers", true, records);
        let sum = operators::running_sum(Complaint::Named);
        self.operator("sum", sum, OnError::Fail, &[("numbers", HASH)]);
        self.sink("out", "sum", Expectation::RunningSums(pairs));
    }

    fn side_outputs(&mut self) {
        let pairs = self.pairs();
        let records = self.records(&pairs);
        self.source("numbers", true, records.clone());
        self.operator("router", operators::router(), OnError::Fail, &[("numbers", ANY)]);
        let sum = || operators::running_sum(Complaint::Named);
        self.operator("evens", sum(), OnError::Fail, &[("router", HASH)]);
        self.operator("odds", sum(), OnError::Fail, &[("router.odd", HASH)]);
        let (even, odd) = pairs.into_iter().partition(|(_, value)| value % 2 == 0);
        let is_big = |record: &Record| operators::number(&record.value).is_some_and(|value| value > BIG_ABOVE);
        self.sink("even", "evens", Expectation::RunningSums(even));
        self.sink("odd", "odds", Expectation::RunningSums(odd));
        self.sink("big", "router.big", Expectation::Records(records.into_iter().filter(is_big).collect()));
    }

    fn poison(&mut self, on_error: OnError) {
        let pairs = self.pairs();
        let mut records = self.records(&pairs);
        let poison: Vec<(Vec<u8>, Vec<u8>)> =
            (0..1 + self.random.below(8)).map(|number| (self.key(), format!("poison {number}").into_bytes())).collect();
        for (key, value) in &poison {
            let at = self.random.below(records.len() as u64 + 1) as usize;
            let timestamp = self.timed.then_some(0);
            records.insert(at, Record { key: Some(key.clone()), value: value.clone(), timestamp });
        }
        self.source("numbers", true, records);
        let complaint = [Complaint::Named, Complaint::Unnamed, Complaint::Rejected][self.random.below(3) as usize];
        self.operator("sum", operators::running_sum(complaint), on_error, &[("numbers", HASH)]);
        self.sink("out", "sum", Expectation::RunningSums(pairs));
        match on_error {
            OnError::Fail => self.fails = true,
            OnError::Skip => self.given_up = poison.len() as u64,
            OnError::DeadLetter => {
                self.given_up = poison.len() as u64;
                self.sink("dead", "sum.dead-letter", Expectation::DeadLetters(poison));
            }
        }
    }
}
