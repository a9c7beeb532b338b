//! What a checkpoint of large state does to a subtask: how long each batch takes while snapshots are written and merged
//! back, against a time without any, and how long a restore takes.
//!
//! A batch reads and writes the values of 512 keys, drawn from all of them. Its pause is all that the subtask does for
//! it: the freeze, if one is due, reads, writes, and the share of merging. Thread time is printed beside wall time, since
//! on a busy machine the latter measures the neighbours. Settings, by environment variables: `KEYS` (10000000),
//! `VALUE_BYTES` (100), `SNAPSHOTS` (3), `MERGE` (entries merged per batch, 512), `SHARE` (of a processor for the
//! writer, in percent, 100), `NICE` (its nice value, 19: on a machine that is busy with other things it hardly runs),
//! `POOL` (batches that are drawn beforehand and used in turn, 16384).

use std::fmt;
use std::hint::black_box;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tidegate::id::CheckpointId;
use tidegate::operator::{StateDescriptor, StateKind};
use tidegate::protocol::key_group;
use tidegate::random::Random;
use tidegate::record::{Column, OptionalColumn};
use tidegate::state::snapshot::{SnapshotEncoder, SnapshotHeader, SnapshotOpener, SnapshotState};
use tidegate::state::{FrozenState, Keys, MemoryBackend, StateBackend, StateIndex};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const RECORDS: usize = 512;
const GROUPS: u32 = key_group::DEFAULT_MAX_PARALLELISM;
const STATE: StateIndex = StateIndex(0);

struct Settings {
    keys: u64,
    value_bytes: usize,
    snapshots: u64,
    merge: usize,
    share: u32,
    nice: i32,
    pool: usize,
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// A clock's time.
fn now(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Wall time and the time of this thread.
#[derive(Clone, Copy)]
struct Instant {
    wall: Duration,
    thread: Duration,
}

impl Instant {
    fn now() -> Self {
        Self { wall: now(ClockId::Monotonic), thread: now(ClockId::ThreadCPUTime) }
    }

    fn elapsed(self) -> Self {
        let now = Self::now();
        Self { wall: now.wall - self.wall, thread: now.thread - self.thread }
    }
}

struct Batch {
    column: Column,
    hashes: Vec<u64>,
    positions: Vec<u32>,
}

fn batch(numbers: impl Iterator<Item = u64>) -> Batch {
    let column: Column = numbers.map(|number| [&b"key-"[..], &number.to_be_bytes()].concat()).collect();
    let hashes: Vec<u64> = column.iter().map(key_group::hash).collect();
    let positions = (0..).take(hashes.len()).collect();
    Batch { column, hashes, positions }
}

impl Batch {
    fn keys(&self) -> Keys<'_> {
        Keys { column: &self.column, hashes: &self.hashes, positions: &self.positions }
    }
}

/// The state of a subtask and what it does to it.
struct Subject {
    backend: MemoryBackend,
    values: OptionalColumn,
    value: Vec<u8>,
}

fn states() -> Vec<StateDescriptor> {
    let kind = StateKind::KeyedValue;
    vec![StateDescriptor { id: 0, name: "value".into(), kind, ttl: None, schema_version: 1 }]
}

fn backend() -> MemoryBackend {
    MemoryBackend::new("bench", states(), 0..GROUPS, GROUPS, u64::MAX)
}

impl Subject {
    /// State with all keys. Half of each value is random, so that it can be compressed a little.
    fn filled(settings: &Settings) -> Self {
        let value = vec![0; settings.value_bytes];
        let mut subject = Self { backend: backend(), values: OptionalColumn::new(), value };
        let (mut random, mut next) = (Random::new(1), 0);
        while next < settings.keys {
            let end = settings.keys.min(next + RECORDS as u64);
            let batch = batch(next..end);
            let mut values = OptionalColumn::new();
            for _ in next..end {
                random.fill(&mut subject.value[..settings.value_bytes / 2]);
                values.push(Some(&subject.value));
            }
            subject.backend.write_values(STATE, batch.keys(), &values).expect("the budget is not used up");
            next = end;
        }
        subject
    }

