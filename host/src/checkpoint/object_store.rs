//! Storage on the `object_store` crate: memory and local files.
//!
//! Local files are written beside their place, synced, linked or renamed into it, and their directory synced, new
//! directories up to the first that existed included. All of that the crate does with `with_fsync(true)`, which is off
//! by default. Deletes are not synced: a file that comes back after a power
//! cut is collected like any other that nothing refers to.
//!
//! The crate moves its blocking calls off the async threads only when it is called inside a tokio runtime, and opens a
//! file for writing without doing even that. So every operation on files runs as a task of its own on the runtime that
//! the storage was given, whoever asks for it, and opening as blocking work. Memory needs no runtime.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::TryStreamExt;
use futures_util::future::BoxFuture;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path as ObjectPath;
use object_store::{Error, MultipartUpload, ObjectStore, ObjectStoreExt, PutMode, PutPayload};

use super::local;
use super::storage::{
    ObjectWriter, Storage, StorageError, StorageFailure, StorageLocation, StorageOpener, StoredFile, UnfinishedFile,
};
use crate::task::{self, TaskError, TokioTasks};

/// Opens what URLs name on this machine.
#[derive(Clone, Debug)]
pub struct SystemStorage {
    tasks: TokioTasks,
}

impl SystemStorage {
    /// Storages whose work is done on this runtime.
    #[must_use]
    pub fn new(runtime: &tokio::runtime::Handle) -> Self {
        Self { tasks: TokioTasks(runtime.clone()) }
    }

    async fn open_directory(&self, directory: &Path) -> Result<Arc<dyn Storage>, StorageError> {
        let (directory, location) = (directory.to_owned(), directory.display().to_string());
        let place = Place { action: "open storage", path: location.clone(), otherwise: StorageFailure::Failed };
        let opened = task::compute(&self.tasks, "open storage", move || open_directory(&directory)).await;
        let (store, root) = place.file_outcome(opened)?;
        let (root, tasks) = (Some(root), Some(self.tasks.clone()));
        Ok(Arc::new(ObjectStorage { location, store: Arc::new(store), root, tasks }))
    }
}

impl StorageOpener for SystemStorage {
    fn open<'a>(&'a self, location: &'a StorageLocation) -> BoxFuture<'a, Result<Arc<dyn Storage>, StorageError>> {
        Box::pin(async move {
            match location {
                StorageLocation::Memory => Ok(memory()),
                StorageLocation::Directory(directory) => self.open_directory(directory).await,
            }
        })
    }
}

/// A new and empty storage in memory.
#[must_use]
pub fn memory() -> Arc<dyn Storage> {
    let store = Arc::new(InMemory::new());
    Arc::new(ObjectStorage { location: StorageLocation::Memory.to_string(), store, root: None, tasks: None })
}

/// Opens storages in memory and refuses all others: for worlds without files.
#[derive(Clone, Copy, Debug)]
pub struct MemoryOnly;

impl StorageOpener for MemoryOnly {
    fn open<'a>(&'a self, location: &'a StorageLocation) -> BoxFuture<'a, Result<Arc<dyn Storage>, StorageError>> {
        let opened = match location {
            StorageLocation::Memory => Ok(memory()),
            StorageLocation::Directory(directory) => {
                let path = directory.display().to_string();
                let place = Place { action: "open storage", path, otherwise: StorageFailure::Failed };
                Err(place.failed(StorageFailure::Failed, "there are no files here".into()))
            }
        };
        Box::pin(std::future::ready(opened))
    }
}

/// Makes a directory and all above it durable, and a store of it.
fn open_directory(directory: &Path) -> io::Result<(LocalFileSystem, PathBuf)> {
    let directory = std::path::absolute(directory)?;
    local::create_directory(&directory)?;
    let store = LocalFileSystem::new_with_prefix(&directory)?;
    Ok((store.with_fsync(true).with_automatic_cleanup(true), directory.canonicalize()?))
}

/// A store of the crate, with what errors need to name its files.
struct ObjectStorage {
    location: String,
    store: Arc<dyn ObjectStore>,
    root: Option<PathBuf>,
    /// Where operations run that block; none if they do not block.
    tasks: Option<TokioTasks>,
}

impl ObjectStorage {
    /// Something that changes nothing.
    fn reading(&self, action: &'static str, path: &str) -> Place {
        Place { action, path: self.show(path), otherwise: StorageFailure::Failed }
    }

    /// Something that may have happened when it failed.
    fn changing(&self, action: &'static str, path: &str) -> Place {
        Place { otherwise: StorageFailure::Unknown, ..self.reading(action, path) }
    }

