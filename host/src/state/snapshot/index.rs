//! Opening a snapshot: finding out what to read from it.

use std::ops::Range;

use super::error::SnapshotError;
use super::footer::{Block, Footer, Tail, decode_front};
use super::header::SnapshotHeader;
use super::{FRONT_BYTES, TAIL_BYTES};
use crate::state::{Place, StateIndex};

/// The bytes that are read first, from the end: all of a small file, and the footer of most others.
const FIRST_READ_BYTES: u64 = 64 << 10;

/// Opens a snapshot in a few steps, so that whoever has the file can read it as suits it:
///
/// ```ignore
/// let mut opener = SnapshotOpener::new(file_len)?;
/// while let Some(range) = opener.wants() {
///     opener.give(&read(range)?)?;
/// }
/// let index = opener.finish();
/// ```
#[derive(Debug)]
pub struct SnapshotOpener {
    file_len: u64,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Tail,
    Footer(Tail),
    Front(Tail, Footer),
    Done(SnapshotIndex),
}

/// What is in a snapshot, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotIndex {
    header: SnapshotHeader,
    blocks: Vec<Block>,
}

/// Blocks side by side in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockRun<'a> {
    /// Where they are in the file.
    pub bytes: Range<u64>,
    /// The blocks.
    pub blocks: &'a [Block],
}

/// How much of a state is in a key group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amount {
    /// Which state, by its position in the header, and which key group.
    pub place: Place,
    /// The number of entries: one per key, save for long lists and maps.
    pub entries: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl SnapshotOpener {
    /// Opens a file of so many bytes.
    ///
    /// # Errors
    /// When that is too few.
    pub fn new(file_len: u64) -> Result<Self, SnapshotError> {
        if file_len < (FRONT_BYTES + TAIL_BYTES) as u64 {
            return Err(SnapshotError::TooShort { bytes: file_len });
        }
        Ok(Self { file_len, stage: Stage::Tail })
    }

    /// What to read next; nothing when the snapshot is open.
    #[must_use]
    pub fn wants(&self) -> Option<Range<u64>> {
        match &self.stage {
            Stage::Tail => Some(self.file_len.saturating_sub(FIRST_READ_BYTES)..self.file_len),
            Stage::Footer(tail) => Some(self.file_len - TAIL_BYTES as u64 - u64::from(tail.footer_len)..self.file_len),
            Stage::Front(tail, _) => Some(0..FRONT_BYTES as u64 + u64::from(tail.header_len)),
            Stage::Done(_) => None,
        }
    }

    /// Takes what was read.
    ///
    /// # Errors
    /// When it is not that of a snapshot, or damaged.
    ///
    /// # Panics
    /// When nothing was wanted.
    pub fn give(&mut self, bytes: &[u8]) -> Result<(), SnapshotError> {
        let wanted = self.wants().expect("something is wanted");
        if bytes.len() as u64 != wanted.end - wanted.start {
            return Err(SnapshotError::ShortRead { got: bytes.len(), wanted: wanted.end - wanted.start });
        }
        // One read may serve for several steps.
        while let Some(next) = self.wants()
            && wanted.start <= next.start
            && next.end <= wanted.end
        {
            let within = |at: u64| usize::try_from(at - wanted.start).expect("within what was read");
            self.step(&bytes[within(next.start)..within(next.end)])?;
        }
        Ok(())
    }

    fn step(&mut self, bytes: &[u8]) -> Result<(), SnapshotError> {
        self.stage = match std::mem::replace(&mut self.stage, Stage::Tail) {
            Stage::Tail => Stage::Footer(Tail::decode(bytes, self.file_len)?),
            Stage::Footer(tail) => Stage::Front(tail, Footer::decode(bytes, tail)?),
            Stage::Front(tail, footer) => {
                let header = decode_front(bytes, footer.header_checksum)?;
                footer.check(&header, tail.blocks(self.file_len).expect("the tail was checked"))?;
                Stage::Done(SnapshotIndex { header, blocks: footer.blocks })
            }
            Stage::Done(_) => panic!("nothing was wanted"),
        };
        Ok(())
    }

    /// The open snapshot.
    ///
    /// # Panics
    /// When something is still wanted.
    #[must_use]
    pub fn finish(self) -> SnapshotIndex {
        match self.stage {
            Stage::Done(index) => index,
            _ => panic!("a snapshot is open when nothing is wanted any more"),
        }
    }
}

impl SnapshotIndex {
    /// What is at the front.
    #[must_use]
    pub fn header(&self) -> &SnapshotHeader {
        &self.header
    }

    /// All blocks, in the order of the file.
    #[must_use]
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// The blocks of key groups, those side by side in one, up to about `most_bytes`.
    pub fn runs(&self, groups: Range<u32>, most_bytes: u64) -> impl Iterator<Item = BlockRun<'_>> {
        let mut rest = &self.blocks[..];
        std::iter::from_fn(move || {
            let start = rest.iter().position(|block| groups.contains(&block.group))?;
            rest = &rest[start..];
            let first = rest[0].offset;
            let more = |block: &&Block| groups.contains(&block.group) && block.bytes().end - first <= most_bytes;
            let (blocks, behind) = rest.split_at(1 + rest[1..].iter().take_while(more).count());
            rest = behind;
            Some(BlockRun { bytes: first..blocks[blocks.len() - 1].bytes().end, blocks })
        })
    }

    /// How much there is at each place in key groups.
    #[must_use]
    pub fn amounts(&self, groups: Range<u32>) -> Vec<Amount> {
        let mut amounts: Vec<Amount> = Vec::new();
        for block in self.blocks.iter().filter(|block| groups.contains(&block.group)) {
            let place = Place { state: StateIndex(block.state as usize), group: block.group };
            let (entries, bytes) = (u64::from(block.entries), block.raw_length);
            match amounts.last_mut() {
                Some(last) if last.place == place => {
                    last.entries += entries;
                    last.bytes = last.bytes.saturating_add(bytes);
                }
                _ => amounts.push(Amount { place, entries, bytes }),
            }
        }
        amounts
    }
}

impl<'a> BlockRun<'a> {
    /// Each block with its bytes, out of those of the run.
    ///
    /// # Errors
    /// When there are fewer or more bytes than the run has.
    pub fn parts<'b>(&self, bytes: &'b [u8]) -> Result<impl Iterator<Item = (&'a Block, &'b [u8])>, SnapshotError> {
        let (first, wanted) = (self.bytes.start, self.bytes.end - self.bytes.start);
        if bytes.len() as u64 != wanted {
            return Err(SnapshotError::ShortRead { got: bytes.len(), wanted });
        }
        let within = move |at: u64| usize::try_from(at - first).expect("within what was read");
        Ok(self.blocks.iter().map(move |block| (block, &bytes[within(block.offset)..within(block.bytes().end)])))
    }
}
