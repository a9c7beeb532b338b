//! Blocks of bytes for small records, in chunks of memory that never move.
//!
//! An arena grows by a chunk at a time, so that growing copies nothing and what a record costs to write does not depend
//! on how many there are.
//!
//! Block sizes come in classes, about an eighth apart, so that a freed block fits the next record of about its size and
//! a record that changes its length a little stays where it is. What is freed and not used again is given back when
//! the owner copies its records to a fresh arena; [`Arena::is_wasteful`] says when that pays.

/// All sizes and addresses are multiples of this many bytes.
const UNIT: usize = 16;

/// The largest block. What is larger is better off in an allocation of its own.
pub(super) const LARGEST_BLOCK: usize = 4096;

/// The number of block sizes.
const CLASSES: usize = 48;

/// The end of a list of free blocks.
const NONE: u32 = u32::MAX;

/// The least waste that is worth a copy.
const LEAST_WASTE: usize = 16 << 10;

/// The size of all chunks but the first of an arena, which are as large as those before them together.
const CHUNK: usize = 64 << 10;

/// The addresses of a chunk, be it as large as others or not.
const CHUNK_UNITS: usize = CHUNK / UNIT;

/// Where a block starts, in units: the number of its chunk above, the place in it below.
pub(super) type Address = u32;

/// Blocks of bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct Arena {
    chunks: Vec<Vec<u8>>,
    /// The first free block of each class, which holds the address of the next one; empty before the first one.
    free: Vec<Address>,
    free_bytes: usize,
    /// The bytes of all blocks.
    block_bytes: usize,
    /// The least size of a chunk.
    least_chunk: usize,
}

/// The class of blocks for `len` bytes. Up to 16 units each size has a class, from there on each doubling has eight.
#[inline]
fn class_of(len: usize) -> usize {
    let last = len.div_ceil(UNIT).max(1) - 1;
    if last < 16 {
        return last;
    }
    let doubling = last.ilog2() as usize - 4;
    16 + 8 * doubling + (last - (16 << doubling)) / (2 << doubling)
}

/// The bytes of a block of a class.
#[inline]
fn class_size(class: usize) -> usize {
    if class < 16 {
        return (class + 1) * UNIT;
    }
    let (doubling, step) = ((class - 16) / 8, (class - 16) % 8);
    ((16 << doubling) + (2 << doubling) * (step + 1)) * UNIT
}

/// The bytes of the block that `len` bytes get.
#[inline]
pub(super) fn block_size(len: usize) -> usize {
    class_size(class_of(len))
}

impl Arena {
    /// An arena that expects so many bytes: it makes room for them when it is written to.
    pub(super) fn expecting(bytes: usize) -> Self {
        Self { least_chunk: bytes.min(CHUNK), ..Self::default() }
    }

    /// A block for `len` bytes, of any content.
    pub(super) fn allocate(&mut self, len: usize) -> Address {
        debug_assert!(len <= LARGEST_BLOCK);
        let class = class_of(len);
        let size = class_size(class);
        if let Some(&address) = self.free.get(class)
            && address != NONE
        {
            let next = self.at(address).first_chunk().expect("a block has four bytes");
            self.free[class] = u32::from_le_bytes(*next);
            self.free_bytes -= size;
            return address;
        }
        if self.chunks.last().is_none_or(|chunk| chunk.len() + size > chunk.capacity().min(CHUNK)) {
            self.chunks.push(Vec::with_capacity(self.block_bytes.max(self.least_chunk).clamp(size, CHUNK)));
        }
        let number = self.chunks.len() - 1;
        let chunk = &mut self.chunks[number];
        let at = chunk.len();
        chunk.resize(at + size, 0);
        self.block_bytes += size;
        Address::try_from(number * CHUNK_UNITS + at / UNIT).expect("a table is split long before it has 64 GiB")
    }

    /// Takes a block back that was allocated for `len` bytes.
    pub(super) fn release(&mut self, address: Address, len: usize) {
        let class = class_of(len);
        if self.free.is_empty() {
            self.free = vec![NONE; CLASSES];
        }
        let next = self.free[class].to_le_bytes();
        self.at_mut(address)[..next.len()].copy_from_slice(&next);
        self.free[class] = address;
        self.free_bytes += class_size(class);
    }

    /// The bytes from a block on.
    #[inline]
    pub(super) fn at(&self, address: Address) -> &[u8] {
        let address = address as usize;
        &self.chunks[address / CHUNK_UNITS][address % CHUNK_UNITS * UNIT..]
    }

    /// The bytes from a block on, to be written.
    #[inline]
    pub(super) fn at_mut(&mut self, address: Address) -> &mut [u8] {
        let address = address as usize;
        &mut self.chunks[address / CHUNK_UNITS][address % CHUNK_UNITS * UNIT..]
    }

    /// The bytes of blocks that are in use.
    pub(super) fn used_bytes(&self) -> usize {
        self.block_bytes - self.free_bytes
    }

    /// Whether more is free than in use, by so much that copying what is in use pays.
    #[inline]
    pub(super) fn is_wasteful(&self) -> bool {
        self.free_bytes > LEAST_WASTE && self.free_bytes > self.block_bytes / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_fit_and_waste_little() {
        for len in 1..=LARGEST_BLOCK {
            let size = block_size(len);
            assert!(size >= len && size.is_multiple_of(UNIT), "{len} bytes got {size}");
            assert!(size - len < UNIT.max(len / 8 + UNIT), "{len} bytes got {size}");
            assert_eq!(block_size(size), size, "a whole block belongs to its own class");
        }
        assert_eq!(class_of(LARGEST_BLOCK), CLASSES - 1);
        assert_eq!(block_size(LARGEST_BLOCK), LARGEST_BLOCK);
    }

    #[test]
    fn freed_blocks_are_used_again() {
        let mut arena = Arena::default();
        let blocks: Vec<Address> = (0..100).map(|_| arena.allocate(100)).collect();
        let used = arena.used_bytes();
        blocks.iter().for_each(|&block| arena.release(block, 100));
        assert_eq!(arena.used_bytes(), 0);
        let mut again: Vec<Address> = (0..100).map(|_| arena.allocate(97)).collect();
        again.sort_unstable();
        assert_eq!(again, blocks);
        assert_eq!((arena.used_bytes(), arena.block_bytes), (used, used));
    }
}
