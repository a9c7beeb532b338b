//! The `tidegate` command as a user meets it: exit codes, what is on stdout and stderr, and what is on disk afterwards.

use std::fs;
use std::io::{BufRead, BufReader, Lines, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// The first bytes of a component that has nothing in it, and of such a core module.
const EMPTY_COMPONENT: &[u8] = b"\0asm\x0d\0\x01\0";
const EMPTY_MODULE: &[u8] = b"\0asm\x01\0\0\0";

/// A directory with a job in it.
struct Job(TempDir);

impl Job {
    fn new(text: &str) -> Self {
        let job = Self(TempDir::new().expect("a directory for the test"));
        job.write("job.toml", text);
        job
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.0.path().join(name), content).expect("a file of the test");
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.args(arguments).current_dir(self.0.path()).stdin(Stdio::null());
        for variable in ["TIDEGATE_LOG", "TIDEGATE_CONFIG"] {
            command.env_remove(variable);
        }
        // Nothing of the user's, and nothing left behind.
        command.env("TIDEGATE_CACHE", "");
        command
    }

    fn tidegate(&self, arguments: &[&str]) -> Done {
        Done(self.command(arguments).output().expect("the command runs"))
    }

    /// What was committed to a directory: all its part files together, without those that are hidden.
    fn committed(&self, directory: &str) -> Vec<u8> {
        let mut parts: Vec<_> = files(&self.0.path().join(directory));
        parts.retain(|name| !name.starts_with('.'));
        parts.iter().flat_map(|name| fs::read(self.0.path().join(directory).join(name)).expect("a part")).collect()
    }
}

