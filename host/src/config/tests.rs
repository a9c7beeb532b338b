//! What a job file means, where defaults come from, and what is found once components are loaded.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::*;
use crate::api::{
    CheckpointMode, CheckpointSettings, JobGraph, JobOptions, NodeKind, Partition, RestartSettings, Retention,
    StorageLocation,
};
use crate::id::{Attempt, Owner, SubtaskId};
use crate::operator::{Descriptor, Fault, OnError, Operator, OperatorFactory, SideOutput, StateDescriptor, StateKind};

const JOB: &str = r#"
name = "wordcount"
record-limit = "1MiB"

[state]
backend = "jobmanager"

[sources.lines]
connector = "file"
path = "input.txt"
parallelism = 1

[operators.count]
component = "count.wasm"
input = [{ from = "lines", partition = "broadcast" }, "lines"]
parallelism = 3
limits = { memory = "64MiB", call = "1m30s" }
on-error = "dead-letter"
chain = false

[operators.count.config]
lowercase = true
stop = ["a", "b"]
since = 2024-01-02

[sinks.out]
connector = "file"
input = ["count", "count.dead-letter", "count.late"]
path = "out"
"#;

/// Loads a job from files of its own.
fn load(job: &str, host: Option<&str>, set: &[&str]) -> Result<JobFile, ConfigError> {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    write("count.wasm", "");
    let (job, host) = (write("job.toml", job), host.map(|text| write(HOST_FILE, text)));
    JobFile::load(&JobSources { job, host, set: set.iter().map(ToString::to_string).collect() })
}

struct Declares(Descriptor);

impl OperatorFactory for Declares {
    fn descriptor(&self) -> &Descriptor {
        &self.0
    }

    fn create<'a>(&'a self, _: &'a SubtaskId) -> BoxFuture<'a, Result<Box<dyn Operator>, Fault>> {
        unreachable!("the job is not started")
    }
}

/// Plans a job with operators that declare this.
fn plan(file: &JobFile, descriptor: &Descriptor) -> Result<JobGraph, ConfigError> {
    let load = |_: WantedOperator<'_>| {
        let factory: Arc<dyn OperatorFactory> = Arc::new(Declares(descriptor.clone()));
        std::future::ready(Ok::<_, ConfigError>(factory))
    };
    file.plan(load).now_or_never().expect("nothing to wait for")
}

fn with_late_output() -> Descriptor {
    Descriptor { side_outputs: vec![SideOutput { id: 1, name: "late".into() }], ..Descriptor::default() }
}

#[test]
fn a_job_file_becomes_a_graph() {
    let file = load(JOB, None, &[]).unwrap();
    let graph = plan(&file, &with_late_output()).unwrap();
    let nodes: Vec<_> = graph.nodes().iter().map(|node| (node.name.as_str(), node.parallelism, node.chain)).collect();
    assert_eq!(nodes, [("lines", 1, true), ("count", 3, false), ("out", 1, true)]);
    let partitions: Vec<_> = graph.nodes()[1].inputs.iter().map(|edge| edge.partition).collect();
    assert_eq!(partitions, [Partition::Broadcast, Partition::Rebalance]);
    let NodeKind::Operator(operator) = &graph.nodes()[1].kind else { panic!("count is an operator") };
    assert_eq!(operator.on_error, OnError::DeadLetter);
    assert_eq!(operator.limits.memory_bytes, 64 << 20);
    assert_eq!(operator.limits.call.as_secs(), 90);
    let options = file.options(owner());
    assert_eq!((options.max_record_bytes, options.state_budget_bytes), (1 << 20, 1 << 30));
}

fn owner() -> Owner {
    Owner { job: "job".to_owned(), attempt: Attempt::first(1) }
}

#[test]
fn the_config_of_an_operator_is_json() {
    let file = load(JOB, None, &[]).unwrap();
    let seen = Mutex::new(Vec::new());
    let load = |wanted: WantedOperator<'_>| {
        seen.lock().unwrap().push((wanted.node.to_owned(), wanted.config));
        let factory: Arc<dyn OperatorFactory> = Arc::new(Declares(with_late_output()));
        std::future::ready(Ok::<_, ConfigError>(factory))
    };
    file.plan(load).now_or_never().expect("nothing to wait for").unwrap();
    let config = r#"{"lowercase":true,"stop":["a","b"],"since":"2024-01-02"}"#;
    assert_eq!(seen.into_inner().unwrap(), [("count".to_owned(), config.to_owned())]);
}