    /// Reads all values, then writes all, as one call of an operator does.
    fn call(&mut self, batch: &Batch) {
        let keys = batch.keys();
        self.values.clear();
        self.backend.load_values(STATE, keys, u64::MAX, &mut self.values).expect("memory can be read");
        let mut written = OptionalColumn::new();
        for before in self.values.iter() {
            self.value.copy_from_slice(before.expect("all keys have values"));
            self.value[0] = self.value[0].wrapping_add(1);
            written.push(Some(&self.value));
        }
        self.backend.write_values(STATE, keys, &written).expect("the budget is not used up");
    }
}

/// The pauses of some batches.
#[derive(Default)]
struct Pauses {
    wall: Vec<Duration>,
    thread: Vec<Duration>,
}

impl Pauses {
    fn add(&mut self, pause: Instant) {
        self.wall.push(pause.wall);
        self.thread.push(pause.thread);
    }

    /// Nanoseconds a record, by wall and by thread time.
    fn per_record(&self) -> [f64; 2] {
        [&self.wall, &self.thread]
            .map(|times| times.iter().sum::<Duration>().as_secs_f64() * 1e9 / (times.len().max(1) * RECORDS) as f64)
    }
}

impl fmt::Display for Pauses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>7} batches", self.wall.len())?;
        for (name, times) in [("wall", &self.wall), ("thread", &self.thread)] {
            let mut times = times.clone();
            times.sort_unstable();
            let Some(last) = times.last() else { continue };
            let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e6;
            let max = last.as_secs_f64() * 1e6;
            write!(f, "; {name} us p50 {:.0} p99 {:.0} p99.9 {:.0} max {max:.0}", at(0.5), at(0.99), at(0.999))?;
        }
        let [wall, thread] = self.per_record();
        write!(f, "; ns a record {wall:.0} wall {thread:.0} thread")
    }
}

fn header() -> SnapshotHeader {
    SnapshotHeader {
        job: "bench".into(),
        node: "bench".into(),
        subtask: 0,
        checkpoint: CheckpointId(1),
        max_parallelism: GROUPS,
        first_group: 0,
        end_group: GROUPS,
        states: SnapshotState::of(&states()),
    }
}

/// Writes snapshots at low priority, and answers with how many bytes each took.
#[expect(clippy::disallowed_methods, reason = "a bench has no simulation")]
fn writer(frozen: Receiver<Box<dyn FrozenState>>, done: Sender<u64>, share: u32, nice: i32) {
    rustix::process::nice(nice).expect("a thread may be made less important");
    for frozen in frozen {
        let start = Instant::now();
        let (mut encoder, mut bytes) = (SnapshotEncoder::new(&header(), frozen), 0);
        loop {
            let before = Instant::now();
            let Some(chunk) = encoder.next_chunk() else { break };
            bytes += black_box(chunk).len() as u64;
            if share < 100 {
                std::thread::sleep(before.elapsed().thread * (100 - share) / share);
            }
        }
        let took = start.elapsed();
        println!("a snapshot of {} MB took {:.2?}, {:.2?} of the writer's thread", bytes >> 20, took.wall, took.thread);
        if done.send(bytes).is_err() {
            return;
        }
    }
}

fn percent(of: [f64; 2], base: [f64; 2]) -> String {
    format!("{:.0} % by wall, {:.0} % by thread time", base[0] / of[0] * 100.0, base[1] / of[1] * 100.0)
}

