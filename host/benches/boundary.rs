//! What the boundary to Wasm costs: one operator, the running sum of each key, as a hand-written loop over a hash table
//! (the floor), as a native operator, and as a component, once on the bare bindings and once on the SDK.
//!
//! All four get the same batches and emit one record for each. The operators are driven as a subtask drives them: the
//! scope of a call is opened, the call polled, what it emits taken and recycled, and what it wrote committed.
//!
//! Times are processor time of the thread, so that a busy machine disturbs them less; elements per second are records.
//! After the benchmarks a table gives nanoseconds per record, of the fastest sample, and how the components compare with
//! the native operator.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use criterion::{Criterion, Throughput};
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use rustix::time::{ClockId, clock_gettime};
use tidegate::env::Env;
use tidegate::id::SubtaskId;
use tidegate::operator::{
    Call, CallContext, Collector, Descriptor, EmitSlot, Fault, KeyedState, Limits, NativeFactory, NativeOperator,
    Operator, OperatorFactory, StateDescriptor, StateKind,
};
use tidegate::protocol::key_group;
use tidegate::random::Random;
use tidegate::record::{Batch, Column, OptionalColumn};
use tidegate::state::MemoryBackend;
use tidegate::wasm::{EngineConfig, OperatorSettings, WasmEngine, WasmOperatorFactory};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const KEYS: [u64; 2] = [10_000, 1_000_000];
const BATCH_RECORDS: [usize; 3] = [64, 512, 4096];
const SAMPLES: usize = 20;
const KEY_BYTES: usize = 12;
const NUMBER_BYTES: usize = 8;
const SUM: u32 = 0;
const NODE: &str = "sum";

/// The ways to sum, in the order of the table.
const WAYS: [&str; 4] = ["loop", "native", "Wasm", "Wasm, SDK"];
const NATIVE: &str = WAYS[1];

/// Keys as a workload has them: some text and a number.
fn key(number: u64) -> [u8; KEY_BYTES] {
    let mut key = *b"key-........";
    key[4..].copy_from_slice(&number.to_be_bytes());
    key
}

fn batch(keys: impl Iterator<Item = u64>) -> Arc<Batch> {
    let mut batch = Batch::new();
    for (record, number) in keys.enumerate() {
        let value = (number as i64 % 7 - 2).to_le_bytes();
        batch.push(Some(&key(number)), &value, Some(1_700_000_000_000 + record as i64));
    }
    batch.set_hashes(key_group::hash);
    Arc::new(batch)
}

/// Batches whose keys are drawn evenly, about as many records as there are keys, or some more.
fn batches(keys: u64, records: usize) -> Vec<Arc<Batch>> {
    let mut random = Random::new(1);
    let count = (keys as usize).max(1 << 16) / records;
    (0..count).map(|_| batch((0..records).map(|_| random.below(keys)))).collect()
}

/// Batches that name every key once.
fn all_keys(keys: u64) -> Vec<Arc<Batch>> {
    (0..keys).step_by(512).map(|start| batch(start..keys.min(start + 512))).collect()
}

/// One way to sum.
trait Sum {
    /// Sums one batch and shows what is emitted.
    fn process(&mut self, batch: &Arc<Batch>, receive: &mut dyn FnMut(&Batch));
}

/// What a program does that knows the sizes of its keys and values and nothing of key groups, scopes and failures.
#[derive(Default)]
struct Loop {
    sums: HashTable<([u8; KEY_BYTES], i64)>,
    emitted: Batch,
}

fn spread(hash: u64) -> u64 {
    hash.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(32)
}

impl Sum for Loop {
    fn process(&mut self, batch: &Arc<Batch>, receive: &mut dyn FnMut(&Batch)) {
        self.emitted.clear();
        let records = batch.keys().iter().zip(batch.values().iter());
        for ((key, value), (&hash, &timestamp)) in records.zip(batch.hashes().iter().zip(batch.timestamps())) {
            let key: [u8; KEY_BYTES] = key.try_into().expect("keys of one length");
            let rehash = |entry: &([u8; KEY_BYTES], i64)| spread(key_group::hash(&entry.0));
            let sum = match self.sums.entry(spread(hash), |entry| entry.0 == key, rehash) {
                Entry::Occupied(entry) => &mut entry.into_mut().1,
                Entry::Vacant(entry) => &mut entry.insert((key, 0)).into_mut().1,
            };
            *sum = sum.wrapping_add(number(value));
            self.emitted.push(Some(&key), &sum.to_le_bytes(), Some(timestamp));
        }
        receive(&self.emitted);
    }
}

fn number(value: &[u8]) -> i64 {
    value.try_into().map_or(0, i64::from_le_bytes)
}

