//! Files in a job's directory that nobody needs any more.
//!
//! Needed is what the checkpoints that are kept consist of. Everything else that an earlier attempt wrote can go: that
//! attempt is over, and what it has not made count by now never will. What the same or a later attempt wrote is left
//! alone, and so is what nobody knows, so a process that has lost the job without knowing it does no harm here.
//!
//! Nothing at all is deleted unless all checkpoints that are to be kept can be read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::directory::{JobDirectory, JobFile};
use super::metadata::CheckpointMetadata;
use super::metadata_file::{self, LoadError};
use super::run_log::RunLog;
use super::storage::{Storage, StorageError, StoredFile, UnfinishedFile};
use crate::id::{Attempt, CheckpointId};
use crate::protocol::run_log::{LoggedCheckpoint, RestorePoint, Resume};

/// What was deleted; unfinished files are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// How many files.
    pub files: u64,
    /// How many bytes they had.
    pub bytes: u64,
}

/// What is known about a job's directory when it is decided what can go.
#[derive(Debug)]
pub struct Needs<'a> {
    /// The checkpoints that are kept.
    pub kept: &'a [CheckpointMetadata],
    /// The attempts that took the others of which there is metadata, as far as it can be read.
    pub others: &'a BTreeMap<CheckpointId, Attempt>,
    /// What this attempt and later ones wrote is left alone.
    pub before: Attempt,
    /// The first record of the log that counts.
    pub first_record: u64,
    /// The first record that is not there yet.
    pub next_record: u64,
}

impl Needs<'_> {
    /// The files that nobody needs, in the order in which they are to be deleted: metadata first, so that no checkpoint
    /// is seen of which a part is gone.
    #[must_use]
    pub fn garbage<'f>(&self, directory: &JobDirectory, files: &'f [StoredFile]) -> Vec<&'f StoredFile> {
        let kept: BTreeSet<CheckpointId> = self.kept.iter().map(|metadata| metadata.checkpoint).collect();
        let needed: BTreeSet<&str> = self.kept.iter().flat_map(CheckpointMetadata::files).collect();
        let (mut metadata, mut others) = (Vec::new(), Vec::new());
        for file in files {
            let Some(relative) = directory.relative(&file.path) else { continue };
            match JobFile::parse(relative) {
                JobFile::Metadata(checkpoint) => {
                    let over = self.others.get(&checkpoint).is_some_and(|attempt| *attempt < self.before);
                    if !kept.contains(&checkpoint) && over {
                        metadata.push(file);
                    }
                }
                JobFile::Snapshot(_, name) | JobFile::Shared(name) | JobFile::TaskOwned(name) => {
                    if !needed.contains(relative) && name.attempt < self.before {
                        others.push(file);
                    }
                }
                JobFile::LogRecord(sequence) if sequence < self.first_record => others.push(file),
                JobFile::LogRecord(_) | JobFile::Lock | JobFile::Other => {}
            }
        }
        metadata.append(&mut others);
        metadata
    }

    /// Whether nobody writes this file any more who may.
    #[must_use]
    pub fn is_given_up(&self, directory: &JobDirectory, unfinished: &UnfinishedFile) -> bool {
        match directory.relative(&unfinished.finished).map(JobFile::parse) {
            // Later attempts use later ids.
            Some(JobFile::Metadata(checkpoint)) => self.kept.iter().any(|kept| kept.checkpoint >= checkpoint),
            Some(JobFile::Snapshot(_, name) | JobFile::Shared(name) | JobFile::TaskOwned(name)) => {
                name.attempt < self.before
            }
            Some(JobFile::LogRecord(sequence)) => sequence < self.next_record,
            Some(JobFile::Lock | JobFile::Other) | None => false,
        }
    }
}

