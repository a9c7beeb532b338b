//! Makes cuts durable: small state goes inline into the metadata, larger state into a file of its own.
//!
//! Encoding and compression run on the background thread, step by step, so that a snapshot never holds more of its file
//! in memory than a chunk, and can be given up between two steps.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures_util::future::{Either, select};
use tokio_util::sync::CancellationToken;
use xxhash_rust::xxh3::Xxh3Default;

use super::cut::{Cut, CutPart, Held, HeldState, PreparedEpoch};
use crate::checkpoint::directory::{JobDirectory, JobFile, SnapshotName};
use crate::checkpoint::metadata::{SavedSplit, StateHandle, SubtaskMetadata};
use crate::checkpoint::storage::{ObjectWriter, Storage, StorageError};
use crate::connectors::{Committable, ConnectorError};
use crate::env::Env;
use crate::id::{Attempt, CheckpointId, NodeId, SubtaskId};
use crate::random::Random;
use crate::state::snapshot::SnapshotEncoder;
use crate::task::{self, TaskError};

/// Why a task's part of a checkpoint is not durable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SaveError {
    /// A file could not be written.
    #[error("could not write the state of {subtask}")]
    Storage {
        /// Whose state.
        subtask: SubtaskId,
        /// What happened.
        source: StorageError,
    },
    /// What a sink wrote could not be made durable.
    #[error("could not prepare the output of {subtask}")]
    Sink {
        /// The sink.
        subtask: SubtaskId,
        /// What happened.
        source: Arc<ConnectorError>,
    },
    /// The encoder failed: a bug.
    #[error("could not encode the state of {subtask}; this is a bug in tidegate")]
    Encoder {
        /// Whose state.
        subtask: SubtaskId,
        /// What happened.
        source: TaskError,
    },
}

/// What makes the cuts of one attempt durable.
pub(super) struct Snapshots {
    pub(super) env: Env,
    pub(super) storage: Arc<dyn Storage>,
    pub(super) directory: JobDirectory,
    pub(super) attempt: Attempt,
    /// The random number of the run.
    pub(super) nonce: u64,
    /// How many files were begun: a task may write two for one checkpoint, its cut and what it held in the end.
    pub(super) files: AtomicU64,
    pub(super) job: String,
    /// A snapshot of at most so many bytes goes into the metadata.
    pub(super) inline_bytes: usize,
}

impl fmt::Debug for Snapshots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshots").field("attempt", &self.attempt).finish_non_exhaustive()
    }
}

/// A part of a subtask's cut that is durable.
pub(super) type Saved = (NodeId, SubtaskMetadata);

impl Snapshots {
    /// A random number for the name of one file.
    fn next_nonce(&self) -> u64 {
        let file = self.files.fetch_add(1, Ordering::Relaxed);
        Random::for_purpose(self.nonce, "snapshot", &[file]).next_u64()
    }

    /// Makes a cut durable; none if it was given up meanwhile.
    pub(super) async fn save(
        &self,
        checkpoint: CheckpointId,
        cut: Cut,
        given_up: &CancellationToken,
    ) -> Option<Result<Vec<Saved>, SaveError>> {
        let mut saved = Vec::with_capacity(cut.parts.len());
        for part in cut.parts {
            let (node, finished_before) = (part.node, part.finished);
            match self.save_part(checkpoint, part, cut.finished || finished_before, given_up).await? {
                Ok(part) => saved.push((node, part)),
                Err(error) => return Some(Err(error)),
            }
        }
        Some(Ok(saved))
    }

    async fn save_part(
        &self,
        checkpoint: CheckpointId,
        part: CutPart,
        finished: bool,
        given_up: &CancellationToken,
    ) -> Option<Result<SubtaskMetadata, SaveError>> {
        let mut metadata = SubtaskMetadata {
            index: part.subtask.index,
            finished,
            watermark: None,
            splits: Vec::new(),
            committables: Vec::new(),
            keyed_state: None,
        };
        match part.held {
            Held::Source { splits } => metadata.splits = splits.into_iter().map(SavedSplit::from).collect(),
            Held::Operator { watermark, state } => {
                metadata.watermark = watermark.map(|watermark| watermark.0);
                if let Some(state) = state {
                    match self.save_state(checkpoint, &part.subtask, state, given_up).await? {
                        Ok(handle) => metadata.keyed_state = Some(handle),
                        Err(error) => return Some(Err(error)),
                    }
                }
            }
            Held::Sink { prepared, .. } => {
                let prepared = std::pin::pin!(durable(prepared));
                match select(prepared, std::pin::pin!(given_up.cancelled())).await {
                    Either::Left((Ok(committables), _)) => {
                        metadata.committables = committables.into_iter().map(|Committable(bytes)| bytes).collect();
                    }
                    Either::Left((Err(source), _)) => {
                        return Some(Err(SaveError::Sink { subtask: part.subtask, source }));
                    }
                    Either::Right(_) => return None,
                }
            }
        }
        Some(Ok(metadata))
    }

