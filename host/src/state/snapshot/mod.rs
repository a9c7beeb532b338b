//! The snapshot format: the keyed state of one subtask as one file.
//!
//! ```text
//! magic, version, header length     16 bytes
//! header                            postcard: whose state it is, and a descriptor of each state
//! blocks                            zstd; each of one state and one key group, by rising state and group
//! footer                            postcard: where each block is, what is in it, and its checksum
//! footer length, header length, version, checksum of the footer and these, magic     28 bytes
//! ```
//!
//! Numbers of fixed width are little-endian, checksums are xxh3 of 64 bits. A block is a sequence of entries: a key and
//! what it holds, each a byte string behind its length as a varint. What it holds is the value itself, or a sequence of
//! such strings: the items of a list, keys and values of a map in turn. A long list or map has several entries, which
//! come one behind the other.
//!
//! All here is bytes in, bytes out: who reads and writes files is elsewhere, and names the file when there is an error.
//! Whatever the bytes are, reading them ends in an error that says what is wrong, or in what was written.

mod block;
mod compatibility;
mod encoder;
mod error;
mod footer;
mod header;
mod index;
#[cfg(test)]
mod tests;

pub use block::DecodedBlock;
pub use compatibility::{StateChange, compare_states};
pub use encoder::SnapshotEncoder;
pub use error::SnapshotError;
pub use footer::Block;
pub use header::{SnapshotHeader, SnapshotKind, SnapshotState, SnapshotTtl};
pub use index::{Amount, BlockRun, SnapshotIndex, SnapshotOpener};

/// The first and the last bytes of a snapshot.
const MAGIC: [u8; 8] = *b"TIDESNAP";

/// The version of the format that is written, and the only one that is read.
const VERSION: u32 = 1;

/// The most bytes of a block before compression, unless one entry has more.
const BLOCK_BYTES: usize = 256 << 10;

/// Magic, version and header length.
const FRONT_BYTES: usize = 16;

/// Footer length, header length, version, checksum and magic.
const TAIL_BYTES: usize = 28;