#[expect(clippy::disallowed_methods, reason = "a bench has no simulation")]
fn pauses(settings: &Settings) {
    let mut subject = Subject::filled(settings);
    println!("{} keys, {} MB of state", settings.keys, subject.backend.byte_size() >> 20);
    let mut random = Random::new(2);
    let batches: Vec<Batch> =
        (0..settings.pool).map(|_| batch((0..RECORDS).map(|_| random.below(settings.keys)))).collect();
    let mut next = batches.iter().cycle();
    let mut next = || next.next().expect("a cycle has no end");
    let mut calm = |subject: &mut Subject| {
        let mut pauses = Pauses::default();
        for _ in 0..settings.pool {
            let (batch, start) = (next(), Instant::now());
            subject.call(batch);
            subject.backend.merge(settings.merge);
            pauses.add(start.elapsed());
        }
        println!("undisturbed: {pauses}");
        pauses.per_record()
    };
    calm(&mut subject);
    let before = calm(&mut subject);

    let (send, frozen) = channel();
    let (done, written) = channel();
    let (share, nice) = (settings.share, settings.nice);
    let writer = std::thread::spawn(move || writer(frozen, done, share, nice));
    let (mut all, mut writing, mut merging) = (Pauses::default(), Pauses::default(), Pauses::default());
    let mut freezes = Vec::new();
    let mut next = batches.iter().cycle();
    for _ in 0..settings.snapshots {
        let mut is_written = false;
        let mut to_freeze = true;
        loop {
            let (batch, start) = (next.next().expect("a cycle has no end"), Instant::now());
            if std::mem::take(&mut to_freeze) {
                let frozen = subject.backend.freeze();
                freezes.push(start.elapsed().thread);
                send.send(frozen).expect("the writer lives");
            }
            subject.call(batch);
            let more = subject.backend.merge(settings.merge);
            let pause = start.elapsed();
            all.add(pause);
            if is_written { &mut merging } else { &mut writing }.add(pause);
            is_written |= written.try_recv().is_ok();
            if is_written && !more {
                break;
            }
        }
    }
    drop(send);
    writer.join().expect("the writer ends well");
    println!("freezes: {freezes:.1?}");
    println!("while a snapshot is written: {writing}");
    println!("merging afterwards:          {merging}");
    println!("in all:                      {all}");
    let after = calm(&mut subject);
    let base = [before[0].min(after[0]), before[1].min(after[1])];
    println!("throughput against undisturbed: {} while a snapshot is written", percent(writing.per_record(), base));
    println!("                                {} in all", percent(all.per_record(), base));
    restore(&mut subject);
}

/// Restores a snapshot.
fn restore(subject: &mut Subject) {
    let mut encoder = SnapshotEncoder::new(&header(), subject.backend.freeze());
    let mut file = Vec::new();
    while let Some(chunk) = encoder.next_chunk() {
        file.extend_from_slice(&chunk);
    }
    let expected = subject.backend.byte_size();
    drop(encoder);
    subject.backend = backend();
    let start = Instant::now();
    let range = |range: std::ops::Range<u64>| {
        let at = |at: u64| usize::try_from(at).expect("in memory");
        at(range.start)..at(range.end)
    };
    let mut opener = SnapshotOpener::new(file.len() as u64).expect("a snapshot");
    while let Some(wanted) = opener.wants() {
        opener.give(&file[range(wanted)]).expect("a snapshot");
    }
    let index = opener.finish();
    for amount in index.amounts(0..GROUPS) {
        subject.backend.reserve(amount.place, amount.entries, amount.bytes);
    }
    for run in index.runs(0..GROUPS, 8 << 20) {
        for (block, bytes) in run.parts(&file[range(run.bytes.clone())]).expect("all bytes are there") {
            let decoded = index.decode_block(block, bytes).expect("nothing is damaged");
            subject.backend.restore(STATE, &mut decoded.entries()).expect("the budget is not used up");
        }
    }
    let took = start.elapsed();
    assert_eq!(subject.backend.byte_size(), expected);
    let seconds = took.thread.as_secs_f64() / (expected as f64 / f64::from(1 << 30));
    println!("restored in {:.2?}, {:.2?} of the thread: {seconds:.2} s for each GiB of state", took.wall, took.thread);
}

fn main() {
    let number = |name, default| usize::try_from(setting(name, default)).expect("a number that fits");
    pauses(&Settings {
        keys: setting("KEYS", 10_000_000),
        value_bytes: number("VALUE_BYTES", 100),
        snapshots: setting("SNAPSHOTS", 3),
        merge: number("MERGE", 512),
        share: u32::try_from(setting("SHARE", 100)).expect("a percentage").clamp(1, 100),
        nice: i32::try_from(setting("NICE", 19)).expect("a nice value"),
        pool: number("POOL", 16_384),
    });
}
