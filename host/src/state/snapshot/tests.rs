//! What is written is what is read, and whatever else the bytes are is an error.

use std::collections::BTreeMap;
use std::ops::Range;

use proptest::prelude::*;

use super::*;
use crate::id::CheckpointId;
use crate::operator::{StateDescriptor, StateKind};
use crate::protocol::key_group;
use crate::random::Random;
use crate::record::{Column, Lists, OptionalColumn};
use crate::state::{Keys, MemoryBackend, Payload, StateBackend, StateError, StateIndex};

const GROUPS: u32 = 8;

/// What each key of each state holds, as strings.
type Content = BTreeMap<(usize, Vec<u8>), Vec<Vec<u8>>>;

fn descriptors() -> Vec<StateDescriptor> {
    let state =
        |id: u32, name: &str, kind| StateDescriptor { id, name: name.into(), kind, ttl: None, schema_version: 1 };
    vec![
        state(0, "value", StateKind::KeyedValue),
        state(1, "list", StateKind::KeyedList),
        state(2, "map", StateKind::KeyedMap),
    ]
}

fn backend(groups: Range<u32>) -> MemoryBackend {
    MemoryBackend::new("op", descriptors(), groups, GROUPS, u64::MAX)
}

fn header() -> SnapshotHeader {
    SnapshotHeader {
        job: "job".into(),
        node: "op".into(),
        subtask: 0,
        checkpoint: CheckpointId(7),
        max_parallelism: GROUPS,
        first_group: 0,
        end_group: GROUPS,
        states: SnapshotState::of(&descriptors()),
    }
}

/// A backend in which each key `i` holds strings of the given lengths: the first is its value, all are its list, and the
/// values of its map.
fn filled(lengths: &[Vec<usize>]) -> MemoryBackend {
    let mut backend = backend(0..GROUPS);
    for (number, lens) in lengths.iter().enumerate() {
        let key = format!("key {number}").into_bytes();
        let (column, hashes) = (Column::from_iter([&key]), [key_group::hash(&key)]);
        let keys = Keys { column: &column, hashes: &hashes, positions: &[0] };
        let mut random = Random::new(number as u64);
        let strings: Vec<Vec<u8>> =
            lens.iter().map(|&len| (0..len).map(|_| random.next_u64() as u8).collect()).collect();
        let value: OptionalColumn = [strings.first()].into_iter().collect();
        backend.write_values(StateIndex(0), keys, &value).unwrap();
        let mut lists = Lists::new();
        lists.push(&strings);
        backend.append_lists(StateIndex(1), keys, &lists).unwrap();
        for (entry, value) in strings.iter().enumerate() {
            let (entry, value) = (Column::from_iter([entry.to_be_bytes()]), [Some(value)].into_iter().collect());
            backend.write_entries(StateIndex(2), keys, &entry, &value).unwrap();
        }
    }
    backend
}

fn encode(backend: &mut MemoryBackend) -> Vec<u8> {
    let mut encoder = SnapshotEncoder::new(&header(), backend.freeze());
    let mut file = Vec::new();
    while let Some(chunk) = encoder.next_chunk() {
        file.extend_from_slice(&chunk);
    }
    file
}

fn part(file: &[u8], range: Range<u64>) -> &[u8] {
    &file[range.start as usize..range.end as usize]
}

fn open(file: &[u8]) -> Result<SnapshotIndex, SnapshotError> {
    let mut opener = SnapshotOpener::new(file.len() as u64)?;
    while let Some(range) = opener.wants() {
        opener.give(part(file, range))?;
    }
    Ok(opener.finish())
}

/// All entries of some groups, as far as the file has no error.
fn read(file: &[u8], groups: Range<u32>) -> Result<Content, SnapshotError> {
    let index = open(file)?;
    let mut content = Content::new();
    for run in index.runs(groups, 1 << 20) {
        for (block, bytes) in run.parts(part(file, run.bytes.clone()))? {
            let decoded = index.decode_block(block, bytes)?;
            for (key, payload) in decoded.entries() {
                assert_eq!(key_group::group_of(key_group::hash(key), GROUPS), block.group);
                let strings = content.entry((block.state as usize, key.to_vec())).or_default();
                match payload {
                    Payload::Value(value) => strings.push(value.to_vec()),
                    Payload::Items(framed) | Payload::Entries(framed) => {
                        strings.extend(framed.strings().map(<[u8]>::to_vec));
                    }
                }
            }
        }
    }
    Ok(content)
}

