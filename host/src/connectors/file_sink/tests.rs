use std::fs;

use tempfile::TempDir;

use super::*;
use crate::connectors::Committable;
use crate::connectors::testing::{block_on, env, owner, prepare, writer_context};
use crate::id::Owner;
use crate::record::Batch;

pub(super) fn sink(directory: &Path, table: &str) -> Arc<dyn Sink> {
    let mut table: toml::Table = table.parse().expect("valid TOML");
    table.insert("path".to_owned(), directory.to_str().expect("UTF-8").into());
    FileSinkSettings::deserialize(table).expect("good settings").build(Path::new("")).expect("good values")
}

pub(super) fn batch(values: &[&str]) -> Batch {
    let mut batch = Batch::new();
    values.iter().for_each(|value| batch.push(Some(b"key"), value.as_bytes(), None));
    batch
}

pub(super) fn names(directory: &Path) -> Vec<String> {
    target::list(directory).expect("a directory")
}

fn prepared(sink: &dyn Sink, subtask: u32, values: &[&str]) -> Vec<Committable> {
    let mut writer = sink.writer(writer_context(&env(), subtask, "r1"));
    block_on(async {
        writer.write(&batch(values)).await?;
        writer.flush().await?;
        prepare(&mut *writer).await
    })
    .expect("written")
}

#[test]
fn output_is_hidden_until_committed_and_committing_twice_is_once() {
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("new/out");
    let sink = sink(&out, "");
    block_on(sink.prepare_target(&env(), TargetStart::Fresh)).unwrap();
    let committables = prepared(&*sink, 3, &["a", "b"]);
    assert_eq!(names(&out), [".part-r1-1-1-node-3-000000.pending"]);
    for _ in 0..2 {
        block_on(sink.committer(&env()).commit(committables.clone())).unwrap();
        assert_eq!(names(&out), ["part-r1-1-1-node-3-000000"]);
    }
    assert_eq!(fs::read(out.join("part-r1-1-1-node-3-000000")).unwrap(), b"a\nb\n");
    fs::remove_file(out.join("part-r1-1-1-node-3-000000")).unwrap();
    let error = block_on(sink.committer(&env()).commit(committables)).unwrap_err().to_string();
    assert!(error.contains("is gone") && error.contains("part-r1-1-1-node-3-000000"), "{error}");
}

#[test]
fn empty_epochs_make_no_file_and_full_ones_a_file_each() {
    let dir = TempDir::new().unwrap();
    let sink = sink(dir.path(), "");
    let mut writer = sink.writer(writer_context(&env(), 0, "r1"));
    block_on(async {
        assert!(prepare(&mut *writer).await.unwrap().is_empty());
        writer.write(&Batch::new()).await.unwrap();
        assert!(prepare(&mut *writer).await.unwrap().is_empty());
        assert!(names(dir.path()).is_empty());
        for _ in 0..2 {
            writer.write(&batch(&["a"])).await.unwrap();
            assert_eq!(prepare(&mut *writer).await.unwrap().len(), 1);
            assert!(prepare(&mut *writer).await.unwrap().is_empty());
        }
    });
    assert_eq!(names(dir.path()), [".part-r1-1-1-node-0-000000.pending", ".part-r1-1-1-node-0-000001.pending"]);
}

#[test]
fn parts_roll_at_their_size_and_lose_nothing() {
    let dir = TempDir::new().unwrap();
    let sink = sink(dir.path(), "roll-bytes = \"3MiB\"");
    let mut writer = sink.writer(writer_context(&env(), 0, "r1"));
    let mut expected = String::new();
    let committables = block_on(async {
        for number in 0..200 {
            let value = format!("{number}:{}", "x".repeat(60_000));
            writer.write(&batch(&[&value])).await.unwrap();
            expected.push_str(&value);
            expected.push('\n');
        }
        prepare(&mut *writer).await.unwrap()
    });
    assert_eq!(committables.len(), 4);
    block_on(sink.committer(&env()).commit(committables)).unwrap();
    let content: String =
        names(dir.path()).iter().map(|name| fs::read_to_string(dir.path().join(name)).unwrap()).collect();
    assert!(content == expected, "{} bytes instead of {}", content.len(), expected.len());
}

