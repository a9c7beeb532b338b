//! What scripts are told: one JSON object per line on stdout.

use std::io::Write;

use serde_json::{Value, json};

use super::numbers::rate;
use super::progress::{Interval, Role, Snapshot};
use crate::api::{JobReport, Outcome};
use crate::error_chain::links;

/// Writes a line. Whoever closed stdout does not want to be told; the job goes on all the same.
pub(super) fn print(value: &Value) {
    print_text(&format!("{value}\n"));
}

/// Writes text, likewise.
pub(super) fn print_text(text: &str) {
    let mut stdout = std::io::stdout().lock();
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
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
        "nodes": nodes,
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
        })
    });
    nodes.collect()
}
