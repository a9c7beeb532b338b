//! How far a running job has come: what is shown while it runs.

use std::time::Duration;

use super::numbers::{grouped, rate, time};
use crate::api::{JobGraph, NodeKind};
use crate::connectors::Extent;
use crate::operator::UserMetrics;
use crate::runtime::metrics::{JobMetrics, NodeMetrics};

/// What a node does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Brings records in.
    Source,
    /// Makes records of records.
    Operator,
    /// Takes records out.
    Sink,
}

/// What the nodes of a graph do, in its order.
pub(super) fn roles(graph: &JobGraph) -> Vec<Role> {
    let role = |kind: &NodeKind| match kind {
        NodeKind::Source(_) => Role::Source,
        NodeKind::Operator(_) => Role::Operator,
        NodeKind::Sink(_) => Role::Sink,
    };
    graph.nodes().iter().map(|node| role(&node.kind)).collect()
}

/// What a job has done by some moment.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    /// Since the start.
    pub(super) elapsed: Duration,
    /// Per node, in the order of the graph.
    pub(super) nodes: Vec<NodeSnapshot>,
    /// How much of all input has been read, from 0 to 1, if all of it is known.
    pub(super) fraction: Option<f64>,
}

/// What a node has done by some moment.
#[derive(Clone, Debug)]
pub(super) struct NodeSnapshot {
    pub(super) name: String,
    pub(super) role: Role,
    pub(super) records_in: u64,
    pub(super) records_out: u64,
    pub(super) skipped: u64,
    pub(super) dead_letters: u64,
    pub(super) state_bytes: u64,
    pub(super) backpressured: Duration,
    /// What an operator reports about itself.
    pub(super) own: UserMetrics,
}

impl Snapshot {
    /// Looks at the counters.
    pub(super) fn take(metrics: &JobMetrics, roles: &[Role], elapsed: Duration) -> Self {
        let nodes = metrics.nodes.iter().zip(roles);
        let snapshot = |(node, role): (&NodeMetrics, &Role)| NodeSnapshot {
            name: node.name.clone(),
            role: *role,
            records_in: node.sum(|subtask| &subtask.records_in),
            records_out: node.sum(|subtask| &subtask.records_out),
            skipped: node.sum(|subtask| &subtask.skipped),
            dead_letters: node.sum(|subtask| &subtask.dead_letters),
            state_bytes: node.sum(|subtask| &subtask.state_bytes),
            backpressured: node.backpressured(),
            own: node.own(),
        };
        let sources = nodes.clone().filter(|(_, role)| **role == Role::Source).map(|(node, _)| read_fraction(node));
        // The source that has most left to do is the one that the job waits for.
        let fraction = sources.collect::<Option<Vec<f64>>>().and_then(|all| all.into_iter().reduce(f64::min));
        Self { elapsed, nodes: nodes.map(snapshot).collect(), fraction }
    }

    /// Records that sources have read.
    pub(super) fn records_read(&self) -> u64 {
        self.nodes.iter().filter(|node| node.role == Role::Source).map(|node| node.records_in).sum()
    }

    /// Records that sinks have written.
    pub(super) fn records_written(&self) -> u64 {
        self.nodes.iter().filter(|node| node.role == Role::Sink).map(|node| node.records_out).sum()
    }

    /// Time until all input is read, at the speed so far.
    pub(super) fn left(&self) -> Option<Duration> {
        let fraction = self.fraction.filter(|fraction| *fraction > 0.01)?;
        Duration::try_from_secs_f64(self.elapsed.as_secs_f64() * (1.0 - fraction) / fraction).ok()
    }
}

fn read_fraction(node: &NodeMetrics) -> Option<f64> {
    let (Extent::Bytes(all) | Extent::Records(all)) = *node.extent.get()?;
    let read = node.sum(|subtask| &subtask.progress);
    Some(if all == 0 { 1.0 } else { (read as f64 / all as f64).min(1.0) })
}

/// A stretch of time between two snapshots.
pub(super) struct Interval<'a> {
    pub(super) before: &'a Snapshot,
    pub(super) now: &'a Snapshot,
}

