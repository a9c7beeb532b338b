//! `tidegate checkpoint list`: what checkpoints there are.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use serde_json::{Value, json};

use super::exit::{Exit, Failure};
use super::host::Host;
use super::numbers::{size, time};
use super::screen::Screen;
use super::stdout;
use crate::checkpoint::listing::{self, CheckpointStatus, ListedCheckpoint};
use crate::checkpoint::run_log::LogView;
use crate::error_chain::on_one_line;

/// What `tidegate checkpoint list --help` says behind the list of options.
const AFTER_HELP: &str = "\
A checkpoint is `current` if --resume would go on from it, `complete` if it is an older one that is kept, `unfinished`
if it was broken off or is just being taken, and `damaged` if a part of it is missing or is not what was written.

With --json, stdout gets one object for each checkpoint: {\"job\":...,\"path\":...,\"checkpoint\":...,\"status\":...,
\"problem\":... or null,\"bytes\":...,\"completed_at_ms\":... or null (milliseconds since 1970)}

Examples:
  tidegate checkpoint list .tidegate/checkpoints
  tidegate checkpoint list .tidegate/checkpoints/wordcount-1f0c2a9b --json

Exit codes: 0 all could be looked at, whatever their status; 1 the directory of a job cannot be read.";

/// Lists the checkpoints of the jobs in a directory, the newest first.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct ListArguments {
    /// The storage of checkpoints, or the directory of one job in it.
    #[arg(value_name = "DIR")]
    directory: PathBuf,

    /// Writes the list as JSON lines to stdout.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(super) fn list(arguments: &ListArguments, screen: &Screen) -> Result<Exit, Failure> {
    let root = arguments.directory.display().to_string();
    Host::start()?.block_on(async |env, _| {
        let found = listing::find_jobs(&*env.storage, &*env.compute, &arguments.directory).await;
        let (storage, jobs) = found.map_err(Failure::other)?;
        let root = storage.local_root().map_or(root, |root| root.display().to_string());
        if jobs.is_empty() && !arguments.json {
            stdout::print(&format!("no job has checkpoints in {root}\n"))?;
        }
        let mut exit = Exit::Done;
        for job in jobs {
            let folder = job.folder().to_owned();
            let listed = async {
                let view = LogView::open(Arc::clone(&storage), Arc::clone(&env.clock), job).await?;
                anyhow::Ok(listing::list(&storage, &view).await?)
            };
            let checkpoints =
                match listed.await.with_context(|| format!("cannot list the checkpoints in {root}/{folder}")) {
                    Ok(checkpoints) => checkpoints,
                    Err(error) => {
                        exit = Exit::Failed;
                        screen.print(&format!("{}\n", Failure::Other(error.into())));
                        continue;
                    }
                };
            let now = env.clock.wall();
            let text = match arguments.json {
                true => checkpoints.iter().map(|listed| format!("{}\n", to_json(&folder, &root, listed))).collect(),
                false => to_text(&folder, &checkpoints, now),
            };
            stdout::print(&text)?;
        }
        Ok(exit)
    })
}

/// The word for a status, and what is wrong if something is.
fn status(status: &CheckpointStatus) -> (&'static str, Option<String>) {
    match status {
        CheckpointStatus::Current => ("current", None),
        CheckpointStatus::Complete => ("complete", None),
        CheckpointStatus::Unfinished => ("unfinished", None),
        CheckpointStatus::Damaged(error) => ("damaged", Some(on_one_line(error))),
    }
}

fn to_text(folder: &str, checkpoints: &[ListedCheckpoint], now: Duration) -> String {
    let mut lines = vec![folder.to_owned()];
    for listed in checkpoints {
        let name = listed.path.rsplit('/').next().unwrap_or(&listed.path);
        let age = listed.metadata.as_ref().map_or_else(String::new, |metadata| age(metadata.completed_at_ms, now));
        let (word, problem) = status(&listed.status);
        let problem = problem.map_or_else(String::new, |problem| format!(": {problem}"));
        lines.push(format!("  {name:<10} {:>8}  {age:<16} {word}{problem}", size(listed.bytes)));
    }
    if checkpoints.is_empty() {
        lines.push("  no checkpoints".to_owned());
    }
    lines.join("\n") + "\n"
}

fn to_json(folder: &str, root: &str, listed: &ListedCheckpoint) -> Value {
    let (status, problem) = status(&listed.status);
    json!({
        "job": folder,
        "path": format!("{root}/{}", listed.path),
        "checkpoint": listed.checkpoint.0,
        "status": status,
        "problem": problem,
        "bytes": listed.bytes,
        "completed_at_ms": listed.metadata.as_ref().map(|metadata| metadata.completed_at_ms),
    })
}

/// How long ago a time in milliseconds since 1970 was.
pub(super) fn age(at_ms: u64, now: Duration) -> String {
    format!("{} ago", time(now.saturating_sub(Duration::from_millis(at_ms))))
}
