//! `tidegate state export`: the keys and values of one state of a checkpoint.
//!
//! Reads one block of a snapshot at a time, so that any state fits into memory.

use std::ops::ControlFlow;

use clap::{Args, ValueEnum};
use serde_json::json;

use super::exit::{Exit, Failure};
use super::host::Host;
use super::{readable, stdout};
use crate::checkpoint::metadata::{CheckpointMetadata, SavedState, SavedStateKind, StateHandle};
use crate::checkpoint::metadata_file;
use crate::closest::closest;
use crate::config::checkpoint_path;
use crate::runtime::StoredSnapshot;
use crate::state::Payload;

/// What `tidegate state export --help` says behind the list of options.
const AFTER_HELP: &str = "\
Writes a line for each value, each item of a list and each entry of a map, in no particular order of keys; items and
entries of one key follow each other. `tidegate checkpoint show PATH` names the nodes and their states.

json: one object a line: {\"key\":...,\"value\":...}, for a list {\"key\":...,\"item\":...}, for a map
      {\"key\":...,\"entry\":...,\"value\":...}. Bytes that are UTF-8 are a string, others {\"base64\":\"...\"}.
csv:  a header, key,value or key,item or key,entry,value, and a row for each. Bytes that are not UTF-8 are in base64
      behind the marker `base64:`; so is text that begins with the marker.

Values are as the operator encoded them: a number of the Rust SDK, for instance, is 8 bytes and not text.
State that has expired but was not removed yet is among them.

Examples:
  tidegate state export .tidegate/checkpoints/wordcount-1f0c2a9b/chk-42 --node count --state count
  tidegate state export savepoint-wordcount-3c5d --node count --state count --format csv > counts.csv

Exit codes: 0 all was written; 1 the checkpoint cannot be read or is damaged; 2 there is no such node or state.";

/// Writes the keys and values of a state to stdout.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct ExportArguments {
    /// The checkpoint or savepoint: its directory, or the file _metadata in it.
    #[arg(value_name = "PATH")]
    path: String,

    /// The node whose state it is.
    #[arg(long)]
    node: String,

    /// The name of the state.
    #[arg(long)]
    state: String,

    /// How it is written.
    #[arg(long, value_enum, default_value = "json")]
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A JSON object a line.
    Json,
    /// Comma-separated values with a header.
    Csv,
}

/// Runs the command.
pub(super) fn export(arguments: &ExportArguments) -> Result<Exit, Failure> {
    let path = checkpoint_path(&arguments.path).map_err(Failure::Argument)?;
    Host::start()?.block_on(async |env, _| {
        let loaded = metadata_file::load(&*env.storage, &*env.compute, &path).await.map_err(Failure::other)?;
        let (handles, state) = find(&loaded.metadata, &arguments.node, &arguments.state).map_err(Failure::Argument)?;
        if arguments.format == Format::Csv {
            stdout::print(header(state.kind))?;
        }
        for handle in handles {
            let snapshot = StoredSnapshot { files: &loaded.files, handle };
            if export_snapshot(&snapshot, &state.name, arguments.format).await?.is_break() {
                break;
            }
        }
        Ok(Exit::Done)
    })
}

/// The snapshots of a node, and a state in them.
fn find<'a>(
    metadata: &'a CheckpointMetadata,
    node: &str,
    state: &str,
) -> Result<(Vec<&'a StateHandle>, &'a SavedState), String> {
    let names: Vec<&str> = metadata.nodes.iter().map(|node| node.name.as_str()).collect();
    let Some(found) = metadata.nodes.iter().find(|candidate| candidate.name == node) else {
        return Err(format!("--node: the checkpoint has no node {node:?}; {}", instead(node, &names)));
    };
    let names: Vec<&str> = found.states.iter().map(|state| state.name.as_str()).collect();
    let Some(declared) = found.states.iter().find(|candidate| candidate.name == state) else {
        return Err(format!("--state: {node} has no state {state:?}; {}", instead(state, &names)));
    };
    let keyed =
        matches!(declared.kind, SavedStateKind::KeyedValue | SavedStateKind::KeyedList | SavedStateKind::KeyedMap);
    if !keyed {
        return Err(format!("--state: {state} is not kept by key, and only such state is exported in this version"));
    }
    Ok((found.subtasks.iter().filter_map(|subtask| subtask.keyed_state.as_ref()).collect(), declared))
}

fn instead(name: &str, known: &[&str]) -> String {
    match closest(name, known.iter().copied()) {
        Some(guess) => format!("did you mean {guess}?"),
        None if known.is_empty() => "it has none".to_owned(),
        None => format!("it has {}", known.join(", ")),
    }
}

fn header(kind: SavedStateKind) -> &'static str {
    match kind {
        SavedStateKind::KeyedList => "key,item\n",
        SavedStateKind::KeyedMap => "key,entry,value\n",
        _ => "key,value\n",
    }
}

async fn export_snapshot(
    snapshot: &StoredSnapshot<'_>,
    state: &str,
    format: Format,
) -> Result<ControlFlow<()>, Failure> {
    let failed = |error: anyhow::Error| {
        Failure::Other(error.context(format!("cannot read the snapshot in {}", snapshot.place())).into())
    };
    let index = snapshot.open().await.map_err(|error| failed(error.into()))?;
    let Some(position) = index.header().states.iter().position(|candidate| candidate.name == state) else {
        return Ok(ControlFlow::Continue(()));
    };
    for block in index.blocks().iter().filter(|block| block.state as usize == position) {
        let bytes = snapshot.read(block.bytes()).await.map_err(|error| failed(error.into()))?;
        let decoded = index.decode_block(block, &bytes).map_err(|error| failed(error.into()))?;
        let mut text = String::new();
        decoded.entries().for_each(|(key, payload)| write(&mut text, key, payload, format));
        if stdout::print_part(&text)?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}

fn write(text: &mut String, key: &[u8], payload: Payload<'_>, format: Format) {
    let mut row = |names: &[&str], values: &[&[u8]]| {
        let line = match format {
            Format::Json => {
                let field = |(name, value): (&&str, &&[u8])| ((*name).to_owned(), readable::json(value));
                json!(names.iter().zip(values).map(field).collect::<serde_json::Map<_, _>>()).to_string()
            }
            Format::Csv => values.iter().map(|value| readable::csv(value)).collect::<Vec<_>>().join(","),
        };
        text.push_str(&line);
        text.push('\n');
    };
    match payload {
        Payload::Value(value) => row(&["key", "value"], &[key, value]),
        Payload::Items(items) => items.strings().for_each(|item| row(&["key", "item"], &[key, item])),
        Payload::Entries(entries) => {
            let mut entries = entries.strings();
            while let (Some(entry), Some(value)) = (entries.next(), entries.next()) {
                row(&["key", "entry", "value"], &[key, entry, value]);
            }
        }
    }
}
