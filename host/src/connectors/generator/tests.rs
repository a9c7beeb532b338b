use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::connectors::testing::{
    Record, VirtualClock, block_on, env, env_with_clock, read_all, read_in_lives, reader_context, records,
};

fn generator(table: &str) -> Arc<dyn Source> {
    let table: toml::Table = table.parse().expect("valid TOML");
    GeneratorSettings::deserialize(table).expect("good settings").build(Path::new("")).expect("good values")
}

#[test]
fn a_sequence_counts_from_its_first_number() {
    let values = |table: &str| -> Vec<String> {
        let records = read_all(&*generator(table), 1, 100).unwrap();
        records
            .into_iter()
            .map(|(key, value, timestamp)| {
                assert_eq!((key, timestamp), (None, None));
                String::from_utf8(value).unwrap()
            })
            .collect()
    };
    assert_eq!(values("kind = \"sequence\"\nrecords = 3"), ["1", "2", "3"]);
    assert_eq!(values("kind = \"sequence\"\nrecords = 2\nfrom = 0"), ["0", "1"]);
    assert_eq!(values("kind = \"sequence\"\nrecords = 0"), [""; 0]);
    assert_eq!(values("kind = \"sequence\"\nrecords = 200000").len(), 200_000);
}

#[test]
fn records_do_not_depend_on_readers_or_splits() {
    let sorted = |table: &str, readers| {
        let mut records = read_all(&*generator(table), readers, 100).unwrap();
        records.sort();
        records
    };
    for kind in ["keyed-uniform", "keyed-zipf"] {
        let table = format!("kind = \"{kind}\"\nrecords = 10000\nseed = 9\nkeys = 50\n");
        let one = sorted(&table, 1);
        assert_eq!(one.len(), 10_000);
        assert!(one.iter().all(|(key, _, timestamp)| key.is_some() && timestamp.is_none()));
        assert!(one == sorted(&(table.clone() + "split-records = 777"), 3), "{kind}");
        assert!(one != sorted(&table.replace("seed = 9", "seed = 10"), 1), "{kind}");
    }
}

#[test]
fn a_snapshot_leads_to_exactly_the_rest() {
    let source = generator("kind = \"sequence\"\nrecords = 20000\nsplit-records = 15000");
    let env = env();
    let (before, rest) = block_on(async {
        let mut enumerator = source.enumerator(&env, None);
        enumerator.start().await.unwrap();
        let mut reader = source.reader(reader_context(&env, 0, 100));
        reader.add_split(enumerator.next_split(0).await.unwrap().unwrap()).unwrap();
        reader.add_split(enumerator.next_split(0).await.unwrap().unwrap()).unwrap();
        assert_eq!(enumerator.next_split(0).await.unwrap(), None);
        let ReaderEvent::Batch(before) = reader.next().await.unwrap() else { panic!("records come first") };
        assert_eq!(reader.progress(), before.len() as u64);
        let mut again = source.reader(reader_context(&env, 0, 100));
        reader.snapshot().into_iter().for_each(|split| again.add_split(split).unwrap());
        let mut rest = Vec::new();
        while !again.snapshot().is_empty() {
            if let ReaderEvent::Batch(batch) = again.next().await.unwrap() {
                rest.extend(records(&batch));
            }
        }
        (records(&before), rest)
    });
    let all: Vec<_> = before.into_iter().chain(rest).collect();
    assert!(all == read_all(&*source, 1, 100).unwrap());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Every record is made in one life, wherever lives end and however many readers each has.
    #[test]
    fn every_record_is_made_in_one_life(
        kind in prop::sample::select(vec!["sequence", "keyed-uniform", "keyed-zipf"]),
        count in 0u64..30_000,
        split_records in 1u64..12_000,
        lives in vec((0usize..15, 1u32..4), 0..5),
        last_readers in 1u32..4,
    ) {
        // As many splits as can be told in a moment.
        let split_records = split_records.max(count / 200);
        let source = generator(&format!("kind = \"{kind}\"\nrecords = {count}\nsplit-records = {split_records}"));
        let mut found = read_in_lives(&*source, &lives, last_readers, 100).unwrap();
        let mut expected = read_all(&*source, 1, 100).unwrap();
        found.sort();
        expected.sort();
        prop_assert!(found == expected);
    }
}

/// Reads for some virtual time with one reader, in a life that goes on from a checkpoint or a first one.
fn read_for(
    source: &dyn Source,
    clock: &Arc<VirtualClock>,
    restored: Option<RestoredSource>,
    time: Duration,
) -> (Vec<Record>, RestoredSource) {
    let env = env_with_clock(clock);
    let until = env.clock.monotonic() + time;
    block_on(async {
        let mut enumerator = source.enumerator(&env, restored);
        enumerator.start().await.unwrap();
        let mut reader = source.reader(reader_context(&env, 0, 100));
        let mut read = Vec::new();
        while env.clock.monotonic() < until {
            if reader.snapshot().is_empty() {
                reader.add_split(enumerator.next_split(0).await.unwrap().unwrap()).unwrap();
            }
            if let ReaderEvent::Batch(batch) = reader.next().await.unwrap() {
                read.extend(records(&batch));
            }
        }
        (read, RestoredSource { enumerator: enumerator.snapshot(), splits: reader.snapshot() })
    })
}

