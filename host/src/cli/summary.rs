//! What a job did: what is shown at its end.

use super::exit::chain;
use super::numbers::{grouped, rate, size, time};
use super::progress::{NodeSnapshot, Role, Snapshot, given_up};
use crate::api::{JobError, JobReport, Left, Outcome};
use crate::operator::{Metric, Summary};

/// How many metrics of one operator are shown.
const MOST_METRICS: usize = 20;

/// The summary of a job for people, with its newline. What the sinks `at_once` wrote stays after a failure.
pub(super) fn summary(job: &str, report: &JobReport, last: &Snapshot, at_once: &[String]) -> String {
    let (elapsed, read) = (time(report.elapsed), grouped(last.records_read()));
    let written = grouped(last.records_written());
    let rate = grouped(rate(last.records_read(), report.elapsed));
    let counts = format!("{read} records read ({rate}/s), {written} written");
    let (error, first) = match &report.outcome {
        Outcome::Finished => (None, format!("{job} finished after {elapsed}: {counts}")),
        Outcome::Cancelled => {
            let committed = match report.left {
                Left::NoCheckpoints => "what was written until then was committed".to_owned(),
                left => committed_of(left),
            };
            (None, format!("{job} cancelled after {elapsed}: {counts}; {committed}"))
        }
        Outcome::Failed(error) => {
            let stays = if at_once.is_empty() {
                String::new()
            } else {
                format!(", but what {} wrote stays", at_once.join(", "))
            };
            let committed = match error {
                JobError::Commit { .. } => "the commit broke off, so a part of the output may be committed".to_owned(),
                _ => committed_of(report.left),
            };
            (Some(chain(error)), format!("{job} failed after {elapsed}: {counts}; {committed}{stays}"))
        }
    };
    let widest = last.nodes.iter().map(|node| node.name.len()).max().unwrap_or(0);
    let mut lines: Vec<String> = error.into_iter().chain([first]).collect();
    for node in &last.nodes {
        lines.push(format!("  {:widest$} {}", node.name, what_it_did(node, report)));
        lines.extend(own_metrics(node));
    }
    lines.join("\n") + "\n"
}

/// What of the output is committed when a job did not come to its end.
fn committed_of(left: Left) -> String {
    match left {
        Left::Unknown => "nothing was run".to_owned(),
        Left::NoCheckpoints => "nothing was committed".to_owned(),
        Left::Nothing => "what came behind the last checkpoint was not committed, and no checkpoint is left".to_owned(),
        Left::Checkpoint(checkpoint) => {
            format!("output up to {checkpoint} is committed; --resume goes on from there")
        }
    }
}

fn what_it_did(node: &NodeSnapshot, report: &JobReport) -> String {
    let (came, went) = (grouped(node.records_in), grouped(node.records_out));
    match node.role {
        Role::Source => format!("{came:>15} read"),
        Role::Operator => {
            let state =
                if node.state_bytes > 0 { format!(", {} of state", size(node.state_bytes)) } else { String::new() };
            format!("{came:>15} in {went:>15} out{}{state}", given_up(node))
        }
        Role::Sink => {
            let own = report.summaries.iter().filter(|(name, _)| *name == node.name);
            let own: String = own.map(|(_, summary)| format!("; {summary}")).collect();
            format!("{went:>15} written{own}")
        }
    }
}

/// What an operator reports about itself, a line for each metric.
fn own_metrics(node: &NodeSnapshot) -> Vec<String> {
    let all: Vec<_> = node.own.iter().collect();
    let shown = if all.len() > MOST_METRICS { MOST_METRICS - 1 } else { all.len() };
    let mut lines: Vec<String> = all[..shown]
        .iter()
        .map(|(name, metric)| {
            let value = match metric {
                Metric::Counter(sum) => grouped(*sum),
                Metric::Gauge(value) => value.to_string(),
                Metric::Histogram(Summary { count, sum, min, max }) => {
                    let mean = sum / (*count).max(1) as f64;
                    format!("{} observed, {mean:.3} on average, from {min} to {max}", grouped(*count))
                }
            };
            // The name is the guest's, and may hold anything.
            format!("    {}: {value}", name.escape_debug())
        })
        .collect();
    if shown < all.len() {
        lines.push(format!("    and {} more metrics, all of which --json shows", all.len() - shown));
    }
    lines
}
