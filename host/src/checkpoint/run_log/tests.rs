//! Processes that fight for one job, interleaved at every operation of a storage that fails in every way it may: a put
//! that did not happen, happened though it was answered with an error, or happens later. Processes sleep for long and
//! die at any point. What they did is compared with all records that were ever put.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Mutex;
use std::task::{Context, Waker};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::testing::{StillClock, at_once, claim, claimed, directory, restore_point};
use super::*;
use crate::checkpoint::memory;
use crate::checkpoint::storage::{ObjectWriter, StoredFile};
use crate::id::CheckpointId;
use crate::protocol::run_log::{Digest, LoggedCheckpoint, RestorePoint};
use crate::random::Random;
use crate::task::yield_now;

/// So few that old records are deleted all the time.
const KEPT: u64 = 4;

const SEEDS: u64 = 3000;

/// A storage that fails.
struct Faulty {
    inner: Mutex<Inner>,
}

struct Inner {
    random: Random,
    /// One of so many operations fails.
    fault_in: u64,
    files: BTreeMap<String, Bytes>,
    /// What was first put at each path, whether it is still there or not.
    history: BTreeMap<String, Bytes>,
    /// Puts that will happen later.
    late: Vec<(String, Bytes)>,
    /// How often something was put where there had been something else before.
    strays: u64,
    /// How often a put happened late.
    late_puts: u64,
}

impl Inner {
    fn put(&mut self, path: &str, bytes: Bytes) -> bool {
        if self.files.contains_key(path) {
            return false;
        }
        if self.history.contains_key(path) {
            self.strays += 1;
        } else {
            self.history.insert(path.to_owned(), bytes.clone());
        }
        self.files.insert(path.to_owned(), bytes);
        true
    }

    fn settle_late(&mut self, all: bool) {
        while !self.late.is_empty() && (all || self.random.below(4) == 0) {
            let chosen = usize::try_from(self.random.below(self.late.len() as u64)).unwrap();
            let (path, bytes) = self.late.swap_remove(chosen);
            self.late_puts += u64::from(self.put(&path, bytes));
        }
    }

    fn fails(&mut self) -> bool {
        self.fault_in > 0 && self.random.below(self.fault_in) == 0
    }
}

impl Faulty {
    async fn operation<T>(
        &self,
        action: &'static str,
        path: &str,
        operation: impl FnOnce(&mut Inner) -> Result<T, StorageFailure>,
    ) -> Result<T, StorageError> {
        yield_now().await;
        let result = {
            let mut inner = self.inner.lock().unwrap();
            inner.settle_late(false);
            operation(&mut inner)
        };
        yield_now().await;
        result.map_err(|failure| StorageError { action, path: path.to_owned(), failure, source: None })
    }
}

impl Storage for Faulty {
    fn put_new<'a>(&'a self, path: &'a str, bytes: Bytes) -> BoxFuture<'a, Result<(), StorageError>> {
        Box::pin(self.operation("write", path, move |inner| {
            if inner.fails() {
                match inner.random.below(3) {
                    0 => {}
                    1 => drop(inner.put(path, bytes)),
                    _ => inner.late.push((path.to_owned(), bytes)),
                }
                return Err(StorageFailure::Unknown);
            }
            if inner.put(path, bytes) { Ok(()) } else { Err(StorageFailure::AlreadyExists) }
        }))
    }

    fn writer<'a>(&'a self, _path: &'a str) -> BoxFuture<'a, Result<Box<dyn ObjectWriter>, StorageError>> {
        unreachable!("records are small")
    }

    fn get<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Bytes, StorageError>> {
        Box::pin(self.operation("read", path, move |inner| {
            if inner.fails() {
                return Err(StorageFailure::Failed);
            }
            inner.files.get(path).cloned().ok_or(StorageFailure::NotFound)
        }))
    }

    fn get_range<'a>(&'a self, _path: &'a str, _range: Range<u64>) -> BoxFuture<'a, Result<Bytes, StorageError>> {
        unreachable!("records are read whole")
    }

    fn size<'a>(&'a self, _path: &'a str) -> BoxFuture<'a, Result<u64, StorageError>> {
        unreachable!("records are read whole")
    }

