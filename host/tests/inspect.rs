//! What the `tidegate` command shows of checkpoints on disk.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;
use tidegate::checkpoint::metadata::{
    CheckpointMetadata, NodeMetadata, SavedNodeKind, SavedSplit, SavedState, StateHandle, SubtaskMetadata,
};
use tidegate::id::{Attempt, CheckpointId};
use tidegate::operator::{StateDescriptor, StateKind};
use tidegate::protocol::key_group;
use tidegate::record::{Column, Lists, OptionalColumn};
use tidegate::state::snapshot::{SnapshotEncoder, SnapshotHeader, SnapshotState};
use tidegate::state::{Keys, MemoryBackend, StateBackend, StateIndex};

const GROUPS: u32 = 8;
const JOB: &str = "wordcount-0000002a";

fn tidegate(directory: &TempDir, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(arguments).current_dir(directory.path()).stdin(Stdio::null());
    command.env_remove("TIDEGATE_LOG").env_remove("TIDEGATE_CONFIG").env("TIDEGATE_CACHE", "");
    command.output().expect("the command runs")
}

/// What the command says, which must end with this code.
fn says(directory: &TempDir, code: i32, arguments: &[&str]) -> String {
    let done = tidegate(directory, arguments);
    let (stdout, stderr) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert_eq!(done.status.code(), Some(code), "{arguments:?}: {stdout}{stderr}");
    format!("{stdout}{stderr}")
}

fn states() -> Vec<StateDescriptor> {
    let kinds = [("count", StateKind::KeyedValue), ("seen", StateKind::KeyedList), ("last", StateKind::KeyedMap)];
    let state = |(id, (name, kind)): (u32, (&str, StateKind))| StateDescriptor {
        id,
        name: name.to_owned(),
        kind,
        ttl: None,
        schema_version: 1,
    };
    (0..).zip(kinds).map(state).collect()
}

/// The state of an operator, as a file.
fn snapshot() -> Vec<u8> {
    let mut backend = MemoryBackend::new("count", states(), 0..GROUPS, GROUPS, u64::MAX);
    for (key, value) in [(&b"a,b"[..], &b"1"[..]), (b"\xff", b"base64:x")] {
        let (column, hashes) = (Column::from_iter([key]), [key_group::hash(key)]);
        let keys = Keys { column: &column, hashes: &hashes, positions: &[0] };
        let values: OptionalColumn = [Some(value)].into_iter().collect();
        backend.write_values(StateIndex(0), keys, &values).expect("room");
    }
    let column = Column::from_iter([b"k"]);
    let keys = Keys { column: &column, hashes: &[key_group::hash(b"k")], positions: &[0] };
    let mut lists = Lists::new();
    lists.push([b"one", b"two"]);
    backend.append_lists(StateIndex(1), keys, &lists).expect("room");
    let value: OptionalColumn = [Some(b"v")].into_iter().collect();
    backend.write_entries(StateIndex(2), keys, &Column::from_iter([b"e"]), &value).expect("room");
    let header = SnapshotHeader {
        job: "wordcount".to_owned(),
        node: "count".to_owned(),
        subtask: 0,
        checkpoint: CheckpointId(7),
        max_parallelism: GROUPS,
        first_group: 0,
        end_group: GROUPS,
        states: SnapshotState::of(&states()),
    };
    let mut encoder = SnapshotEncoder::new(&header, backend.freeze());
    std::iter::from_fn(|| encoder.next_chunk()).flatten().collect()
}

