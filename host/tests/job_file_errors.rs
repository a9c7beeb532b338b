//! Mistakes in job files, one file per kind in `bad-jobs`, and the exact message for each beside it.
//!
//! `TIDEGATE_BLESS=1 cargo test --test job_file_errors` writes the messages anew; read the difference before keeping it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use tidegate::config::{JobFile, JobSources};

/// The kinds of mistakes: each has a file, and no file is without its kind.
const KINDS: &[&str] = &[
    "bad-duration",
    "bad-size",
    "checkpoint-fields",
    "checkpoint-interval",
    "cycle",
    "dotted-name",
    "duplicate-key",
    "duplicate-name",
    "forward-parallelism",
    "hash-without-keys",
    "missing-component",
    "missing-field",
    "no-input",
    "not-available",
    "nothing-to-do",
    "old-backend",
    "parallelism-range",
    "restart-fields",
    "restart-strategy",
    "restart-without-strategy",
    "set",
    "syntax",
    "unknown-connector",
    "unknown-field",
    "unknown-input",
    "unknown-partition",
    "wrong-type",
];

fn message(job: &Path) -> String {
    let text = fs::read_to_string(job).expect("a job file");
    let set = text.lines().filter_map(|line| line.strip_prefix("#set: ").map(str::to_owned)).collect();
    let error = JobFile::load(&JobSources { job: job.to_owned(), host: None, set });
    format!("{}\n", error.expect_err("the job file has a mistake"))
}

#[test]
fn every_kind_of_mistake_has_its_message() {
    // Paths in messages are as the user wrote them: relative to the package, where cargo runs tests.
    let directory = Path::new("tests/bad-jobs");
    let mut different = Vec::new();
    for kind in KINDS {
        let found = message(&directory.join(kind).with_extension("toml"));
        let expected = directory.join(kind).with_extension("txt");
        if std::env::var_os("TIDEGATE_BLESS").is_some() {
            fs::write(&expected, &found).expect("a writable tree");
        } else if fs::read_to_string(&expected).unwrap_or_default() != found {
            different.push(format!("--- {kind}\n{found}"));
        }
    }
    assert!(different.is_empty(), "messages differ from those beside the job files:\n{}", different.join("\n"));
}

#[test]
fn every_bad_job_is_checked() {
    let names = fs::read_dir("tests/bad-jobs").expect("the directory").map(|entry| entry.expect("an entry").path());
    let kinds = names.filter(|path| path.extension().is_some_and(|extension| extension == "toml"));
    let kinds: BTreeSet<String> = kinds.map(|path| path.file_stem().unwrap().to_string_lossy().into_owned()).collect();
    assert_eq!(kinds, KINDS.iter().map(ToString::to_string).collect());
}
