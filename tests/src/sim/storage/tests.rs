//! The storage by itself: however it fails, a create happens at most once and what the answers promise is true.

use futures_util::future::{Either, select};
use tidegate::random::Random;

use super::super::executor::{Executor, Group};
use super::*;

const PATHS: u64 = 6;

/// Several processes create files at the same few paths, some give up waiting; afterwards what each was told is
/// compared with what is there.
#[test]
fn answers_are_true() {
    let (mut unknown_there, mut unknown_missing) = (0, 0);
    for seed in 0..300 {
        let mut executor = Executor::new(seed, 1_000_000);
        let around = Surroundings::harsh(seed);
        around.faults.storm(seed % 2 == 0);
        let disk = Disk::new(executor.handle(Group(0)), Arc::clone(&around));
        let mut tasks = Vec::new();
        for process in 0..3 {
            let (storage, handle) = (SimStorage::new(Arc::clone(&disk), process), executor.handle(Group(1)));
            let clock = handle.clone();
            let writer = async move {
                let mut random = Random::for_purpose(seed, "writer", &[process.into()]);
                let mut told = Vec::new();
                for _ in 0..10 {
                    let path = format!("folder/{}", random.below(PATHS));
                    let content = format!("{process} {}", random.next_u64());
                    let put = storage.put_new(&path, Bytes::from(content.clone()));
                    let patience = clock.sleep(Duration::from_micros(random.below(2_000)));
                    let outcome = match select(put, patience).await {
                        Either::Left((outcome, _)) => outcome.map_err(|error| error.failure),
                        // As one who crashed: nobody knows.
                        Either::Right(_) => Err(StorageFailure::Unknown),
                    };
                    told.push((path, content, outcome));
                }
                told
            };
            tasks.push(task::spawn(&handle, format!("process {process}"), writer));
        }
        let told = executor.run("all", futures_util::future::join_all(tasks)).unwrap();
        executor.finish().unwrap();
        let files = disk.files("folder/");
        for (path, content, outcome) in told.into_iter().flat_map(Result::unwrap) {
            let there = files.get(&path).map(|bytes| &bytes[..]) == Some(content.as_bytes());
            match outcome {
                Ok(()) => assert!(there, "seed {seed}: {path} was written and is not there"),
                Err(StorageFailure::AlreadyExists) => {
                    assert!(!there && files.contains_key(&path), "seed {seed}: {path}")
                }
                Err(StorageFailure::Failed) => assert!(!there, "seed {seed}: {path} was not written and is there"),
                Err(StorageFailure::Unknown) if there => unknown_there += 1,
                Err(StorageFailure::Unknown) => unknown_missing += 1,
                Err(StorageFailure::NotFound) => panic!("nothing was looked for"),
            }
        }
        assert_eq!(around.journal.check(), Ok(()));
    }
    assert!(unknown_there > 50 && unknown_missing > 50, "{unknown_there} {unknown_missing}");
}

#[test]
fn an_upload_shows_at_its_end_or_never() {
    let mut executor = Executor::new(1, 100_000);
    let around = Surroundings::kind();
    let storage = SimStorage::new(Disk::new(executor.handle(Group(0)), Arc::clone(&around)), 1);
    executor
        .run("process", async move {
            for (path, ends) in [("a/x", true), ("a/y", false)] {
                let mut writer = storage.writer(path).await.unwrap();
                writer.write(Bytes::from_static(b"one ")).await.unwrap();
                writer.write(Bytes::from_static(b"two")).await.unwrap();
                assert_eq!(storage.get(path).await.unwrap_err().failure, StorageFailure::NotFound);
                if ends {
                    writer.finish().await.unwrap();
                }
            }
            assert_eq!(storage.get_range("a/x", 4..7).await.unwrap(), "two");
            assert!(storage.get_range("a/x", 4..8).await.is_err());
            assert_eq!(storage.list("a").await.unwrap(), [StoredFile { path: "a/x".into(), bytes: 7 }]);
            assert_eq!(storage.folders("").await.unwrap(), ["a"]);
            storage.delete("a/x").await.unwrap();
            storage.delete("a/x").await.unwrap();
            assert!(storage.folders("").await.unwrap().is_empty());
        })
        .unwrap();
    assert_eq!(around.counters.torn_uploads.load(Relaxed), 1);
}
