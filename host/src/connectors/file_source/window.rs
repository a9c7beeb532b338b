//! The part of a file that is in memory: what was read and has not become records, and one chunk read ahead.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::discovery::file_error;
use super::position::read_fully;
use crate::connectors::ConnectorError;
use crate::env::Env;
use crate::task::{self, Task};

/// How much is read at once.
const CHUNK_BYTES: u64 = 1 << 20;

/// How much is read at once behind the end of a split, where only the rest of one record is wanted.
const TAIL_BYTES: u64 = 64 << 10;

/// What reading on brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fill {
    /// More bytes.
    More,
    /// Nothing now: the followed file has been read to its end.
    Nothing,
    /// Nothing any more: the bounded file has been read to its end.
    End,
}

/// A chunk that was read, and how much it was to be.
type Chunk = io::Result<(Vec<u8>, u64)>;

/// What is in memory of a file.
#[derive(Debug)]
pub(super) struct Window {
    file: Arc<File>,
    path: PathBuf,
    /// Where to stop reading ahead; none for a followed file.
    end: Option<u64>,
    /// Where to stop reading; none for a followed file.
    size: Option<u64>,
    bytes: Vec<u8>,
    /// How many of the bytes are done with.
    used: usize,
    /// Where in the file the bytes end.
    read_to: u64,
    reading: Option<Task<Chunk>>,
    /// The buffer of the next chunk.
    spare: Vec<u8>,
}

impl Window {
    /// A window that begins at an offset, with nothing in it yet.
    pub(super) fn new(file: File, path: PathBuf, offset: u64, end: Option<u64>, size: Option<u64>) -> Self {
        let (bytes, spare) = (Vec::new(), Vec::new());
        Self { file: Arc::new(file), path, end, size, bytes, used: 0, read_to: offset, reading: None, spare }
    }

    pub(super) fn file(&self) -> Arc<File> {
        Arc::clone(&self.file)
    }

    /// Where in the file the rest begins.
    pub(super) fn offset(&self) -> u64 {
        self.read_to - self.rest().len() as u64
    }

    /// Where in the file the rest ends.
    pub(super) fn read_to(&self) -> u64 {
        self.read_to
    }

    /// What is not done with.
    pub(super) fn rest(&self) -> &[u8] {
        &self.bytes[self.used..]
    }

    /// Is done with so many bytes of the rest.
    pub(super) fn consume(&mut self, bytes: usize) {
        self.used += bytes;
    }

    /// Adds to the rest. Cancel-safe.
    pub(super) async fn fill(&mut self, env: &Env) -> Result<Fill, ConnectorError> {
        if self.reading.is_none() {
            self.reading = self.read_on(env);
        }
        let Some(reading) = &mut self.reading else { return Ok(Fill::End) };
        let chunk = reading.await;
        self.reading = None;
        let (mut chunk, wanted) = chunk?.map_err(|error| file_error("read", &self.path, error))?;
        let full = chunk.len() as u64 == wanted;
        self.read_to += chunk.len() as u64;
        if let Some(size) = self.size.filter(|_| !full) {
            return Err(shrunk(&self.path, size, self.read_to));
        }
        if chunk.is_empty() {
            self.spare = chunk;
            return Ok(Fill::Nothing);
        }
        if self.used == self.bytes.len() {
            std::mem::swap(&mut self.bytes, &mut chunk);
        } else {
            // Only the beginning of a record is left in front, so what moves is little more than the chunk.
            self.bytes.drain(..self.used);
            self.bytes.extend_from_slice(&chunk);
        }
        self.used = 0;
        self.spare = chunk;
        if full && self.end.is_none_or(|end| self.read_to < end) {
            self.reading = self.read_on(env);
        }
        Ok(Fill::More)
    }

    /// Starts to read the next chunk, if there is one.
    fn read_on(&mut self, env: &Env) -> Option<Task<Chunk>> {
        let from = self.read_to;
        let wanted = match (self.end, self.size) {
            (Some(end), Some(size)) => CHUNK_BYTES.min(end.saturating_sub(from).max(TAIL_BYTES)).min(size - from),
            _ => CHUNK_BYTES,
        };
        if wanted == 0 {
            return None;
        }
        let (file, mut buffer) = (self.file(), std::mem::take(&mut self.spare));
        let work = move || {
            buffer.resize(usize::try_from(wanted).expect("a chunk"), 0);
            let len = read_fully(&file, &mut buffer, from)?;
            buffer.truncate(len);
            Ok((buffer, wanted))
        };
        Some(task::compute(&*env.compute, "read file", work))
    }
}

/// The error when a bounded file has become shorter.
pub(super) fn shrunk(path: &std::path::Path, was: u64, is: u64) -> ConnectorError {
    ConnectorError::Other(format!(
        "{} has shrunk from {was} to {is} bytes since the job started; put the file back as it was, or start the job afresh",
        path.display()
    ))
}
