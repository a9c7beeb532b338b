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
use super::storage::{Storage, StorageError, StoredFile};
use crate::id::{Attempt, CheckpointId};
use crate::protocol::run_log::{LoggedCheckpoint, RestorePoint, Resume};

/// What was deleted.
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
}

/// The paths in a job's directory that can go when a checkpoint is not kept any more, in the order in which they are to
/// be deleted.
#[must_use]
pub fn subsumed(dropped: &CheckpointMetadata, kept: &[&CheckpointMetadata]) -> Vec<String> {
    let needed: BTreeSet<&str> = kept.iter().flat_map(|metadata| metadata.files()).collect();
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
        kept.push(metadata_file::load_logged(storage, directory, &logged).await?.metadata);
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
    let needs = Needs { kept: &kept, others: &others, before, first_record: log.log().first() };
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

/// Deletes the files of a checkpoint that is not kept any more.
///
/// # Errors
/// With the first file that could not be deleted. It is found again with the next claim.
pub async fn delete_subsumed(
    storage: &dyn Storage,
    directory: &JobDirectory,
    dropped: &CheckpointMetadata,
    kept: &[&CheckpointMetadata],
) -> Result<(), StorageError> {
    for path in subsumed(dropped, kept) {
        storage.delete(&directory.path(path)).await?;
    }
    Ok(())
}
