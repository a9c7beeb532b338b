use std::fs;
use std::io::Write;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{Either, poll_fn, select};
use proptest::prelude::*;
use serde::Deserialize;
use tempfile::TempDir;

use super::*;
use crate::clock::Clock;
use crate::connectors::settings::SourceSettings;
use crate::connectors::testing::{
    Record, VirtualClock, block_on, env, env_with_clock, read_all, reader_context, records,
};
use crate::connectors::{ConnectorError, Extent, ReaderEvent, Split};

pub(super) const LIMIT: usize = 1 << 20;

pub(super) fn source(path: &Path, table: &str) -> Arc<dyn Source> {
    let mut table: toml::Table = table.parse().expect("valid TOML");
    table.insert("path".to_owned(), path.to_str().expect("UTF-8").into());
    FileSourceSettings::deserialize(table).expect("good settings").build(Path::new("")).expect("good values")
}

fn values(records: Vec<Record>) -> Vec<Vec<u8>> {
    records.into_iter().map(|(_, value, _)| value).collect()
}

fn texts(records: Vec<Record>) -> Vec<String> {
    values(records).into_iter().map(|value| String::from_utf8(value).expect("text")).collect()
}

fn read(path: &Path, table: &str) -> Result<Vec<String>, ConnectorError> {
    read_all(&*source(path, table), 2, LIMIT).map(texts)
}

fn problem(path: &Path, table: &str) -> String {
    let error = read(path, table).expect_err("a problem");
    let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
    format!("{error}{cause}")
}

/// What the lines of a text are, said in another way.
fn lines(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut lines: Vec<_> = bytes.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    if lines.last().is_some_and(Vec::is_empty) {
        lines.pop();
    }
    for line in &mut lines {
        if line.last() == Some(&b'\r') {
            line.pop();
        }
    }
    lines
}

/// All splits of a source.
async fn splits(source: &dyn Source) -> Result<Vec<Split>, ConnectorError> {
    let mut enumerator = source.enumerator(&env(), None);
    enumerator.start().await?;
    let mut splits = Vec::new();
    while let Some(split) = enumerator.next_split(0).await? {
        splits.push(split);
    }
    Ok(splits)
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(
        prop_oneof![3 => Just(b'\n'), 1 => Just(b'\r'), 6 => Just(b'x'), 1 => any::<u8>()],
        0..200,
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// However a file is cut, every line is read once.
    #[test]
    fn lines_are_the_same_with_any_splits(bytes in bytes(), split_bytes in 1u64..300, readers in 1u32..4) {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("input");
        fs::write(&path, &bytes).unwrap();
        let source = source(&path, &format!("split-bytes = \"{split_bytes}B\""));
        let mut found = values(read_all(&*source, readers, LIMIT).unwrap());
        let mut expected = lines(&bytes);
        found.sort();
        expected.sort();
        prop_assert_eq!(found, expected);
    }

    /// Whatever a reader had returned when it was asked, a new one returns the rest.
    #[test]
    fn a_new_reader_goes_on_where_the_old_one_stopped(
        line_bytes in proptest::collection::vec(0usize..40_000, 1..30),
        split_kib in 1u64..300,
        stop_after in 0usize..12,
    ) {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("input");
        let text: Vec<_> = line_bytes.iter().enumerate().map(|(at, len)| format!("{at}{}", "-".repeat(*len))).collect();
        fs::write(&path, text.join("\n")).unwrap();
        let source = source(&path, &format!("split-bytes = \"{split_kib}KiB\""));
        let found = block_on(async {
            let mut todo = splits(&*source).await?;
            todo.reverse();
            let mut found = Vec::new();
            let mut reader = source.reader(reader_context(&env(), 0, LIMIT));
            for event in 0.. {
                if reader.snapshot().is_empty() {
                    let Some(split) = todo.pop() else { break };
                    reader.add_split(split)?;
                }
                if event >= stop_after {
                    // Each event from here on is the first of a new reader.
                    let snapshot = reader.snapshot();
                    reader = source.reader(reader_context(&env(), 1, LIMIT));
                    snapshot.into_iter().try_for_each(|split| reader.add_split(split))?;
                }
                // A wait that is given up loses nothing.
                let given_up = reader.next().now_or_never();
                let event = match given_up {
                    Some(event) => event?,
                    None => reader.next().await?,
                };
                if let ReaderEvent::Batch(batch) = event {
                    found.extend(texts(records(&batch)));
                }
            }
            Ok::<_, ConnectorError>(found)
        })
        .unwrap();
        prop_assert_eq!(found, text);
    }
}

#[test]
fn bounded_files_are_read_in_order_to_the_last_line() {
    let dir = TempDir::new().unwrap();
    for (name, text) in [("b.txt", "3\r\n4"), ("a.txt", "1\n2\n"), (".hidden", "x"), ("_temporary", "x"), ("empty", "")]
    {
        fs::write(dir.path().join(name), text).unwrap();
    }
    fs::create_dir(dir.path().join("more")).unwrap();
    let read = |path: &Path| read_all(&*source(path, ""), 1, LIMIT).map(texts).unwrap();
    assert_eq!(read(dir.path()), ["1", "2", "3", "4"]);
    assert_eq!(read(&dir.path().join("*.txt")), ["1", "2", "3", "4"]);
    assert_eq!(read(&dir.path().join("b.txt")), ["3", "4"]);
    assert!(read(&dir.path().join("empty")).is_empty());
}

#[test]
fn bytes_that_are_no_text_pass_and_progress_reaches_the_extent() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("input");
    fs::write(&path, b"\xff\xfe\n\n\r\n").unwrap();
    let source = source(&path, "split-bytes = \"2B\"");
    assert_eq!(values(read_all(&*source, 1, LIMIT).unwrap()), [&b"\xff\xfe"[..], b"", b""]);
    let (extent, progress) = block_on(async {
        let mut enumerator = source.enumerator(&env(), None);
        enumerator.start().await.unwrap();
        let mut reader = source.reader(reader_context(&env(), 0, LIMIT));
        while let Some(split) = enumerator.next_split(0).await.unwrap() {
            reader.add_split(split).unwrap();
            while !reader.snapshot().is_empty() {
                reader.next().await.unwrap();
            }
        }
        (enumerator.extent(), reader.progress())
    });
    assert_eq!((extent, progress), (Some(Extent::Bytes(6)), 6));
}