    fn list<'a>(&'a self, folder: &'a str) -> BoxFuture<'a, Result<Vec<StoredFile>, StorageError>> {
        Box::pin(self.operation("list", folder, move |inner| {
            if inner.fails() {
                return Err(StorageFailure::Failed);
            }
            let file = |(path, bytes): (&String, &Bytes)| StoredFile { path: path.clone(), bytes: bytes.len() as u64 };
            Ok(inner.files.iter().map(file).collect())
        }))
    }

    fn folders<'a>(&'a self, _folder: &'a str) -> BoxFuture<'a, Result<Vec<String>, StorageError>> {
        unreachable!("a log has no folders")
    }

    fn delete<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<(), StorageError>> {
        Box::pin(self.operation("delete", path, move |inner| {
            if inner.fails() {
                return Err(StorageFailure::Unknown);
            }
            inner.files.remove(path);
            Ok(())
        }))
    }
}

/// What processes say that happened.
#[derive(Default)]
struct Witness {
    /// Claims and records that were answered with success.
    succeeded: RefCell<Vec<Entry>>,
    /// Runs that found themselves fenced, and by whom.
    fenced: RefCell<Vec<(u64, u64)>>,
    lost_races: Cell<u64>,
    moved: Cell<u64>,
    unknown: Cell<u64>,
    nonces: Cell<u64>,
}

impl Witness {
    fn succeeded(&self, log: &RunLog) {
        self.succeeded.borrow_mut().push(log.log().newest().unwrap().clone());
    }
}

/// A fault of the storage is no fault of the log.
fn expect_storage_error(error: &RunLogError) {
    assert!(matches!(error, RunLogError::Storage(_)), "{error:?}");
}

/// A process that takes the job again and again.
async fn process(storage: Arc<Faulty>, witness: Rc<Witness>, mut random: Random) {
    let count = |cell: &Cell<u64>| cell.set(cell.get() + 1);
    for _ in 0..random.below(4) + 1 {
        let mut view = match LogView::open(storage.clone(), Arc::new(StillClock), directory()).await {
            Ok(view) => view,
            Err(error) => {
                expect_storage_error(&error);
                continue;
            }
        };
        view.kept = KEPT;
        let claimed = loop {
            count(&witness.nonces);
            let claim = claim(restore_point(view.resume()));
            match view.claim(witness.nonces.get(), claim).await {
                Ok(log) => break Some(log),
                Err(ClaimError::Moved(moved)) => {
                    count(&witness.moved);
                    view = *moved;
                }
                Err(ClaimError::Claimed { .. }) => {
                    count(&witness.lost_races);
                    break None;
                }
                Err(ClaimError::Log(error)) => {
                    expect_storage_error(&error);
                    break None;
                }
            }
        };
        let Some(mut log) = claimed else { continue };
        witness.succeeded(&log);
        for _ in 0..random.below(12) {
            let newest = log.log().checkpoints().first().map_or(0, |newest| newest.checkpoint.0);
            let (run, checkpoint) = (log.run(), CheckpointId(newest + 1));
            let metadata = Digest::of(&random.next_u64().to_le_bytes());
            let taken = LoggedCheckpoint { run, checkpoint, metadata };
            let record = match random.below(20) {
                0 => Record::Stopped { savepoint: format!("savepoint-{run}") },
                1 => Record::Discarded,
                2 => Record::Finished { last: log.log().checkpoints().first().copied() },
                _ => Record::Checkpoint(taken),
            };
            let ends = !matches!(record, Record::Checkpoint(_));
            match log.append(record).await {
                Appended::Appended => witness.succeeded(&log),
                Appended::Fenced { by } => {
                    witness.fenced.borrow_mut().push((run, by));
                    break;
                }
                Appended::Unknown(error) => {
                    expect_storage_error(&error);
                    count(&witness.unknown);
                    break;
                }
            }
            if ends {
                break;
            }
        }
        assert!(matches!(log.standing, Standing::Holds | Standing::Fenced { .. } | Standing::Unsure));
    }
}

