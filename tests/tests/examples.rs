//! The examples, run through the program as a newcomer would, each against what another way of computing it says.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs};

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::Value;
use tempfile::TempDir;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Runs the job of an example with settings of its own.
fn run(example: &str, settings: &[String]) -> Output {
    let program = env::var_os("TIDEGATE_BIN").map_or_else(|| root().join("target/release/tidegate"), PathBuf::from);
    assert!(program.exists(), "{} is missing: run `make build`", program.display());
    let mut command = Command::new(program);
    command.current_dir(root()).arg("run").arg(format!("examples/{example}/job.toml"));
    command.args(settings.iter().flat_map(|setting| ["--set", setting]));
    command.output().unwrap()
}

/// Runs the job of an example, which must succeed.
fn run_well(example: &str, settings: &[String]) {
    let done = run(example, settings);
    assert!(done.status.success(), "{example} {settings:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// `node.path` set to a folder that does not exist yet.
fn path(node: &str, folder: &Path) -> String {
    format!("{node}.path={}", folder.display())
}

/// The lines of all part files of a folder, those of a file in their order.
fn lines(folder: &Path) -> Vec<Vec<u8>> {
    let mut lines = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let content = fs::read(entry.unwrap().path()).unwrap();
        lines.extend(content.split_inclusive(|&byte| byte == b'\n').map(|line| line.trim_ascii_end().to_vec()));
    }
    lines
}

/// The last line of each key, which stands before the last `separator`. A key's lines are all in one file, in order.
fn last_of_each_key(lines: &[Vec<u8>], separator: u8) -> BTreeMap<Vec<u8>, i64> {
    let split = |line: &Vec<u8>| {
        let end = line.iter().rposition(|&byte| byte == separator).unwrap();
        (line[..end].to_vec(), str::from_utf8(&line[end + 1..]).unwrap().parse().unwrap())
    };
    lines.iter().map(split).collect()
}

/// What `tr -s '[:space:]' '\n' | sort | uniq -c` finds in a text.
fn counted(text: &[u8]) -> BTreeMap<Vec<u8>, i64> {
    let mut counts = BTreeMap::new();
    for word in text.split(|byte| b" \t\n\x0b\x0c\r".contains(byte)).filter(|word| !word.is_empty()) {
        *counts.entry(word.to_vec()).or_default() += 1;
    }
    counts
}

fn check_word_count(example: &str) {
    let folder = TempDir::new().unwrap();
    let bytes = prop::collection::vec(prop::sample::select(b"aabbc\xff\xc3\0 \t\n\n\x0b\x0c\r".to_vec()), 60_000);
    let made_up = bytes.new_tree(&mut TestRunner::deterministic()).unwrap().current();
    for text in [fs::read(root().join("examples/wordcount/text.txt")).unwrap(), made_up] {
        let input = folder.path().join("input");
        fs::write(&input, &text).unwrap();
        for parallelism in [1, 2, 4] {
            let out = TempDir::new_in(folder.path()).unwrap();
            let parallelism = format!("parallelism={parallelism}");
            run_well(example, &[path("sources.lines", &input), path("sinks.out", out.path()), parallelism.clone()]);
            let (lines, expected) = (lines(out.path()), counted(&text));
            assert_eq!(lines.len() as i64, expected.values().sum::<i64>(), "{parallelism}: a line for each word");
            assert_eq!(last_of_each_key(&lines, b'\t'), expected, "{parallelism}");
        }
    }
}

#[test]
fn words_are_counted() {
    check_word_count("wordcount");
}

#[test]
fn words_are_counted_in_python() {
    check_word_count("wordcount-python");
}

#[test]
fn sums_are_those_of_the_numbers_of_each_key() {
    let out = TempDir::new().unwrap();
    let mut expected = BTreeMap::new();
    for line in fs::read_to_string(root().join("examples/keyed-sum/numbers.csv")).unwrap().lines() {
        let (key, number) = line.rsplit_once(',').unwrap();
        *expected.entry(key.as_bytes().to_vec()).or_default() += number.parse::<i64>().unwrap();
    }
    for parallelism in ["parallelism=1", "parallelism=3"] {
        run_well("keyed-sum", &[path("sinks.out", out.path()), parallelism.to_owned()]);
        assert_eq!(last_of_each_key(&lines(out.path()), b','), expected, "{parallelism}");
    }
}

#[test]
fn a_line_that_is_no_number_fails_the_job_and_is_named() {
    let folder = TempDir::new().unwrap();
    let (input, out) = (folder.path().join("input"), folder.path().join("out"));
    fs::write(&input, "a,1\nb,two\na,3\n").unwrap();
    let done = run("keyed-sum", &[path("sources.lines", &input), path("sinks.out", &out)]);
    assert_eq!(done.status.code(), Some(1));
    let errors = String::from_utf8(done.stderr).unwrap();
    assert!(errors.contains("expected \"key,number\", found \"b,two\""), "{errors}");
    assert_eq!(lines(&out), [[0u8; 0]; 0], "nothing that looks complete");
}

#[test]
fn even_and_odd_numbers_go_their_ways() {
    let folder = TempDir::new().unwrap();
    let (even, odd) = (folder.path().join("even"), folder.path().join("odd"));
    run_well("even-odd", &[path("sinks.even", &even), path("sinks.odd", &odd)]);
    assert_eq!((lines(&even).len(), lines(&odd).len()), (50, 50));
    assert_eq!((lines(&even).last().unwrap(), lines(&odd).last().unwrap()), (&b"2550".to_vec(), &b"2500".to_vec()));
}

#[test]
fn records_of_no_use_become_dead_letters() {
    let folder = TempDir::new().unwrap();
    let (good, failed) = (folder.path().join("good"), folder.path().join("failed"));
    run_well("dead-letter", &[path("sinks.readings", &good), path("sinks.failed", &failed)]);
    assert_eq!(lines(&good).len(), 6);
    let errors: Vec<String> = lines(&failed)
        .iter()
        .map(|line| serde_json::from_slice::<Value>(line).unwrap()["error"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(
        errors,
        [
            "the operator returned an error: the temperature \"cold\": invalid float literal",
            "the operator rejected a record: 300 degrees is not between -90 and 60",
            "the operator returned an error: expected \"station degrees\", found \"west\"",
        ]
    );
}
