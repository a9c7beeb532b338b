//! The source by itself: every record once, whatever is dropped, and again from where a snapshot was taken.

use futures_util::future::Either;
use tidegate::id::SubtaskId;

use super::super::executor::{Executor, Group, Handle};
use super::*;

fn source(seed: u64) -> (SimSource, Vec<Record>) {
    let mut random = Random::for_purpose(seed, "records", &[]);
    let mut all = Vec::new();
    let splits = (0..5u64).map(|split| {
        let record =
            |number: u64| Record { key: None, value: format!("{split}/{number}").into_bytes(), timestamp: None };
        let records: Vec<Record> = (0..random.below(20)).map(record).collect();
        all.extend(records.clone());
        Arc::new(records)
    });
    let source = SimSource {
        name: "source",
        splits: splits.collect(),
        shape: StreamShape::default(),
        pace: Pace { most_records: 4, delay_us: 50 },
        boundedness: Boundedness::Bounded,
        around: Surroundings::kind(),
    };
    (source, all)
}

fn env(handle: &Handle, seed: u64) -> Env {
    Env {
        clock: Arc::new(handle.clone()),
        workers: Arc::new(handle.clone()),
        control: Arc::new(handle.clone()),
        compute: Arc::new(handle.clone()),
        background: Arc::new(handle.clone()),
        transport: Arc::new(tidegate::runtime::channel::InProcess),
        storage: Arc::new(tidegate::checkpoint::MemoryOnly),
        seed,
    }
}

#[test]
fn every_record_is_read_once_across_drops_and_snapshots() {
    for seed in 0..200 {
        let (source, mut expected) = source(seed);
        let mut executor = Executor::new(seed, 100_000);
        let handle = executor.handle(Group(0));
        let env = env(&handle, seed);
        let mut read = executor
            .run("reader", async move {
                let context = ReaderContext {
                    subtask: SubtaskId { node: "source".into(), index: 0 },
                    env: env.clone(),
                    max_record_bytes: 1 << 20,
                };
                let mut random = Random::new(seed);
                let mut enumerator = source.enumerator(&env, None);
                enumerator.start().await.unwrap();
                let mut reader = source.reader(context.clone());
                let mut read = Vec::new();
                loop {
                    if let Some(split) = enumerator.next_split(0).await.unwrap() {
                        reader.add_split(split).unwrap();
                    }
                    if reader.snapshot().is_empty() {
                        break read;
                    }
                    if random.below(4) == 0 {
                        // As after a crash: others go on from the positions.
                        let restored = RestoredSource { enumerator: enumerator.snapshot(), splits: reader.snapshot() };
                        enumerator = source.enumerator(&env, Some(restored));
                        enumerator.start().await.unwrap();
                        reader = source.reader(context.clone());
                        continue;
                    }
                    let patience = env.clock.sleep(Duration::from_micros(random.below(40)));
                    match futures_util::future::select(reader.next(), patience).await {
                        Either::Left((event, _)) => {
                            if let ReaderEvent::Batch(batch) = event.unwrap() {
                                read.extend(Record::of(&batch));
                            }
                        }
                        Either::Right(((), next)) => drop(next),
                    }
                }
            })
            .unwrap();
        read.sort();
        expected.sort();
        assert_eq!(read, expected, "seed {seed}");
    }
}