fn restore(file: &[u8], groups: Range<u32>) -> Result<MemoryBackend, StateError> {
    let index = open(file).unwrap();
    let mut backend = backend(groups.clone());
    for amount in index.amounts(groups.clone()) {
        backend.reserve(amount.place, amount.entries, amount.bytes);
    }
    for run in index.runs(groups, 1 << 20) {
        for (block, bytes) in run.parts(part(file, run.bytes.clone())).unwrap() {
            let decoded = index.decode_block(block, bytes).unwrap();
            backend.restore(StateIndex(block.state as usize), &mut decoded.entries())?;
        }
    }
    Ok(backend)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// A restored backend is the one that was written: its own snapshot is the same file, and so is that of its parts.
    #[test]
    fn a_snapshot_restores(
        lengths in prop::collection::vec(
            prop::collection::vec(prop_oneof![8 => 0usize..40, 2 => 0usize..2000, 1 => 0usize..300_000], 1..30),
            0..20,
        ),
        cut in 0..=GROUPS,
    ) {
        let mut original = filled(&lengths);
        let file = encode(&mut original);
        let mut restored = restore(&file, 0..GROUPS).unwrap();
        prop_assert_eq!(restored.byte_size(), original.byte_size());
        prop_assert!(encode(&mut restored) == file, "the file of what was restored differs");
        let (mut low, high) = (read(&file, 0..cut).unwrap(), read(&file, cut..GROUPS).unwrap());
        let (kept, gone) = (restore(&file, 0..cut).unwrap(), restore(&file, cut..GROUPS).unwrap());
        prop_assert_eq!(kept.byte_size() + gone.byte_size(), original.byte_size());
        low.extend(high);
        prop_assert_eq!(low.len(), lengths.len() * 3);
        prop_assert_eq!(low, read(&file, 0..GROUPS).unwrap());
    }
}

/// Blocks are small, save for entries that are not, and belong to one state and key group.
#[test]
fn blocks_are_bounded() {
    let mut lengths = vec![vec![1000; 3]; 1000];
    lengths.push(vec![3 << 20]);
    lengths.push(vec![40_000; 100]);
    let file = encode(&mut filled(&lengths));
    let index = open(&file).unwrap();
    let large: Vec<&Block> = index.blocks().iter().filter(|block| block.raw_length > BLOCK_BYTES as u64).collect();
    assert_eq!(large.len(), 3, "one for each state that has the string of 3 MiB");
    assert!(large.iter().all(|block| block.entries == 1));
    assert!(index.blocks().len() > 3 * GROUPS as usize);
    let runs: Vec<BlockRun<'_>> = index.runs(2..4, u64::MAX).collect();
    assert_eq!(runs.len(), 3, "one for each state");
    assert!(
        index.runs(0..GROUPS, 300_000).all(|run| run.blocks.len() == 1 || run.bytes.end - run.bytes.start <= 300_000)
    );
}

#[test]
fn nothing_makes_a_small_file() {
    let file = encode(&mut backend(0..GROUPS));
    assert!(file.len() < 200, "{} bytes", file.len());
    let mut opener = SnapshotOpener::new(file.len() as u64).unwrap();
    opener.give(&file).unwrap();
    assert_eq!(opener.wants(), None, "a small file is read once");
    assert_eq!(opener.finish().header(), &header());
}

