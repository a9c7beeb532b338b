//! The file `_metadata` in storage: written once for each checkpoint, read by whoever restores, deletes or shows one.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use super::directory::{JobDirectory, JobFile};
use super::envelope::EnvelopeError;
use super::metadata::{CheckpointMetadata, StateHandle};
use super::settle::{self, Settled};
use super::storage::{Storage, StorageError, StorageFailure, StorageLocation, StorageOpener};
use crate::clock::Clock;
use crate::protocol::run_log::{Digest, LoggedCheckpoint};
use crate::task::{self, Compute, TaskError};

/// A checkpoint that was read.
#[derive(Clone)]
pub struct LoadedCheckpoint {
    /// What it consists of.
    pub metadata: CheckpointMetadata,
    /// The digest of the file.
    pub digest: Digest,
    /// Where its files are.
    pub files: CheckpointFiles,
}

/// Where the files of a checkpoint are.
#[derive(Clone)]
pub struct CheckpointFiles {
    /// The storage that they are in.
    pub storage: Arc<dyn Storage>,
    /// The folder in the storage at which the paths in the metadata start; empty for the storage itself.
    pub base: String,
}

/// Why a checkpoint cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A file could not be read.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The metadata does not open.
    #[error("cannot use the checkpoint at {path}")]
    Metadata {
        /// The file.
        path: String,
        /// What is wrong with it.
        source: EnvelopeError,
    },
    /// The metadata is not what the log says.
    #[error("{path} is not the metadata that the job's log speaks of: it was replaced")]
    Replaced {
        /// The file.
        path: String,
    },
    /// A snapshot is not as it was written.
    #[error("{path} has {found} bytes where the checkpoint says {expected}")]
    Length {
        /// The file.
        path: String,
        /// How long it must be.
        expected: u64,
        /// How long it is.
        found: u64,
    },
    /// What is at a path is not what was looked for.
    #[error("there is nothing to read at {path}: {problem}")]
    NotThere {
        /// The path.
        path: String,
        /// What is there.
        problem: &'static str,
    },
    /// Off-thread work ended without a result.
    #[error(transparent)]
    Task(#[from] TaskError),
}

/// What became of metadata that was written.
#[derive(Debug)]
#[must_use]
pub enum Written {
    /// It is there.
    Written(Digest),
    /// Another process has used the id. The checkpoint is to be given up, and a later one may get through.
    Taken,
    /// It may be there. What the checkpoint consists of must not be deleted.
    Unknown(StorageError),
}

/// Writes the metadata of a checkpoint into a job's directory.
pub async fn write(
    storage: &dyn Storage,
    clock: &dyn Clock,
    directory: &JobDirectory,
    metadata: &CheckpointMetadata,
) -> Written {
    let bytes = Bytes::from(metadata.encode());
    let path = directory.path(JobFile::Metadata(metadata.checkpoint));
    match settle::put(storage, clock, &path, &bytes).await {
        Settled::Ours => Written::Written(Digest::of(&bytes)),
        Settled::Theirs(_) => Written::Taken,
        Settled::Unknown(error) => Written::Unknown(error),
    }
}

/// Reads metadata.
///
/// # Errors
/// When it is missing or was not written like that.
pub async fn read(storage: &dyn Storage, path: &str) -> Result<(CheckpointMetadata, Digest), LoadError> {
    let bytes = storage.get(path).await?;
    let metadata = CheckpointMetadata::decode(&bytes);
    let metadata = metadata.map_err(|source| LoadError::Metadata { path: storage.show(path), source })?;
    Ok((metadata, Digest::of(&bytes)))
}