#[test]
fn the_job_file_wins_over_the_host_and_arguments_over_both() {
    let host = "parallelism = 2\nmax-parallelism = 8\nrecord-limit = \"2MiB\"\n[state]\nbudget = \"5MiB\"\n";
    let options = |set: &[&str]| {
        let file = load(JOB, Some(host), set).unwrap();
        let options = file.options(owner());
        let out = plan(&file, &with_late_output()).unwrap().nodes()[2].parallelism;
        (options.max_record_bytes, options.state_budget_bytes, out, file.max_parallelism)
    };
    assert_eq!(options(&[]), (1 << 20, 5 << 20, 2, 8));
    let set = ["record-limit=3MiB", "state.budget=7MiB", "parallelism=4"];
    assert_eq!(options(&set), (3 << 20, 7 << 20, 4, 8));
}

#[test]
fn the_host_file_is_not_a_job() {
    let error = load(JOB, Some("paralelism = 2\n[sinks.out]\n[checkpoint]\n"), &[]).unwrap_err();
    let problems: Vec<_> = error.problems().iter().map(|problem| (problem.field(), problem.message())).collect();
    assert_eq!(problems, [("paralelism", "unknown field"), ("sinks", "this belongs in a job file")]);
    let error = load(JOB, Some("[checkpoint]\nkeep = 0\n"), &[]).unwrap_err();
    let (path, line, column) = error.problems()[0].place().expect("a place");
    assert_eq!((path.file_name(), line, column), (Some(Path::new(HOST_FILE).as_os_str()), 2, 8));
}

#[test]
fn records_fit_operators() {
    assert!(load(JOB, None, &["record-limit=128MiB"]).is_ok());
    let error = load(JOB, None, &["record-limit=129MiB"]).unwrap_err().to_string();
    assert!(error.contains("records of 129MiB are too large for operators") && error.contains("128MiB"), "{error}");
}

#[test]
fn a_name_is_safe_in_a_path() {
    for name in ["two\\nlines", "nul\\u0000", "a/b", "..", "", "word count"] {
        let job = JOB.replacen("wordcount", name, 1);
        let error = load(&job, None, &[]).unwrap_err().to_string();
        assert!(error.contains("expected 1 to 100 letters, digits, '-' or '_'"), "{error}");
        let node = JOB.replacen("[sources.lines]", &format!("[sources.\"{name}\"]"), 1);
        let error = load(&node, None, &[]).unwrap_err().to_string();
        assert!(error.contains("a name has 1 to 100 letters, digits, '-' or '_'"), "{error}");
    }
}

#[test]
fn a_job_takes_checkpoints_if_it_asks_for_them() {
    let options = |set: &[&str]| load(JOB, None, set).unwrap().options(owner());
    let none = options(&[]);
    assert_eq!((none.checkpoint, none.restart), (None, RestartSettings::None));
    let set = ["checkpoint.interval=1s", "state.backend=memory"];
    let JobOptions { checkpoint: Some(checkpoint), restart, .. } = options(&set) else { panic!("checkpoints") };
    let StorageLocation::Directory(directory) = checkpoint.storage.clone() else { panic!("a directory") };
    assert!(directory.is_absolute() && directory.ends_with(".tidegate/checkpoints"), "{directory:?}");
    let second = Duration::from_secs(1);
    assert_eq!(checkpoint, CheckpointSettings::new(second, StorageLocation::Directory(directory)));
    assert_eq!(restart, RestartSettings::EXPONENTIAL_DELAY);
    let all = [
        "checkpoint={ interval = \"1s\", min-pause = \"500ms\", timeout = \"60s\", keep = 3, storage = \"memory:\" }",
        "checkpoint.mode=at-least-once",
        "checkpoint.retain=never",
        "checkpoint.tolerable-failures=2",
        "checkpoint.max-concurrent=1",
        "checkpoint.unaligned=false",
        "checkpoint.aligned-timeout=0s",
        "restart={ strategy = \"fixed-delay\", attempts = 3, delay = \"5s\" }",
    ];
    let checkpoint = CheckpointSettings {
        interval: second,
        min_pause: second / 2,
        timeout: 60 * second,
        tolerable_failures: 2,
        mode: CheckpointMode::AtLeastOnce,
        retain: Retention::Never,
        keep: 3,
        storage: StorageLocation::Memory,
    };
    let options = options(&all);
    assert_eq!(options.checkpoint, Some(checkpoint));
    assert_eq!(options.restart, RestartSettings::FixedDelay { attempts: 3, delay: 5 * second });
}