/// Lets processes run in an order that the seed decides. Some sleep for long; some die and others begin.
fn run(seed: u64) -> (Arc<Faulty>, Rc<Witness>) {
    let mut random = Random::for_purpose(seed, "order", &[]);
    let fault_in = [0, 25, 8][usize::try_from(random.below(3)).unwrap()];
    let storage = Arc::new(Faulty {
        inner: Mutex::new(Inner {
            random: Random::for_purpose(seed, "storage", &[]),
            fault_in,
            files: BTreeMap::new(),
            history: BTreeMap::new(),
            late: Vec::new(),
            strays: 0,
            late_puts: 0,
        }),
    });
    let witness = Rc::new(Witness::default());
    let start = |number| -> Pin<Box<dyn Future<Output = ()>>> {
        Box::pin(process(storage.clone(), witness.clone(), Random::for_purpose(seed, "process", &[number])))
    };
    let mut processes: Vec<_> = (0..2 + random.below(2)).map(|number| (start(number), 0)).collect();
    let mut births = 10;
    for step in 0u64.. {
        if processes.is_empty() {
            break;
        }
        let chosen = usize::try_from(random.below(processes.len() as u64)).unwrap();
        let others = processes.len() > 1;
        let (process, wakes_at) = &mut processes[chosen];
        if *wakes_at > step && others {
            continue;
        }
        match random.below(400) {
            0..=3 => *wakes_at = step + random.below(2000),
            4..=6 if births < 16 => {
                births += 1;
                processes[chosen] = (start(births), step);
            }
            _ => {
                if process.poll_unpin(&mut Context::from_waker(Waker::noop())).is_ready() {
                    drop(processes.swap_remove(chosen));
                }
            }
        }
    }
    storage.inner.lock().unwrap().settle_late(true);
    (storage, witness)
}

/// Checks what happened against all records that were ever put.
fn check(storage: &Arc<Faulty>, witness: &Witness) {
    let history: Vec<Entry> = {
        let inner = storage.inner.lock().unwrap();
        inner.history.values().map(|bytes| FORMAT.open(bytes).unwrap()).collect()
    };
    // All that was ever put makes one log, if nothing had been deleted.
    let whole = history.iter().map(|entry| (entry.sequence, Entry { first: 0, ..entry.clone() })).collect();
    let whole = Log::new(whole).unwrap();
    assert_eq!(whole.entries().len(), history.len());
    // Every run went on from exactly what had been there before it: no record is lost, and no run forked off.
    let mut before = Log::default();
    for entry in whole.entries() {
        if let Record::Claim(claim) = &entry.record {
            assert_eq!(claim.restored_from, restore_point(before.resume()), "{entry:?}");
        }
        before.push(entry.clone());
    }
    // What was answered with success is there. So what was done about it came before any later claim was read.
    let succeeded = witness.succeeded.borrow();
    for entry in succeeded.iter() {
        assert_eq!(history[usize::try_from(entry.sequence).unwrap()], *entry);
    }
    let claims: Vec<u64> =
        succeeded.iter().filter(|entry| matches!(entry.record, Record::Claim(_))).map(|entry| entry.run).collect();
    assert!(claims.iter().all(|run| claims.iter().filter(|other| *other == run).count() == 1), "{claims:?}");
    for (run, by) in witness.fenced.borrow().iter() {
        let claimed = |entry: &Entry| entry.run == *by && matches!(entry.record, Record::Claim(_));
        assert!(run < by && history.iter().any(claimed), "run {run} was fenced by run {by}");
    }
    // Whoever opens the log now goes on from what was put last.
    storage.inner.lock().unwrap().fault_in = 0;
    let mut open = Box::pin(LogView::open(storage.clone(), Arc::new(StillClock), directory()));
    let view = loop {
        if let Some(view) = open.as_mut().now_or_never() {
            break view.unwrap();
        }
    };
    assert_eq!(view.resume(), whole.resume());
}

#[test]
fn processes_that_fight_for_a_job_leave_one_history() {
    let (mut fenced, mut lost, mut moved, mut unknown, mut strays, mut late) = (0, 0, 0, 0, 0, 0);
    for seed in 0..SEEDS {
        let outcome = std::panic::catch_unwind(|| {
            let (storage, witness) = run(seed);
            check(&storage, &witness);
            let inner = storage.inner.lock().unwrap();
            let fenced = witness.fenced.borrow().len();
            (
                fenced,
                witness.lost_races.get(),
                witness.moved.get(),
                witness.unknown.get(),
                inner.strays,
                inner.late_puts,
            )
        });
        let counts = outcome.unwrap_or_else(|panic| {
            eprintln!("seed {seed}");
            std::panic::resume_unwind(panic)
        });
        fenced += counts.0;
        lost += counts.1;
        moved += counts.2;
        unknown += counts.3;
        strays += counts.4;
        late += counts.5;
    }
    let counts = format!(
        "fenced {fenced}, lost races {lost}, moved {moved}, unknown {unknown}, put over deleted {strays}, late {late}"
    );
    eprintln!("{counts}");
    assert!(fenced > 0 && lost > 0 && moved > 0 && unknown > 0 && strays > 0 && late > 0, "{counts}");
}

