//! Reads the state of one subtask back from the snapshots in which some of its keys may be.
//!
//! Only the ranges of its own key groups are read. Checking, unpacking and inserting run off the async threads.

use std::ops::Range;
use std::sync::Arc;

use super::restored::RestoredOperator;
use super::stored_snapshot::{ReadError, StoredSnapshot};
use crate::checkpoint::storage::StorageError;
use crate::env::Env;
use crate::id::SubtaskId;
use crate::state::snapshot::{Block, BlockRun, SnapshotError, SnapshotIndex};
use crate::state::{MemoryBackend, Place, StateBackend, StateError, StateIndex};
use crate::task::{self, TaskError};

/// How much of a file is read and unpacked at a time, if it is side by side.
const RUN_BYTES: u64 = 4 << 20;

/// Why state could not be read back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// A file could not be read.
    #[error("cannot read the state of {owner}")]
    Storage {
        /// Whose state it was.
        owner: SubtaskId,
        /// What happened.
        source: StorageError,
    },
    /// A file is not what was once written.
    #[error("the state of {owner} in {place} is damaged")]
    Damaged {
        /// Whose state it was.
        owner: SubtaskId,
        /// The file.
        place: String,
        /// What is wrong.
        source: SnapshotError,
    },
    /// A file holds what the subtask cannot take.
    #[error("the state of {owner} in {place} cannot be restored")]
    State {
        /// Whose state it was.
        owner: SubtaskId,
        /// The file.
        place: String,
        /// What is wrong.
        source: StateError,
    },
    /// The work ended without a result: a bug.
    #[error(transparent)]
    Task(#[from] TaskError),
}

/// Why a snapshot could not be taken in.
enum Refused {
    Read(ReadError),
    State(StateError),
}

/// Restores the keys of some groups. Returns the backend, and how many bytes were read.
pub(super) async fn load_state(
    mut backend: MemoryBackend,
    restored: &RestoredOperator,
    groups: Range<u32>,
    env: &Env,
) -> Result<(MemoryBackend, u64), LoadError> {
    let mut read_bytes = 0;
    let Some(files) = &restored.files else { return Ok((backend, read_bytes)) };
    for (owner, handle) in &restored.state {
        let stored = StoredSnapshot { files, handle };
        let refused = |refused| {
            let (owner, place) = (owner.clone(), stored.place());
            match refused {
                Refused::Read(ReadError::Storage(source)) => LoadError::Storage { owner, source },
                Refused::Read(ReadError::Damaged(source)) => LoadError::Damaged { owner, place, source },
                Refused::State(source) => LoadError::State { owner, place, source },
            }
        };
        let unread = |error| refused(Refused::Read(error));
        let index = Arc::new(stored.open().await.map_err(unread)?);
        let destinations: Arc<[Option<StateIndex>]> = index.header().destinations(backend.states()).into();
        for amount in index.amounts(groups.clone()) {
            if let Some(state) = destinations[amount.place.state.0] {
                backend.reserve(Place { state, ..amount.place }, amount.entries, amount.bytes);
            }
        }
        for run in index.runs(groups.clone(), RUN_BYTES) {
            let bytes = stored.read(run.bytes.clone()).await.map_err(unread)?;
            read_bytes += bytes.len() as u64;
            let (index, destinations) = (Arc::clone(&index), Arc::clone(&destinations));
            let (range, blocks) = (run.bytes.clone(), run.blocks.to_vec());
            let work = move || {
                let run = BlockRun { bytes: range, blocks: &blocks };
                let outcome = take_in(&mut backend, &index, &destinations, &run, &bytes);
                (backend, outcome)
            };
            let (back, outcome) = task::compute(&*env.compute, "restore state", work).await?;
            backend = back;
            outcome.map_err(refused)?;
        }
    }
    Ok((backend, read_bytes))
}

fn take_in(
    backend: &mut MemoryBackend,
    index: &SnapshotIndex,
    destinations: &[Option<StateIndex>],
    run: &BlockRun<'_>,
    bytes: &[u8],
) -> Result<(), Refused> {
    let damaged = |source| Refused::Read(ReadError::Damaged(source));
    for (block, bytes) in run.parts(bytes).map_err(damaged)? {
        let block: &Block = block;
        // A state that the operator does not declare any more is left out; that this is wanted was checked before.
        let Some(state) = destinations[block.state as usize] else { continue };
        let decoded = index.decode_block(block, bytes).map_err(damaged)?;
        backend.restore(state, &mut decoded.entries()).map_err(Refused::State)?;
    }
    Ok(())
}
