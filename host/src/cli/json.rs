//! What scripts are told: one JSON object per line on stdout.

use serde_json::{Value, json};

use super::exit::Failure;
use super::numbers::rate;
use super::progress::{Interval, Role, Snapshot};
use super::stdout;
use crate::api::{JobReport, Left, Outcome};
use crate::error_chain::links;
use crate::operator::{Metric, Summary, UserMetrics};

/// Writes a line.
pub(super) fn print(value: &Value) -> Result<(), Failure> {
    stdout::print(&format!("{value}\n"))
}

/// Lines about a job that goes on whether they can be written or not.
#[derive(Debug, Default)]
pub(super) struct Lines {
    lost: Option<Failure>,
}

impl Lines {
    /// Writes a line, unless one before it could not be written: what follows a part of a line is no JSON.
    pub(super) fn print(&mut self, value: &Value) {
        if self.lost.is_none() {
            self.lost = print(value).err();
        }
    }

    /// Why a line could not be written, if that happened.
    pub(super) fn lost(self) -> Result<(), Failure> {
        self.lost.map_or(Ok(()), Err)
    }
}

/// How far a job has come.
pub(super) fn progress(job: &str, interval: &Interval<'_>) -> Value {
    let now = interval.now;
    let mut nodes = nodes(now);
    for (index, node) in nodes.iter_mut().enumerate() {
        node["backpressure_percent"] = interval.backpressure_percent(index).into();
    }
    json!({
        "event": "progress",
        "job": job,
        "elapsed_s": now.elapsed.as_secs_f64(),
        "records_read": now.records_read(),
        "records_per_s": interval.records_per_second(),
        "percent": now.fraction.map(|fraction| fraction * 100.0),
        "left_s": now.left().map(|left| left.as_secs_f64()),
        "nodes": nodes,
    })
}

/// What a job did.
pub(super) fn summary(job: &str, report: &JobReport, last: &Snapshot) -> Value {
    let (outcome, errors) = match &report.outcome {
        Outcome::Finished => ("finished", Vec::new()),
        Outcome::Cancelled => ("cancelled", Vec::new()),
        Outcome::Failed(error) => ("failed", links(error)),
    };
    let mut nodes = nodes(last);
    for (node, role) in nodes.iter_mut().zip(last.nodes.iter().map(|node| node.role)) {
        if role == Role::Sink {
            let own = report.summaries.iter().filter(|(name, _)| node["name"] == *name);
            node["summaries"] = own.map(|(_, summary)| summary.as_str()).collect();
        }
    }
    json!({
        "event": "summary",
        "job": job,
        "outcome": outcome,
        "errors": errors,
        "elapsed_s": report.elapsed.as_secs_f64(),
        "records_read": last.records_read(),
        "records_written": last.records_written(),
        "records_per_s": rate(last.records_read(), report.elapsed),
        "checkpoint": match report.left {
            Left::Checkpoint(checkpoint) => Some(checkpoint.0),
            Left::Unknown | Left::NoCheckpoints | Left::Nothing => None,
        },
        "nodes": nodes,
    })
}

/// Why a job was not started.
pub(super) fn not_started(job: Option<&str>, failure: &Failure) -> Value {
    json!({
        "event": "summary",
        "job": job,
        "outcome": "failed",
        "errors": failure.lines(),
        "elapsed_s": 0.0,
        "records_read": 0,
        "records_written": 0,
        "records_per_s": 0,
        "nodes": [],
    })
}

fn nodes(snapshot: &Snapshot) -> Vec<Value> {
    let nodes = snapshot.nodes.iter().map(|node| {
        json!({
            "name": node.name,
            "kind": match node.role {
                Role::Source => "source",
                Role::Operator => "operator",
                Role::Sink => "sink",
            },
            "records_in": node.records_in,
            "records_out": node.records_out,
            "skipped": node.skipped,
            "dead_letters": node.dead_letters,
            "state_bytes": node.state_bytes,
            "metrics": own(&node.own),
        })
    });
    nodes.collect()
}

/// What an operator reports about itself, by name.
fn own(metrics: &UserMetrics) -> Value {
    let metric = |(name, metric): (&str, &Metric)| {
        let value = match metric {
            Metric::Counter(sum) => json!({ "kind": "counter", "value": sum }),
            Metric::Gauge(value) => json!({ "kind": "gauge", "value": value }),
            Metric::Histogram(Summary { count, sum, min, max }) => {
                json!({ "kind": "histogram", "count": count, "sum": sum, "min": min, "max": max })
            }
        };
        (name.to_owned(), value)
    };
    Value::Object(metrics.iter().map(metric).collect())
}
