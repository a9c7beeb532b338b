//! `tidegate checkpoint show`: what is in a checkpoint.

use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use super::checkpoint_list::age;
use super::exit::{Exit, Failure};
use super::host::Host;
use super::numbers::size;
use super::{readable, stdout};
use crate::checkpoint::metadata::{
    CheckpointMetadata, NodeMetadata, SavedNodeKind, SavedState, SavedStateKind, StateHandle, SubtaskMetadata,
};
use crate::checkpoint::metadata_file;
use crate::config::checkpoint_path;

/// How many bytes of a position are shown to people.
const SHOWN_POSITION: usize = 200;

/// What `tidegate checkpoint show --help` says behind the list of options.
const AFTER_HELP: &str = "\
Shows of each node what it had when the checkpoint was taken: its states and their sizes, how far a source had read,
how far event time had come, and what a sink had prepared to be committed. The job file is not needed.

With --json, stdout gets one object: {\"job\":...,\"checkpoint\":...,\"attempt\":...,\"completed_at_ms\":...,
\"max_parallelism\":...,\"state_bytes\":...,\"nodes\":[{\"name\":...,\"kind\":\"source|operator|sink\",\"inputs\":[...],
\"parallelism\":...,\"states\":[{\"name\":...,\"kind\":...,\"schema_version\":...,\"ttl_ms\":... or null},...],\"state_bytes\":...,
\"prepared\":...,\"subtasks\":[{\"index\":...,\"finished\":...,\"watermark\":... or null,\"state_bytes\":...,\"state_file\":... or
null,\"prepared\":...,\"splits\":[{\"id\":...,\"position\":...},...]},...]},...]}. A position that is not UTF-8 is
{\"base64\":\"...\"}.

Examples:
  tidegate checkpoint show .tidegate/checkpoints/wordcount-1f0c2a9b/chk-42
  tidegate checkpoint show savepoint-wordcount-3c5d/_metadata --json

Exit codes: 0 it could be read; 1 it could not, or is damaged.";

/// Shows what is in a checkpoint or savepoint.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct ShowArguments {
    /// The checkpoint: its directory, or the file _metadata in it.
    #[arg(value_name = "PATH")]
    path: String,

    /// Writes everything as JSON to stdout.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(super) fn show(arguments: &ShowArguments) -> Result<Exit, Failure> {
    let path = checkpoint_path(&arguments.path).map_err(Failure::Argument)?;
    Host::start()?.block_on(async |env, _| {
        let loaded = metadata_file::load(&*env.storage, &*env.compute, &path).await.map_err(Failure::other)?;
        loaded.check_files().await.map_err(Failure::other)?;
        let metadata = &loaded.metadata;
        match arguments.json {
            true => stdout::print(&format!("{}\n", to_json(metadata)))?,
            false => stdout::print(&to_text(metadata, env.clock.wall()))?,
        }
        Ok(Exit::Done)
    })
}

/// The name of a kind of state.
pub(super) fn kind_name(kind: SavedStateKind) -> &'static str {
    match kind {
        SavedStateKind::KeyedValue => "keyed value",
        SavedStateKind::KeyedList => "keyed list",
        SavedStateKind::KeyedMap => "keyed map",
        SavedStateKind::SplitList => "split list",
        SavedStateKind::UnionList => "union list",
        SavedStateKind::BroadcastMap => "broadcast map",
    }
}

fn node_kind(kind: SavedNodeKind) -> &'static str {
    match kind {
        SavedNodeKind::Source => "source",
        SavedNodeKind::Operator => "operator",
        SavedNodeKind::Sink => "sink",
    }
}

fn bytes_of(subtask: &SubtaskMetadata) -> u64 {
    match &subtask.keyed_state {
        None => 0,
        Some(StateHandle::Inline(state)) => state.len() as u64,
        Some(StateHandle::File { bytes, .. }) => *bytes,
    }
}

fn state_bytes(node: &NodeMetadata) -> u64 {
    node.subtasks.iter().map(bytes_of).sum()
}

