//! Reading a block.

use std::io::Read;

use xxhash_rust::xxh3::xxh3_64;

use super::error::SnapshotError;
use super::footer::Block;
use super::header::SnapshotKind;
use super::index::SnapshotIndex;
use crate::state::{Framed, Payload, frame};

/// Up to so many bytes, a block is unpacked in one go to the length that the footer says. A larger one is not trusted
/// that far: memory grows with what comes out of it.
const TRUSTED_BYTES: u64 = 1 << 20;

/// The entries of a block.
#[derive(Debug)]
pub struct DecodedBlock {
    kind: SnapshotKind,
    raw: Vec<u8>,
}

impl SnapshotIndex {
    /// Checks and unpacks a block.
    ///
    /// # Errors
    /// When it is damaged.
    pub fn decode_block(&self, block: &Block, bytes: &[u8]) -> Result<DecodedBlock, SnapshotError> {
        let damaged = |what: String| SnapshotError::Block { block: *block, what };
        if xxh3_64(bytes) != block.checksum {
            return Err(damaged("the checksum does not agree".to_owned()));
        }
        let kind = self.header().states[block.state as usize].kind;
        let raw = unpack(bytes, block.raw_length).map_err(damaged)?;
        check(&raw, kind, block.entries).map_err(|what| damaged(what.to_owned()))?;
        Ok(DecodedBlock { kind, raw })
    }
}

impl DecodedBlock {
    /// The keys and what they hold.
    pub fn entries(&self) -> impl Iterator<Item = (&[u8], Payload<'_>)> {
        frame::entries(&self.raw).map(|(key, payload)| {
            let payload = match self.kind {
                SnapshotKind::Value => Payload::Value(payload),
                SnapshotKind::List => Payload::Items(Framed::trusted(payload)),
                SnapshotKind::Map => Payload::Entries(Framed::trusted(payload)),
            };
            (key, payload)
        })
    }
}

fn unpack(bytes: &[u8], raw_length: u64) -> Result<Vec<u8>, String> {
    let raw = if raw_length <= TRUSTED_BYTES {
        let capacity = usize::try_from(raw_length).expect("that much fits into memory");
        zstd::bulk::decompress(bytes, capacity).map_err(|error| error.to_string())?
    } else {
        let mut raw = Vec::new();
        let decoder = zstd::stream::Decoder::with_buffer(bytes).map_err(|error| error.to_string())?;
        decoder.take(raw_length.saturating_add(1)).read_to_end(&mut raw).map_err(|error| error.to_string())?;
        raw
    };
    if raw.len() as u64 != raw_length {
        return Err(format!("it has {} bytes unpacked where {raw_length} are announced", raw.len()));
    }
    Ok(raw)
}

/// Checks that a block has so many entries, all well formed.
fn check(raw: &[u8], kind: SnapshotKind, entries: u32) -> Result<(), &'static str> {
    let mut rest = raw;
    let mut found = 0;
    while !rest.is_empty() {
        let payload = frame::split(&mut rest).and_then(|_| frame::split(&mut rest)).ok_or("an entry is malformed")?;
        let well_formed = match kind {
            SnapshotKind::Value => true,
            SnapshotKind::List => frame::count(payload).is_some(),
            SnapshotKind::Map => frame::count(payload).is_some_and(|strings| strings.is_multiple_of(2)),
        };
        if !well_formed {
            return Err("a list or map is malformed");
        }
        found += 1;
    }
    if found != u64::from(entries) {
        return Err("it has more or fewer entries than announced");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks with a good checksum and bad content are refused as well.
    #[test]
    fn malformed_entries_are_refused() {
        let check = |raw: &[u8], kind, entries| check(raw, kind, entries).is_ok();
        assert!(check(&[1, 7, 2, 1, 7], SnapshotKind::Value, 1));
        assert!(check(&[1, 7, 2, 1, 7], SnapshotKind::List, 1));
        assert!(check(&[1, 7, 4, 1, 7, 1, 8], SnapshotKind::Map, 1));
        assert!(!check(&[1, 7, 2, 1, 7], SnapshotKind::Value, 2));
        assert!(!check(&[1, 7, 2, 1, 7], SnapshotKind::Map, 1));
        assert!(!check(&[1, 7, 2, 2, 7], SnapshotKind::List, 1));
        assert!(!check(&[1, 7, 3, 1, 7], SnapshotKind::Value, 1));
        assert!(!check(&[1, 7], SnapshotKind::Value, 1));
        assert!(!check(&[0xff; 20], SnapshotKind::Value, 1));
        assert!(!check(&[0x80], SnapshotKind::Value, 1));
    }

    #[test]
    fn a_wrong_length_is_refused() {
        let raw = vec![7; 3 << 20];
        for len in [100, TRUSTED_BYTES as usize + 1, raw.len()] {
            let packed = zstd::bulk::compress(&raw[..len], 1).unwrap();
            assert_eq!(unpack(&packed, len as u64).unwrap(), raw[..len]);
            for announced in [0, len as u64 - 1, len as u64 + 1, u64::MAX] {
                assert!(unpack(&packed, announced).is_err());
            }
        }
    }
}
