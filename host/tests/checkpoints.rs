//! Checkpoints through the command line: what a user is told, and what a second start makes of a first.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

const JOB: &str = r#"
name = "numbers"

[checkpoint]
interval = "20ms"
storage = "file:checkpoints"
keep = 100

[sources.numbers]
connector = "generator"
kind = "sequence"
records = 400
rate = 2000

[sinks.out]
connector = "file"
input = "numbers"
path = "out"
"#;

struct Job(TempDir);

impl Job {
    fn new(text: &str) -> Self {
        let directory = TempDir::new().expect("a directory for the test");
        fs::write(directory.path().join("job.toml"), text).expect("a job file");
        Self(directory)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.arg("run").arg("job.toml").args(arguments).current_dir(self.0.path()).stdin(Stdio::null());
        for variable in ["TIDEGATE_LOG", "TIDEGATE_CONFIG"] {
            command.env_remove(variable);
        }
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("the command runs")
    }

    /// The numbers that are committed, in order.
    fn committed(&self, directory: &str) -> Vec<u64> {
        let mut numbers = Vec::new();
        for part in fs::read_dir(self.0.path().join(directory)).into_iter().flatten() {
            let part = part.expect("an entry").path();
            if !part.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.')) {
                let text = fs::read_to_string(part).expect("a part");
                numbers.extend(text.lines().map(|line| line.parse::<u64>().expect("a number")));
            }
        }
        numbers.sort_unstable();
        numbers
    }

    /// Runs the job until it has checkpoints, and kills it then.
    fn run_and_kill(&self, arguments: &[&str]) {
        let mut process = self.command(arguments).stderr(Stdio::null()).spawn().expect("the command runs");
        while self.committed("out").is_empty() {
            assert_eq!(process.try_wait().expect("a process of ours"), None, "it ended before it was killed");
            std::thread::yield_now();
        }
        process.kill().expect("a process of ours");
        process.wait().expect("a process of ours");
    }

    /// The oldest complete checkpoint.
    fn oldest_checkpoint(&self) -> String {
        let job = fs::read_dir(self.0.path().join("checkpoints")).expect("a storage");
        let job = job.map(|entry| entry.expect("an entry").path()).find(|path| path.join("log").is_dir());
        let job = job.expect("a job's directory");
        let complete = |path: &Path| path.join("_metadata").is_file();
        let all = fs::read_dir(job).expect("a directory").map(|entry| entry.expect("an entry").path());
        let id = |path: &Path| path.file_name()?.to_str()?.strip_prefix("chk-")?.parse::<u64>().ok();
        let oldest = all.filter(|path| complete(path)).min_by_key(|path| id(path)).expect("a checkpoint");
        oldest.to_str().expect("a path in UTF-8").to_owned()
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_killed_job_is_not_forgotten_and_goes_on() {
    let job = Job::new(JOB);
    job.run_and_kill(&[]);
    let again = job.run(&[]);
    assert_eq!(again.status.code(), Some(1));
    let text = stderr(&again);
    assert!(text.contains("--resume") && text.contains("--fresh") && text.contains("nothing was run"), "{text}");
    let resumed = job.run(&["--resume"]);
    assert!(resumed.status.success(), "{}", stderr(&resumed));
    assert_eq!(job.committed("out"), (1..=400).collect::<Vec<_>>());
    let over = job.run(&["--resume"]);
    assert!(over.status.success() && stderr(&over).contains("had finished before"), "{}", stderr(&over));
    assert_eq!(job.committed("out").len(), 400);
}

#[test]
fn what_prevents_a_start_is_an_error_at_once() {
    let job = Job::new(JOB);
    fs::create_dir(job.0.path().join("out")).expect("a directory");
    fs::write(job.0.path().join("out/notes"), "mine").expect("a file");
    let refused = job.run(&[]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("is not empty"), "{}", stderr(&refused));
    let first = job.run(&["--resume", "--set", "sinks.out.path=elsewhere", "--set", "sources.numbers.rate=100000"]);
    assert!(first.status.success(), "{}", stderr(&first));
    assert!(stderr(&first).contains("starts from nothing"), "{}", stderr(&first));
}

#[test]
fn a_start_from_an_older_checkpoint_does_not_add_to_the_output_in_silence() {
    let job = Job::new(JOB);
    job.run_and_kill(&[]);
    let checkpoint = job.oldest_checkpoint();
    let refused = job.run(&["--from", &checkpoint]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("is not empty"), "{}", stderr(&refused));
    let other = job.run(&["--from", &checkpoint, "--set", "sinks.out.path=other"]);
    assert!(other.status.success(), "{}", stderr(&other));
    let numbers = job.committed("other");
    let first = numbers[0];
    assert_eq!(numbers, (first..=400).collect::<Vec<_>>());
}

#[test]
fn a_damaged_checkpoint_ends_the_start_and_is_named() {
    let job = Job::new(JOB);
    job.run_and_kill(&["--set", "checkpoint.keep=1"]);
    let metadata = Path::new(&job.oldest_checkpoint()).join("_metadata");
    let mut bytes = fs::read(&metadata).expect("metadata");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&metadata, &bytes).expect("metadata");
    let refused = job.run(&["--resume", "--set", "checkpoint.keep=1"]);
    assert_eq!(refused.status.code(), Some(1));
    let name = metadata.to_str().expect("a path in UTF-8");
    assert!(stderr(&refused).contains(name), "{}", stderr(&refused));
}