    async fn save_state(
        &self,
        checkpoint: CheckpointId,
        subtask: &SubtaskId,
        HeldState { mut header, frozen }: HeldState,
        given_up: &CancellationToken,
    ) -> Option<Result<StateHandle, SaveError>> {
        header.checkpoint = checkpoint;
        let mut encoder = SnapshotEncoder::new(&header, frozen);
        let name = SnapshotName {
            attempt: self.attempt,
            node: subtask.node.clone(),
            subtask: subtask.index,
            nonce: self.next_nonce(),
        };
        let relative = JobFile::Snapshot(checkpoint, name).to_string();
        let mut file = StateFile::new(&*self.storage, self.directory.path(&relative), relative, self.inline_bytes);
        loop {
            if given_up.is_cancelled() {
                file.abort().await;
                return None;
            }
            let step = task::compute(&*self.env.background, "encode snapshot", move || {
                let chunk = encoder.next_chunk();
                (encoder, chunk)
            });
            let chunk = match step.await {
                Ok((back, chunk)) => {
                    encoder = back;
                    chunk
                }
                Err(source) => {
                    file.abort().await;
                    return Some(Err(SaveError::Encoder { subtask: subtask.clone(), source }));
                }
            };
            let written = match chunk {
                Some(chunk) => file.write(chunk).await,
                None => {
                    let finished = file.finish().await;
                    let failed = |source| SaveError::Storage { subtask: subtask.clone(), source };
                    return Some(finished.map_err(failed));
                }
            };
            if let Err(source) = written {
                file.abort().await;
                return Some(Err(SaveError::Storage { subtask: subtask.clone(), source }));
            }
        }
    }

    /// Deletes the file of a state that no checkpoint will name. What fails here is collected at the next claim.
    pub(super) async fn delete(&self, handle: StateHandle) {
        if let StateHandle::File { path, .. } = handle
            && let Err(error) = self.storage.delete(&self.directory.path(&path)).await
        {
            tracing::debug!(%error, "could not delete a file of an aborted checkpoint");
        }
    }
}

/// Waits until all epochs are durable, and returns what there is to commit, in order.
pub(super) async fn durable(epochs: Vec<PreparedEpoch>) -> Result<Vec<Committable>, Arc<ConnectorError>> {
    let mut committables = Vec::new();
    for epoch in epochs {
        committables.extend(epoch.durable().await?);
    }
    Ok(committables)
}

/// The snapshot of one state: kept in memory while it is small, else on its way into a file.
struct StateFile<'a> {
    storage: &'a dyn Storage,
    path: String,
    /// The path within the job's directory.
    relative: String,
    inline: Vec<u8>,
    inline_bytes: usize,
    writer: Option<Box<dyn ObjectWriter>>,
    bytes: u64,
    digest: Xxh3Default,
}

impl<'a> StateFile<'a> {
    fn new(storage: &'a dyn Storage, path: String, relative: String, inline_bytes: usize) -> Self {
        Self {
            storage,
            path,
            relative,
            inline: Vec::new(),
            inline_bytes,
            writer: None,
            bytes: 0,
            digest: Xxh3Default::new(),
        }
    }

    async fn write(&mut self, chunk: Vec<u8>) -> Result<(), StorageError> {
        self.bytes += chunk.len() as u64;
        self.digest.update(&chunk);
        if self.writer.is_none() {
            self.inline.extend_from_slice(&chunk);
            if self.inline.len() <= self.inline_bytes {
                return Ok(());
            }
            self.writer = Some(self.storage.writer(&self.path).await?);
            let so_far = std::mem::take(&mut self.inline);
            return self.append(so_far).await;
        }
        self.append(chunk).await
    }

    async fn append(&mut self, chunk: Vec<u8>) -> Result<(), StorageError> {
        let writer = self.writer.as_mut().expect("opened before anything is appended");
        writer.write(Bytes::from(chunk)).await
    }

    async fn finish(mut self) -> Result<StateHandle, StorageError> {
        match self.writer.take() {
            None => Ok(StateHandle::Inline(self.inline)),
            Some(writer) => {
                writer.finish().await?;
                Ok(StateHandle::File { path: self.relative, bytes: self.bytes, digest: self.digest.digest() })
            }
        }
    }

    /// Gives the file up. What an error leaves behind is collected when the job's directory is claimed the next time.
    async fn abort(&mut self) {
        if let Some(writer) = self.writer.take()
            && let Err(error) = writer.abort().await
        {
            tracing::debug!(%error, "could not give a file up");
        }
    }
}