#[test]
fn old_backends_say_where_checkpoints_are() {
    let place = |host: Option<&str>, set: &[&str]| {
        let file =
            load(&JOB.replace("\nbackend = \"jobmanager\"", ""), host, &[&["checkpoint.interval=1s"], set].concat());
        file.map(|file| file.checkpoint.expect("checkpoints").storage.to_string())
    };
    let files = "checkpoint.storage=file:///x";
    assert_eq!(place(None, &["state.backend=jobmanager"]).unwrap(), "memory:");
    assert!(place(None, &["state.backend=filesystem"]).unwrap().ends_with("/.tidegate/checkpoints"));
    assert_eq!(place(None, &["state.backend=filesystem", files]).unwrap(), "file:///x");
    assert!(place(None, &["state.backend=jobmanager", files]).is_err());
    // Whoever has the last word says both.
    assert_eq!(place(Some("state.backend = \"jobmanager\""), &[files]).unwrap(), "file:///x");
    assert_eq!(place(Some("checkpoint.storage = \"file:x\""), &["state.backend=jobmanager"]).unwrap(), "memory:");
}

#[test]
fn defaults_of_the_host_ask_for_nothing() {
    let host = "[checkpoint]\nstorage = \"file:///x\"\n[restart]\nstrategy = \"fixed-delay\"\nattempts = 3\n";
    let memory = "state.backend=memory";
    let file = load(JOB, Some(host), &[]).unwrap();
    assert_eq!(file.checkpoint, None);
    assert_eq!(file.restart, RestartSettings::FixedDelay { attempts: 3, delay: Duration::from_secs(1) });
    let file = load(JOB, Some(host), &["checkpoint.interval=1s", memory, "restart.strategy=none"]).unwrap();
    assert_eq!(file.checkpoint.expect("checkpoints").storage.to_string(), "file:///x");
    assert_eq!(file.restart, RestartSettings::None);
    let file = load(JOB, Some("restart.attempts = 3"), &["restart.strategy=failure-rate"]).unwrap();
    assert_eq!(file.restart, RestartSettings::FAILURE_RATE);
}

#[test]
fn what_components_declare_is_checked_against_the_file() {
    let state = StateDescriptor { id: 0, name: "n".into(), kind: StateKind::KeyedValue, ttl: None, schema_version: 1 };
    let file = load(JOB, None, &[]).unwrap();
    let error = plan(&file, &Descriptor { states: vec![state], ..Descriptor::default() }).unwrap_err();
    let problems: Vec<_> = error.problems().iter().map(|problem| (problem.field(), problem.message())).collect();
    let expected = [
        ("operators.count.input", "count keeps state by key (n), but none of its inputs is partitioned by key"),
        ("sinks.out.input[2]", "out reads from count.late, but count has no output of that name"),
    ];
    assert_eq!(problems, expected);
}

#[test]
fn a_component_that_cannot_be_loaded_is_blamed_where_it_is_named() {
    let file = load(JOB, None, &[]).unwrap();
    let refuse = |_: WantedOperator<'_>| std::future::ready(Err(std::fmt::Error));
    let error = file.plan(refuse).now_or_never().expect("nothing to wait for").unwrap_err();
    assert_eq!(error.problems()[0].field(), "operators.count.component");
    assert_eq!(error.problems()[0].place().map(|(_, line, column)| (line, column)), Some((14, 13)));
}

#[test]
fn a_job_file_that_cannot_be_read_says_why() {
    let missing = JobFile::load(&JobSources { job: "nowhere/job.toml".into(), ..JobSources::default() }).unwrap_err();
    let expected = "error: cannot read the job file nowhere/job.toml: there is no such file\n  = help: check the path";
    assert_eq!(missing.to_string(), expected);
    let directory = tempfile::tempdir().unwrap();
    let job = directory.path().join("job.toml");
    fs::write(&job, b"name = \"a\"\n# \xff\n").unwrap();
    let error = JobFile::load(&JobSources { job, ..JobSources::default() }).unwrap_err();
    assert!(error.to_string().contains("line 2 is not UTF-8"), "{error}");
}

proptest::proptest! {
    /// A file is read or refused with a message, whatever has happened to it: cutting, doubling and swapping bytes of a
    /// good file reaches most of the parser and all of the excerpts.
    #[test]
    fn no_file_makes_it_panic(at in 0usize..JOB.len(), with in "[\\x00-\\x7fäß→]{0,4}", cut in 0usize..20) {
        let (at, end) = (JOB.floor_char_boundary(at), JOB.floor_char_boundary((at + cut).min(JOB.len())));
        let job = format!("{}{with}{}", &JOB[..at], &JOB[end.max(at)..]);
        if let Err(error) = load(&job, None, &[]) {
            proptest::prop_assert!(!error.to_string().is_empty());
        }
    }
}