/// Reads a checkpoint that the log of a job's directory speaks of.
///
/// # Errors
/// When it is missing, damaged or another one.
pub async fn load_logged(
    storage: &Arc<dyn Storage>,
    directory: &JobDirectory,
    logged: &LoggedCheckpoint,
) -> Result<LoadedCheckpoint, LoadError> {
    let path = directory.path(JobFile::Metadata(logged.checkpoint));
    let (metadata, digest) = read(&**storage, &path).await?;
    if digest != logged.metadata {
        return Err(LoadError::Replaced { path: storage.show(&path) });
    }
    let files = CheckpointFiles { storage: Arc::clone(storage), base: directory.folder().to_owned() };
    Ok(LoadedCheckpoint { metadata, digest, files })
}

/// Reads the checkpoint or savepoint at a path of this machine: its directory, or the metadata in it.
///
/// # Errors
/// When there is none or it is damaged.
pub async fn load(
    opener: &dyn StorageOpener,
    compute: &dyn Compute,
    path: &Path,
) -> Result<LoadedCheckpoint, LoadError> {
    let shown = path.display().to_string();
    let not_there = |problem| LoadError::NotThere { path: shown.clone(), problem };
    let path = path.to_owned();
    // Opening a storage would make a directory that is not there.
    let found = task::compute(compute, "look for checkpoint", move || find(&path)).await?;
    let found = found.map_err(not_there)?;
    let storage = opener.open(&StorageLocation::Directory(found.base)).await?;
    let (metadata, digest) = read(&*storage, &found.metadata).await?;
    Ok(LoadedCheckpoint { metadata, digest, files: CheckpointFiles { storage, base: String::new() } })
}

/// Where a checkpoint's files start, and where its metadata is from there.
struct Found {
    base: std::path::PathBuf,
    metadata: String,
}

fn find(path: &Path) -> Result<Found, &'static str> {
    let path = std::path::absolute(path).map_err(|_| "its path cannot be understood")?;
    let folder = if path.ends_with(JobFile::METADATA) { path.parent().unwrap_or(&path) } else { &path };
    if !folder.exists() {
        return Err("it does not exist");
    }
    if !folder.join(JobFile::METADATA).is_file() {
        return Err("it holds no file _metadata, so it is no checkpoint or savepoint");
    }
    // Files of a periodic checkpoint are named from the job's directory; a savepoint is a directory of its own.
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    match (JobFile::parse_checkpoint_folder(name), folder.parent()) {
        (Some(checkpoint), Some(parent)) => {
            Ok(Found { base: parent.to_owned(), metadata: JobFile::Metadata(checkpoint).to_string() })
        }
        _ => Ok(Found { base: folder.to_owned(), metadata: JobFile::METADATA.to_owned() }),
    }
}

impl CheckpointFiles {
    /// The path in the storage of a path in the metadata.
    #[must_use]
    pub fn path(&self, file: &str) -> String {
        if self.base.is_empty() { file.to_owned() } else { format!("{}/{file}", self.base) }
    }
}

impl LoadedCheckpoint {
    /// Looks whether all its files are there and as long as they must be.
    ///
    /// # Errors
    /// With the first that is not.
    pub async fn check_files(&self) -> Result<(), LoadError> {
        for handle in self.metadata.state_handles() {
            if let StateHandle::File { path, bytes: expected, .. } = handle {
                let (path, expected) = (self.files.path(path), *expected);
                let found = self.files.storage.size(&path).await?;
                if found != expected {
                    let path = self.files.storage.show(&path);
                    return Err(LoadError::Length { path, expected, found });
                }
            }
        }
        Ok(())
    }
}

impl LoadError {
    /// Whether something is missing, which is how a checkpoint ends that was deleted while it was read.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Storage(error) if error.failure == StorageFailure::NotFound)
    }

    /// Whether the checkpoint is not there any more: deleted, and its id perhaps used once more by a process that did not
    /// know yet that it had lost the job.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.is_missing() || matches!(self, Self::Replaced { .. })
    }
}

impl std::fmt::Debug for LoadedCheckpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoadedCheckpoint")
            .field("metadata", &self.metadata)
            .field("base", &self.files.base)
            .finish_non_exhaustive()
    }
}
