//! Looks through the disk of a simulated job as the next process would: whatever happened, the checkpoint that it would
//! go on from is there, whole, and what it holds of sinks can still be committed.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate::checkpoint::directory::{JobDirectory, JobFile};
use tidegate::checkpoint::metadata::{CheckpointMetadata, StateHandle};
use tidegate::checkpoint::run_log::LogView;
use tidegate::checkpoint::storage::Storage;
use tidegate::clock::Clock;
use tidegate::connectors::Committable;
use tidegate::protocol::run_log::{RestorePoint, Resume};
use xxhash_rust::xxh3::xxh3_64;

use super::checker::Expectation;
use super::sink::Output;
use super::storage::{Disk, SimStorage};

/// The sinks of a job.
type Sinks = BTreeMap<&'static str, (Arc<Output>, Expectation)>;

/// Checks every directory on the disk.
///
/// # Errors
/// What is wrong, in words.
pub(super) async fn check(disk: &Arc<Disk>, clock: Arc<dyn Clock>, sinks: &Sinks) -> Result<(), String> {
    let storage: Arc<dyn Storage> = Arc::new(SimStorage::now(Arc::clone(disk)));
    for folder in storage.folders("").await.map_err(|error| error.to_string())? {
        // Others hold what processes agreed on.
        let Some(directory) = JobDirectory::from_folder(&folder) else { continue };
        check_directory(&storage, &clock, directory, sinks).await.map_err(|problem| format!("{folder}: {problem}"))?;
    }
    Ok(())
}

async fn check_directory(
    storage: &Arc<dyn Storage>,
    clock: &Arc<dyn Clock>,
    directory: JobDirectory,
    sinks: &Sinks,
) -> Result<(), String> {
    let view = LogView::open(Arc::clone(storage), Arc::clone(clock), directory.clone()).await;
    let view = view.map_err(|error| format!("the log cannot be read: {error}"))?;
    let Resume::From(RestorePoint::Checkpoint(logged)) = view.resume() else { return Ok(()) };
    let read = async |path: String| {
        let read = storage.get(&path).await;
        read.map_err(|error| format!("a resume would go on from {}: {error}", logged.checkpoint))
    };
    let metadata = read(directory.path(JobFile::Metadata(logged.checkpoint))).await?;
    let metadata = CheckpointMetadata::decode(&metadata).map_err(|error| error.to_string())?;
    for handle in metadata.state_handles() {
        let StateHandle::File { path, bytes, digest } = handle else { continue };
        let state = read(directory.path(path)).await?;
        if (state.len() as u64, xxh3_64(&state)) != (*bytes, *digest) {
            return Err(format!("{path} is not what {} speaks of", logged.checkpoint));
        }
    }
    for node in &metadata.nodes {
        let committables = node.committables.iter().chain(node.subtasks.iter().flat_map(|of| &of.committables));
        for committable in committables {
            let sink = sinks.get(node.name.as_str()).ok_or_else(|| format!("{} is no sink", node.name))?;
            sink.0.check_whole(&Committable(committable.clone()))?;
        }
    }
    Ok(())
}