/// The paths in a job's directory that can go when a checkpoint is not kept any more, in the order in which they are to
/// be deleted.
#[must_use]
pub fn subsumed<'a>(
    dropped: &CheckpointMetadata,
    kept: impl IntoIterator<Item = &'a CheckpointMetadata>,
) -> Vec<String> {
    let needed: BTreeSet<&str> = kept.into_iter().flat_map(CheckpointMetadata::files).collect();
    let files = dropped.files().filter(|file| !needed.contains(file)).map(str::to_owned);
    std::iter::once(JobFile::Metadata(dropped.checkpoint).to_string()).chain(files).collect()
}

/// Deletes what nobody needs when the newest `keep` checkpoints are kept, and what the job goes on from. To be done
/// once the job is claimed, and by nobody who has lost it. With a `keep` of 0 all checkpoints go, which makes sense only
/// when the log says that the job is over.
///
/// # Errors
/// When a checkpoint that is to be kept cannot be read, or the directory cannot be listed. Nothing was deleted then.
/// That a file could not be deleted is no error: it is found again next time.
///
/// # Panics
/// When the run has lost the job.
pub async fn collect(
    storage: &Arc<dyn Storage>,
    log: &RunLog,
    keep: u32,
    before: Attempt,
) -> Result<Collected, LoadError> {
    assert!(log.holds(), "only who has the job may delete");
    let directory = log.directory();
    let files = storage.list(directory.folder()).await?;
    let with_metadata: BTreeSet<CheckpointId> = files
        .iter()
        .filter_map(|file| match JobFile::parse(directory.relative(&file.path)?) {
            JobFile::Metadata(checkpoint) => Some(checkpoint),
            _ => None,
        })
        .collect();
    let mut kept = Vec::new();
    for logged in to_keep(log, keep, &with_metadata) {
        match metadata_file::load_logged(storage, directory, &logged).await {
            Ok(loaded) => kept.push(loaded.metadata),
            // One that is only kept for good measure and was deleted before. The newest must be there.
            Err(error) if error.is_gone() && !kept.is_empty() => {}
            Err(error) => return Err(error),
        }
    }
    let mut others = BTreeMap::new();
    for checkpoint in with_metadata {
        if kept.iter().all(|metadata| metadata.checkpoint != checkpoint) {
            let path = directory.path(JobFile::Metadata(checkpoint));
            match metadata_file::read(&**storage, &path).await {
                Ok((metadata, _)) => drop(others.insert(checkpoint, metadata.attempt)),
                Err(error) => tracing::warn!(%error, "left alone a checkpoint that cannot be read"),
            }
        }
    }
    let (first_record, next_record) = (log.log().first(), log.log().next_sequence());
    let needs = Needs { kept: &kept, others: &others, before, first_record, next_record };
    let mut collected = Collected::default();
    for file in needs.garbage(directory, &files) {
        match storage.delete(&file.path).await {
            Ok(()) => {
                collected.files += 1;
                collected.bytes += file.bytes;
            }
            Err(error) => tracing::warn!(%error, "could not delete a file that nobody needs"),
        }
    }
    for file in storage.unfinished(directory.folder()).await?.iter().filter(|file| needs.is_given_up(directory, file)) {
        if let Err(error) = storage.delete_unfinished(file).await {
            tracing::warn!(%error, "could not delete an unfinished file");
        }
    }
    Ok(collected)
}

/// Which checkpoints are kept: the newest of those that are still there, what the job goes on from in any case.
fn to_keep(log: &RunLog, keep: u32, with_metadata: &BTreeSet<CheckpointId>) -> Vec<LoggedCheckpoint> {
    let current = match log.log().resume() {
        Resume::From(RestorePoint::Checkpoint(current)) if keep > 0 => Some(current),
        _ => None,
    };
    // Of the older ones, those that were not kept before are gone already.
    let there = |logged: &LoggedCheckpoint| Some(*logged) == current || with_metadata.contains(&logged.checkpoint);
    let checkpoints = log.log().checkpoints().into_iter().filter(there);
    checkpoints.take(usize::try_from(keep).unwrap_or(usize::MAX)).collect()
}