/// No damage goes unnoticed, and none does harm: every byte changed in several ways, every length.
#[test]
fn damage_is_an_error() {
    let file = encode(&mut filled(&[vec![10, 20], vec![], vec![600, 3]]));
    assert!(read(&file, 0..GROUPS).is_ok());
    for len in 0..file.len() {
        assert!(read(&file[..len], 0..GROUPS).is_err(), "cut off at {len}");
        assert!(read(&file[file.len() - len..], 0..GROUPS).is_err(), "cut off to the last {len}");
        for flip in [1, 0x80, 0xff] {
            let mut damaged = file.clone();
            damaged[len] ^= flip;
            assert!(read(&damaged, 0..GROUPS).is_err(), "byte {len} flipped by {flip}");
        }
    }
    let mut longer = file.clone();
    longer.push(0);
    assert!(read(&longer, 0..GROUPS).is_err());
    assert!(read(&[&file[..], &file[..]].concat(), 0..GROUPS).is_err());
}

/// Damage that has a good checksum, as a bug or a hostile hand would leave it.
#[test]
fn footers_that_cannot_be_are_refused() {
    let index = open(&encode(&mut filled(&[vec![10, 20], vec![600, 3]]))).unwrap();
    let front = footer::front(&postcard::to_stdvec(&header()).unwrap()).len() as u64;
    let check = |change: &dyn Fn(&mut Vec<Block>)| {
        let mut blocks = index.blocks().to_vec();
        let end = blocks.last().unwrap().bytes().end;
        change(&mut blocks);
        footer::Footer { header_checksum: 0, blocks }.check(&header(), front..end)
    };
    assert_eq!(check(&|_| {}), Ok(()));
    assert!(check(&|blocks| blocks[0].state = 3).is_err());
    assert!(check(&|blocks| blocks[0].group = GROUPS).is_err());
    assert!(check(&|blocks| blocks[0].offset += 1).is_err());
    assert!(check(&|blocks| blocks[1].length = u64::MAX).is_err());
    assert!(check(&|blocks| blocks[0].state = 2).is_err());
    assert!(check(&|blocks| blocks.truncate(1)).is_err());
    assert!(check(&|blocks| blocks.clear()).is_err());
}

#[test]
fn other_versions_are_named() {
    let mut file = encode(&mut backend(0..GROUPS));
    let at = file.len() - TAIL_BYTES + 8;
    file[at] = 9;
    assert_eq!(open(&file), Err(SnapshotError::Version { found: 9, known: VERSION }));
}

#[test]
fn what_does_not_belong_is_not_restored() {
    let file = encode(&mut filled(&[vec![1]]));
    let index = open(&file).unwrap();
    let run = index.runs(0..GROUPS, u64::MAX).next().unwrap();
    let (block, bytes) = run.parts(part(&file, run.bytes.clone())).unwrap().next().unwrap();
    let decoded = index.decode_block(block, bytes).unwrap();
    let foreign = if block.group == 0 { 1..GROUPS } else { 0..block.group };
    let outcome = backend(foreign).restore(StateIndex(0), &mut decoded.entries());
    assert!(matches!(outcome, Err(StateError::ForeignKey { group, .. }) if group == block.group));
    let outcome = backend(0..GROUPS).restore(StateIndex(1), &mut decoded.entries());
    assert!(matches!(outcome, Err(StateError::ForeignKind { .. })));
}

/// A file of version 1, written when that was new.
const VERSION_1: &[u8] = include_bytes!("fixtures/version-1.snapshot");

fn fixture() -> MemoryBackend {
    filled(&[vec![3, 0, 40], vec![100], vec![0; 3], vec![700, 700, 700]])
}

/// Writes the fixture of a new version: `cargo test -p tidegate write_a_fixture -- --ignored`.
#[test]
#[ignore = "writes into the repository"]
fn write_a_fixture() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/state/snapshot/fixtures/");
    std::fs::write(format!("{path}version-{VERSION}.snapshot"), encode(&mut fixture())).unwrap();
}

/// Snapshots outlive the version of tidegate that wrote them.
#[test]
fn version_1_is_read() {
    assert_eq!(open(VERSION_1).unwrap().header(), &header());
    assert_eq!(read(VERSION_1, 0..GROUPS), read(&encode(&mut fixture()), 0..GROUPS));
    assert_eq!(restore(VERSION_1, 0..GROUPS).unwrap().byte_size(), fixture().byte_size());
}
