//! What a job tells about itself while it runs: counters that subtasks add to and others read at any time.
//!
//! Counters are relaxed atomics, one set per subtask, added to once a batch. Readers see each number grow but get no
//! consistent cut over several of them, which is enough for progress.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use super::commit_gate::CommitGate;
use crate::connectors::Extent;
use crate::operator::UserMetrics;

/// A number that only grows, or is set now and then.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds.
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// Sets.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Reads.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What one subtask of a node has done.
#[derive(Debug, Default)]
pub struct SubtaskMetrics {
    /// Records that came in; for a source, records read.
    pub records_in: Counter,
    /// Records that went out, to all outputs; for a sink, records written.
    pub records_out: Counter,
    /// Records dropped by `on-error = "skip"`.
    pub skipped: Counter,
    /// Records sent to the dead-letter output.
    pub dead_letters: Counter,
    /// Time in calls of the operator, writer or reader, in nanoseconds.
    pub busy_ns: Counter,
    /// Time in which finished output waited for room, in nanoseconds.
    pub backpressured_ns: Counter,
    /// Bytes of keyed state.
    pub state_bytes: Counter,
    /// How much of its splits a source has read, in the unit of the extent.
    pub progress: Counter,
    /// What its operator reports about itself.
    own: Mutex<UserMetrics>,
}

impl SubtaskMetrics {
    /// Shows what its operator reports about itself.
    pub(super) fn show_own(&self, metrics: &UserMetrics) {
        self.own.lock().unwrap_or_else(PoisonError::into_inner).copy_from(metrics);
    }

    /// Adds a stretch of monotonic time to the busy time.
    pub(super) fn add_busy(&self, start: Duration, end: Duration) {
        self.busy_ns.add(u64::try_from(end.saturating_sub(start).as_nanos()).unwrap_or(u64::MAX));
    }
}

/// What a node has done.
#[derive(Debug)]
pub struct NodeMetrics {
    /// The node's name.
    pub name: String,
    /// Per subtask.
    pub subtasks: Vec<Arc<SubtaskMetrics>>,
    /// How much a source has to read in all, once known.
    pub extent: OnceLock<Extent>,
}

impl NodeMetrics {
    /// The sum of a counter over the subtasks.
    #[must_use]
    pub fn sum(&self, counter: impl Fn(&SubtaskMetrics) -> &Counter) -> u64 {
        self.subtasks.iter().map(|subtask| counter(subtask).get()).sum()
    }

    /// The largest value of a counter over the subtasks.
    #[must_use]
    pub fn max(&self, counter: impl Fn(&SubtaskMetrics) -> &Counter) -> u64 {
        self.subtasks.iter().map(|subtask| counter(subtask).get()).max().unwrap_or(0)
    }

    /// What its operator reports about itself, over all subtasks: counters and histograms added up, of gauges the one of
    /// the last subtask that has it.
    #[must_use]
    pub fn own(&self) -> UserMetrics {
        let mut all = UserMetrics::default();
        for subtask in &self.subtasks {
            all.add(&subtask.own.lock().unwrap_or_else(PoisonError::into_inner));
        }
        all
    }

    /// Time in which finished output waited, in the subtask that waited most.
    #[must_use]
    pub fn backpressured(&self) -> Duration {
        Duration::from_nanos(self.max(|subtask| &subtask.backpressured_ns))
    }
}

/// What became of the checkpoints of a job, in this process.
#[derive(Debug, Default)]
pub struct CheckpointMetrics {
    /// Those that are complete.
    pub completed: Counter,
    /// Those that were given up, for whatever reason.
    pub aborted: Counter,
    /// Those of them that took too long.
    pub expired: Counter,
    /// Those of them that a task declined.
    pub declined: Counter,
    /// Acknowledgements of checkpoints that had been given up.
    pub late_acknowledgements: Counter,
}

/// What a job has done, node by node in the order of the graph.
#[derive(Debug)]
pub struct JobMetrics {
    /// Per node.
    pub nodes: Vec<NodeMetrics>,
    /// Of all attempts together.
    pub checkpoints: CheckpointMetrics,
    /// Whether the job is committing, and whether it may.
    pub commit: CommitGate,
}

impl JobMetrics {
    /// A job that has done nothing yet.
    #[must_use]
    pub fn new(nodes: Vec<NodeMetrics>) -> Self {
        Self { nodes, checkpoints: CheckpointMetrics::default(), commit: CommitGate::default() }
    }
}
