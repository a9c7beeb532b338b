//! What a read and a write of a value cost per record, in batches of 512, at several depths: a plain hash table that
//! knows nothing of key groups (the floor), the memory backend, and keyed state as an operator uses it.
//!
//! The time of an iteration is that of one batch; elements per second are records.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use hashbrown::HashTable;
use tidegate::clock::SystemClock;
use tidegate::id::SubtaskId;
use tidegate::operator::{Call, CallContext, Collector, EmitSlot, KeyedState, StateDescriptor, StateKind};
use tidegate::protocol::key_group;
use tidegate::random::Random;
use tidegate::record::{Batch, OptionalColumn};
use tidegate::state::{Keys, MemoryBackend, StateBackend, StateIndex};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const RECORDS: usize = 512;
const KEY_BYTES: usize = 12;

/// Keys as a workload has them: some text and a number.
fn key(number: u64) -> [u8; KEY_BYTES] {
    let mut key = *b"key-........";
    key[4..].copy_from_slice(&number.to_be_bytes());
    key
}

/// Batches that together name about every key once, in random order.
fn batches(keys: u64) -> Vec<Arc<Batch>> {
    let mut random = Random::new(1);
    let count = (keys as usize / RECORDS).max(64);
    let batch = |_| {
        let mut batch = Batch::new();
        (0..RECORDS).for_each(|_| batch.push(Some(&key(random.below(keys))), b"", None));
        batch.set_hashes(key_group::hash);
        Arc::new(batch)
    };
    (0..count).map(batch).collect()
}

fn all_keys(keys: u64) -> Vec<Arc<Batch>> {
    let numbers: Vec<u64> = (0..keys).collect();
    let batch = |numbers: &[u64]| {
        let mut batch = Batch::new();
        numbers.iter().for_each(|&number| batch.push(Some(&key(number)), b"", None));
        batch.set_hashes(key_group::hash);
        Arc::new(batch)
    };
    numbers.chunks(RECORDS).map(batch).collect()
}

fn states() -> Vec<StateDescriptor> {
    let kind = StateKind::KeyedValue;
    vec![StateDescriptor { id: 0, name: "value".into(), kind, ttl: None, schema_version: 1 }]
}

fn backend() -> MemoryBackend {
    let groups = key_group::DEFAULT_MAX_PARALLELISM;
    MemoryBackend::new("bench", states(), 0..groups, groups, u64::MAX)
}

/// What an operator does to a value that it counts in.
fn bump(value: &mut [u8]) {
    value[0] = value[0].wrapping_add(1);
}

fn bumped(values: &OptionalColumn, value_bytes: usize) -> OptionalColumn {
    let mut out = OptionalColumn::new();
    let mut value = vec![0; value_bytes];
    for before in values.iter() {
        match before {
            Some(before) => value.copy_from_slice(before),
            None => value.fill(0),
        }
        bump(&mut value);
        out.push(Some(&value));
    }
    out
}

/// A table with the values in its buckets, which only a program that knows their size can have.
struct Floor<const VALUE: usize>(HashTable<([u8; KEY_BYTES], [u8; VALUE])>);

impl<const VALUE: usize> Floor<VALUE> {
    fn spread(hash: u64) -> u64 {
        hash.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(32)
    }

    /// Reads all, then writes all, as one call of an operator does.
    fn call(&mut self, batch: &Batch, read: &mut Vec<[u8; VALUE]>) {
        read.clear();
        for (key, &hash) in batch.keys().iter().zip(batch.hashes()) {
            let found = self.0.find(Self::spread(hash), |entry| entry.0 == key);
            read.push(found.map_or([0; VALUE], |entry| entry.1));
        }
        read.iter_mut().for_each(|value| bump(value));
        for ((key, &hash), value) in batch.keys().iter().zip(batch.hashes()).zip(&*read) {
            match self.0.find_mut(Self::spread(hash), |entry| entry.0 == key) {
                Some(entry) => entry.1 = *value,
                None => {
                    let entry = (key.try_into().expect("keys of one length"), *value);
                    self.0.insert_unique(Self::spread(hash), entry, |entry| Self::spread(key_group::hash(&entry.0)));
                }
            }
        }
    }
}

fn call_backend(
    backend: &mut MemoryBackend,
    batch: &Batch,
    positions: &[u32],
    value_bytes: usize,
    values: &mut OptionalColumn,
) {
    let keys = Keys { column: batch.keys(), hashes: batch.hashes(), positions: &positions[..batch.len()] };
    values.clear();
    backend.load_values(StateIndex(0), keys, u64::MAX, values).expect("memory can be read");
    *values = bumped(values, value_bytes);
    backend.write_values(StateIndex(0), keys, values).expect("the budget is not used up");
}

fn empty_context() -> CallContext {
    let state = KeyedState::new(&states(), Box::new(backend()), 16 << 20);
    let collector = Collector::new(Arc::new(EmitSlot::default()), &[], 16 << 20);
    let subtask = SubtaskId { node: "bench".into(), index: 0 };
    CallContext::new(subtask, state, collector, Arc::new(SystemClock::new()), 1)
}

fn call_state(context: &mut CallContext, batch: &Arc<Batch>, value_bytes: usize) {
    context.begin(&Call::Process { input: 0, batch: Arc::clone(batch) });
    black_box(context.state.slots().expect("the batch is keyed"));
    let values = context.state.load(0).expect("memory can be read");
    context.state.store(0, bumped(&values, value_bytes)).expect("one value per slot");
    context.commit().expect("the budget is not used up");
}

fn values<const VALUE: usize>(criterion: &mut Criterion) {
    for keys in [10_000, 1_000_000] {
        let (batches, all) = (batches(keys), all_keys(keys));
        let mut group = criterion.benchmark_group(format!("{VALUE}-byte values, {keys} keys"));
        group.throughput(Throughput::Elements(RECORDS as u64));
        let mut next = batches.iter().cycle();
        let mut next = || next.next().expect("a cycle has no end");

        // Filled when first needed, so that a filter spares the rest.
        let (mut floor, mut read) = (None, Vec::new());
        group.bench_function("plain table", |bencher| {
            let floor = floor.get_or_insert_with(|| {
                let mut floor = Floor::<VALUE>(HashTable::new());
                all.iter().for_each(|batch| floor.call(batch, &mut Vec::new()));
                floor
            });
            bencher.iter_batched(&mut next, |batch| floor.call(batch, &mut read), BatchSize::SmallInput);
        });
        drop(floor);

        let (mut state, positions) = (None, (0..RECORDS as u32).collect::<Vec<_>>());
        let mut values = OptionalColumn::new();
        group.bench_function("memory backend", |bencher| {
            let state = state.get_or_insert_with(|| {
                let mut state = backend();
                all.iter().for_each(|batch| call_backend(&mut state, batch, &positions, VALUE, &mut values));
                state
            });
            let call = |batch: &Arc<Batch>| call_backend(state, batch, &positions, VALUE, &mut values);
            bencher.iter_batched(&mut next, call, BatchSize::SmallInput);
        });
        drop(state);

        let mut context = None;
        group.bench_function("keyed state", |bencher| {
            let context = context.get_or_insert_with(|| {
                let mut context = empty_context();
                all.iter().for_each(|batch| call_state(&mut context, batch, VALUE));
                context
            });
            let call = |batch: &Arc<Batch>| call_state(context, batch, VALUE);
            bencher.iter_batched(&mut next, call, BatchSize::SmallInput);
        });
        group.finish();
    }
}

criterion_group!(benches, values::<8>, values::<100>);
criterion_main!(benches);