    /// Runs an operation on a file or folder.
    async fn run<T, F>(
        &self,
        place: Place,
        path: &str,
        operation: impl FnOnce(Arc<dyn ObjectStore>, ObjectPath) -> F,
    ) -> Result<T, StorageError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let path = ObjectPath::parse(path).map_err(|error| place.error(error.into()))?;
        place.outcome(run(self.tasks.as_ref(), operation(Arc::clone(&self.store), path)).await)
    }
}

/// Runs an operation where it may block.
async fn run<T: Send + 'static>(
    tasks: Option<&TokioTasks>,
    operation: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<Result<T, Error>, TaskError> {
    match tasks {
        Some(tasks) => task::spawn(tasks, "storage", operation).await,
        None => Ok(operation.await),
    }
}

impl Storage for ObjectStorage {
    fn put_new<'a>(&'a self, path: &'a str, bytes: Bytes) -> BoxFuture<'a, Result<(), StorageError>> {
        Box::pin(self.run(self.changing("write", path), path, move |store, path| async move {
            store.put_opts(&path, PutPayload::from_bytes(bytes), PutMode::Create.into()).await.map(drop)
        }))
    }

    fn writer<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Box<dyn ObjectWriter>, StorageError>> {
        Box::pin(async move {
            let place = self.changing("write", path);
            let path = ObjectPath::parse(path).map_err(|error| place.error(error.into()))?;
            let store = Arc::clone(&self.store);
            let open = async move { store.put_multipart(&path).await };
            let opened = match &self.tasks {
                Some(tasks) => {
                    let runtime = tasks.0.clone();
                    task::compute(tasks, "open file", move || runtime.block_on(open)).await
                }
                None => Ok(open.await),
            };
            let upload = place.outcome(opened)?;
            let writer: Box<dyn ObjectWriter> = Box::new(Upload { place, upload, tasks: self.tasks.clone() });
            Ok(writer)
        })
    }

    fn get<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Bytes, StorageError>> {
        Box::pin(
            self.run(
                self.reading("read", path),
                path,
                |store, path| async move { store.get(&path).await?.bytes().await },
            ),
        )
    }

    fn get_range<'a>(&'a self, path: &'a str, range: Range<u64>) -> BoxFuture<'a, Result<Bytes, StorageError>> {
        Box::pin(async move {
            let place = self.reading("read", path);
            let shown = place.path.clone();
            let wanted = range.end.saturating_sub(range.start);
            let bytes = self.run(place, path, |store, path| async move {
                // The crate refuses empty ranges and cuts those that go beyond the end.
                if wanted == 0 { Ok(Bytes::new()) } else { store.get_range(&path, range).await }
            });
            let bytes = bytes.await?;
            if bytes.len() as u64 != wanted {
                let problem = format!("{wanted} bytes were asked for where {} are left", bytes.len());
                let (failure, source) = (StorageFailure::Failed, Some(problem.into()));
                return Err(StorageError { action: "read", path: shown, failure, source });
            }
            Ok(bytes)
        })
    }

    fn size<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<u64, StorageError>> {
        Box::pin(
            self.run(
                self.reading("look at", path),
                path,
                |store, path| async move { Ok(store.head(&path).await?.size) },
            ),
        )
    }

    fn list<'a>(&'a self, folder: &'a str) -> BoxFuture<'a, Result<Vec<StoredFile>, StorageError>> {
        Box::pin(self.run(self.reading("list", folder), folder, |store, folder| async move {
            let files =
                store.list(Some(&folder)).map_ok(|meta| StoredFile { path: meta.location.into(), bytes: meta.size });
            let mut files: Vec<StoredFile> = files.try_collect().await?;
            files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
            Ok(files)
        }))
    }

    fn folders<'a>(&'a self, folder: &'a str) -> BoxFuture<'a, Result<Vec<String>, StorageError>> {
        Box::pin(self.run(self.reading("list", folder), folder, |store, folder| async move {
            let listed = store.list_with_delimiter(Some(&folder)).await?;
            let name = |path: ObjectPath| path.filename().unwrap_or_default().to_owned();
            let mut names: Vec<String> = listed.common_prefixes.into_iter().map(name).collect();
            names.sort_unstable();
            Ok(names)
        }))
    }

    fn delete<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<(), StorageError>> {
        Box::pin(self.run(self.changing("delete", path), path, |store, path| async move {
            match store.delete(&path).await {
                Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
                Err(error) => Err(error),
            }
        }))
    }

    fn unfinished<'a>(&'a self, folder: &'a str) -> BoxFuture<'a, Result<Vec<UnfinishedFile>, StorageError>> {
        Box::pin(async move {
            let (Some(root), Some(tasks)) = (self.root.clone(), &self.tasks) else { return Ok(Vec::new()) };
            let (place, folder) = (self.reading("list", folder), folder.to_owned());
            let found = task::compute(tasks, "list unfinished files", move || local::find(&root, &folder)).await;
            let file = |path: String| {
                local::finished_name(&path).map(str::to_owned).map(|finished| UnfinishedFile { path, finished })
            };
            Ok(place.file_outcome(found)?.into_iter().filter_map(file).collect())
        })
    }