fn prepared(node: &NodeMetadata) -> usize {
    node.committables.len() + node.subtasks.iter().map(|subtask| subtask.committables.len()).sum::<usize>()
}

fn to_text(metadata: &CheckpointMetadata, now: Duration) -> String {
    let (files, bytes) = (metadata.files().count(), size(metadata.state_bytes()));
    let mut lines = vec![
        format!(
            "{} of {}, complete since {}, taken by attempt {}",
            metadata.checkpoint,
            metadata.job,
            age(metadata.completed_at_ms, now).trim_end_matches(" ago"),
            metadata.attempt
        ),
        format!("{bytes} of state, {files} files, max-parallelism {}", metadata.max_parallelism),
    ];
    for node in &metadata.nodes {
        let mut line = format!("{} {}, parallelism {}", node_kind(node.kind), node.name, node.parallelism);
        if state_bytes(node) > 0 {
            line.push_str(&format!(", {} of state", size(state_bytes(node))));
        }
        match node.subtasks.iter().filter(|subtask| subtask.finished).count() {
            0 => {}
            all if all == node.subtasks.len() => line.push_str(", finished"),
            some => line.push_str(&format!(", {some} of {} finished", node.subtasks.len())),
        }
        if prepared(node) > 0 {
            line.push_str(&format!(", {} prepared to be committed", prepared(node)));
        }
        if let Some(watermark) = node.subtasks.iter().filter_map(|subtask| subtask.watermark).min() {
            line.push_str(&format!(", watermark {watermark}"));
        }
        lines.push(line);
        lines.extend(node.states.iter().map(|state| format!("  state {}: {}", state.name, kind_name(state.kind))));
        let splits = node.subtasks.iter().flat_map(|subtask| &subtask.splits);
        lines.extend(splits.map(|split| format!("  split {}: {}", split.id.escape_debug(), position(&split.position))));
    }
    lines.join("\n") + "\n"
}

/// A position for people, cut short.
fn position(bytes: &[u8]) -> String {
    let more = if bytes.len() > SHOWN_POSITION { "..." } else { "" };
    format!("{}{more}", bytes[..bytes.len().min(SHOWN_POSITION)].escape_ascii().to_string().replace("\\\"", "\""))
}

fn to_json(metadata: &CheckpointMetadata) -> Value {
    json!({
        "job": metadata.job,
        "checkpoint": metadata.checkpoint.0,
        "attempt": metadata.attempt.to_string(),
        "completed_at_ms": metadata.completed_at_ms,
        "max_parallelism": metadata.max_parallelism,
        "state_bytes": metadata.state_bytes(),
        "nodes": metadata.nodes.iter().map(node_json).collect::<Vec<_>>(),
    })
}

fn node_json(node: &NodeMetadata) -> Value {
    let state = |state: &SavedState| {
        json!({
            "name": state.name,
            "kind": kind_name(state.kind),
            "schema_version": state.schema_version,
            "ttl_ms": state.ttl.map(|ttl| u64::try_from(ttl.duration.as_millis()).unwrap_or(u64::MAX)),
        })
    };
    let subtask = |subtask: &SubtaskMetadata| {
        let file = match &subtask.keyed_state {
            Some(StateHandle::File { path, .. }) => Some(path),
            Some(StateHandle::Inline(_)) | None => None,
        };
        let splits = subtask.splits.iter();
        let splits = splits.map(|split| json!({ "id": split.id, "position": readable::json(&split.position) }));
        json!({
            "index": subtask.index,
            "finished": subtask.finished,
            "watermark": subtask.watermark,
            "state_bytes": bytes_of(subtask),
            "state_file": file,
            "prepared": subtask.committables.len(),
            "splits": splits.collect::<Vec<_>>(),
        })
    };
    json!({
        "name": node.name,
        "kind": node_kind(node.kind),
        "inputs": node.inputs,
        "parallelism": node.parallelism,
        "states": node.states.iter().map(state).collect::<Vec<_>>(),
        "state_bytes": state_bytes(node),
        "prepared": prepared(node),
        "subtasks": node.subtasks.iter().map(subtask).collect::<Vec<_>>(),
    })
}