/// The names of the files in a directory, hidden ones too; none if it does not exist.
fn files(directory: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut names: Vec<_> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

struct Done(Output);

impl Done {
    fn code(&self) -> i32 {
        self.0.status.code().unwrap_or_else(|| panic!("ended by a signal: {}", self.stderr()))
    }

    fn stdout(&self) -> String {
        String::from_utf8(self.0.stdout.clone()).expect("UTF-8 on stdout")
    }

    fn stderr(&self) -> String {
        String::from_utf8(self.0.stderr.clone()).expect("UTF-8 on stderr")
    }

    /// The last line of stdout, which is the summary of `run --json`.
    fn summary(&self) -> Value {
        let stdout = self.stdout();
        let line = stdout.lines().last().unwrap_or_else(|| panic!("nothing on stdout: {}", self.stderr()));
        let summary: Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(summary["event"], "summary");
        summary
    }
}

const FILE_TO_BLACKHOLE: &str = r#"
name = "copy"
[sources.lines]
connector = "file"
path = "input.txt"
[sinks.out]
connector = "blackhole"
input = "lines"
"#;

const FILE_TO_FILE: &str = r#"
name = "copy"
record-limit = "64B"
[sources.lines]
connector = "file"
path = "input.txt"
[sinks.out]
connector = "file"
input = "lines"
path = "out"
"#;

#[test]
fn the_command_line_is_checked() {
    let job = Job::new(FILE_TO_BLACKHOLE);
    job.write(
        "memory.toml",
        format!("checkpoint = {{ interval = \"1s\", storage = \"memory:\" }}\n{FILE_TO_BLACKHOLE}"),
    );
    let help = job.tidegate(&["--help"]);
    assert_eq!(help.code(), 0);
    assert!(help.stdout().contains("Exit codes:"), "{}", help.stdout());
    assert_eq!(job.tidegate(&["--version"]).stdout(), format!("tidegate {}\n", env!("CARGO_PKG_VERSION")));
    let wrong: [(&[&str], &str); 13] = [
        (&[], "Usage:"),
        (&["run"], "JOB.toml"),
        (&["run", "job.toml", "--resume"], "error: --resume: the job takes no checkpoints"),
        (&["run", "memory.toml", "--resume"], "error: --resume: checkpoints in memory end with the run"),
        (&["run", "job.toml", "--resume", "--fresh"], "cannot be used with"),
        (&["run", "job.toml", "--resume", "--from", "x"], "cannot be used with"),
        (&["run", "job.toml", "--fresh", "--from", "x"], "cannot be used with"),
        (&["run", "job.toml", "--allow-non-restored-state"], "--resume"),
        (&["run", "job.toml", "--from", "nowhere/chk-1"], "error: --from: there is no nowhere/chk-1"),
        (&["run", "job.toml", "--from", "s3://x/chk-1"], "error: --from: checkpoints in s3:// are not available"),
        (&["run", "missing.toml"], "error: cannot read the job file missing.toml: there is no such file"),
        (&["run", "job.toml", "--set", "parallelism"], "--set parallelism has no value"),
        (&["run", "job.toml", "--log", "verbose"], "error: --log: \"verbose\" is not a log level"),
    ];
    for (arguments, expected) in wrong {
        let done = job.tidegate(arguments);
        assert_eq!(done.code(), 2, "{arguments:?}");
        assert!(done.stderr().contains(expected), "{arguments:?}: {}", done.stderr());
        assert_eq!(done.stdout(), "", "{arguments:?}");
    }
}

#[test]
fn a_job_without_operators_counts_its_records() {
    let job = Job::new(FILE_TO_BLACKHOLE);
    job.write("input.txt", (1..=12_345).map(|n| format!("{n}\n")).collect::<String>());
    let done = job.tidegate(&["run", "job.toml", "--set", "parallelism=2"]);
    assert_eq!(done.code(), 0, "{}", done.stderr());
    assert_eq!(done.stdout(), "");
    let stderr = done.stderr();
    assert!(stderr.contains("copy finished after "), "{stderr}");
    assert!(stderr.contains("12,345 records read (") && stderr.contains(", 12,345 written"), "{stderr}");
    assert!(!stderr.contains('\x1b'), "no terminal, but it was drawn on: {stderr:?}");
    assert_eq!(stderr.matches("warning: sinks.out:").count(), 1, "{stderr}");
}

#[test]
fn scripts_get_json() {
    let job = Job::new(FILE_TO_BLACKHOLE);
    job.write("input.txt", "one\ntwo\nthree");
    let done = job.tidegate(&["run", "job.toml", "--json"]);
    assert_eq!(done.code(), 0, "{}", done.stderr());
    for line in done.stdout().lines() {
        assert!(serde_json::from_str::<Value>(line).expect("JSON")["event"].is_string(), "{line}");
    }
    let summary = done.summary();
    let shown = |field: &str| summary[field].to_string();
    let fields = ["job", "outcome", "errors", "records_read", "records_written"].map(shown);
    assert_eq!(fields, ["\"copy\"", "\"finished\"", "[]", "3", "3"]);
    assert!(summary["elapsed_s"].is_f64() && summary["records_per_s"].is_u64(), "{summary}");
    let node = |index: usize, field: &str| summary["nodes"][index][field].clone();
    assert_eq!((node(0, "name"), node(0, "kind"), node(0, "records_in")), ("lines".into(), "source".into(), 3.into()));
    assert_eq!((node(1, "name"), node(1, "kind"), node(1, "records_out")), ("out".into(), "sink".into(), 3.into()));
    assert!(node(1, "summaries")[0].as_str().is_some_and(|text| text.starts_with("3 records")), "{summary}");
    assert!(!done.stderr().contains("finished"), "{}", done.stderr());
}

/// Redirects stdout to where nothing fits.
#[cfg(target_os = "linux")]
fn to_full(command: &mut Command) -> Done {
    let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("the device");
    Done(
        command
            .stdout(full)
            .stderr(Stdio::piped())
            .spawn()
            .and_then(|child| child.wait_with_output())
            .expect("it runs"),
    )
}

#[test]
#[cfg(target_os = "linux")]
fn output_that_cannot_be_written_is_an_error() {
    let job = Job::new(FILE_TO_FILE);
    job.write("input.txt", "one\n");
    job.write("empty.wasm", EMPTY_COMPONENT);
    let lost: [&[&str]; 5] = [
        &["run", "job.toml", "--json"],
        &["run", "missing.toml", "--json"],
        &["component", "check", "empty.wasm"],
        &["component", "check", "empty.wasm", "--json"],
        &["--help"],
    ];
    for arguments in lost {
        let done = to_full(&mut job.command(arguments));
        assert_eq!(done.code(), 1, "{arguments:?}");
        assert!(done.stderr().contains("error: cannot write to stdout: No space left on device"), "{}", done.stderr());
    }
    // The job itself ran, and says on stderr what it did.
    assert_eq!(job.committed("out"), b"one\n");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let job = Job::new(FILE_TO_BLACKHOLE);
    job.write("input.txt", "one\n");
    let (mut running, stdout) = Running::start(&job, &["run", "job.toml", "--json"]);
    drop(stdout);
    running.end_well();
}

#[test]
fn a_job_that_does_not_start_says_so_in_json() {
    let job = Job::new(&FILE_TO_BLACKHOLE.replace("\"file\"", "\"flie\""));
    let done = job.tidegate(&["run", "job.toml", "--json", "--set", "parallelism=0"]);
    assert_eq!(done.code(), 2);
    let summary = done.summary();
    assert_eq!((&summary["job"], &summary["outcome"]), (&Value::Null, &"failed".into()));
    let errors = [
        "job.toml:4:13: sources.lines.connector: there is no connector \"flie\" here; expected one of file, generator, \
         socket; did you mean \"file\"?",
        "--set parallelism=0: parallelism: found the number 0; expected a whole number from 1 to 32768",
    ];
    assert_eq!(summary["errors"], Value::from(errors.map(Value::from).to_vec()));
    assert!(done.stderr().contains("--> job.toml:4:13"), "{}", done.stderr());
}

#[test]
fn the_file_that_cannot_be_read_is_named() {
    let job = Job::new(FILE_TO_BLACKHOLE);
    let mut command = job.command(&["run", "job.toml"]);
    let done = Done(command.env("TIDEGATE_CONFIG", "nowhere.toml").output().expect("the command runs"));
    assert_eq!(done.code(), 2);
    let expected = "error: cannot read the host-wide file of defaults nowhere.toml: there is no such file\n  = help: \
                    correct the path in the variable TIDEGATE_CONFIG, or unset it to do without the file\n";
    assert_eq!(done.stderr(), expected);
}

#[test]
fn a_file_that_may_not_grow_is_an_error_that_names_it() {
    let job = Job::new(FILE_TO_FILE);
    job.write("input.txt", "0123456789abcde\n".repeat(100_000));
    let script = "ulimit -f 100 && exec \"$0\" run job.toml";
    let mut limited = Command::new("sh");
    limited.args(["-c", script, env!("CARGO_BIN_EXE_tidegate")]).current_dir(job.0.path()).stdin(Stdio::null());
    let done = Done(limited.env("TIDEGATE_CACHE", "").env_remove("TIDEGATE_CONFIG").output().expect("the shell runs"));
    assert_eq!(done.code(), 1, "{}", done.stderr());
    let stderr = done.stderr();
    assert!(stderr.contains("error: sink out") && stderr.contains("File too large"), "{stderr}");
    assert!(stderr.contains("out/.part-") || stderr.contains("/out/"), "{stderr}");
}

#[test]
fn a_quiet_run_says_nothing_of_itself() {
    let job = Job::new(FILE_TO_FILE);
    job.write("input.txt", "one\n");
    let done = job.tidegate(&["run", "job.toml", "--quiet"]);
    assert_eq!((done.code(), done.stdout(), done.stderr()), (0, String::new(), String::new()));
    assert_eq!(job.committed("out"), b"one\n");
}

#[test]
fn json_and_records_do_not_share_stdout() {
    let job = Job::new(&FILE_TO_BLACKHOLE.replace("blackhole", "stdout"));
    job.write("input.txt", "one\ntwo\n");
    let done = job.tidegate(&["run", "job.toml", "--json"]);
    assert_eq!(done.code(), 2);
    assert!(done.stderr().contains("--json writes to stdout, and so does sinks.out"), "{}", done.stderr());
    assert_eq!(job.tidegate(&["run", "job.toml"]).stdout(), "one\ntwo\n");
}

#[test]
fn a_missing_input_file_is_named() {
    let job = Job::new(FILE_TO_FILE);
    let done = job.tidegate(&["run", "job.toml", "--json"]);
    assert_eq!(done.code(), 1);
    let stderr = done.stderr();
    assert!(stderr.contains("error: source lines failed\n  caused by: ") && stderr.contains("input.txt"), "{stderr}");
    let summary = done.summary();
    assert_eq!(summary["outcome"], "failed");
    assert_eq!(summary["errors"][0], "source lines failed");
    assert_eq!(job.committed("out"), b"");
}

#[test]
fn a_missing_input_file_costs_no_earlier_result() {
    let job = Job::new(&format!("{FILE_TO_FILE}existing = \"replace\"\n"));
    job.write("input.txt", "one\n");
    assert_eq!(job.tidegate(&["run", "job.toml"]).code(), 0);
    assert_eq!(job.tidegate(&["run", "job.toml", "--set", "sources.lines.path=inptu.txt"]).code(), 1);
    assert_eq!(job.committed("out"), b"one\n");
}

#[test]
fn an_unreadable_input_file_is_named() {
    use std::os::unix::fs::PermissionsExt;

    let job = Job::new(FILE_TO_FILE);
    job.write("input.txt", "secret\n");
    let input = job.0.path().join("input.txt");
    fs::set_permissions(&input, fs::Permissions::from_mode(0o000)).expect("permissions");
    if fs::File::open(&input).is_ok() {
        // To the superuser everything is readable; a name that leads in a circle is not, to anybody.
        fs::remove_file(&input).expect("the file");
        std::os::unix::fs::symlink("input.txt", &input).expect("a link");
    }
    let done = job.tidegate(&["run", "job.toml"]);
    assert_eq!(done.code(), 1);
    let stderr = done.stderr();
    assert!(stderr.contains("error: source lines failed\n  caused by: ") && stderr.contains("input.txt"), "{stderr}");
    assert!(stderr.contains("nothing was committed"), "{stderr}");
    assert_eq!(job.committed("out"), b"");
}

#[test]
fn a_line_over_the_limit_fails_the_job() {
    let job = Job::new(FILE_TO_FILE);
    job.write("input.txt", format!("{}\n{}\nfine\n", "x".repeat(64), "y".repeat(65)));
    let done = job.tidegate(&["run", "job.toml"]);
    assert_eq!(done.code(), 1);
    let stderr = done.stderr();
    assert!(stderr.contains("input.txt") && stderr.contains("line 2"), "{stderr}");
    assert!(stderr.contains("64") && stderr.contains("record-limit"), "{stderr}");
    assert!(stderr.contains("nothing was committed"), "{stderr}");
    assert_eq!(files(&job.0.path().join("out")), Vec::<String>::new(), "not even hidden files are left");
}

#[test]
fn bytes_that_are_not_utf_8_pass_through() {
    let job = Job::new(FILE_TO_FILE);
    let input: Vec<u8> = [&b"\xff\xfe\x80"[..], b"", b"\0", "gr\u{fc}n".as_bytes(), b"\xc3"].join(&b'\n');
    job.write("input.txt", [&input[..], b"\n"].concat());
    let done = job.tidegate(&["run", "job.toml"]);
    assert_eq!(done.code(), 0, "{}", done.stderr());
    assert_eq!(job.committed("out"), [&input[..], b"\n"].concat());
}

#[test]
fn a_component_that_is_none_is_blamed_on_its_line() {
    let job = Job::new(
        r#"name = "count"
[sources.lines]
connector = "file"
path = "input.txt"
[operators.count]
component = "count.wasm"
input = "lines"
[sinks.out]
connector = "blackhole"
input = "count"
"#,
    );
    job.write("input.txt", "one\n");
    let cases =
        [(EMPTY_MODULE, "core module"), (EMPTY_COMPONENT, "it is no operator"), (b"text", "not a WebAssembly file")];
    for (content, expected) in cases {
        job.write("count.wasm", content);
        let done = job.tidegate(&["run", "job.toml"]);
        let stderr = done.stderr();
        assert_eq!(done.code(), 2, "{stderr}");
        assert!(stderr.starts_with("error: operators.count.component: cannot use count.wasm"), "{stderr}");
        assert!(stderr.contains("--> job.toml:6:13") && stderr.contains(expected), "{stderr}");
    }
}

#[test]
fn components_are_checked_without_a_job() {
    let job = Job::new("");
    for (content, expected) in [(EMPTY_MODULE, "core module"), (EMPTY_COMPONENT, "it is no operator")] {
        job.write("count.wasm", content);
        let done = job.tidegate(&["component", "check", "count.wasm"]);
        assert_eq!(done.code(), 1);
        assert!(done.stdout().contains(expected), "{}", done.stdout());
        let json = job.tidegate(&["component", "check", "count.wasm", "--json"]);
        assert_eq!(json.code(), 1);
        let findings: Value = serde_json::from_str(&json.stdout()).expect("JSON");
        assert_eq!((&findings["file"], &findings["operator"]), (&"count.wasm".into(), &false.into()));
        assert!(findings["errors"].to_string().contains(expected), "{findings}");
    }
    assert_eq!(job.tidegate(&["component", "check", "missing.wasm"]).code(), 1);
    let done = job.tidegate(&["component", "check", "count.wasm", "--config", "{n: 1}"]);
    assert_eq!(done.code(), 2);
    assert!(done.stderr().contains("--config is not JSON"), "{}", done.stderr());
}

#[test]
fn an_interrupted_job_ends_in_good_order() {
    let job = Job::new(
        r#"
name = "endless"
[sources.numbers]
connector = "generator"
kind = "sequence"
rate = 1000
[sinks.out]
connector = "file"
input = "numbers"
path = "out"
"#,
    );
    let (mut running, mut stdout) = Running::start(&job, &["run", "job.toml", "--json"]);
    let progress: Value = serde_json::from_str(&stdout.next().expect("a line").expect("UTF-8")).expect("JSON");
    assert_eq!(progress["event"], "progress");
    assert_eq!(progress["percent"], Value::Null);
    running.signal("-INT");
    let last = stdout.map(|line| line.expect("UTF-8")).last().expect("a summary");
    let summary: Value = serde_json::from_str(&last).expect("JSON");
    assert_eq!((&summary["event"], &summary["outcome"]), (&"summary".into(), &"cancelled".into()));
    let stderr = running.end_well();
    assert!(stderr.contains("cancelling after"), "{stderr}");
    // What was read before the end was written and committed: the numbers from 1, without a gap.
    let written = summary["records_written"].as_u64().expect("a count");
    assert_eq!(summary["records_read"], summary["records_written"]);
    let expected: String = (1..=written).map(|number| format!("{number}\n")).collect();
    assert!(written > 0 && job.committed("out") == expected.into_bytes(), "{summary}");
}

#[test]
fn a_terminated_job_says_what_it_did() {
    let job = Job::new(
        r#"
name = "endless"
[sources.numbers]
connector = "generator"
kind = "sequence"
rate = 1000
[sinks.out]
connector = "stdout"
input = "numbers"
"#,
    );
    let (mut running, mut stdout) = Running::start(&job, &["run", "job.toml"]);
    assert_eq!(stdout.next().expect("a line").expect("UTF-8"), "1");
    // As when the terminal closes; SIGTERM is the same.
    running.signal("-HUP");
    let written = 1 + stdout.count();
    let stderr = running.end_well();
    let said = stderr.lines().find(|line| line.starts_with("endless cancelled after ")).expect("what it did");
    let written_line = stderr.lines().last().expect("a line about the sink").replace(',', "");
    assert!(said.ends_with("; what was written until then was committed"), "{stderr}");
    assert!(written_line.contains(&format!(" {written} written")), "{written}: {stderr}");
}

#[test]
fn output_that_nobody_reads_does_not_keep_a_job_from_ending() {
    let job = Job::new(
        r#"
name = "endless"
[sources.numbers]
connector = "generator"
kind = "sequence"
[sinks.out]
connector = "stdout"
input = "numbers"
"#,
    );
    let (mut running, mut stdout) = Running::start(&job, &["run", "job.toml"]);
    // Behind the first line the pipe fills up.
    assert_eq!(stdout.next().expect("a line").expect("UTF-8"), "1");
    running.signal("-TERM");
    let stderr = running.end_well();
    assert!(stderr.contains("endless cancelled after ") && stderr.contains("nobody takes what is written"), "{stderr}");
}

const TWO_SINKS: &str = r#"
name = "two"
[sources.numbers]
connector = "generator"
kind = "sequence"
rate = 10000
[sinks.a]
connector = "file"
input = "numbers"
path = "a"
roll-bytes = "1KiB"
[sinks.b]
connector = "file"
input = "numbers"
path = "b"
roll-bytes = "1KiB"
"#;

/// Waits until files are in a directory, as many as told, by the lines of progress.
fn wait_for_files(job: &Job, directory: &str, count: usize, stdout: &mut Lines<BufReader<ChildStdout>>) {
    while files(&job.0.path().join(directory)).len() < count {
        stdout.next().expect("progress").expect("UTF-8");
    }
}

#[test]
fn a_sink_whose_output_is_gone_keeps_the_others_from_committing() {
    let job = Job::new(TWO_SINKS);
    let (mut running, mut stdout) = Running::start(&job, &["run", "job.toml", "--json"]);
    wait_for_files(&job, "b", 4, &mut stdout);
    let b = job.0.path().join("b");
    let first = files(&b).into_iter().find(|name| name.ends_with("-000000.pending")).expect("a part");
    fs::remove_file(b.join(first)).expect("a pending file");
    running.signal("-TERM");
    assert!(stdout.all(|line| line.is_ok()));
    assert_eq!(running.0.wait().expect("an end").code(), Some(1));
    for directory in ["a", "b"] {
        assert_eq!(job.committed(directory), b"", "{directory}");
    }
}

#[test]
fn two_jobs_do_not_write_into_one_directory() {
    let job = Job::new(TWO_SINKS);
    // Two sinks of one job may.
    let arguments = ["run", "job.toml", "--json", "--set", "sinks.b.path=a"];
    let (mut running, mut stdout) = Running::start(&job, &arguments);
    wait_for_files(&job, "a", 3, &mut stdout);
    let second = job.tidegate(&["run", "job.toml", "--set", "sinks.a.path=c", "--set", "sinks.b.path=./a"]);
    assert_eq!(second.code(), 1);
    let stderr = second.stderr();
    assert!(
        stderr.contains("error: sink b failed") && stderr.contains("another tidegate job writes into "),
        "{stderr}"
    );
    // A crash gives up the lock, with whatever else.
    running.signal("-KILL");
    running.0.wait().expect("an end");
    let (mut running, mut stdout) = Running::start(&job, &arguments);
    stdout.next().expect("progress").expect("UTF-8");
    running.signal("-TERM");
    assert!(stdout.all(|line| line.is_ok()));
    running.end_well();
    let numbers = |directory: &str| {
        let text = String::from_utf8(job.committed(directory)).expect("numbers");
        let mut numbers: Vec<u64> = text.lines().map(|line| line.parse().expect("a number")).collect();
        numbers.sort_unstable();
        numbers
    };
    // A job that is stopped ends where each sink is, and one may be ahead of the other.
    let both = numbers("a");
    let ahead = both.last().copied().expect("committed records");
    let behind = both.len() as u64 - ahead;
    let mut expected: Vec<u64> = (1..=ahead).chain(1..=behind).collect();
    expected.sort_unstable();
    assert!(behind > 0 && both == expected);
}

#[test]
fn a_job_that_fails_replaces_nothing() {
    let job = Job::new(&format!("{FILE_TO_FILE}existing = \"replace\"\n"));
    job.write("input.txt", "one\n");
    assert_eq!(job.tidegate(&["run", "job.toml"]).code(), 0);
    job.write("input.txt", "x".repeat(65));
    assert_eq!(job.tidegate(&["run", "job.toml"]).code(), 1);
    assert_eq!(job.committed("out"), b"one\n");
    job.write("input.txt", "two\n");
    assert_eq!(job.tidegate(&["run", "job.toml"]).code(), 0);
    assert_eq!(job.committed("out"), b"two\n");
    assert_eq!(files(&job.0.path().join("out")).len(), 1, "not even hidden files are left");
}

#[test]
fn a_job_does_not_write_where_it_reads() {
    let job = Job::new(&format!("{FILE_TO_FILE}existing = \"replace\"\n"));
    job.write("input.txt", "one\n");
    assert_eq!(job.tidegate(&["run", "job.toml"]).code(), 0);
    let part = files(&job.0.path().join("out")).remove(0);
    let part_path = format!("sources.lines.path=out/{part}");
    let paths =
        ["sources.lines.path=out", "sources.lines.path=./out/../out/*", "sources.lines.path=o*/part-*", &part_path];
    for follow in ["sources.lines.follow=false", "sources.lines.follow=true"] {
        for path in paths {
            let done = job.tidegate(&["run", "job.toml", "--set", path, "--set", follow]);
            assert_eq!(done.code(), 1, "{path}");
            assert!(done.stderr().contains("which source lines reads from"), "{path}: {}", done.stderr());
            assert_eq!(job.committed("out"), b"one\n");
        }
    }
    // Other files there are left alone.
    job.write("out/input.txt", "two\n");
    for path in ["sources.lines.path=out/input.txt", "sources.lines.path=out/*.txt"] {
        assert_eq!(job.tidegate(&["run", "job.toml", "--set", path]).code(), 0, "{path}");
    }
    assert_eq!(files(&job.0.path().join("out")).len(), 2);
}

#[test]
fn a_commit_is_not_broken_off() {
    const RECORDS: usize = 2000;
    let job = Job::new(&format!(
        r#"
name = "many-parts"
[sources.numbers]
connector = "generator"
kind = "sequence"
records = {RECORDS}
[sinks.out]
connector = "file"
input = "numbers"
path = "out"
roll-bytes = "1B"
"#
    ));
    let (mut running, stdout) = Running::start(&job, &["run", "job.toml"]);
    let out = job.0.path().join("out");
    let committed = || files(&out).iter().filter(|name| !name.starts_with('.')).count();
    // Should the commit be over before the signals come, there is nothing to see.
    while committed() == 0 && running.0.try_wait().expect("a child").is_none() {
        std::thread::yield_now();
    }
    running.signal("-INT");
    running.signal("-INT");
    assert_eq!(stdout.count(), 0);
    running.end_well();
    assert_eq!(job.committed("out").iter().filter(|byte| **byte == b'\n').count(), RECORDS);
}

/// A command that must not outlive a test that fails.
struct Running(Child);

impl Running {
    /// Starts the command, with its output to be read.
    fn start(job: &Job, arguments: &[&str]) -> (Self, Lines<BufReader<ChildStdout>>) {
        let mut command = job.command(arguments);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut running = Self(child.expect("the command runs"));
        let stdout = BufReader::new(running.0.stdout.take().expect("a pipe")).lines();
        (running, stdout)
    }

    /// Waits for the end, which must be with exit code 0; returns what was written to stderr.
    fn end_well(&mut self) -> String {
        let mut stderr = String::new();
        self.0.stderr.take().expect("a pipe").read_to_string(&mut stderr).expect("UTF-8");
        assert_eq!(self.0.wait().expect("an end").code(), Some(0), "{stderr}");
        stderr
    }

    fn signal(&self, signal: &str) {
        let status = Command::new("kill").args([signal, &self.0.id().to_string()]).status();
        assert!(status.expect("kill runs").success());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended already if all is well.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