fn checkpoint(log: &RunLog, id: u64) -> Record {
    let (checkpoint, metadata) = (CheckpointId(id), Digest([1; 16]));
    Record::Checkpoint(LoggedCheckpoint { run: log.run(), checkpoint, metadata })
}

#[test]
fn a_process_that_slept_learns_that_it_lost_the_job() {
    let storage = memory();
    let mut first = claimed(&storage, 1);
    assert!(matches!(at_once(first.append(checkpoint(&first, 1))), Appended::Appended));
    let mut second = claimed(&storage, 2);
    assert!(matches!(at_once(second.append(checkpoint(&second, 2))), Appended::Appended));
    assert!(matches!(at_once(first.append(checkpoint(&first, 2))), Appended::Fenced { by: 2 }));
    assert!(!first.holds());
    assert!(matches!(at_once(second.append(checkpoint(&second, 3))), Appended::Appended));
}

#[test]
fn a_record_that_cannot_be_read_is_named_and_no_older_one_taken() {
    let storage = memory();
    let mut log = claimed(&storage, 1);
    assert!(matches!(at_once(log.append(checkpoint(&log, 1))), Appended::Appended));
    let newest = directory().path(JobFile::LogRecord(1));
    at_once(storage.delete(&newest)).unwrap();
    at_once(storage.put_new(&newest, Bytes::from_static(b"tg-runlg damaged"))).unwrap();
    let open = || at_once(LogView::open(storage.clone(), Arc::new(StillClock), directory()));
    let error = open().unwrap_err();
    assert!(error.to_string().contains(&newest), "{error}");
    // Without its claim the checkpoint means nothing.
    let mut log = claimed(&memory(), 1);
    let storage = log.view.storage.clone();
    assert!(matches!(at_once(log.append(checkpoint(&log, 1))), Appended::Appended));
    at_once(storage.delete(&directory().path(JobFile::LogRecord(0)))).unwrap();
    let view = LogView::open(storage, Arc::new(StillClock), directory());
    let mut view = Box::pin(view);
    let error = loop {
        if let Some(result) = view.as_mut().now_or_never() {
            break result.unwrap_err();
        }
    };
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(source, "record 0 is missing, though there is a record 1");
}

/// Records that were written by version 1 of the format.
const VERSION_1: [&[u8]; 5] = [
    include_bytes!("../fixtures/log-1-claim"),
    include_bytes!("../fixtures/log-1-checkpoint"),
    include_bytes!("../fixtures/log-1-stopped"),
    include_bytes!("../fixtures/log-1-finished"),
    include_bytes!("../fixtures/log-1-discarded"),
];

#[test]
fn version_1_is_read_and_written() {
    let taken = LoggedCheckpoint { run: 3, checkpoint: CheckpointId(300), metadata: Digest([7; 16]) };
    let records = [
        Record::Claim(Claim {
            restored_from: Some(RestorePoint::Elsewhere { path: "/savepoints/a".to_owned() }),
            job_file: "jobs/a.toml".to_owned(),
            graph: Digest([9; 16]),
        }),
        Record::Checkpoint(taken),
        Record::Stopped { savepoint: "/savepoints/b".to_owned() },
        Record::Finished { last: Some(taken) },
        Record::Discarded,
    ];
    for (record, file) in records.into_iter().zip(VERSION_1) {
        let entry = Entry { sequence: 1000, first: 872, run: 3, nonce: u64::MAX, at_ms: 1_796_000_000_000, record };
        assert_eq!(FORMAT.open::<Entry>(file).unwrap(), entry);
        assert!(FORMAT.seal(&entry) == file, "the bytes are not those of version 1: the format changed");
    }
}