fn metadata(state: StateHandle) -> CheckpointMetadata {
    let node = |name: &str, kind, states, subtask| NodeMetadata {
        name: name.to_owned(),
        kind,
        inputs: Vec::new(),
        parallelism: 1,
        states,
        enumerator: None,
        committables: Vec::new(),
        subtasks: vec![subtask],
    };
    let subtask = |splits, keyed_state| SubtaskMetadata {
        index: 0,
        finished: false,
        watermark: Some(12),
        splits,
        committables: Vec::new(),
        keyed_state,
    };
    let split = SavedSplit { id: "input.txt:0".to_owned(), position: br#"{"offset":12}"#.to_vec() };
    let saved = states().iter().map(SavedState::from).collect();
    CheckpointMetadata {
        job: "wordcount".to_owned(),
        job_key: "0000002a".to_owned(),
        checkpoint: CheckpointId(7),
        attempt: Attempt::first(3),
        nonce: 5,
        completed_at_ms: 1_000,
        max_parallelism: GROUPS,
        nodes: vec![
            node("lines", SavedNodeKind::Source, Vec::new(), subtask(vec![split], None)),
            node("count", SavedNodeKind::Operator, saved, subtask(Vec::new(), Some(state))),
        ],
    }
}

/// A storage with one job and two checkpoints, one of which is damaged.
fn storage() -> TempDir {
    let directory = TempDir::new().expect("a directory for the test");
    let job = directory.path().join(JOB);
    let write = |path: &str, content: &[u8]| {
        let path = job.join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        fs::write(path, content).expect("a file");
    };
    let state = snapshot();
    let handle = StateHandle::File {
        path: "chk-7/state".to_owned(),
        bytes: state.len() as u64,
        digest: xxhash_rust::xxh3::xxh3_64(&state),
    };
    write("chk-7/state", &state);
    write("chk-7/_metadata", &metadata(handle).encode());
    write("chk-8/_metadata", b"nothing of the kind");
    directory
}

#[test]
fn checkpoints_are_listed() {
    let storage = storage();
    let listed = says(&storage, 0, &["checkpoint", "list", "."]);
    assert!(listed.starts_with(&format!("{JOB}\n  chk-8 ")), "{listed}");
    assert!(listed.contains(" damaged: ") && listed.contains("chk-7 ") && listed.contains(" unfinished\n"), "{listed}");
    let json = says(&storage, 0, &["checkpoint", "list", ".", "--json"]);
    let lines: Vec<Value> = json.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!((&lines[1]["checkpoint"], &lines[1]["completed_at_ms"]), (&json!(7), &json!(1000)));
    assert!(Path::new(lines[1]["path"].as_str().expect("a path")).join("_metadata").is_file(), "{json}");
    let empty = TempDir::new().expect("a directory");
    assert!(says(&empty, 0, &["checkpoint", "list", "."]).starts_with("no job has checkpoints in "));
    assert!(says(&empty, 1, &["checkpoint", "list", "nowhere"]).contains("nowhere"));
}

#[test]
fn a_checkpoint_is_shown() {
    let storage = storage();
    let checkpoint = format!("{JOB}/chk-7");
    let shown = says(&storage, 0, &["checkpoint", "show", &checkpoint]);
    for expected in [
        "checkpoint 7 of wordcount, complete since ",
        "\nsource lines, parallelism 1, watermark 12\n  split input.txt:0: {\"offset\":12}\n",
        "\noperator count, parallelism 1, ",
        "\n  state seen: keyed list\n",
    ] {
        assert!(shown.contains(expected), "{expected}: {shown}");
    }
    let json = says(&storage, 0, &["checkpoint", "show", &format!("{checkpoint}/_metadata"), "--json"]);
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["nodes"][0]["subtasks"][0]["splits"][0]["position"], r#"{"offset":12}"#);
    assert_eq!(json["nodes"][1]["states"][2]["kind"], "keyed map");
    assert!(says(&storage, 1, &["checkpoint", "show", &format!("{JOB}/chk-8")]).contains("chk-8"));
    fs::remove_file(storage.path().join(&checkpoint).join("state")).expect("the file");
    assert!(says(&storage, 1, &["checkpoint", "show", &checkpoint]).contains("chk-7/state"));
}

#[test]
fn state_is_exported() {
    let storage = storage();
    let export = |code, node: &str, state: &str, format: &str| {
        let checkpoint = format!("{JOB}/chk-7");
        let arguments = ["state", "export", &checkpoint, "--node", node, "--state", state, "--format", format];
        let mut lines: Vec<String> = says(&storage, code, &arguments).lines().map(str::to_owned).collect();
        // The order of keys is nobody's business.
        lines[usize::from(format == "csv")..].sort();
        lines
    };
    assert_eq!(export(0, "count", "count", "csv"), ["key,value", "\"a,b\",1", "base64:/w==,base64:YmFzZTY0Ong="]);
    let json = [r#"{"key":"a,b","value":"1"}"#, r#"{"key":{"base64":"/w=="},"value":"base64:x"}"#];
    assert_eq!(export(0, "count", "count", "json"), json);
    assert_eq!(export(0, "count", "seen", "csv"), ["key,item", "k,one", "k,two"]);
    assert_eq!(export(0, "count", "last", "json"), [r#"{"key":"k","entry":"e","value":"v"}"#]);
    assert!(export(2, "cuont", "count", "json")[0].ends_with("did you mean count?"));
    assert!(export(2, "count", "x", "json")[0].ends_with("it has count, seen, last"));
}

#[test]
fn a_flipped_bit_is_an_error_that_names_the_file() {
    let storage = storage();
    let file = storage.path().join(JOB).join("chk-7/state");
    let mut bytes = fs::read(&file).expect("the file");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&file, bytes).expect("the file");
    let arguments = ["state", "export", &format!("{JOB}/chk-7"), "--node", "count", "--state", "count"];
    let (mut said, mut failed) = (String::new(), 0);
    for state in ["count", "seen", "last"] {
        let arguments = [&arguments[..6], &[state]].concat();
        let done = tidegate(&storage, &arguments);
        failed += usize::from(done.status.code() == Some(1));
        said.push_str(&String::from_utf8_lossy(&done.stderr));
    }
    assert!(failed >= 1 && said.contains("chk-7/state"), "{said}");
}
