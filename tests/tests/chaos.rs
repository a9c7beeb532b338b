//! A process that is killed at any moment loses nothing and repeats nothing: the real binary, `kill -9`, `--resume`.
//!
//! The output of a keyed sum that was killed again and again must be, line for line once sorted, that of one that was
//! left alone. `TIDEGATE_KILLS` says how often it is killed; the default is for every day.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tidegate::random::Random;

/// How often the process is killed unless the environment says otherwise.
const KILLS: u64 = 25;

/// At first a process lives at most so long, so that some die before their first checkpoint and some after several. On
/// a machine on which that is too short for any checkpoint, lives get longer.
const LONGEST_LIFE_MS: u64 = 450;

/// How many records come per second while processes are killed.
const RATE: u64 = 4_000;

const JOB: &str = r#"
name = "chaos"

[checkpoint]
interval = "100ms"
storage = "file:checkpoints"

[sources.lines]
connector = "generator"
kind = "keyed-uniform"
format = "line"
keys = 500

[operators.parse]
component = "EXAMPLES/keyed-sum/parse.wasm"
input = "lines"

[operators.sum]
component = "EXAMPLES/keyed-sum/sum.wasm"
input = { from = "parse", partition = "hash" }
parallelism = 2

[sinks.out]
connector = "file"
input = "sum"
path = "out"
"#;

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples")
}

/// The program as `make build` leaves it, or as the environment says.
fn binary() -> PathBuf {
    let built = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/release/tidegate");
    std::env::var_os("TIDEGATE_BIN").map_or_else(built, PathBuf::from)
}

/// A directory with the job in it.
struct Job {
    directory: TempDir,
    records: u64,
    /// Where compiled components are kept, so that lives are not spent on compiling.
    cache: PathBuf,
}

impl Job {
    fn new(records: u64, cache: &Path) -> Self {
        let directory = TempDir::new().expect("a directory for the test");
        let text = JOB.replace("EXAMPLES", examples().to_str().expect("a path in UTF-8"));
        fs::write(directory.path().join("job.toml"), text).expect("a job file");
        Self { directory, records, cache: cache.to_owned() }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command.args(["run", "job.toml", "--quiet", "--set"]).arg(format!("sources.lines.records={}", self.records));
        command.args(arguments).current_dir(self.directory.path()).stdin(Stdio::null());
        command.env("TIDEGATE_CACHE", &self.cache);
        command
    }

    /// Runs the job to its end.
    fn finish(&self, arguments: &[&str]) {
        let done = self.command(arguments).output().expect("run `make build` first");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }

    /// All lines that are committed, sorted.
    fn committed(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let Ok(parts) = fs::read_dir(self.directory.path().join("out")) else { return lines };
        for part in parts {
            let part = part.expect("an entry of the directory").path();
            if !part.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.')) {
                lines.extend(fs::read_to_string(part).expect("a part").lines().map(str::to_owned));
            }
        }
        lines.sort_unstable();
        lines
    }
}

/// Kills a process that this test started, and waits until it is gone.
fn kill(mut process: std::process::Child) {
    process.kill().expect("a process of ours");
    process.wait().expect("a process of ours");
}

#[expect(clippy::disallowed_methods, reason = "the other process runs on the machine's own time")]
fn wait(time: Duration) {
    std::thread::sleep(time);
}

#[test]
fn a_job_that_is_killed_again_and_again_loses_nothing_and_repeats_nothing() {
    let kills = std::env::var("TIDEGATE_KILLS").map_or(KILLS, |kills| kills.parse().expect("a number"));
    let seed = std::env::var("TIDEGATE_SEED").map_or(1, |seed| seed.parse().expect("a number"));
    // Far more than come through while it is killed, so that it is never finished before.
    let records = RATE * kills * LONGEST_LIFE_MS / 1000 * 2;
    let cache = TempDir::new().expect("a directory for the test");
    let calm = Job::new(records, cache.path());
    calm.finish(&[]);
    let expected = calm.committed();
    assert_eq!(expected.len() as u64, records);

    let (chaos, mut random) = (Job::new(records, cache.path()), Random::new(seed));
    let (mut killed, mut longest_ms, mut fruitless, mut committed) = (0, LONGEST_LIFE_MS, 0, 0);
    while killed < kills {
        let rate = format!("sources.lines.rate={RATE}");
        let process = chaos.command(&["--resume", "--set", &rate]).stderr(Stdio::null()).spawn();
        let mut process = process.expect("run `make build` first");
        wait(Duration::from_millis(random.below(longest_ms)));
        if let Some(status) = process.try_wait().expect("a process of ours") {
            // On a slow machine lives get so long that the job comes to its end before the last kill.
            assert!(
                status.success() && killed >= kills / 2,
                "seed {seed}: after {killed} kills it ended by itself: {status}"
            );
            break;
        }
        kill(process);
        killed += 1;
        // What others see at any time is never more than the whole, and nothing twice.
        let seen = chaos.committed();
        let twice = seen.windows(2).find(|pair| pair[0] == pair[1]);
        assert_eq!(twice, None, "seed {seed}: after {killed} kills");
        let unknown = seen.iter().find(|line| expected.binary_search(line).is_err());
        assert_eq!(unknown, None, "seed {seed}: after {killed} kills");
        fruitless = if seen.len() > committed { 0 } else { fruitless + 1 };
        committed = seen.len();
        if fruitless == 3 {
            (longest_ms, fruitless) = (longest_ms * 3 / 2, 0);
        }
    }
    assert!(committed > 0, "seed {seed}: no checkpoint was ever completed");
    chaos.finish(&["--resume"]);
    assert!(chaos.committed() == expected, "seed {seed}: the output differs from that of a job left alone");
}
