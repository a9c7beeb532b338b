//! The part of a file that is in memory: what was read and has not become records, and one chunk read ahead.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::discovery::{self, file_error};
use super::position::{FilePosition, Identity, read_fully};
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
    /// Nothing, because the followed file is not what it was.
    Replaced,
}

/// A chunk that was read.
#[derive(Debug)]
struct Chunk {
    bytes: Vec<u8>,
    /// How much it was to be.
    wanted: u64,
    /// What the followed file was like behind the read, so that bytes of other content are found out.
    look: Option<Look>,
}

/// What a followed file is like.
#[derive(Clone, Copy, Debug)]
struct Look {
    identity: Identity,
    /// Whether what was read is still there.
    same: bool,
    /// Whether the file is left behind.
    left_behind: bool,
}

/// What is in memory of a file.
#[derive(Debug)]
pub(super) struct Window {
    file: Arc<File>,
    path: PathBuf,
    identity: Identity,
    /// Whether the followed file was left behind when last read.
    left_behind: bool,
    /// Where to stop reading ahead; none for a followed file.
    end: Option<u64>,
    /// Where to stop reading; none for a followed file.
    size: Option<u64>,
    bytes: Vec<u8>,
    /// How many of the bytes are done with.
    used: usize,
    /// Where in the file the bytes end.
    read_to: u64,
    reading: Option<Task<io::Result<Chunk>>>,
    /// The buffer of the next chunk.
    spare: Vec<u8>,
}

impl Window {
    /// A window that begins at an offset, with nothing in it yet.
    pub(super) fn new(file: File, position: &FilePosition, offset: u64) -> Self {
        Self {
            file: Arc::new(file),
            path: position.path.clone(),
            identity: position.identity,
            left_behind: false,
            end: position.end,
            size: position.size,
            bytes: Vec::new(),
            used: 0,
            read_to: offset,
            reading: None,
            spare: Vec::new(),
        }
    }

    pub(super) fn file(&self) -> Arc<File> {
        Arc::clone(&self.file)
    }

    /// Where in the file the rest begins.
    pub(super) fn offset(&self) -> u64 {
        self.read_to - self.rest().len() as u64
    }

    /// The file's identity when last read.
    pub(super) fn identity(&self) -> Identity {
        self.identity
    }

    /// Whether the followed file was left behind when last read: another file stands under its name, or it was removed. As
    /// long as its name is free, whoever writes it has not turned to a new file.
    pub(super) fn is_left_behind(&self) -> bool {
        self.left_behind
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
        let Chunk { bytes: mut chunk, wanted, look } = chunk?.map_err(|error| file_error("read", &self.path, error))?;
        if let Some(look) = look {
            (self.identity, self.left_behind) = (look.identity, look.left_behind);
            if !look.same {
                return Ok(Fill::Replaced);
            }
        }
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
    fn read_on(&mut self, env: &Env) -> Option<Task<io::Result<Chunk>>> {
        let from = self.read_to;
        let wanted = match (self.end, self.size) {
            (Some(end), Some(size)) => CHUNK_BYTES.min(end.saturating_sub(from).max(TAIL_BYTES)).min(size - from),
            _ => CHUNK_BYTES,
        };
        if wanted == 0 {
            return None;
        }
        let (file, mut buffer) = (self.file(), std::mem::take(&mut self.spare));
        let followed = self.size.is_none().then(|| (self.path.clone(), self.identity));
        let work = move || {
            buffer.resize(usize::try_from(wanted).expect("a chunk"), 0);
            let len = read_fully(&file, &mut buffer, from)?;
            buffer.truncate(len);
            let look =
                followed.map(|(path, identity)| look_at(&file, &path, identity, from + len as u64)).transpose()?;
            Ok(Chunk { bytes: buffer, wanted, look })
        };
        Some(task::compute(&*env.compute, "read file", work))
    }
}

fn look_at(file: &File, path: &Path, identity: Identity, read_to: u64) -> io::Result<Look> {
    let metadata = file.metadata()?;
    let recognised = identity.recognise(file, &metadata)?.filter(|_| metadata.len() >= read_to);
    let same = recognised.is_some();
    let identity = match recognised {
        Some(identity) => identity,
        None => Identity::of(file, &metadata)?,
    };
    let replaced = discovery::stands_for(path).is_some_and(|key| key != identity.key);
    Ok(Look { identity, same, left_behind: replaced || metadata.nlink() == 0 })
}

/// The error when a bounded file has become shorter.
pub(super) fn shrunk(path: &Path, was: u64, is: u64) -> ConnectorError {
    ConnectorError::Other(format!(
        "{} has shrunk from {was} to {is} bytes since the job started; put the file back as it was, or start the job afresh",
        path.display()
    ))
}
