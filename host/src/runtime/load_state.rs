//! Reads the state of one subtask back from the snapshots in which some of its keys may be.
//!
//! Only the ranges of its own key groups are read. Checking, unpacking and inserting run off the async threads.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::restored::{RestoredOperator, StateFiles};
use crate::checkpoint::metadata::StateHandle;
use crate::checkpoint::storage::StorageError;
use crate::env::Env;
use crate::id::SubtaskId;
use crate::state::snapshot::{Block, BlockRun, SnapshotError, SnapshotIndex, SnapshotOpener};
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

/// A snapshot, wherever it is.
struct Stored<'a> {
    files: &'a StateFiles,
    owner: &'a SubtaskId,
    handle: &'a StateHandle,
}

impl Stored<'_> {
    fn place(&self) -> String {
        match self.handle {
            StateHandle::Inline(_) => "the metadata of the checkpoint".to_owned(),
            StateHandle::File { path, .. } => self.files.path(path),
        }
    }

    fn bytes(&self) -> u64 {
        match self.handle {
            StateHandle::Inline(bytes) => bytes.len() as u64,
            StateHandle::File { bytes, .. } => *bytes,
        }
    }

    async fn read(&self, range: Range<u64>) -> Result<Bytes, LoadError> {
        match self.handle {
            StateHandle::Inline(bytes) => {
                let at = |offset| usize::try_from(offset).expect("an offset in what is in memory");
                Ok(Bytes::copy_from_slice(&bytes[at(range.start)..at(range.end)]))
            }
            StateHandle::File { path, .. } => {
                let read = self.files.storage.get_range(&self.files.path(path), range).await;
                read.map_err(|source| LoadError::Storage { owner: self.owner.clone(), source })
            }
        }
    }

    fn damaged(&self, source: SnapshotError) -> LoadError {
        LoadError::Damaged { owner: self.owner.clone(), place: self.place(), source }
    }
}

/// Why a run of blocks could not be taken in.
enum Refused {
    Damaged(SnapshotError),
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
        let stored = Stored { files, owner, handle };
        let index = Arc::new(open(&stored).await?);
        let destinations: Arc<[Option<StateIndex>]> = index.header().destinations(backend.states()).into();
        for amount in index.amounts(groups.clone()) {
            if let Some(state) = destinations[amount.place.state.0] {
                backend.reserve(Place { state, ..amount.place }, amount.entries, amount.bytes);
            }
        }
        for run in index.runs(groups.clone(), RUN_BYTES) {
            let bytes = stored.read(run.bytes.clone()).await?;
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
            outcome.map_err(|refused| match refused {
                Refused::Damaged(source) => stored.damaged(source),
                Refused::State(source) => LoadError::State { owner: owner.clone(), place: stored.place(), source },
            })?;
        }
    }
    Ok((backend, read_bytes))
}

async fn open(stored: &Stored<'_>) -> Result<SnapshotIndex, LoadError> {
    let mut opener = SnapshotOpener::new(stored.bytes()).map_err(|source| stored.damaged(source))?;
    while let Some(range) = opener.wants() {
        let bytes = stored.read(range).await?;
        opener.give(&bytes).map_err(|source| stored.damaged(source))?;
    }
    Ok(opener.finish())
}

fn take_in(
    backend: &mut MemoryBackend,
    index: &SnapshotIndex,
    destinations: &[Option<StateIndex>],
    run: &BlockRun<'_>,
    bytes: &[u8],
) -> Result<(), Refused> {
    for (block, bytes) in run.parts(bytes).map_err(Refused::Damaged)? {
        let block: &Block = block;
        // A state that the operator does not declare any more is left out; that this is wanted was checked before.
        let Some(state) = destinations[block.state as usize] else { continue };
        let decoded = index.decode_block(block, bytes).map_err(Refused::Damaged)?;
        backend.restore(state, &mut decoded.entries()).map_err(Refused::State)?;
    }
    Ok(())
}
