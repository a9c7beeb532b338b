//! Writing a snapshot, a chunk at a time.

use xxhash_rust::xxh3::xxh3_64;
use zstd::bulk::Compressor;

use super::BLOCK_BYTES;
use super::footer::{Block, Footer, front};
use super::header::SnapshotHeader;
use crate::state::{FrozenState, Payload, Place, frame};

/// The bytes of a chunk from which on it is handed out.
const CHUNK_BYTES: usize = 256 << 10;

/// zstd's level: the next ones take more time and hardly less room.
const LEVEL: i32 = 1;

/// Turns frozen state into a snapshot.
pub struct SnapshotEncoder {
    header: Vec<u8>,
    frozen: Box<dyn FrozenState>,
    blocks: Blocks,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Front,
    Blocks,
    Done,
}

/// The blocks that were written, and the one that is being filled.
struct Blocks {
    compressor: Compressor<'static>,
    done: Vec<Block>,
    /// Where the next block starts in the file.
    offset: u64,
    place: Option<Place>,
    entries: u32,
    raw: Vec<u8>,
    compressed: Vec<u8>,
    /// What is handed out next.
    chunk: Vec<u8>,
}

impl std::fmt::Debug for SnapshotEncoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SnapshotEncoder").field("stage", &self.stage).finish_non_exhaustive()
    }
}

impl SnapshotEncoder {
    /// Turns `frozen` into a snapshot with a header.
    #[must_use]
    pub fn new(header: &SnapshotHeader, frozen: Box<dyn FrozenState>) -> Self {
        let blocks = Blocks {
            compressor: Compressor::new(LEVEL).expect("zstd knows its levels"),
            done: Vec::new(),
            offset: 0,
            place: None,
            entries: 0,
            raw: Vec::new(),
            compressed: Vec::new(),
            chunk: Vec::new(),
        };
        let header = postcard::to_stdvec(header).expect("a header can be written to memory");
        Self { header, frozen, blocks, stage: Stage::Front }
    }

    /// The next bytes of the file, or nothing at its end. Takes some milliseconds: a chunk is some 256 KiB, unless
    /// there are entries that are larger.
    pub fn next_chunk(&mut self) -> Option<Vec<u8>> {
        if self.stage == Stage::Done {
            return None;
        }
        if self.stage == Stage::Front {
            self.blocks.chunk = front(&self.header);
            self.blocks.offset = self.blocks.chunk.len() as u64;
            self.stage = Stage::Blocks;
        }
        let blocks = &mut self.blocks;
        while blocks.chunk.len() < CHUNK_BYTES {
            if !self.frozen.next(BLOCK_BYTES, &mut |place, key, payload| blocks.add(place, key, payload)) {
                blocks.finish();
                let footer =
                    Footer { header_checksum: xxh3_64(&self.header), blocks: std::mem::take(&mut blocks.done) };
                blocks.chunk.extend_from_slice(&footer.encode(&self.header));
                self.stage = Stage::Done;
                break;
            }
        }
        Some(std::mem::take(&mut blocks.chunk))
    }
}

impl Blocks {
    fn add(&mut self, place: Place, key: &[u8], payload: Payload<'_>) {
        let payload = match payload {
            Payload::Value(bytes) => bytes,
            Payload::Items(strings) | Payload::Entries(strings) => strings.as_bytes(),
        };
        let size = frame::framed_len(key) + frame::framed_len(payload);
        if self.place != Some(place) || self.raw.len() + size > BLOCK_BYTES {
            self.finish();
            self.place = Some(place);
        }
        frame::push(&mut self.raw, key);
        frame::push(&mut self.raw, payload);
        self.entries += 1;
    }

    /// Writes the block that was being filled, if there is something in it.
    fn finish(&mut self) {
        if self.raw.is_empty() {
            return;
        }
        let place = self.place.expect("what was added has a place");
        self.compressed.clear();
        self.compressed.reserve(zstd::zstd_safe::compress_bound(self.raw.len()));
        self.compressor.compress_to_buffer(&self.raw, &mut self.compressed).expect("there is room for the worst case");
        let length = self.compressed.len() as u64;
        self.done.push(Block {
            state: u32::try_from(place.state.0).expect("far fewer states than 2^32"),
            group: place.group,
            offset: self.offset,
            length,
            raw_length: self.raw.len() as u64,
            entries: self.entries,
            checksum: xxh3_64(&self.compressed),
        });
        self.chunk.extend_from_slice(&self.compressed);
        self.offset += length;
        self.entries = 0;
        self.raw.clear();
        if self.raw.capacity() > 2 * BLOCK_BYTES {
            // A large entry is no reason to hold as much memory to the end.
            (self.raw, self.compressed) = (Vec::new(), Vec::new());
        }
    }
}