    fn delete_unfinished<'a>(&'a self, file: &'a UnfinishedFile) -> BoxFuture<'a, Result<(), StorageError>> {
        Box::pin(async move {
            let (Some(root), Some(tasks)) = (self.root.clone(), &self.tasks) else { return Ok(()) };
            let (place, path) = (self.changing("delete", &file.path), file.path.clone());
            place.file_outcome(task::compute(tasks, "delete unfinished", move || local::delete(&root, &path)).await)
        })
    }

    fn show(&self, path: &str) -> String {
        let separator = if self.location.ends_with([':', '/']) { "" } else { "/" };
        format!("{}{separator}{path}", self.location)
    }

    fn local_root(&self) -> Option<PathBuf> {
        self.root.clone()
    }
}

/// A file of the crate that is being written.
struct Upload {
    place: Place,
    upload: Box<dyn MultipartUpload>,
    tasks: Option<TokioTasks>,
}

impl ObjectWriter for Upload {
    fn write(&mut self, chunk: Bytes) -> BoxFuture<'_, Result<(), StorageError>> {
        let part = self.upload.put_part(PutPayload::from_bytes(chunk));
        Box::pin(async move { self.place.outcome(run(self.tasks.as_ref(), part).await) })
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<(), StorageError>> {
        let Self { place, mut upload, tasks } = *self;
        let finished = async move { upload.complete().await.map(drop) };
        Box::pin(async move { place.outcome(run(tasks.as_ref(), finished).await) })
    }

    fn abort(self: Box<Self>) -> BoxFuture<'static, Result<(), StorageError>> {
        let Self { place, mut upload, tasks } = *self;
        let aborted = async move { upload.abort().await };
        Box::pin(async move { place.outcome(run(tasks.as_ref(), aborted).await) })
    }
}

/// What is being done to which file, for errors.
struct Place {
    action: &'static str,
    path: String,
    /// What is known when the store only says that it failed.
    otherwise: StorageFailure,
}

impl Place {
    fn outcome<T>(&self, outcome: Result<Result<T, Error>, TaskError>) -> Result<T, StorageError> {
        match outcome {
            Ok(result) => result.map_err(|error| self.error(error)),
            Err(error) => Err(self.failed(self.otherwise, error.into())),
        }
    }

    fn file_outcome<T>(&self, outcome: Result<io::Result<T>, TaskError>) -> Result<T, StorageError> {
        match outcome {
            Ok(result) => result.map_err(|error| self.failed(self.otherwise, error.into())),
            Err(error) => Err(self.failed(self.otherwise, error.into())),
        }
    }

    fn error(&self, error: Error) -> StorageError {
        match error {
            Error::AlreadyExists { source, .. } => self.failed(StorageFailure::AlreadyExists, source),
            Error::NotFound { source, .. } => self.failed(StorageFailure::NotFound, source),
            // Most errors of local files are of this kind, whether they came before or after the file was in its place.
            Error::Generic { source, .. } => self.failed(self.otherwise, source),
            Error::InvalidPath { .. }
            | Error::NotSupported { .. }
            | Error::NotImplemented { .. }
            | Error::PermissionDenied { .. }
            | Error::Unauthenticated { .. }
            | Error::UnknownConfigurationKey { .. } => self.failed(StorageFailure::Failed, error.into()),
            other => self.failed(self.otherwise, other.into()),
        }
    }

