//! The protocol decides what makes results right, so it must be the same under every runtime: plain data and functions.
//!
//! Reads the code as text. A path that it cannot have is a failure; comments, strings and the tests inside the files
//! are looked at like everything else, but comments and strings are blanked out first.

use std::fs;
use std::path::{Path, PathBuf};

/// What no line may contain, each with what it stands for.
const FORBIDDEN: &[(&str, &str)] = &[
    ("async", "async code"),
    ("await", "async code"),
    ("tokio", "a runtime"),
    ("tokio_util", "a runtime"),
    ("futures", "futures"),
    ("futures_util", "futures"),
    ("Future", "futures"),
    ("tracing", "a log"),
    ("println", "a log"),
    ("eprintln", "a log"),
    ("rand", "randomness"),
    ("Random", "randomness"),
    ("Instant", "a clock"),
    ("SystemTime", "a clock"),
    ("HashMap", "a map whose order differs from run to run"),
    ("HashSet", "a set whose order differs from run to run"),
];

/// The modules of the standard library that do I/O, tell the time or start threads. `std::time::Duration` is only data.
const FORBIDDEN_STD: &[&str] = &["fs", "net", "thread", "process", "env", "io", "time"];

/// The modules of the crate that the protocol may know: leaves like itself.
const ALLOWED_CRATE: &[&str] = &["protocol", "record", "id"];

/// What is wrong with a source text, line by line.
fn impurities(text: &str) -> Vec<String> {
    let code = blank_comments_and_strings(text);
    let mut found = Vec::new();
    for (line, number) in code.lines().zip(1..) {
        let words = words(line);
        for (at, word) in words.iter().enumerate() {
            if let Some((_, what)) = FORBIDDEN.iter().find(|(forbidden, _)| forbidden == word) {
                found.push(format!("{number}: {word} ({what})"));
            }
            let next = if words.get(at + 1) == Some(&"::") { words.get(at + 2).copied() } else { None };
            match (*word, next) {
                // A group may name anything; one path a line keeps this test able to read them.
                ("std" | "crate" | "super", Some("{")) => {
                    found.push(format!("{number}: {word}::{{..}}, name one module a line"))
                }
                ("std", Some("time")) if words.get(at + 3..at + 5) == Some(&["::", "Duration"]) => {}
                ("std", Some(module)) if FORBIDDEN_STD.contains(&module) => {
                    found.push(format!("{number}: std::{module}"))
                }
                ("crate", Some(module)) if !ALLOWED_CRATE.contains(&module) => {
                    found.push(format!("{number}: crate::{module}"));
                }
                // Two levels up from a file of the folder lies the crate.
                ("super", Some("super")) => found.push(format!("{number}: super::super")),
                _ => {}
            }
        }
    }
    found
}

/// The identifiers, `::` and `{` of a line, in order.
fn words(line: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let len = if is_word(first) {
            rest.find(|c| !is_word(c)).unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            2
        } else {
            first.len_utf8()
        };
        let (word, tail) = rest.split_at(len);
        if is_word(first) || word == "::" || word == "{" {
            words.push(word);
        }
        rest = tail;
    }
    words
}

/// Replaces what is no code by spaces and keeps the lines.
fn blank_comments_and_strings(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let len = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if first == '"' {
            let mut escaped = false;
            let end = rest[1..].find(|c| {
                let ends = c == '"' && !escaped;
                escaped = c == '\\' && !escaped;
                ends
            });
            end.map_or(rest.len(), |end| end + 2)
        } else {
            0
        };
        if len == 0 {
            code.push(first);
            rest = &rest[first.len_utf8()..];
        } else {
            code.extend(rest[..len].chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
            rest = &rest[len..];
        }
    }
    code
}

fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the folder is there") {
        let path = entry.expect("the folder can be read").path();
        if path.is_dir() {
            rust_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

#[test]
fn the_protocol_is_plain_data_and_functions() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../host/src/protocol");
    let mut files = Vec::new();
    rust_files(&folder, &mut files);
    files.sort();
    assert!(files.iter().any(|file| file.ends_with("key_group.rs")), "the protocol is not where it was: {files:?}");
    let mut found = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).expect("the file can be read");
        found.extend(impurities(&text).into_iter().map(|what| format!("{}:{what}", file.display())));
    }
    assert!(found.is_empty(), "the protocol may have no part in these:\n{}", found.join("\n"));
}

#[test]
fn impure_code_is_noticed() {
    let pure = [
        "use std::collections::BTreeMap;",
        "use std::time::Duration;",
        "use crate::record::Watermark; // not tokio::spawn",
        "let text = \"async { crate::env }\"; let random_rank = 1;",
        "use super::*;",
    ];
    for text in pure {
        assert_eq!(impurities(text), Vec::<String>::new(), "{text}");
    }
    let impure = [
        "pub async fn f() {}",
        "x.await",
        "use tokio::sync::mpsc;",
        "let now = std::time::Instant::now();",
        "use std::time::{Duration, SystemTime};",
        "use std::fs::File;",
        "use std::{fs, io};",
        "std::thread::yield_now()",
        "use crate::env::Env;",
        "use crate::{record::Batch, env::Env};",
        "use super::super::env::Env;",
        "tracing::info!(\"x\")",
        "use crate::random::Random;",
        "let s = \"\\\"\"; use rand::Rng;",
    ];
    for text in impure {
        assert_ne!(impurities(text), Vec::<String>::new(), "{text}");
    }
}