/// Deletes the [`subsumed`] paths of a checkpoint.
///
/// # Errors
/// With the first file that could not be deleted. It is found again with the next claim.
pub async fn delete_subsumed(
    storage: &dyn Storage,
    directory: &JobDirectory,
    paths: Vec<String>,
) -> Result<(), StorageError> {
    for path in paths {
        storage.delete(&directory.path(path)).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;
    use crate::checkpoint::directory::SnapshotName;
    use crate::checkpoint::memory;
    use crate::checkpoint::metadata::StateHandle;
    use crate::checkpoint::metadata::tests::example;
    use crate::checkpoint::run_log::testing::{append, at_once, claimed, directory};
    use crate::protocol::run_log::{Digest, Record};

    fn snapshot(run: u64, nonce: u64) -> SnapshotName {
        SnapshotName { attempt: Attempt::first(run), node: "count".to_owned(), subtask: 0, nonce }
    }

    /// A checkpoint with these files.
    fn metadata(id: u64, run: u64, files: &[String]) -> CheckpointMetadata {
        let mut metadata = example();
        (metadata.checkpoint, metadata.attempt) = (CheckpointId(id), Attempt::first(run));
        let subtask = metadata.nodes[1].subtasks[1].clone();
        let handle = |path: &String| StateHandle::File { path: path.clone(), bytes: 0, digest: 0 };
        let subtasks = files.iter().map(|path| {
            let mut subtask = subtask.clone();
            subtask.keyed_state = Some(handle(path));
            subtask
        });
        metadata.nodes[1].subtasks = subtasks.collect();
        metadata
    }

    proptest! {
        /// Nothing goes that a kept checkpoint needs or that the same or a later attempt wrote, and nothing else stays.
        #[test]
        fn what_goes_is_what_nobody_needs(
            files in prop::collection::vec((0u64..6, 1u64..6, any::<bool>(), any::<bool>()), 0..30),
            runs in prop::collection::vec(1u64..6, 6),
            kept in prop::collection::btree_set(0u64..6, 0..3),
            run in 1u64..6,
        ) {
            let directory = directory();
            let mut needed = BTreeMap::<u64, Vec<String>>::new();
            let mut paths = Vec::new();
            for (nonce, (id, by, shared, is_needed)) in (0..).zip(files) {
                let name = snapshot(by, nonce);
                let file = if shared { JobFile::Shared(name) } else { JobFile::Snapshot(CheckpointId(id), name) };
                // A kept checkpoint of an earlier run has no files of a later one.
                if is_needed {
                    needed.entry(id).or_default().push(file.to_string());
                }
                paths.push((file.to_string(), is_needed && kept.contains(&id) || by >= run));
            }
            let metadatas: Vec<CheckpointMetadata> = kept
                .iter()
                .map(|id| metadata(*id, 1, needed.get(id).map_or(&[], Vec::as_slice)))
                .collect();
            let others: BTreeMap<CheckpointId, Attempt> =
                (0..6).filter(|id| !kept.contains(id)).map(|id| (CheckpointId(id), Attempt::first(runs[id as usize]))).collect();
            for id in 0..6 {
                let file = JobFile::Metadata(CheckpointId(id)).to_string();
                paths.push((file, kept.contains(&id) || runs[id as usize] >= run));
            }
            for sequence in 0..6 {
                paths.push((JobFile::LogRecord(sequence).to_string(), sequence >= 3));
            }
            paths.push(("lock".to_owned(), true));
            paths.push(("chk-1/notes of the user".to_owned(), true));
            let listed: Vec<StoredFile> =
                paths.iter().map(|(path, _)| StoredFile { path: directory.path(path), bytes: 1 }).collect();
            let before = Attempt::first(run);
            let needs = Needs { kept: &metadatas, others: &others, before, first_record: 3, next_record: 6 };
            let garbage = needs.garbage(&directory, &listed);
            for (file, (path, stays)) in listed.iter().zip(&paths) {
                prop_assert_eq!(!garbage.contains(&file), *stays, "{}", path);
            }
            let first_other = garbage.iter().position(|file| !file.path.ends_with("_metadata")).unwrap_or(garbage.len());
            prop_assert!(garbage[first_other..].iter().all(|file| !file.path.ends_with("_metadata")));
        }

        /// When a checkpoint goes, what the others need stays, and all else that it had goes.
        #[test]
        fn what_is_shared_stays(dropped in prop::collection::btree_set(0u64..8, 0..8), kept in prop::collection::btree_set(0u64..8, 0..8)) {
            let path = |nonce: &u64| JobFile::Shared(snapshot(1, *nonce)).to_string();
            let paths = |nonces: &BTreeSet<u64>| nonces.iter().map(path).collect::<Vec<_>>();
            let going = subsumed(&metadata(1, 1, &paths(&dropped)), [&metadata(2, 1, &paths(&kept))]);
            let expected = std::iter::once("chk-1/_metadata".to_owned()).chain(dropped.difference(&kept).map(path));
            prop_assert_eq!(going, expected.collect::<Vec<_>>());
        }
    }

    /// A job with checkpoints 1 to 3 of run 1, a file each, and one that came to nothing, claimed by run 2.
    fn job() -> (Arc<dyn Storage>, RunLog) {
        let storage = memory();
        let mut log = claimed(&storage, 1);
        let put = |path: String, bytes: Vec<u8>| at_once(storage.put_new(&path, bytes.into())).unwrap();
        for id in 1..=3 {
            let file = JobFile::Snapshot(CheckpointId(id), snapshot(1, id)).to_string();
            put(directory().path(&file), vec![1, 2]);
            let bytes = metadata(id, 1, &[file]).encode();
            let logged = LoggedCheckpoint { run: 1, checkpoint: CheckpointId(id), metadata: Digest::of(&bytes) };
            put(directory().path(JobFile::Metadata(CheckpointId(id))), bytes);
            append(&mut log, Record::Checkpoint(logged));
        }
        put(directory().path(JobFile::Snapshot(CheckpointId(4), snapshot(1, 4))), vec![1]);
        put(directory().path(JobFile::Snapshot(CheckpointId(5), snapshot(2, 5))), vec![1]);
        let log = claimed(&storage, 2);
        (storage, log)
    }

    fn folders(storage: &Arc<dyn Storage>) -> Vec<String> {
        at_once(storage.folders(directory().folder())).unwrap()
    }

    #[test]
    fn a_claim_collects_what_earlier_runs_left() {
        let (storage, log) = job();
        let collect = |keep| at_once(collect(&storage, &log, keep, Attempt::first(2)));
        assert_eq!(collect(2).unwrap().files, 3);
        assert_eq!(folders(&storage), ["chk-2", "chk-3", "chk-5", "log"]);
        assert_eq!(collect(2).unwrap(), Collected::default());
        // More are to be kept than are left.
        assert_eq!(collect(9).unwrap(), Collected::default());
        assert_eq!(collect(0).unwrap().files, 4);
        assert_eq!(folders(&storage), ["chk-5", "log"]);
    }

    #[test]
    fn nothing_goes_while_a_kept_checkpoint_cannot_be_read() {
        let (storage, log) = job();
        let before = folders(&storage);
        let path = directory().path(JobFile::Metadata(CheckpointId(2)));
        at_once(storage.delete(&path)).unwrap();
        at_once(storage.put_new(&path, Bytes::from_static(b"tg-chkpt"))).unwrap();
        let error = at_once(collect(&storage, &log, 2, Attempt::first(2))).unwrap_err().to_string();
        assert!(error.contains(&path), "{error}");
        // What the job goes on from is whole, but is not what counted; or it is gone.
        let path = directory().path(JobFile::Metadata(CheckpointId(3)));
        at_once(storage.delete(&path)).unwrap();
        at_once(storage.put_new(&path, metadata(3, 1, &[]).encode().into())).unwrap();
        let error = at_once(collect(&storage, &log, 1, Attempt::first(2))).unwrap_err().to_string();
        assert!(error.contains("replaced"), "{error}");
        at_once(storage.delete(&path)).unwrap();
        assert!(at_once(collect(&storage, &log, 1, Attempt::first(2))).unwrap_err().is_missing());
        assert_eq!(folders(&storage), before);
    }
}
