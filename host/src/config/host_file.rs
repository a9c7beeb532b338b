//! The host-wide file `tidegate.toml`: defaults for every job that runs on a machine.
//!
//! It may set what is not about one job's nodes. The job file wins over it, and `--set` over both.

use super::error::Problem;
use super::value::Table;
use crate::closest::closest;

/// The name of the file.
pub const HOST_FILE: &str = "tidegate.toml";

/// What the file may set.
const FIELDS: [&str; 7] =
    ["parallelism", "max-parallelism", "record-limit", "channel", "state", "checkpoint", "restart"];

/// What belongs to one job.
const JOB_FIELDS: [&str; 4] = ["name", "sources", "operators", "sinks"];

/// Takes from the table of a host-wide file what may be there; the rest is a problem.
pub(super) fn defaults(table: Table, problems: &mut Vec<Problem>) -> Table {
    let allowed =
        |key: &str| FIELDS.contains(&key) || super::job_file::UNAVAILABLE.iter().any(|(name, _)| *name == key);
    let (kept, others): (Vec<_>, Vec<_>) = table.0.into_iter().partition(|entry| allowed(&entry.key));
    for entry in others {
        let key = entry.key.as_str();
        let problem = if JOB_FIELDS.contains(&key) {
            Problem::new(key, "this belongs in a job file").help("the host-wide file holds defaults for all jobs")
        } else {
            let problem = Problem::new(key, "unknown field");
            match closest(key, FIELDS) {
                Some(guess) => problem.help(format!("did you mean {guess}?")),
                None => problem.help(format!("the host-wide file may set {}", FIELDS.join(", "))),
            }
        };
        problems.push(problem.at(entry.key_origin));
    }
    Table(kept)
}