#[test]
fn what_cannot_be_read_is_said() {
    let dir = TempDir::new().unwrap();
    let missing = problem(&dir.path().join("missing"), "");
    assert!(missing.starts_with("cannot open ") && missing.contains("missing: No such file"), "{missing}");
    assert!(problem(&dir.path().join("*.csv"), "").starts_with("no file matches "));
    assert!(problem(dir.path(), "").starts_with("there are no files in directory "));
    assert!(problem(Path::new("/dev/null"), "").contains("is not a regular file"));
}

#[test]
fn wrong_records_are_named_by_file_and_line() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("input");
    fs::write(&path, "short\n0123456789\r\n0123456789x\nshort\n").unwrap();
    for split_bytes in ["100B", "7B"] {
        let source = source(&path, &format!("split-bytes = \"{split_bytes}\""));
        let error = read_all(&*source, 1, 10).unwrap_err().to_string();
        assert!(error.contains("input, line 3: the record is longer than the limit of 10B"), "{error}");
    }
    // Also where no newline is in sight.
    fs::write(&path, format!("a\n{}", "x".repeat(3 << 20))).unwrap();
    assert!(problem(&path, "").contains("line 2: the record is longer than the limit of 1MiB"));
    fs::write(&path, "{}\n\n{]\n").unwrap();
    assert!(problem(&path, "format = \"json\"").contains("input, line 3: not valid JSON"));
    // A quote that is not closed takes in what is behind it, to the end of the file or to the limit.
    for (end, expected) in [("c\n", "a quote is opened in this record"), (&"c\n".repeat(1 << 20), "close a quote")] {
        fs::write(&path, format!("a,b\n\"a\n\",b\na,\"b\n{end}")).unwrap();
        let problem = problem(&path, "format = \"csv\"");
        assert!(problem.contains("input, line 4: ") && problem.contains(expected), "{problem}");
    }
    fs::write(&path, "{\"k\": 1}\n{\"k\": null}\n").unwrap();
    assert!(problem(&path, "format = \"json\"\nkey = \"k\"").contains("input, line 2: field \"k\" is null"));
    fs::write(&path, "a,\"b\nc\"\nd\n").unwrap();
    assert!(problem(&path, "format = \"csv\"").contains("input, line 3: the record has 1 field, but"));
}

#[test]
fn a_file_with_a_header_is_cut_like_others() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("input.csv");
    fs::write(&path, "\u{feff}id,name\r\n1,x\n2,y\n3,\"z\"").unwrap();
    let table = "format = \"csv\"\nheader = true\nquoted-newlines = false\nkey = \"id\"\nsplit-bytes = ";
    for split_bytes in 1..40 {
        let source = source(&path, &format!("{table}\"{split_bytes}B\""));
        let found = read_all(&*source, 1, LIMIT).unwrap();
        let found: Vec<_> =
            found.into_iter().map(|(key, value, _)| (key.unwrap(), String::from_utf8(value).unwrap())).collect();
        let record =
            |id: &str, name: &str| (id.as_bytes().to_vec(), format!("{{\"id\":\"{id}\",\"name\":\"{name}\"}}"));
        assert_eq!(found, [record("1", "x"), record("2", "y"), record("3", "z")], "{split_bytes}");
    }
}

