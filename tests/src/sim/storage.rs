//! Storage that outlives the processes of a simulated job, and fails in all the ways that its trait allows.
//!
//! Owns the files and what becomes of each request on its way: it is late, lost, applied though the answer says that
//! nobody knows, or applied long after that answer, be the process that asked dead by then. Which of it happens follows
//! from the seed.
//!
//! What always holds: at one path one create succeeds, once, and who asks after a file was made sees it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tidegate::api::StorageLocation;
use tidegate::checkpoint::metadata::CheckpointMetadata;
use tidegate::checkpoint::storage::{ObjectWriter, Storage, StorageError, StorageFailure, StorageOpener, StoredFile};
use tidegate::clock::Clock;
use tidegate::task;

use super::executor::Handle;
use super::faults::Fault;
use super::surroundings::Surroundings;
use super::trace::Label;

/// A request or an answer travels for less than this, in microseconds, by how slow the storage is.
const DELAYS_US: [u64; 3] = [1, 100, 1_000];
/// A late request arrives within this time after its answer.
const LATEST_US: u64 = 60_000;

/// The disks that no crash reaches.
pub struct Disk {
    /// Of a group that does not crash.
    handle: Handle,
    label: Label,
    around: Arc<Surroundings>,
    delay_us: u64,
    contents: Mutex<Contents>,
}

#[derive(Default)]
struct Contents {
    files: BTreeMap<String, File>,
    /// Paths at which a create succeeded, of files that are gone as well.
    created: BTreeSet<String>,
    /// Paths at which something may have happened, and nobody has looked since.
    unclear: BTreeSet<String>,
    /// Paths of files that somebody wanted to be gone, and was told that they may not be.
    undeleted: BTreeSet<String>,
}

#[derive(Clone)]
struct File {
    bytes: Bytes,
    /// The process that made it.
    process: u32,
    /// That process was told that it is there.
    told: bool,
}

/// What is asked of the disk.
#[derive(Clone)]
enum Change {
    Create(Bytes),
    /// The end of an upload.
    Upload(Bytes),
    Delete,
}

/// What becomes of a change.
struct Fate {
    /// When it arrives; never if none.
    arrives: Option<Duration>,
    /// It happens also when the process that asked is gone by then.
    outlives: bool,
    answer: Answer,
}

/// What the one who asked is told.
enum Answer {
    /// How it went, once that is known.
    Outcome,
    Failure(StorageFailure, Duration),
}

