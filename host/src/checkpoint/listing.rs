//! What is in a job's directory, for people to look at.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::directory::{JobDirectory, JobFile};
use super::metadata::CheckpointMetadata;
use super::metadata_file::{self, CheckpointFiles, LoadError, LoadedCheckpoint};
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
        Some(logged) if logged != digest => {
            (Some(metadata), CheckpointStatus::Damaged(LoadError::Replaced { path: storage.show(&path) }))
        }
        Some(_) => {
            let files = CheckpointFiles { storage: Arc::clone(storage), base: directory.folder().to_owned() };
            let loaded = LoadedCheckpoint { metadata, digest, files };
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

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::checkpoint::metadata::StateHandle;
    use crate::checkpoint::metadata::tests::example;
    use crate::checkpoint::object_store::SystemStorage;
    use crate::checkpoint::run_log::testing::{append_at, claim_at, directory, view_at};
    use crate::id::CheckpointId;
    use crate::protocol::run_log::{LoggedCheckpoint, Record};
    use crate::task::TokioTasks;

    /// A directory on disk with checkpoints 1 to 3, of which only 1 and 2 count, and the beginning of a fourth.
    async fn job(opener: &SystemStorage, root: &Path) -> Arc<dyn Storage> {
        let storage = opener.open(&StorageLocation::Directory(root.to_owned())).await.unwrap();
        let mut log = claim_at(&storage, 1).await;
        for id in 1..=3 {
            let mut metadata = example();
            metadata.checkpoint = CheckpointId(id);
            let path = format!("chk-{id}/1-1-0-{id:016x}-count");
            storage.put_new(&directory().path(&path), vec![0; 5].into()).await.unwrap();
            metadata.nodes[1].subtasks[1].keyed_state = Some(StateHandle::File { path, bytes: 5, digest: 0 });
            let bytes = metadata.encode();
            let logged = LoggedCheckpoint { run: 1, checkpoint: CheckpointId(id), metadata: Digest::of(&bytes) };
            let path = directory().path(JobFile::Metadata(CheckpointId(id)));
            storage.put_new(&path, bytes.into()).await.unwrap();
            if id < 3 {
                append_at(&mut log, Record::Checkpoint(logged)).await;
            }
        }
        let name = "chk-4/1-1-0-0000000000000000-count";
        storage.put_new(&directory().path(name), vec![0; 7].into()).await.unwrap();
        storage
    }

    fn with_job(test: impl AsyncFnOnce(&SystemStorage, &TokioTasks, &Path, Arc<dyn Storage>)) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let root = tempfile::tempdir().unwrap();
        runtime.block_on(async {
            let opener = SystemStorage::new(runtime.handle());
            let storage = job(&opener, root.path()).await;
            test(&opener, &TokioTasks(runtime.handle().clone()), root.path(), storage).await;
        });
    }

    fn shown(listed: &[ListedCheckpoint]) -> Vec<String> {
        let status = |listed: &ListedCheckpoint| match &listed.status {
            CheckpointStatus::Damaged(error) => error.to_string(),
            status => format!("{status:?}"),
        };
        listed.iter().map(|listed| format!("{}: {}", listed.checkpoint.0, status(listed))).collect()
    }

    #[test]
    fn checkpoints_are_listed_with_what_can_be_said_of_them() {
        with_job(async |_, _, root, storage| {
            let listed = list(&storage, &view_at(&storage).await).await.unwrap();
            assert_eq!(shown(&listed), ["4: Unfinished", "3: Unfinished", "2: Current", "1: Complete"]);
            assert_eq!((listed[0].bytes, listed[2].path.as_str()), (7, "job-00000001/chk-2"));
            assert_eq!(listed[2].metadata.as_ref().unwrap().checkpoint, CheckpointId(2));
            fs::write(root.join("job-00000001/chk-1/1-1-0-0000000000000001-count"), "cut").unwrap();
            fs::remove_file(root.join("job-00000001/chk-2/_metadata")).unwrap();
            let listed = shown(&list(&storage, &view_at(&storage).await).await.unwrap());
            let path = root.join("job-00000001");
            assert_eq!(listed[2], format!("2: cannot read {}/chk-2/_metadata: there is no such file", path.display()));
            assert_eq!(
                listed[3],
                format!(
                    "1: {}/chk-1/1-1-0-0000000000000001-count has 3 bytes where the checkpoint says 5",
                    path.display()
                )
            );
        });
    }

    #[test]
    fn checkpoints_are_found_by_their_path_wherever_they_were_moved() {
        with_job(async |opener, tasks, root, _| {
            let load = async |path: &Path| metadata_file::load(opener, tasks, path).await;
            let moved = root.join("elsewhere");
            fs::rename(root.join("job-00000001"), &moved).unwrap();
            for path in [moved.join("chk-2"), moved.join("chk-2/_metadata")] {
                let loaded = load(&path).await.unwrap();
                assert_eq!(loaded.metadata.checkpoint, CheckpointId(2));
                loaded.check_files().await.unwrap();
            }
            let error = load(&root.join("typo")).await.unwrap_err().to_string();
            assert!(error.contains("typo: it does not exist") && !root.join("typo").exists(), "{error}");
            let error = load(&moved).await.unwrap_err().to_string();
            assert!(error.contains("holds no file _metadata"), "{error}");
            fs::write(moved.join("chk-2/_metadata"), "something else").unwrap();
            let error = load(&moved.join("chk-2")).await.unwrap_err().to_string();
            assert!(error.contains("chk-2/_metadata"), "{error}");
        });
    }

    #[test]
    fn jobs_are_found_from_their_directory_and_from_above() {
        with_job(async |opener, tasks, root, _| {
            for path in [root.to_owned(), root.join("job-00000001")] {
                let (_, jobs) = find_jobs(opener, tasks, &path).await.unwrap();
                assert_eq!(jobs, [directory()]);
            }
            assert!(find_jobs(opener, tasks, &root.join("typo")).await.is_err());
            assert!(!root.join("typo").exists());
        });
    }
}