#[test]
fn what_was_due_while_the_job_was_down_is_not_caught_up_with() {
    let source = generator("kind = \"keyed-uniform\"\nrate = 100\ntimestamps = \"due\"");
    let second = Duration::from_secs(1);
    let (whole, _) = read_for(&*source, &Arc::default(), None, 30 * second);
    let clock: Arc<VirtualClock> = Arc::default();
    let (mut read, mut restored) = read_for(&*source, &clock, None, 10 * second);
    for _ in 0..2 {
        drop(env_with_clock(&clock).clock.sleep(3600 * second));
        let (more, checkpoint) = read_for(&*source, &clock, Some(restored), 10 * second);
        assert!((950..=1050).contains(&more.len()), "{} records in 10 s", more.len());
        read.extend(more);
        restored = checkpoint;
    }
    // The same records, event times included.
    let length = read.len().min(whole.len());
    assert!(length > 2900 && read[..length] == whole[..length]);
}

#[test]
fn states_of_other_versions_are_refused_at_the_start() {
    for state in ["", "{\"version\":2}", "{\"version\":1}"] {
        let restored = RestoredSource { enumerator: state.into(), splits: Vec::new() };
        let mut enumerator = generator("kind = \"sequence\"").enumerator(&env(), Some(restored));
        let error = block_on(enumerator.start()).unwrap_err().to_string();
        assert!(error.starts_with("the state of a generator is not readable"), "{error}");
    }
}

#[test]
fn due_times_follow_from_the_number_of_the_record() {
    let source =
        generator("kind = \"keyed-uniform\"\nrecords = 50\nrate = 1000\ntimestamps = \"due\"\nformat = \"line\"");
    assert_eq!(source.shape(), StreamShape { keyed: false, timed: true });
    let records = read_all(&*source, 2, 100).unwrap();
    let mut times: Vec<i64> = records.iter().map(|(_, _, timestamp)| timestamp.unwrap()).collect();
    times.sort_unstable();
    let expected: Vec<i64> = (times[0]..times[0] + 50).collect();
    assert_eq!(times, expected);
    assert!(records.iter().all(|(key, value, _)| key.is_none() && value.starts_with(b"k") && value.contains(&b',')));
}

#[test]
fn a_dropped_wait_loses_nothing() {
    let source = generator("kind = \"sequence\"\nrecords = 3\nrate = 50");
    let env = env();
    block_on(async {
        let mut enumerator = source.enumerator(&env, None);
        enumerator.start().await.unwrap();
        let mut reader = source.reader(reader_context(&env, 0, 100));
        let (mut values, mut dropped) = (Vec::new(), 0);
        loop {
            if reader.snapshot().is_empty() {
                let Some(split) = enumerator.next_split(0).await.unwrap() else { break };
                reader.add_split(split).unwrap();
            }
            // Polled once and dropped, over and over.
            match reader.next().now_or_never() {
                Some(Ok(ReaderEvent::Batch(batch))) => values.extend(records(&batch)),
                Some(outcome) => drop(outcome.unwrap()),
                None => {
                    dropped += 1;
                    tokio::task::yield_now().await;
                }
            }
        }
        assert_eq!(values.len(), 3);
        assert!(dropped > 0);
    });
}

#[test]
fn positions_of_other_versions_are_refused() {
    let env = env();
    let mut reader = generator("kind = \"sequence\"").reader(reader_context(&env, 0, 100));
    for position in ["", "{}", "{\"version\":2,\"next\":0,\"end\":1,\"started_ms\":0}"] {
        let split = Split { id: "0".to_owned(), position: position.into() };
        assert!(reader.add_split(split).unwrap_err().to_string().contains("not readable"), "{position}");
    }
}

#[test]
fn settings_that_make_no_sense_are_named() {
    for (table, field) in [
        ("kind = \"sequence\"\nkeys = 1", "keys"),
        ("kind = \"sequence\"\nformat = \"line\"", "format"),
        ("kind = \"keyed-uniform\"\nfrom = 1", "from"),
        ("kind = \"keyed-uniform\"\nexponent = 1.0", "exponent"),
        ("kind = \"keyed-zipf\"\nexponent = nan", "exponent"),
        ("kind = \"keyed-zipf\"\nkeys = 0", "keys"),
        ("kind = \"sequence\"\nrate = 0", "rate"),
        ("kind = \"sequence\"\nsplit-records = 0", "split-records"),
        ("kind = \"sequence\"\ntimestamps = \"due\"", "timestamps"),
    ] {
        let table: toml::Table = table.parse().unwrap();
        assert_eq!(GeneratorSettings::deserialize(table).unwrap().validate().unwrap_err().field, field);
    }
}