/// What the guest on the bare bindings does, in the host.
struct NativeSum;

fn column(numbers: &[i64]) -> Column {
    let mut data = Vec::with_capacity(numbers.len() * NUMBER_BYTES);
    numbers.iter().for_each(|number| data.extend_from_slice(&number.to_le_bytes()));
    let offsets = (0..=numbers.len() as u32).map(|string| string * NUMBER_BYTES as u32).collect();
    Column::from_parts(data, offsets).expect("offsets that rise by 8")
}

impl NativeOperator for NativeSum {
    async fn process(&mut self, _input: u32, batch: &Batch, context: &mut CallContext) -> Result<(), Fault> {
        let loaded = context.state.load(SUM)?;
        let mut sums: Vec<i64> = loaded.values().iter().map(number).collect();
        let slots = context.state.slots()?;
        let mut running = Vec::with_capacity(slots.len());
        for (&slot, value) in slots.iter().zip(batch.values().iter()) {
            let sum = &mut sums[slot as usize];
            *sum = sum.wrapping_add(number(value));
            running.push(*sum);
        }
        let sums = OptionalColumn::from_parts(column(&sums), Vec::new()).expect("nothing is missing");
        context.state.store(SUM, sums)?;
        let emitted = Batch::from_columns(batch.keys().clone(), column(&running), batch.timestamps().to_vec());
        context.emit(0, emitted.expect("as many as there are records")).await
    }
}

fn native() -> impl OperatorFactory {
    let kind = StateKind::KeyedValue;
    let sum = StateDescriptor { id: SUM, name: "sum".into(), kind, ttl: None, schema_version: 1 };
    NativeFactory::new(Descriptor { states: vec![sum], side_outputs: Vec::new() }, |_| NativeSum)
}

/// An operator with what a subtask has for it.
struct Driven {
    operator: Box<dyn Operator>,
    context: CallContext,
    slot: Arc<EmitSlot>,
}

impl Driven {
    fn new(factory: &dyn OperatorFactory, env: &Env) -> Self {
        let subtask = SubtaskId { node: NODE.into(), index: 0 };
        let descriptor = factory.descriptor();
        let groups = key_group::DEFAULT_MAX_PARALLELISM;
        let backend = MemoryBackend::new(NODE, descriptor.states.clone(), 0..groups, groups, u64::MAX);
        let state = KeyedState::new(&descriptor.states, Box::new(backend), 16 << 20);
        let slot = Arc::new(EmitSlot::default());
        let collector = Collector::new(Arc::clone(&slot), &descriptor.side_outputs, 16 << 20);
        let context = CallContext::new(subtask.clone(), state, collector, Arc::clone(&env.clock), env.seed);
        let operator = block_on(factory.create(&subtask)).expect("the operator opens");
        Self { operator, context, slot }
    }
}

impl Sum for Driven {
    fn process(&mut self, batch: &Arc<Batch>, receive: &mut dyn FnMut(&Batch)) {
        let call = Call::Process { input: 0, batch: Arc::clone(batch) };
        self.context.begin(&call);
        let mut running = self.operator.call(call, &mut self.context);
        let mut task = Context::from_waker(Waker::noop());
        let outcome = loop {
            match running.as_mut().poll(&mut task) {
                Poll::Ready(outcome) => break outcome,
                Poll::Pending => {
                    if let Some((_, emitted)) = self.slot.take() {
                        receive(&emitted);
                        self.slot.recycle(emitted);
                    }
                }
            }
        };
        drop(running);
        outcome.expect("nothing fails");
        self.context.commit().expect("the budget is not used up");
    }
}

/// Polls a future until it is done. Nothing that operators wait for here needs waking.
fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = Box::pin(future);
    let mut task = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut task) {
            return output;
        }
    }
}

/// The time that this thread has run.
fn thread_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().expect("time does not run backwards")
}