#[test]
fn output_of_which_a_part_is_gone_is_not_committed_by_halves() {
    let dir = TempDir::new().unwrap();
    let sink = sink(dir.path(), "");
    let mut committables = Vec::new();
    for subtask in 0..2 {
        let mut writer = sink.writer(writer_context(&env(), subtask, "r1"));
        block_on(writer.write(&batch(&["a"]))).unwrap();
        committables.extend(block_on(prepare(&mut *writer)).unwrap());
    }
    let pending = names(dir.path());
    fs::remove_file(dir.path().join(&pending[1])).unwrap();
    let error = block_on(sink.committer(&env()).commit(committables)).unwrap_err();
    assert!(error.to_string().starts_with("prepared output is gone"), "{error}");
    assert_eq!(names(dir.path()), pending[..1]);
}

#[test]
fn keys_are_written_on_demand() {
    let dir = TempDir::new().unwrap();
    let sink = sink(dir.path(), "key = true\nseparator = \"=\"");
    block_on(sink.committer(&env()).commit(prepared(&*sink, 0, &["a"]))).unwrap();
    assert_eq!(fs::read(dir.path().join("part-r1-1-1-node-0-000000")).unwrap(), b"key=a\n");
}

#[test]
fn existing_output_is_refused_kept_or_replaced() {
    let dir = TempDir::new().unwrap();
    for name in ["part-r0-1-1-out-0-000000", ".part-r0-1-1-out-0-000001.pending", "notes.txt", ".hidden"] {
        fs::write(dir.path().join(name), "").unwrap();
    }
    let prepare = |table: &str| block_on(sink(dir.path(), table).prepare_target(&env(), TargetStart::Fresh));
    let error = prepare("").unwrap_err().to_string();
    assert!(error.contains(dir.path().to_str().unwrap()) && error.contains("notes.txt"), "{error}");
    assert!(error.contains("append") && error.contains("replace"), "{error}");
    assert_eq!(prepare("existing = \"append\"").unwrap(), []);
    assert_eq!(names(dir.path()).len(), 4);
    // What is replaced stays until there are results.
    let removal = prepare("existing = \"replace\"").unwrap();
    assert_eq!(names(dir.path()).len(), 4);
    fs::write(dir.path().join("part-r0-1-1-out-0-000002"), "").unwrap();
    let sink = sink(dir.path(), "");
    let committables: Vec<_> = removal.into_iter().chain(prepared(&*sink, 0, &["a"])).collect();
    for _ in 0..2 {
        block_on(sink.committer(&env()).commit(committables.clone())).unwrap();
        let left = [".hidden", "notes.txt", "part-r0-1-1-out-0-000002", "part-r1-1-1-node-0-000000"];
        assert_eq!(names(dir.path()), left);
    }
}

#[test]
fn what_is_replaced_stays_when_the_results_are_gone() {
    let dir = TempDir::new().unwrap();
    let old = "part-r0-1-1-out-0-000000";
    fs::write(dir.path().join(old), "").unwrap();
    let sink = sink(dir.path(), "existing = \"replace\"");
    let mut committables = block_on(sink.prepare_target(&env(), TargetStart::Fresh)).unwrap();
    committables.extend(prepared(&*sink, 0, &["a"]));
    fs::remove_file(dir.path().join(".part-r1-1-1-node-0-000000.pending")).unwrap();
    block_on(sink.committer(&env()).commit(committables)).unwrap_err();
    assert_eq!(names(dir.path()), [old]);
    // A job that goes on from a checkpoint replaces nothing: what is there is its own.
    assert_eq!(block_on(sink.prepare_target(&env(), TargetStart::Restored)).unwrap(), []);
}

#[test]
fn hidden_files_alone_are_no_output() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join(".part-r0-1-1-out-0-000001.pending"), "").unwrap();
    block_on(sink(dir.path(), "").prepare_target(&env(), TargetStart::Fresh)).unwrap();
    assert_eq!(names(dir.path()), [".part-r0-1-1-out-0-000001.pending"]);
}