#[test]
fn another_file_in_the_place_of_the_first_is_an_error() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("input");
    fs::write(&path, "1\n2\n3\n").unwrap();
    let source = source(&path, "");
    let read = |split: &Split| {
        let mut reader = source.reader(reader_context(&env(), 0, LIMIT));
        reader.add_split(split.clone()).unwrap();
        block_on(reader.next()).map(drop).map_err(|error| error.to_string())
    };
    let split = block_on(splits(&*source)).unwrap().remove(0);
    fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"4\n").unwrap();
    assert_eq!(read(&split), Ok(()));
    fs::write(&path, "1\n2\n").unwrap();
    assert!(read(&split).unwrap_err().contains("input has shrunk, or been removed or replaced"));
    fs::write(&path, "1\n2\n5\n").unwrap();
    assert!(read(&split).unwrap_err().contains("input has shrunk, or been removed or replaced"));
    fs::remove_file(&path).unwrap();
    assert!(read(&split).unwrap_err().contains("input has shrunk, or been removed or replaced"));
}

/// A followed source, driven by hand.
struct Followed {
    clock: Arc<VirtualClock>,
    enumerator: Box<dyn SplitEnumerator>,
    reader: Box<dyn SourceReader>,
}

impl Followed {
    fn start(source: &dyn Source) -> Self {
        let clock = Arc::default();
        let env = env_with_clock(&clock);
        let mut enumerator = source.enumerator(&env, None);
        block_on(enumerator.start()).unwrap();
        Self { enumerator, reader: source.reader(reader_context(&env, 0, LIMIT)), clock }
    }

    /// As after a crash: others go on from what these would have in a checkpoint.
    fn restore(&mut self, source: &dyn Source) {
        let env = env_with_clock(&self.clock);
        let restored = RestoredSource { enumerator: self.enumerator.snapshot(), splits: self.reader.snapshot() };
        self.enumerator = source.enumerator(&env, Some(restored));
        block_on(self.enumerator.start()).unwrap();
        self.reader = source.reader(reader_context(&env, 0, LIMIT));
    }

    /// Lets time pass, in which nothing may be read.
    fn idle(&mut self, time: Duration) {
        let until = self.clock.monotonic() + time;
        let next = self.reader.next();
        let over = poll_fn(|context| {
            context.waker().wake_by_ref();
            if self.clock.monotonic() < until { Poll::Pending } else { Poll::Ready(()) }
        });
        match block_on(select(next, over)) {
            Either::Left((event, _)) => panic!("there was {event:?}"),
            Either::Right(_) => {}
        }
    }

    /// Waits for the end of a split, before which nothing may be read.
    fn finish(&mut self) {
        let event = block_on(self.reader.next()).unwrap();
        let ReaderEvent::SplitFinished(split) = event else { panic!("there was {event:?}") };
        self.enumerator.split_finished(&split);
    }

    fn take_split(&mut self) {
        let split = block_on(self.enumerator.next_split(0)).unwrap().unwrap();
        self.reader.add_split(split).unwrap();
    }

    fn lines(&mut self) -> Result<Vec<String>, ConnectorError> {
        loop {
            if let ReaderEvent::Batch(batch) = block_on(self.reader.next())? {
                return Ok(texts(records(&batch)));
            }
        }
    }
}

fn append(path: &Path, text: &str) {
    let file = fs::OpenOptions::new().create(true).append(true).open(path);
    file.unwrap().write_all(text.as_bytes()).unwrap();
}

#[test]
fn followed_files_grow_are_renamed_and_joined_by_others() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("log");
    append(&path, "1\nunfini");
    let source = source(&path, "follow = true");
    assert_eq!(source.boundedness(), Boundedness::Unbounded);
    let mut followed = Followed::start(&*source);
    assert!(followed.reader.takes_more_splits());
    followed.take_split();
    assert_eq!(followed.lines().unwrap(), ["1"]);
    assert!(block_on(async { followed.reader.next().now_or_never() }).is_none());
    append(&path, "shed\n");
    assert_eq!(followed.lines().unwrap(), ["unfinished"]);
    // A new reader finds the file under its new name.
    let snapshot = followed.reader.snapshot();
    let renamed = dir.path().join("log.1");
    fs::rename(&path, &renamed).unwrap();
    append(&renamed, "2\nlast");
    followed.reader = source.reader(reader_context(&env(), 0, LIMIT));
    snapshot.into_iter().for_each(|split| followed.reader.add_split(split).unwrap());
    assert_eq!(followed.lines().unwrap(), ["2"]);
    append(&path, "3\n");
    followed.take_split();
    let mut found = followed.lines().unwrap();
    found.extend(followed.lines().unwrap());
    found.sort();
    assert_eq!(found, ["3", "last"]);
    append(&path, "4\n");
    assert_eq!(followed.lines().unwrap(), ["4"]);
    followed.finish();
    assert_eq!(followed.reader.snapshot().len(), 1);
}

