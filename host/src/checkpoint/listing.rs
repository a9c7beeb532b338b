//! What is in a job's directory, for people to look at.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::directory::{JobDirectory, JobFile};
use super::metadata::CheckpointMetadata;
use super::metadata_file::{self, LoadError, LoadedCheckpoint};
use super::run_log::LogView;
use super::storage::{Storage, StorageError, StorageLocation, StorageOpener};
use crate::id::CheckpointId;
use crate::protocol::run_log::{Digest, RestorePoint, Resume};
use crate::task::{self, Compute};

/// A checkpoint in a job's directory.
#[derive(Debug)]
pub struct ListedCheckpoint {
    /// Its id.
    pub checkpoint: CheckpointId,
    /// The path of its directory in the storage.
    pub path: String,
    /// How many bytes the files in its directory have.
    pub bytes: u64,
    /// What it consists of; none if it has no metadata, or none that can be read.
    pub metadata: Option<CheckpointMetadata>,
    /// What can be said of it.
    pub status: CheckpointStatus,
}

/// What can be said of a checkpoint.
#[derive(Debug)]
pub enum CheckpointStatus {
    /// The job goes on from it.
    Current,
    /// It is complete and counts.
    Complete,
    /// It was never completed, or not yet: the job's log does not speak of it.
    Unfinished,
    /// It counts, or would, but something is wrong with it.
    Damaged(LoadError),
}

/// The checkpoints in a job's directory, the newest first.
///
/// # Errors
/// When the directory cannot be listed.
pub async fn list(storage: &Arc<dyn Storage>, view: &LogView) -> Result<Vec<ListedCheckpoint>, StorageError> {
    let directory = view.directory();
    let mut bytes: BTreeMap<CheckpointId, u64> = BTreeMap::new();
    for file in storage.list(directory.folder()).await? {
        if let Some(JobFile::Metadata(checkpoint) | JobFile::Snapshot(checkpoint, _)) =
            directory.relative(&file.path).map(JobFile::parse)
        {
            *bytes.entry(checkpoint).or_default() += file.bytes;
        }
    }
    let logged = view.log().checkpoints();
    // What the job goes on from is listed even if nothing is left of it.
    let current = match view.resume() {
        Resume::From(RestorePoint::Checkpoint(current)) => Some(current.checkpoint),
        _ => None,
    };
    bytes.extend(current.filter(|current| !bytes.contains_key(current)).map(|current| (current, 0)));
    let mut checkpoints = Vec::new();
    for (checkpoint, bytes) in bytes.into_iter().rev() {
        let digest = logged.iter().find(|logged| logged.checkpoint == checkpoint).map(|logged| logged.metadata);
        let (metadata, status) = look_at(storage, directory, checkpoint, digest).await;
        let status = match status {
            CheckpointStatus::Complete if Some(checkpoint) == current => CheckpointStatus::Current,
            status => status,
        };
        let path = directory.path(JobFile::checkpoint_folder(checkpoint));
        checkpoints.push(ListedCheckpoint { checkpoint, path, bytes, metadata, status });
    }
    Ok(checkpoints)
}

async fn look_at(
    storage: &Arc<dyn Storage>,
    directory: &JobDirectory,
    checkpoint: CheckpointId,
    logged: Option<Digest>,
) -> (Option<CheckpointMetadata>, CheckpointStatus) {
    let path = directory.path(JobFile::Metadata(checkpoint));
    let (metadata, digest) = match metadata_file::read(&**storage, &path).await {
        Ok(read) => read,
        Err(error) if error.is_missing() && logged.is_none() => return (None, CheckpointStatus::Unfinished),
        Err(error) => return (None, CheckpointStatus::Damaged(error)),
    };
    match logged {
        None => (Some(metadata), CheckpointStatus::Unfinished),
        Some(logged) if logged != digest => (Some(metadata), CheckpointStatus::Damaged(LoadError::Replaced { path })),
        Some(_) => {
            let base = directory.folder().to_owned();
            let loaded = LoadedCheckpoint { metadata, digest, storage: Arc::clone(storage), base };
            let checked = loaded.check_files().await;
            (Some(loaded.metadata), checked.map_or_else(CheckpointStatus::Damaged, |()| CheckpointStatus::Complete))
        }
    }
}

/// The jobs' directories at a path of this machine, which is one of them or what holds them.
///
/// # Errors
/// When there is no directory at the path, or it cannot be listed.
pub async fn find_jobs(
    opener: &dyn StorageOpener,
    compute: &dyn Compute,
    path: &Path,
) -> Result<(Arc<dyn Storage>, Vec<JobDirectory>), LoadError> {
    let (shown, path) = (path.display().to_string(), path.to_owned());
    // Opening a storage would make a directory that is not there.
    let look = move || {
        let path = std::path::absolute(path).ok().filter(|path| path.is_dir())?;
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let job = JobDirectory::from_folder(name).filter(|_| path.join(JobFile::LOG_FOLDER).is_dir());
        let root = if job.is_some() { path.parent().map(Path::to_owned)? } else { path };
        Some((root, job))
    };
    let Some((root, job)) = task::compute(compute, "look for jobs", look).await? else {
        return Err(LoadError::NotThere { path: shown, problem: "there is no such directory" });
    };
    let storage = opener.open(&StorageLocation::Directory(root)).await?;
    let jobs = match job {
        Some(job) => vec![job],
        None => JobDirectory::all(&*storage).await?,
    };
    Ok((storage, jobs))
}