    fn failed(&self, failure: StorageFailure, source: Box<dyn std::error::Error + Send + Sync>) -> StorageError {
        StorageError { action: self.action, path: self.path.clone(), failure, source: Some(source) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(location: StorageLocation, test: impl AsyncFnOnce(&dyn Storage)) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        runtime.block_on(async {
            let storage = SystemStorage::new(runtime.handle()).open(&location).await.unwrap();
            test(&*storage).await;
        });
    }

    fn check_everywhere(test: impl AsyncFn(&dyn Storage)) {
        check(StorageLocation::Memory, async |storage| test(storage).await);
        let directory = tempfile::tempdir().unwrap();
        check(StorageLocation::Directory(directory.path().join("not yet/there")), async |storage| test(storage).await);
    }

    fn failure<T: std::fmt::Debug>(result: Result<T, StorageError>) -> StorageFailure {
        result.unwrap_err().failure
    }

    #[test]
    fn a_path_has_one_first_writer() {
        check_everywhere(async |storage| {
            storage.put_new("a/b", Bytes::from_static(b"first")).await.unwrap();
            let second = storage.put_new("a/b", Bytes::from_static(b"second")).await;
            assert_eq!(failure(second), StorageFailure::AlreadyExists);
            assert_eq!(storage.get("a/b").await.unwrap(), "first");
        });
    }

    #[test]
    fn files_are_read_whole_and_in_part() {
        check_everywhere(async |storage| {
            storage.put_new("a", Bytes::from_static(b"0123456789")).await.unwrap();
            assert_eq!(storage.size("a").await.unwrap(), 10);
            assert_eq!(storage.get_range("a", 2..5).await.unwrap(), "234");
            assert_eq!(storage.get_range("a", 10..10).await.unwrap(), "");
            assert_eq!(failure(storage.get_range("a", 8..11).await), StorageFailure::Failed);
            for missing in [storage.get("b").await.err(), storage.size("b").await.err()] {
                assert_eq!(missing.unwrap().failure, StorageFailure::NotFound);
            }
        });
    }

    #[test]
    fn a_file_written_in_pieces_is_seen_once_it_is_finished() {
        check_everywhere(async |storage| {
            let mut writer = storage.writer("a/b").await.unwrap();
            writer.write(Bytes::from_static(b"one ")).await.unwrap();
            writer.write(Bytes::from_static(b"two")).await.unwrap();
            assert_eq!(storage.list("").await.unwrap(), []);
            writer.finish().await.unwrap();
            assert_eq!(storage.get("a/b").await.unwrap(), "one two");
            let mut given_up = storage.writer("a/c").await.unwrap();
            given_up.write(Bytes::from_static(b"no")).await.unwrap();
            given_up.abort().await.unwrap();
            assert_eq!(storage.list("a").await.unwrap(), [StoredFile { path: "a/b".to_owned(), bytes: 7 }]);
        });
    }

    #[test]
    fn listing_is_recursive_and_ordered() {
        check_everywhere(async |storage| {
            for path in ["job/log/2", "job/log/1", "job/chk-1/x", "other/y"] {
                storage.put_new(path, Bytes::new()).await.unwrap();
            }
            let paths = async |folder| -> Vec<String> {
                storage.list(folder).await.unwrap().into_iter().map(|file| file.path).collect()
            };
            assert_eq!(paths("job").await, ["job/chk-1/x", "job/log/1", "job/log/2"]);
            assert_eq!(paths("jo").await, Vec::<String>::new());
            assert_eq!(storage.folders("").await.unwrap(), ["job", "other"]);
            assert_eq!(storage.folders("job").await.unwrap(), ["chk-1", "log"]);
            assert_eq!(storage.folders("missing").await.unwrap(), Vec::<String>::new());
        });
    }

    #[test]
    fn deleting_twice_is_deleting_once() {
        check_everywhere(async |storage| {
            storage.put_new("a/b/c", Bytes::new()).await.unwrap();
            storage.delete("a/b/c").await.unwrap();
            storage.delete("a/b/c").await.unwrap();
            assert_eq!(storage.folders("").await.unwrap(), Vec::<String>::new());
        });
    }

    #[test]
    fn what_a_killed_process_left_is_found_and_deleted() {
        let directory = tempfile::tempdir().unwrap();
        check(StorageLocation::Directory(directory.path().to_owned()), async |storage| {
            storage.put_new("job/log/1", Bytes::new()).await.unwrap();
            let mut broken_off = storage.writer("job/chk-1/x").await.unwrap();
            broken_off.write(Bytes::from_static(b"half")).await.unwrap();
            let left = storage.unfinished("job").await.unwrap();
            assert_eq!(left.iter().map(|file| file.finished.as_str()).collect::<Vec<_>>(), ["job/chk-1/x"]);
            for file in &left {
                storage.delete_unfinished(file).await.unwrap();
                storage.delete_unfinished(file).await.unwrap();
            }
            assert!(storage.unfinished("job").await.unwrap().is_empty());
            assert_eq!(storage.folders("job").await.unwrap(), ["log"]);
            assert!(broken_off.finish().await.is_err());
        });
    }

    #[test]
    fn errors_name_the_file() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("file"), "").unwrap();
        check(StorageLocation::Directory(directory.path().to_owned()), async |storage| {
            let error = storage.get("chk-1/_metadata").await.unwrap_err().to_string();
            let path = directory.path().display();
            assert_eq!(error, format!("cannot read {path}/chk-1/_metadata: there is no such file"));
            // Whether a write through a file happened is not told apart from other failures.
            let error = storage.put_new("file/x", Bytes::new()).await.unwrap_err();
            assert_eq!(error.failure, StorageFailure::Unknown);
        });
    }
}