#[test]
fn a_file_is_followed_for_as_long_as_its_writer_may_have_it_open() {
    let dir = TempDir::new().unwrap();
    let (path, renamed) = (dir.path().join("log"), dir.path().join("log.1"));
    append(&path, "1\n");
    let mut followed = Followed::start(&*source(&path, "follow = true"));
    followed.take_split();
    assert_eq!(followed.lines().unwrap(), ["1"]);
    fs::rename(&path, &renamed).unwrap();
    // Its writer has yet to hear of it.
    followed.idle(Duration::from_secs(60));
    append(&renamed, "2\n");
    assert_eq!(followed.lines().unwrap(), ["2"]);
    append(&path, "");
    followed.idle(Duration::from_secs(4));
    append(&renamed, "3\n");
    assert_eq!(followed.lines().unwrap(), ["3"]);
    followed.idle(Duration::from_secs(4));
    followed.finish();
}

#[test]
fn a_file_that_takes_over_the_inode_of_another_is_read() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("a");
    append(&path, "same\n");
    let source = source(dir.path(), "follow = true");
    let mut followed = Followed::start(&*source);
    followed.take_split();
    assert_eq!(followed.lines().unwrap(), ["same"]);
    for name in ["b", "c", "d"] {
        for entry in fs::read_dir(dir.path()).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
        followed.finish();
        // Most file systems hand out the inode that became free last; no look comes between.
        append(&dir.path().join(name), "same\nmore\n");
        followed.restore(&*source);
        followed.take_split();
        assert_eq!(followed.lines().unwrap(), ["same", "more"]);
    }
}

#[test]
fn a_file_that_comes_back_under_another_name_is_not_read_twice() {
    let dir = TempDir::new().unwrap();
    let name = |name: &str| dir.path().join(name);
    append(&name("a"), "1\n");
    let source = source(dir.path(), "follow = true");
    let mut followed = Followed::start(&*source);
    followed.take_split();
    assert_eq!(followed.lines().unwrap(), ["1"]);
    // Out of sight at one look, and back at the next.
    fs::rename(name("a"), name(".a")).unwrap();
    append(&name("b"), "2\n");
    followed.take_split();
    assert_eq!(followed.lines().unwrap(), ["2"]);
    fs::rename(name(".a"), name("c")).unwrap();
    append(&name("d"), "3\n");
    followed.restore(&*source);
    (0..3).for_each(|_| followed.take_split());
    assert_eq!(followed.lines().unwrap(), ["3"]);
    append(&name("c"), "4\n");
    assert_eq!(followed.lines().unwrap(), ["4"]);
}

#[test]
fn a_followed_directory_may_begin_empty() {
    let dir = TempDir::new().unwrap();
    let mut followed = Followed::start(&*source(dir.path(), "follow = true"));
    for name in ["b", "a"] {
        append(&dir.path().join(name), &format!("{name}\n"));
        followed.take_split();
        assert_eq!(followed.lines().unwrap(), [name]);
    }
    append(&dir.path().join("b"), "more\n");
    assert_eq!(followed.lines().unwrap(), ["more"]);
}

#[test]
fn a_followed_file_that_was_overwritten_fails_or_is_read_again() {
    for (restart, overwritten) in [(false, ""), (false, "3\n4\n5\n"), (true, "3\n"), (true, "3\n4\n5\n")] {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("log");
        append(&path, "1\n2\n");
        let table = if restart { "follow = true\non-truncate = \"restart\"" } else { "follow = true" };
        let source = source(&path, table);
        let mut followed = Followed::start(&*source);
        followed.take_split();
        assert_eq!(followed.lines().unwrap(), ["1", "2"]);
        let snapshot = followed.reader.snapshot();
        fs::write(&path, overwritten).unwrap();
        for fresh in [false, true] {
            if fresh {
                followed.reader = source.reader(reader_context(&env(), 0, LIMIT));
                snapshot.iter().for_each(|split| followed.reader.add_split(split.clone()).unwrap());
            }
            match followed.lines() {
                Ok(lines) => assert!(restart && lines.concat() == overwritten.replace('\n', ""), "{lines:?}"),
                Err(error) => assert!(!restart && error.to_string().contains("log has shrunk"), "{error}"),
            }
        }
    }
}

#[test]
fn a_followed_header_may_come_late() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("log");
    append(&path, "i");
    let mut followed = Followed::start(&*source(&path, "follow = true\nformat = \"csv\"\nheader = true"));
    followed.take_split();
    assert!(block_on(async { followed.reader.next().now_or_never() }).is_none());
    append(&path, "d\n7\n");
    assert_eq!(followed.lines().unwrap(), [r#"{"id":"7"}"#]);
}
