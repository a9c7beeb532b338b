//! Where a split lies and how far it has been read, with what tells that the file is still the same one.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::connectors::{ConnectorError, Split, versioned};

/// How many bytes at the head of a file are part of its identity.
const HEAD_BYTES: usize = 1024;

/// The version of [`FilePosition`].
const VERSION: u32 = 1;

/// What stays when a file is renamed, grows or is overwritten, and differs from that of all other files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileKey {
    pub(super) device: u64,
    /// Comes back as another file's once the file is gone, often at once.
    pub(super) inode: u64,
    /// When the file was made, in nanoseconds since 1970, where the file system knows.
    pub(super) born_ns: Option<u64>,
}

impl FileKey {
    pub(super) fn of(metadata: &Metadata) -> Self {
        let born = metadata.created().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let born_ns = born.and_then(|born| u64::try_from(born.as_nanos()).ok());
        Self { device: metadata.dev(), inode: metadata.ino(), born_ns }
    }
}

/// What tells one file from another that came to stand under its name, or the same one with other content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Identity {
    pub(super) key: FileKey,
    /// How many bytes were hashed: all of a short file, which may grow.
    head_bytes: usize,
    head_hash: u64,
}

impl Identity {
    /// The identity of an open file.
    pub(super) fn of(file: &File, metadata: &Metadata) -> io::Result<Self> {
        let head = read_head(file, HEAD_BYTES)?;
        Ok(Self { key: FileKey::of(metadata), head_bytes: head.len(), head_hash: xxh3_64(&head) })
    }

    /// Whether an open file is this one, grown perhaps; then with what it has grown by.
    pub(super) fn recognise(&self, file: &File, metadata: &Metadata) -> io::Result<Option<Self>> {
        if self.key != FileKey::of(metadata) {
            return Ok(None);
        }
        let head = read_head(file, HEAD_BYTES)?;
        if head.len() < self.head_bytes || xxh3_64(&head[..self.head_bytes]) != self.head_hash {
            return Ok(None);
        }
        Ok(Some(Self { head_bytes: head.len(), head_hash: xxh3_64(&head), ..*self }))
    }
}

fn read_head(file: &File, most: usize) -> io::Result<Vec<u8>> {
    let mut head = vec![0; most];
    let len = read_fully(file, &mut head, 0)?;
    head.truncate(len);
    Ok(head)
}

/// Fills a buffer from an offset on; tells how much there was before the end of the file.
pub(super) fn read_fully(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut len = 0;
    while len < buffer.len() {
        match file.read_at(&mut buffer[len..], offset + len as u64) {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}

/// A split's position, as it is kept in a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FilePosition {
    version: u32,
    pub(super) path: PathBuf,
    pub(super) identity: Identity,
    /// Records that start here or behind are the split's.
    pub(super) start: u64,
    /// Records that start here or behind are not the split's. None when the file is followed.
    pub(super) end: Option<u64>,
    /// The size of the file at first start: what was appended later is not read. None when the file is followed.
    pub(super) size: Option<u64>,
    /// Where the next record starts; at `start`, if that is not 0, the first record has yet to be looked for.
    pub(super) offset: u64,
}

impl FilePosition {
    /// The split of a bounded file between two offsets.
    pub(super) fn of_range(path: PathBuf, identity: Identity, start: u64, end: u64, size: u64) -> Self {
        Self { version: VERSION, path, identity, start, end: Some(end), size: Some(size), offset: start }
    }

    /// The split that is all of a followed file.
    pub(super) fn of_followed(path: PathBuf, identity: Identity) -> Self {
        Self { version: VERSION, path, identity, start: 0, end: None, size: None, offset: 0 }
    }

    /// Names the split: by path and start, or for a followed file by what stays when it is renamed.
    pub(super) fn id(&self) -> String {
        let path = self.path.display();
        match self.end {
            Some(_) => format!("{path}:{}", self.start),
            None => {
                let FileKey { device, inode, born_ns } = self.identity.key;
                format!("{path}@{device:x}-{inode:x}-{:x}", born_ns.unwrap_or(0))
            }
        }
    }

    /// How much of the split has not been read, in bytes; nothing is known of a followed file.
    pub(super) fn left_bytes(&self) -> u64 {
        self.end.map_or(0, |end| end.saturating_sub(self.offset))
    }

    /// How much of the split has been read, in bytes.
    pub(super) fn read_bytes(&self) -> u64 {
        self.offset.min(self.end.unwrap_or(u64::MAX)).saturating_sub(self.start)
    }

    pub(super) fn split(&self) -> Split {
        Split { id: self.id(), position: self.encode() }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        versioned::encode(self)
    }

    pub(super) fn decode(split: &Split) -> Result<Self, ConnectorError> {
        versioned::decode(&format!("the position of file split {}", split.id), VERSION, &split.position)
    }
}