#[test]
fn a_directory_that_cannot_be_used_is_named() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    for path in [file.clone(), file.join("below")] {
        let error = block_on(sink(&path, "").prepare_target(&env(), TargetStart::Fresh)).unwrap_err().to_string();
        assert_eq!(error, format!("cannot create output directory {}", path.display()));
    }
    // Gone between the start and the first write.
    let sink = sink(&dir.path().join("gone"), "");
    let mut writer = sink.writer(writer_context(&env(), 0, "r1"));
    block_on(writer.write(&batch(&["a"]))).unwrap();
    let error = block_on(prepare(&mut *writer)).unwrap_err().to_string();
    assert!(error.starts_with("cannot create") && error.contains("gone/.part-r1-1-1-node-0-000000.pending"), "{error}");
}

#[test]
fn sweeping_removes_the_pending_files_of_earlier_attempts_of_the_job() {
    let dir = TempDir::new().unwrap();
    let kept = [
        ".hidden",
        ".part-r1-1-2-node-0-000000.pending",
        ".part-r1-2-1-node-0-000000.pending",
        ".part-r2-1-1-node-0-000000.pending",
        "part-r1-1-1-node-0-000009",
    ];
    kept.iter().for_each(|name| fs::write(dir.path().join(name), "").unwrap());
    fs::write(dir.path().join(".part-r1-1-1-other-node-7-000000.pending"), "").unwrap();
    let sink = sink(dir.path(), "");
    prepared(&*sink, 0, &["a"]);
    assert_eq!(names(dir.path()).len(), 7);
    let first = owner("r1");
    block_on(sink.committer(&env()).sweep(&first)).unwrap();
    assert_eq!(names(dir.path()).len(), 7);
    block_on(sink.committer(&env()).sweep(&Owner { attempt: first.attempt.next(), ..first.clone() })).unwrap();
    assert_eq!(names(dir.path()), kept);
    // Where nothing was ever written there is nothing to sweep.
    let never = self::sink(&dir.path().join("never"), "");
    block_on(never.committer(&env()).sweep(&first)).unwrap();
}

#[test]
fn an_epoch_is_cut_before_it_is_durable() {
    let dir = TempDir::new().unwrap();
    let sink = sink(dir.path(), "");
    let mut writer = sink.writer(writer_context(&env(), 0, "r1"));
    let committables = block_on(async {
        let mut prepared = Vec::new();
        for value in ["a", "b", "c"] {
            writer.write(&batch(&[value])).await.unwrap();
            prepared.push(writer.prepare().await.unwrap());
        }
        let mut committables = Vec::new();
        for prepared in prepared.into_iter().rev() {
            committables.extend(prepared.await.unwrap());
        }
        committables
    });
    block_on(sink.committer(&env()).commit(committables)).unwrap();
    let contents: Vec<_> = names(dir.path()).iter().map(|name| fs::read(dir.path().join(name)).unwrap()).collect();
    assert_eq!(contents, [b"a\n", b"b\n", b"c\n"]);
}

#[test]
fn checking_changes_nothing() {
    let dir = TempDir::new().unwrap();
    let sink = sink(dir.path(), "");
    let committables = prepared(&*sink, 0, &["a"]);
    let mut committer = sink.committer(&env());
    let pending = names(dir.path());
    block_on(committer.check(&committables)).unwrap();
    assert_eq!(names(dir.path()), pending);
    block_on(committer.commit(committables.clone())).unwrap();
    block_on(committer.check(&committables)).unwrap();
    fs::remove_file(dir.path().join(&names(dir.path())[0])).unwrap();
    let error = block_on(committer.check(&committables)).unwrap_err();
    assert!(error.to_string().starts_with("prepared output is gone"), "{error}");
}

#[test]
fn a_committable_of_another_version_is_refused() {
    let dir = TempDir::new().unwrap();
    let sink = sink(dir.path(), "");
    let mut committables = prepared(&*sink, 0, &["a"]);
    let text = String::from_utf8(committables[0].0.clone()).unwrap();
    committables[0].0 = text.replace("\"version\":1", "\"version\":9").into_bytes();
    let error = block_on(sink.committer(&env()).commit(committables)).unwrap_err().to_string();
    assert!(error.contains("version 9"), "{error}");
}
