use super::*;
use crate::connectors::testing::{block_on, env, read_all, reader_context, records};

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
