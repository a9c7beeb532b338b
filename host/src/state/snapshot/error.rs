//! What can be wrong with a snapshot.

use super::footer::Block;

/// Why a snapshot cannot be read. Who reads it adds which file it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The file is too short to be a snapshot.
    #[error("it has {bytes} bytes, too few for a snapshot: it was cut off, or is no snapshot")]
    TooShort {
        /// The length of the file.
        bytes: u64,
    },
    /// The file does not start and end as a snapshot does.
    #[error("its {place} is not that of a snapshot: it was cut off, or is no snapshot")]
    Magic {
        /// "start" or "end".
        place: &'static str,
    },
    /// The file was written by another version of tidegate.
    #[error("it has format version {found}, but this version of tidegate reads {known}")]
    Version {
        /// The version of the file.
        found: u32,
        /// The version that can be read.
        known: u32,
    },
    /// Fewer or more bytes were read than were asked for.
    #[error("{got} bytes were read where {wanted} were asked for")]
    ShortRead {
        /// The bytes that came.
        got: usize,
        /// The bytes that were asked for.
        wanted: u64,
    },
    /// A part of the file does not agree with its checksum.
    #[error("its {part} is damaged: the checksum does not agree")]
    Checksum {
        /// Which part.
        part: &'static str,
    },
    /// A part of the file cannot be.
    #[error("its {part} is malformed: {what}")]
    Malformed {
        /// Which part.
        part: &'static str,
        /// What is wrong with it.
        what: String,
    },
    /// A block does not agree with its checksum, or cannot be.
    #[error(
        "its block at byte {offset} (state {state}, key group {group}) is damaged: {what}",
        offset = .block.offset, state = .block.state, group = .block.group
    )]
    Block {
        /// The block.
        block: Block,
        /// What is wrong with it.
        what: String,
    },
}
