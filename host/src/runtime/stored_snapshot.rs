//! The snapshot of one subtask in a checkpoint: kept in the metadata, or in a file of its own.
//!
//! Owns how its bytes are got. What is in them is the business of `state::snapshot`, and whose state it is that of who
//! reads it.

use std::ops::Range;

use bytes::Bytes;

use crate::checkpoint::metadata::StateHandle;
use crate::checkpoint::metadata_file::CheckpointFiles;
use crate::checkpoint::storage::StorageError;
use crate::state::snapshot::{SnapshotError, SnapshotIndex, SnapshotOpener};

/// A snapshot, wherever it is.
pub(crate) struct StoredSnapshot<'a> {
    pub(crate) files: &'a CheckpointFiles,
    pub(crate) handle: &'a StateHandle,
}

/// Why a snapshot could not be read. Who reads it adds which one it is.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    /// Its file could not be read.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// It is not what was once written.
    #[error(transparent)]
    Damaged(#[from] SnapshotError),
}

impl StoredSnapshot<'_> {
    /// Where it is, for people.
    pub(crate) fn place(&self) -> String {
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

    /// Reads a part of it.
    pub(crate) async fn read(&self, range: Range<u64>) -> Result<Bytes, ReadError> {
        match self.handle {
            StateHandle::Inline(bytes) => {
                let at = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX);
                let short = SnapshotError::ShortRead { got: bytes.len(), wanted: range.end };
                let part = bytes.get(at(range.start)..at(range.end)).ok_or(short)?;
                Ok(Bytes::copy_from_slice(part))
            }
            StateHandle::File { path, .. } => Ok(self.files.storage.get_range(&self.files.path(path), range).await?),
        }
    }

    /// Finds out what is in it.
    pub(crate) async fn open(&self) -> Result<SnapshotIndex, ReadError> {
        let mut opener = SnapshotOpener::new(self.bytes())?;
        while let Some(range) = opener.wants() {
            opener.give(&self.read(range).await?)?;
        }
        Ok(opener.finish())
    }
}
