//! A file source in several lives: whatever was read before a checkpoint, the next life reads the rest.

use std::fs;

use proptest::collection::vec;
use proptest::prelude::*;
use tempfile::TempDir;

use super::super::testing::{block_on, env, read_all, read_in_lives};
use super::super::{RestoredSource, Split};
use super::tests::{LIMIT, source};

/// The tables of the formats that can be cut, and of one that cannot.
const TABLES: [&str; 4] = [
    "",
    "format = \"json\"\nkey = \"k\"",
    "format = \"csv\"\nheader = true\nquoted-newlines = false\nkey = \"k\"",
    "format = \"csv\"\nheader = true\nkey = \"k\"",
];

/// A file of so many records of these lengths, in a format of the table.
fn text(table: usize, lengths: &[usize]) -> String {
    let header = if table > 1 { "k,v\n" } else { "" };
    let record = |(at, length): (usize, &usize)| {
        let filling = "x".repeat(*length);
        match table {
            0 => format!("{at}{filling}\n"),
            1 => format!("{{\"k\":{at},\"v\":\"{filling}\"}}\r\n"),
            2 => format!("{at},\"{filling}\"\n"),
            _ => format!("{at},\"{filling}\n{filling}\"\n"),
        }
    };
    header.to_owned() + &lengths.iter().enumerate().map(record).collect::<String>()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Every record is read once, wherever lives end, however many readers each has and however files are cut.
    #[test]
    fn every_record_is_read_in_one_life(
        table in 0..TABLES.len(),
        files in vec(vec(0usize..60, 0..40), 1..4),
        long in prop::option::of(60_000usize..100_000),
        split_bytes in 1u64..400,
        lives in vec((0usize..25, 1u32..4), 0..5),
        last_readers in 1u32..4,
    ) {
        let dir = TempDir::new().unwrap();
        for (at, lengths) in files.iter().enumerate() {
            // A batch ends behind a long record, and so in the midst of a split.
            let lengths: Vec<usize> = lengths.iter().copied().chain(long).chain(lengths.iter().copied()).collect();
            fs::write(dir.path().join(format!("file-{at}")), text(table, &lengths)).unwrap();
        }
        let split_bytes = if long.is_some() { split_bytes * 500 } else { split_bytes };
        let cut = if table == 3 { String::new() } else { format!("\nsplit-bytes = \"{split_bytes}B\"") };
        let source = source(dir.path(), &format!("{}{cut}", TABLES[table]));
        let mut expected = read_all(&*source, 1, LIMIT).unwrap();
        let mut found = read_in_lives(&*source, &lives, last_readers, LIMIT).unwrap();
        expected.sort();
        found.sort();
        prop_assert_eq!(found, expected);
    }
}

#[test]
fn files_that_come_later_are_not_read_by_a_later_life() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("a"), "1\n2\n").unwrap();
    let source = source(dir.path(), "split-bytes = \"2B\"");
    let checkpoint = block_on(async {
        let mut enumerator = source.enumerator(&env(), None);
        enumerator.start().await.unwrap();
        enumerator.next_split(0).await.unwrap();
        enumerator.snapshot()
    });
    fs::write(dir.path().join("a"), "1\n2\n3\n").unwrap();
    fs::write(dir.path().join("b"), "4\n").unwrap();
    let splits = block_on(async {
        let mut enumerator =
            source.enumerator(&env(), Some(RestoredSource { enumerator: checkpoint, splits: Vec::new() }));
        enumerator.start().await.unwrap();
        let mut splits = Vec::new();
        while let Some(split) = enumerator.next_split(0).await.unwrap() {
            splits.push(split);
        }
        splits
    });
    assert_eq!(splits.len(), 1);
    assert!(splits[0].id.ends_with("/a:2"), "{}", splits[0].id);
}

#[test]
fn states_that_cannot_be_read_are_refused_at_the_start() {
    let dir = TempDir::new().unwrap();
    for table in ["", "follow = true"] {
        let source = source(dir.path(), table);
        for (state, expected) in [
            ("", "EOF"),
            ("{\"version\":9,\"more\":1}", "it is of version 9, known is 1"),
            ("{\"version\":1}", "missing field"),
        ] {
            let restored = RestoredSource { enumerator: state.into(), splits: Vec::new() };
            let error = block_on(source.enumerator(&env(), Some(restored)).start()).unwrap_err().to_string();
            assert!(
                error.starts_with("the state of a file source is not readable") && error.contains(expected),
                "{error}"
            );
        }
        let enumerator = if table.is_empty() {
            "{\"version\":1,\"begun\":[],\"files\":[]}"
        } else {
            "{\"version\":1,\"pending\":[],\"known\":[]}"
        };
        let splits = vec![Split { id: "x".to_owned(), position: b"{\"version\":2}".to_vec() }];
        let restored = RestoredSource { enumerator: enumerator.into(), splits };
        let error = block_on(source.enumerator(&env(), Some(restored)).start()).unwrap_err().to_string();
        assert!(error.starts_with("the position of file split x is not readable"), "{error}");
    }
}
