//! Jobs of a keyed sum that the real binary runs in directories of their own, and what they wrote.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tidegate::random::Random;

/// How long anything may take that is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

const JOB: &str = r#"
name = "sums"
parallelism = 2

[checkpoint]
interval = "10ms"
storage = "file:checkpoints"

[sources.lines]
SOURCE

[operators.parse]
component = "EXAMPLES/keyed-sum/parse.wasm"
input = "lines"

[operators.sum]
component = "EXAMPLES/keyed-sum/sum.wasm"
input = { from = "parse", partition = "hash" }

[sinks.out]
connector = "file"
input = "sum"
path = "out"
"#;

/// How many records a key had, and what its numbers came to.
pub type Totals = BTreeMap<String, (u64, i64)>;

/// A job file in a directory of its own.
#[derive(Debug)]
pub struct Job {
    directory: TempDir,
    cache: Option<PathBuf>,
}

/// A process that ends with the test, however that ends.
#[derive(Debug)]
pub struct Running(Child);

impl Job {
    /// A job whose source has these settings.
    #[must_use]
    pub fn new(source: &str) -> Self {
        Self::from_text(&JOB.replace("SOURCE", source))
    }

    /// A job of its own, in which EXAMPLES stands for the directory of the examples. Its sink writes to `out`.
    #[must_use]
    pub fn from_text(text: &str) -> Self {
        let directory = TempDir::new().expect("a directory for the test");
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
        let text = text.replace("EXAMPLES", examples.to_str().expect("a path in UTF-8"));
        fs::write(directory.path().join("job.toml"), text).expect("a job file");
        Self { directory, cache: None }
    }

    /// Keeps compiled components in this directory.
    #[must_use]
    pub fn with_cache(mut self, cache: &Path) -> Self {
        self.cache = Some(cache.to_owned());
        self
    }

    /// A path in its directory.
    #[must_use]
    pub fn path(&self, relative: &str) -> PathBuf {
        self.directory.path().join(relative)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let built = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/release/tidegate");
        let mut command = Command::new(std::env::var_os("TIDEGATE_BIN").map_or_else(built, PathBuf::from));
        command.args(["run", "job.toml", "--quiet"]).args(arguments);
        command.current_dir(self.directory.path()).stdin(Stdio::null());
        command.envs(self.cache.iter().map(|cache| ("TIDEGATE_CACHE", cache)));
        command
    }

    /// Runs the job; returns the exit code and what it said.
    #[must_use]
    pub fn run(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let done = self.command(arguments).output().expect("run `make build` first");
        (done.status.code(), String::from_utf8_lossy(&done.stderr).into_owned())
    }

    /// Runs the job to its good end.
    pub fn finish(&self, arguments: &[&str]) {
        let (code, said) = self.run(arguments);
        assert_eq!(code, Some(0), "{said}");
    }

    /// Starts the job. What it says goes into the file of this name.
    #[must_use]
    pub fn start(&self, arguments: &[&str], said: &str) -> Running {
        let said = fs::File::create(self.path(said)).expect("a file for what it says");
        Running(self.command(arguments).stderr(said).spawn().expect("run `make build` first"))
    }

    /// What a job started with this name has said.
    #[must_use]
    pub fn said(&self, said: &str) -> String {
        fs::read_to_string(self.path(said)).expect("a file for what it says")
    }

    /// The id of the newest checkpoint of which there is metadata; 0 without any.
    #[must_use]
    pub fn newest_checkpoint(&self) -> u64 {
        let folders = files(&self.path("checkpoints")).into_iter().filter(|file| file.ends_with("_metadata"));
        let ids = folders.filter_map(|file| file.parent()?.file_name()?.to_str()?.strip_prefix("chk-")?.parse().ok());
        ids.max().unwrap_or(0)
    }

    /// Waits until there is a checkpoint above this one. Whether one came before the process ended.
    pub fn wait_for_checkpoint_above(&self, checkpoint: u64, running: &mut Running) -> bool {
        until(|| {
            let come = self.newest_checkpoint() > checkpoint;
            (come || running.ended()).then_some(come)
        })
    }

    /// All lines that are committed, sorted.
    #[must_use]
    pub fn committed(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for part in files(&self.path("out")).iter().filter(|part| !is_hidden(part)) {
            lines.extend(fs::read_to_string(part).expect("a part").lines().map(str::to_owned));
        }
        lines.sort_unstable();
        lines
    }

    /// What is committed. No sum comes twice, since all numbers are above zero.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::new();
        for line in self.committed() {
            let (key, sum) = line.rsplit_once(',').expect("a key and a sum");
            let (count, largest) = totals.entry(key.to_owned()).or_default();
            *count += 1;
            *largest = (*largest).max(sum.parse().expect("a sum"));
        }
        totals
    }

    /// Files in the output directory that are not output, but for its lock.
    #[must_use]
    pub fn left_behind(&self) -> Vec<PathBuf> {
        let hidden = files(&self.path("out")).into_iter().filter(|file| is_hidden(file));
        hidden.filter(|file| !file.ends_with(".tidegate-lock")).collect()
    }
}

impl Running {
    /// Whether it has ended by itself.
    pub fn ended(&mut self) -> bool {
        self.0.try_wait().expect("a process of ours").is_some()
    }

    /// Sends a signal that the standard library does not know.
    pub fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.0.id().to_string()]).status().expect("kill");
        assert!(sent.success());
    }

    /// The exit code, once it has ended.
    pub fn wait(&mut self) -> Option<i32> {
        until(|| self.0.try_wait().expect("a process of ours")).code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Lines `key,number` in a file, and what they come to.
pub fn write_lines(path: &Path, lines: u64, keys: u64) -> Totals {
    let (mut random, mut text, mut totals) = (Random::new(keys), String::new(), Totals::new());
    for _ in 0..lines {
        let (key, number) = (format!("k{}", random.below(keys)), 1 + random.below(1000));
        text.push_str(&format!("{key},{number}\n"));
        let (count, sum) = totals.entry(key).or_default();
        *count += 1;
        *sum += i64::try_from(number).expect("at most a thousand");
    }
    fs::write(path, text).expect("a file of lines");
    totals
}

/// All files in a directory and in those in it, in order of their names.
#[must_use]
pub fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    // What others delete meanwhile is not there.
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort_unstable();
    found
}

/// Asks again and again, until there is an answer.
#[expect(clippy::disallowed_methods, reason = "the other process runs on the machine's own time")]
fn until<T>(mut ask: impl FnMut() -> Option<T>) -> T {
    let since = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(since.elapsed() < PATIENCE, "waited in vain");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'))
}