/// Nanoseconds per record, sample by sample, by way, number of keys and records in a batch.
type Figures = RefCell<BTreeMap<(&'static str, u64, usize), Vec<f64>>>;

fn bench(criterion: &mut Criterion, guests: &[Box<dyn OperatorFactory>], env: &Env, figures: &Figures) {
    let native = native();
    let make = |way| -> Box<dyn Sum> {
        match WAYS.iter().position(|known| *known == way) {
            Some(0) => Box::new(Loop::default()),
            Some(1) => Box::new(Driven::new(&native, env)),
            Some(way) => Box::new(Driven::new(&*guests[way - 2], env)),
            None => panic!("there is no way {way}"),
        }
    };
    for keys in KEYS {
        let all = all_keys(keys);
        let inputs = BATCH_RECORDS.map(|records| batches(keys, records));
        for way in WAYS {
            // Filled when first needed, so that a filter spares the rest.
            let mut sum = None;
            for (records, batches) in BATCH_RECORDS.into_iter().zip(&inputs) {
                let mut group = criterion.benchmark_group(format!("running sum, {keys} keys, batches of {records}"));
                group.sample_size(SAMPLES).throughput(Throughput::Elements(records as u64));
                group.warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
                let mut next = batches.iter().cycle();
                group.bench_function(way, |bencher| {
                    let sum = sum.get_or_insert_with(|| filled(&make, way, &all));
                    bencher.iter_custom(|iterations| {
                        let started = thread_time();
                        for batch in next.by_ref().take(iterations as usize) {
                            sum.process(batch, &mut |emitted| {
                                black_box(emitted);
                            });
                        }
                        let took = thread_time() - started;
                        let each = took.as_nanos() as f64 / (iterations as f64 * records as f64);
                        figures.borrow_mut().entry((way, keys, records)).or_default().push(each);
                        took
                    });
                });
                group.finish();
            }
        }
    }
}

/// One way to sum, which has seen every key and has been checked against the loop.
fn filled(make: &dyn Fn(&'static str) -> Box<dyn Sum>, way: &'static str, all: &[Arc<Batch>]) -> Box<dyn Sum> {
    let mut sum = make(way);
    all.iter().for_each(|batch| sum.process(batch, &mut |_| {}));
    let mut floor = make(WAYS[0]);
    let sample = &all[..all.len().min(16)];
    sample.iter().for_each(|batch| floor.process(batch, &mut |_| {}));
    for batch in sample {
        let (mut expected, mut found) = (Batch::new(), Batch::new());
        floor.process(batch, &mut |emitted| expected = emitted.clone());
        sum.process(batch, &mut |emitted| found = emitted.clone());
        assert_eq!(found, expected, "{way} sums as the loop does");
    }
    sum
}

/// The fastest sample: the one that the rest of the machine disturbed least.
fn fastest(samples: &[f64]) -> f64 {
    samples.iter().copied().fold(f64::INFINITY, f64::min)
}

fn print_table(figures: &Figures) {
    let figures = figures.borrow();
    let figure = |way, keys, records| figures.get(&(way, keys, records)).map(|samples| fastest(samples));
    println!("\nNanoseconds of processor time per record, and how many times that of the native operator");
    print!("{:>9} {:>6}", "keys", "batch");
    WAYS.iter().for_each(|way| print!(" {way:>16}"));
    println!();
    for (keys, records) in KEYS.iter().flat_map(|&keys| BATCH_RECORDS.map(|records| (keys, records))) {
        print!("{keys:>9} {records:>6}");
        let native = figure(NATIVE, keys, records);
        for way in WAYS {
            match (figure(way, keys, records), native) {
                (Some(each), Some(native)) => print!(" {each:>8.1} {:>6.2}x", each / native),
                (Some(each), None) => print!(" {each:>8.1} {:>7}", ""),
                (None, _) => print!(" {:>16}", "-"),
            }
        }
        println!();
    }
}

/// The component of a guest, which another build makes.
fn guest(name: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("../target/test-guests/{name}.wasm"));
    if path.exists() { Ok(path) } else { Err(format!("{} is missing: run `make test-guests`", path.display())) }
}

fn load(runtime: &tokio::runtime::Runtime, env: &Env) -> Result<Vec<Box<dyn OperatorFactory>>, String> {
    let engine = WasmEngine::new(EngineConfig::default()).map_err(|error| error.to_string())?;
    let mut factories: Vec<Box<dyn OperatorFactory>> = Vec::new();
    for name in ["sum_bulk", "sum_sdk"] {
        let settings = OperatorSettings {
            job: "bench".into(),
            node: NODE.into(),
            config: "{}".into(),
            limits: Limits { call: Duration::from_secs(60), ..Limits::default() },
            max_record_bytes: 16 << 20,
        };
        let factory = runtime.block_on(WasmOperatorFactory::load(&engine, env, &guest(name)?, settings));
        factories.push(Box::new(factory.map_err(|error| error.to_string())?));
    }
    Ok(factories)
}

fn main() -> ExitCode {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().expect("threads can be started");
    let env = Env::system(runtime.handle(), runtime.handle(), 1);
    let guests = match load(&runtime, &env) {
        Ok(guests) => guests,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let figures = Figures::default();
    let mut criterion = Criterion::default().configure_from_args();
    bench(&mut criterion, &guests, &env, &figures);
    criterion.final_summary();
    print_table(&figures);
    ExitCode::SUCCESS
}