impl Disk {
    /// An empty disk.
    #[must_use]
    pub fn new(handle: Handle, around: Arc<Surroundings>) -> Arc<Self> {
        let delay_us = DELAYS_US[usize::try_from(around.faults.below(DELAYS_US.len() as u64)).expect("an index")];
        let label = handle.label("storage");
        Arc::new(Self { handle, label, around, delay_us, contents: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The files under a folder, now.
    #[must_use]
    pub fn files(&self, folder: &str) -> BTreeMap<String, Bytes> {
        let contents = self.lock();
        let files = contents.files.iter().filter(|(path, _)| path.starts_with(folder));
        files.map(|(path, file)| (path.clone(), file.bytes.clone())).collect()
    }

    /// The files that a process made knowingly and nobody tried to delete, each with that process.
    #[must_use]
    pub fn known_files(&self) -> Vec<(String, u32)> {
        let contents = self.lock();
        let known = |(path, file): &(&String, &File)| file.told && !contents.undeleted.contains(*path);
        contents.files.iter().filter(known).map(|(path, file)| (path.clone(), file.process)).collect()
    }

    fn travel(&self) -> Duration {
        let faults = &self.around.faults;
        let micros = if faults.below(2) == 0 { 0 } else { faults.below(self.delay_us) };
        Duration::from_micros(micros)
    }

    async fn wait(&self, duration: Duration) {
        if !duration.is_zero() {
            self.handle.sleep(duration).await;
        }
    }

    fn fate(&self) -> Fate {
        let (faults, counters) = (&self.around.faults, &self.around.counters);
        let (there, back) = (self.travel(), self.travel());
        let unknown = |after| Answer::Failure(StorageFailure::Unknown, after);
        if faults.strikes(Fault::StorageChangeFails) {
            counters.changes_failed.fetch_add(1, Relaxed);
            let answer = Answer::Failure(StorageFailure::Failed, there + back);
            return Fate { arrives: None, outlives: false, answer };
        }
        if faults.strikes(Fault::StorageChangeLost) {
            counters.changes_lost.fetch_add(1, Relaxed);
            return Fate { arrives: None, outlives: false, answer: unknown(there + back) };
        }
        if faults.strikes(Fault::StorageChangeUnclear) {
            counters.changes_unclear.fetch_add(1, Relaxed);
            return Fate { arrives: Some(there), outlives: true, answer: unknown(there + back) };
        }
        if faults.strikes(Fault::StorageChangeLate) {
            counters.changes_late.fetch_add(1, Relaxed);
            let late = Duration::from_micros(faults.below(LATEST_US));
            return Fate { arrives: Some(there + back + late), outlives: true, answer: unknown(there + back) };
        }
        Fate { arrives: Some(there), outlives: faults.below(4) == 0, answer: Answer::Outcome }
    }

    /// Looks into the metadata of a checkpoint for tasks that had finished while others had not.
    fn count_finished(&self, path: &str, bytes: &Bytes) {
        if !path.ends_with("/_metadata") {
            return;
        }
        let Ok(metadata) = CheckpointMetadata::decode(bytes) else {
            return self.around.journal.broken(format!("{path} cannot be read"));
        };
        let subtasks = metadata.nodes.iter().flat_map(|node| &node.subtasks);
        let (finished, running): (Vec<_>, Vec<_>) = subtasks.partition(|subtask| subtask.finished);
        if !running.is_empty() {
            self.around.counters.finished_tasks_in_checkpoints.fetch_add(finished.len() as u64, Relaxed);
        }
    }

    /// Something is changed now.
    fn apply(&self, path: &str, change: Change, process: u32) -> Result<(), StorageFailure> {
        let contents = &mut *self.lock();
        let outcome = match change {
            Change::Create(_) if contents.files.contains_key(path) => Err(StorageFailure::AlreadyExists),
            Change::Create(bytes) => {
                self.count_finished(path, &bytes);
                contents.created.insert(path.to_owned());
                contents.files.insert(path.to_owned(), File { bytes, process, told: false });
                Ok(())
            }
            Change::Upload(bytes) => {
                if !contents.created.insert(path.to_owned()) {
                    self.around.journal.broken(format!("{path} was uploaded twice: names are to be unique"));
                }
                contents.files.insert(path.to_owned(), File { bytes, process, told: false });
                Ok(())
            }
            Change::Delete => {
                if let Some(file) = contents.files.remove(path) {
                    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
                    let whole = contents.created.contains(&format!("{folder}/_metadata"));
                    if file.process != process && !whole {
                        self.around.counters.garbage_files.fetch_add(1, Relaxed);
                    }
                }
                Ok(())
            }
        };
        self.handle.event(self.label, if outcome.is_ok() { "changed" } else { "not changed" }, 0);
        outcome
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk").field("files", &self.lock().files.len()).finish_non_exhaustive()
    }
}

/// The disk as one process sees it, or one who knows everything.
#[derive(Clone, Debug)]
pub struct SimStorage {
    disk: Arc<Disk>,
    /// None for one to whom nothing is late and for whom nothing fails, and who only looks.
    process: Option<u32>,
}

impl SimStorage {
    /// The disk, seen by the process of this number.
    #[must_use]
    pub fn new(disk: Arc<Disk>, process: u32) -> Self {
        Self { disk, process: Some(process) }
    }

    /// The disk as it is now, without any fault or delay.
    #[must_use]
    pub fn now(disk: Arc<Disk>) -> Self {
        Self { disk, process: None }
    }

    async fn change(&self, action: &'static str, path: &str, change: Change) -> Result<(), StorageError> {
        let process = self.process.expect("who knows everything changes nothing");
        let (disk, is_delete) = (&self.disk, matches!(change, Change::Delete));
        let fate = disk.fate();
        let outcome = match (fate.arrives, fate.answer) {
            (None, Answer::Outcome) => unreachable!("an outcome is one of a change that arrived"),
            (None, Answer::Failure(failure, after)) => {
                disk.wait(after).await;
                Err(failure)
            }
            (Some(arrives), Answer::Outcome) if !fate.outlives => {
                disk.wait(arrives).await;
                let outcome = disk.apply(path, change, process);
                disk.wait(disk.travel()).await;
                outcome
            }
            (Some(arrives), answer) => {
                let (server, owned) = (Arc::clone(disk), path.to_owned());
                let done = task::spawn(&disk.handle, format!("{action} {path}"), async move {
                    server.wait(arrives).await;
                    server.apply(&owned, change, process)
                });
                match answer {
                    Answer::Outcome => {
                        let outcome = done.await.expect("the disk does not crash");
                        disk.wait(disk.travel()).await;
                        outcome
                    }
                    Answer::Failure(failure, after) => {
                        disk.wait(after).await;
                        Err(failure)
                    }
                }
            }
        };
        let mut contents = disk.lock();
        match (&outcome, contents.files.get_mut(path)) {
            (Ok(()), Some(file)) => file.told = true,
            (Err(_), _) if is_delete => drop(contents.undeleted.insert(path.to_owned())),
            (Err(StorageFailure::Unknown), _) => drop(contents.unclear.insert(path.to_owned())),
            (Ok(()) | Err(_), _) => {}
        }
        drop(contents);
        outcome.map_err(|failure| {
            disk.around
                .journal
                .note(disk.handle.now_ns(), &format!("  process {process}: {action} {path}: {failure:?}"));
            error(action, path, failure)
        })
    }

    /// Looks at the files at a moment between the question and the answer.
    async fn look<T>(
        &self,
        action: &'static str,
        path: &str,
        look: impl FnOnce(&mut Contents) -> Result<T, StorageFailure>,
    ) -> Result<T, StorageError> {
        let disk = &self.disk;
        if self.process.is_none() {
            return look(&mut disk.lock()).map_err(|failure| error(action, path, failure));
        }
        disk.wait(disk.travel()).await;
        let found = if disk.around.faults.strikes(Fault::StorageReadFails) {
            disk.around.counters.reads_failed.fetch_add(1, Relaxed);
            Err(StorageFailure::Failed)
        } else {
            look(&mut disk.lock())
        };
        disk.wait(disk.travel()).await;
        found.map_err(|failure| error(action, path, failure))
    }

    async fn read(&self, path: &str) -> Result<Bytes, StorageError> {
        let counters = Arc::clone(&self.disk.around.counters);
        let read = |contents: &mut Contents| {
            if self.process.is_some() && contents.unclear.remove(path) {
                counters.unclear_changes_settled.fetch_add(1, Relaxed);
            }
            contents.files.get(path).map(|file| file.bytes.clone()).ok_or(StorageFailure::NotFound)
        };
        self.look("read", path, read).await
    }
}

fn error(action: &'static str, path: &str, failure: StorageFailure) -> StorageError {
    StorageError { action, path: format!("sim:///{path}"), failure, source: None }
}

impl Storage for SimStorage {
    fn put_new<'a>(&'a self, path: &'a str, bytes: Bytes) -> BoxFuture<'a, Result<(), StorageError>> {
        self.change("write", path, Change::Create(bytes)).boxed()
    }

    fn writer<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Box<dyn ObjectWriter>, StorageError>> {
        async move {
            self.look("write", path, |_| Ok(())).await?;
            let upload = SimUpload { storage: self.clone(), path: path.to_owned(), bytes: Vec::new(), over: false };
            let writer: Box<dyn ObjectWriter> = Box::new(upload);
            Ok(writer)
        }
        .boxed()
    }

    fn get<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Bytes, StorageError>> {
        self.read(path).boxed()
    }

    fn get_range<'a>(&'a self, path: &'a str, range: Range<u64>) -> BoxFuture<'a, Result<Bytes, StorageError>> {
        async move {
            let bytes = self.read(path).await?;
            let (start, end) = (usize::try_from(range.start), usize::try_from(range.end));
            match (start, end) {
                (Ok(start), Ok(end)) if start <= end && end <= bytes.len() => Ok(bytes.slice(start..end)),
                _ => Err(error("read", path, StorageFailure::Failed)),
            }
        }
        .boxed()
    }

    fn size<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<u64, StorageError>> {
        async move { Ok(self.read(path).await?.len() as u64) }.boxed()
    }

    fn list<'a>(&'a self, folder: &'a str) -> BoxFuture<'a, Result<Vec<StoredFile>, StorageError>> {
        let prefix = prefix(folder);
        let list = move |contents: &mut Contents| {
            let files = contents.files.iter().filter(|(path, _)| path.starts_with(&prefix));
            Ok(files.map(|(path, file)| StoredFile { path: path.clone(), bytes: file.bytes.len() as u64 }).collect())
        };
        self.look("list", folder, list).boxed()
    }

    fn folders<'a>(&'a self, folder: &'a str) -> BoxFuture<'a, Result<Vec<String>, StorageError>> {
        let prefix = prefix(folder);
        let folders = move |contents: &mut Contents| {
            let inside = contents.files.keys().filter_map(|path| path.strip_prefix(&prefix)?.split_once('/'));
            let folders: BTreeSet<String> = inside.map(|(folder, _)| folder.to_owned()).collect();
            Ok(folders.into_iter().collect())
        };
        self.look("list", folder, folders).boxed()
    }

    fn delete<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<(), StorageError>> {
        self.change("delete", path, Change::Delete).boxed()
    }
}

fn prefix(folder: &str) -> String {
    if folder.is_empty() { String::new() } else { format!("{folder}/") }
}

/// A file that is being written: nobody sees it before its end.
struct SimUpload {
    storage: SimStorage,
    path: String,
    bytes: Vec<u8>,
    over: bool,
}

impl ObjectWriter for SimUpload {
    fn write(&mut self, chunk: Bytes) -> BoxFuture<'_, Result<(), StorageError>> {
        async move {
            let Self { storage, path, bytes, .. } = self;
            let disk = &storage.disk;
            disk.wait(disk.travel()).await;
            if disk.around.faults.strikes(Fault::StorageChangeFails) {
                disk.around.counters.changes_failed.fetch_add(1, Relaxed);
                return Err(error("write", path, StorageFailure::Failed));
            }
            bytes.extend_from_slice(&chunk);
            Ok(())
        }
        .boxed()
    }

    fn finish(mut self: Box<Self>) -> BoxFuture<'static, Result<(), StorageError>> {
        async move {
            self.over = true;
            let bytes = Bytes::from(std::mem::take(&mut self.bytes));
            self.storage.change("write", &self.path, Change::Upload(bytes)).await
        }
        .boxed()
    }

    fn abort(mut self: Box<Self>) -> BoxFuture<'static, Result<(), StorageError>> {
        async move {
            self.over = true;
            self.storage.look("give up", &self.path, |_| Ok(())).await
        }
        .boxed()
    }
}

impl Drop for SimUpload {
    fn drop(&mut self) {
        if !self.over {
            self.storage.disk.around.counters.torn_uploads.fetch_add(1, Relaxed);
        }
    }
}

/// Opens the disk for one process.
#[derive(Clone, Debug)]
pub struct SimOpener {
    disk: Arc<Disk>,
    process: u32,
}

impl SimOpener {
    /// An opener for the process of this number.
    #[must_use]
    pub fn new(disk: Arc<Disk>, process: u32) -> Self {
        Self { disk, process }
    }
}

impl StorageOpener for SimOpener {
    fn open<'a>(&'a self, url: &'a StorageLocation) -> BoxFuture<'a, Result<Arc<dyn Storage>, StorageError>> {
        async move {
            let disk = match url {
                StorageLocation::Memory => Disk::new(self.disk.handle.clone(), Arc::clone(&self.disk.around)),
                StorageLocation::Directory(_) => Arc::clone(&self.disk),
            };
            let storage = SimStorage::new(disk, self.process);
            storage.look("open", &url.to_string(), |_| Ok(())).await?;
            let storage: Arc<dyn Storage> = Arc::new(storage);
            Ok(storage)
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests;
