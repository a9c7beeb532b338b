//! The index at the end of a snapshot.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::error::SnapshotError;
use super::header::SnapshotHeader;
use super::{FRONT_BYTES, MAGIC, TAIL_BYTES, VERSION};

/// Where a block is and what is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// The position of its state in the header.
    pub state: u32,
    /// Its key group.
    pub group: u32,
    /// Where it starts in the file.
    pub offset: u64,
    /// Its bytes in the file.
    pub length: u64,
    /// Its bytes before compression.
    pub raw_length: u64,
    /// The number of entries.
    pub entries: u32,
    /// The checksum of its bytes in the file.
    pub checksum: u64,
}

impl Block {
    /// Where the block is in the file.
    #[must_use]
    pub fn bytes(&self) -> Range<u64> {
        self.offset..self.offset + self.length
    }
}

/// What the footer holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Footer {
    pub(super) header_checksum: u64,
    pub(super) blocks: Vec<Block>,
}

/// What the last bytes of a snapshot say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tail {
    pub(super) footer_len: u32,
    pub(super) header_len: u32,
    pub(super) checksum: u64,
}

/// The first bytes of a snapshot: the header and what is in front of it.
pub(super) fn front(header: &[u8]) -> Vec<u8> {
    let mut front = Vec::with_capacity(FRONT_BYTES + header.len());
    front.extend_from_slice(&MAGIC);
    front.extend_from_slice(&VERSION.to_le_bytes());
    front.extend_from_slice(&length(header).to_le_bytes());
    front.extend_from_slice(header);
    front
}

fn length(part: &[u8]) -> u32 {
    u32::try_from(part.len()).expect("headers and footers are far below 4 GiB")
}

fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

impl Footer {
    /// The last bytes of a snapshot: this footer and what is behind it.
    pub(super) fn encode(&self, header: &[u8]) -> Vec<u8> {
        let mut bytes = postcard::to_stdvec(self).expect("a footer can be written to memory");
        let footer_len = length(&bytes);
        bytes.extend_from_slice(&footer_len.to_le_bytes());
        bytes.extend_from_slice(&length(header).to_le_bytes());
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&xxh3_64(&bytes).to_le_bytes());
        bytes.extend_from_slice(&MAGIC);
        bytes
    }

    /// Reads the footer with all that is behind it.
    pub(super) fn decode(bytes: &[u8], tail: Tail) -> Result<Self, SnapshotError> {
        let (checked, _) = bytes.split_at(bytes.len() - 16);
        if xxh3_64(checked) != tail.checksum {
            return Err(SnapshotError::Checksum { part: "footer" });
        }
        decode("footer", &bytes[..tail.footer_len as usize])
    }

    /// Checks that the blocks agree with the header and fill the file between it and the footer.
    pub(super) fn check(&self, header: &SnapshotHeader, blocks: Range<u64>) -> Result<(), SnapshotError> {
        let malformed = |what: String| SnapshotError::Malformed { part: "footer", what };
        let (mut end, mut place) = (blocks.start, (0, header.first_group));
        for (position, block) in self.blocks.iter().enumerate() {
            let groups = header.first_group..header.end_group;
            if block.state as usize >= header.states.len() || !groups.contains(&block.group) {
                return Err(malformed(format!("block {position} has a state or key group that the header lacks")));
            }
            if (block.state, block.group) < place {
                return Err(malformed(format!("block {position} is out of order")));
            }
            if block.offset != end || block.length > blocks.end - end {
                return Err(malformed(format!("block {position} is not where the one before it ends")));
            }
            (end, place) = (end + block.length, (block.state, block.group));
        }
        if end != blocks.end {
            return Err(malformed(format!("the blocks end at byte {end}, not at {}", blocks.end)));
        }
        Ok(())
    }
}

impl Tail {
    /// Reads the last bytes of a file of `file_len` bytes.
    pub(super) fn decode(bytes: &[u8], file_len: u64) -> Result<Self, SnapshotError> {
        let bytes = &bytes[bytes.len() - TAIL_BYTES..];
        if bytes[TAIL_BYTES - MAGIC.len()..] != MAGIC {
            return Err(SnapshotError::Magic { place: "end" });
        }
        check_version(number(bytes, 8))?;
        let checksum = u64::from_le_bytes(bytes[12..20].try_into().expect("eight bytes"));
        let tail = Self { footer_len: number(bytes, 0), header_len: number(bytes, 4), checksum };
        if tail.blocks(file_len).is_none() {
            let what = "header and footer are longer than the file".to_owned();
            return Err(SnapshotError::Malformed { part: "end", what });
        }
        Ok(tail)
    }

    /// Where the blocks are in a file of so many bytes, if it is long enough.
    pub(super) fn blocks(self, file_len: u64) -> Option<Range<u64>> {
        let start = FRONT_BYTES as u64 + u64::from(self.header_len);
        let end = file_len.checked_sub(TAIL_BYTES as u64 + u64::from(self.footer_len))?;
        (start <= end).then_some(start..end)
    }
}

/// Reads the header with all that is in front of it.
pub(super) fn decode_front(bytes: &[u8], checksum: u64) -> Result<SnapshotHeader, SnapshotError> {
    if bytes[..MAGIC.len()] != MAGIC {
        return Err(SnapshotError::Magic { place: "start" });
    }
    check_version(number(bytes, 8))?;
    let (front, encoded) = bytes.split_at(FRONT_BYTES);
    if number(front, 12) as usize != encoded.len() || xxh3_64(encoded) != checksum {
        return Err(SnapshotError::Checksum { part: "header" });
    }
    let header: SnapshotHeader = decode("header", encoded)?;
    if header.first_group > header.end_group || header.end_group > header.max_parallelism {
        let what =
            format!("it has key groups {}..{} of {}", header.first_group, header.end_group, header.max_parallelism);
        return Err(SnapshotError::Malformed { part: "header", what });
    }
    Ok(header)
}

fn check_version(found: u32) -> Result<(), SnapshotError> {
    if found == VERSION { Ok(()) } else { Err(SnapshotError::Version { found, known: VERSION }) }
}

fn decode<'a, T: Deserialize<'a>>(part: &'static str, bytes: &'a [u8]) -> Result<T, SnapshotError> {
    match postcard::take_from_bytes(bytes) {
        Ok((decoded, [])) => Ok(decoded),
        Ok((_, rest)) => Err(SnapshotError::Malformed { part, what: format!("{} bytes are left over", rest.len()) }),
        Err(error) => Err(SnapshotError::Malformed { part, what: error.to_string() }),
    }
}