impl Interval<'_> {
    fn length(&self) -> Duration {
        self.now.elapsed.saturating_sub(self.before.elapsed)
    }

    /// Records read per second.
    pub(super) fn records_per_second(&self) -> u64 {
        rate(self.now.records_read().saturating_sub(self.before.records_read()), self.length())
    }

    /// For how much of the time finished output of a node waited for room, in percent.
    pub(super) fn backpressure_percent(&self, node: usize) -> u64 {
        let waited = self.now.nodes[node].backpressured.saturating_sub(self.before.nodes[node].backpressured);
        let percent = waited.as_nanos() * 100 / self.length().as_nanos().max(1);
        u64::try_from(percent.min(100)).unwrap_or(100)
    }

    /// What is shown on a terminal: a line for the job and one for each node.
    pub(super) fn lines(&self, job: &str) -> Vec<String> {
        let now = self.now;
        let records = grouped(now.records_read());
        let mut first =
            format!("{job}: {}, {records} records read, {}/s", time(now.elapsed), grouped(self.records_per_second()));
        if let Some(fraction) = now.fraction {
            first.push_str(&format!(", {:.0} %", (fraction * 100.0).floor()));
        }
        if let Some(left) = now.left() {
            first.push_str(&format!(", {} left", time(left)));
        }
        let widest = now.nodes.iter().map(|node| node.name.len()).max().unwrap_or(0);
        let line = |(index, node): (usize, &NodeSnapshot)| {
            let (name, percent) = (&node.name, self.backpressure_percent(index));
            let (came, went) = (grouped(node.records_in), grouped(node.records_out));
            format!("  {name:widest$} {came:>15} in {went:>15} out {percent:>4} % backpressure{}", given_up(node))
        };
        std::iter::once(first).chain(now.nodes.iter().enumerate().map(line)).collect()
    }
}

/// What became of records that an operator failed on; nothing if there were none.
pub(super) fn given_up(node: &NodeSnapshot) -> String {
    let mut text = String::new();
    for (count, what) in [(node.skipped, "skipped"), (node.dead_letters, "dead letters")] {
        if count > 0 {
            text.push_str(&format!(", {} {what}", grouped(count)));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, OnceLock};

    use super::*;
    use crate::runtime::metrics::SubtaskMetrics;

    fn node(name: &str, records: u64, progress: u64, extent: Option<Extent>) -> NodeMetrics {
        let subtask = SubtaskMetrics::default();
        subtask.records_in.add(records);
        subtask.records_out.add(records);
        subtask.progress.set(progress);
        let known = OnceLock::new();
        if let Some(extent) = extent {
            known.set(extent).expect("it was empty");
        }
        NodeMetrics { name: name.to_owned(), subtasks: vec![Arc::new(subtask)], extent: known }
    }

    fn take(nodes: Vec<NodeMetrics>, seconds: u64) -> Snapshot {
        let mut roles = vec![Role::Source; nodes.len()];
        *roles.last_mut().expect("a node") = Role::Sink;
        Snapshot::take(&JobMetrics::new(nodes), &roles, Duration::from_secs(seconds))
    }

    #[test]
    fn the_slowest_source_says_how_far_the_job_is() {
        let bytes = |read, all| node("a", 1, read, Some(Extent::Bytes(all)));
        let snapshot = take(vec![bytes(50, 100), bytes(25, 100), node("out", 0, 0, None)], 10);
        assert_eq!(snapshot.fraction, Some(0.25));
        assert_eq!(snapshot.left(), Some(Duration::from_secs(30)));
        assert_eq!(snapshot.records_read(), 2);
        let endless = take(vec![bytes(50, 100), node("b", 1, 9, None), node("out", 0, 0, None)], 10);
        assert_eq!((endless.fraction, endless.left()), (None, None));
        let empty = take(vec![bytes(0, 0), node("out", 0, 0, None)], 10);
        assert_eq!(empty.fraction, Some(1.0));
    }

    #[test]
    fn an_interval_shows_rates_and_backpressure() {
        let nodes = |records, read| {
            vec![node("lines", records, read, Some(Extent::Records(4000))), node("out", records, 0, None)]
        };
        let before = take(nodes(1000, 1000), 1);
        let later = nodes(3000, 3000);
        later[0].subtasks[0].backpressured_ns.add(1_500_000_000);
        later[1].subtasks[0].skipped.add(2);
        let now = take(later, 3);
        let interval = Interval { before: &before, now: &now };
        assert_eq!(interval.backpressure_percent(0), 75);
        let expected = [
            "job: 3.0 s, 3,000 records read, 1,000/s, 75 %, 1.0 s left",
            "  lines           3,000 in           3,000 out   75 % backpressure",
            "  out             3,000 in           3,000 out    0 % backpressure, 2 skipped",
        ];
        assert_eq!(interval.lines("job"), expected);
    }
}
