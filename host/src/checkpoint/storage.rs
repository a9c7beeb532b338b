//! The seam to durable storage: immutable files under paths, made once and never changed.
//!
//! Owns the traits and what their errors promise. Which store is behind them is the business of `object_store` here and
//! of the simulation; what the files mean is that of the modules around this one.
//!
//! Only one thing is relied on to tell processes apart: of several that put a new file at one path, at most one succeeds.
//! Conditional updates exist neither on local files nor on HDFS. An operation whose future is dropped may still happen.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;

/// Files under paths like `job-1a2b3c4d/log/7`, whose parts are parted by `/`.
pub trait Storage: Send + Sync {
    /// Makes a file, whole and durable, unless there is one at the path. For what fits into memory easily.
    fn put_new<'a>(&'a self, path: &'a str, bytes: Bytes) -> BoxFuture<'a, Result<(), StorageError>>;

    /// Begins a file that is written piece by piece. The path must be unique: an earlier file there may be replaced.
    fn writer<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Box<dyn ObjectWriter>, StorageError>>;

    /// Reads a file whole.
    fn get<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Bytes, StorageError>>;

    /// Reads a part of a file. A range that goes beyond its end is an error.
    fn get_range<'a>(&'a self, path: &'a str, range: Range<u64>) -> BoxFuture<'a, Result<Bytes, StorageError>>;

    /// How many bytes a file has.
    fn size<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<u64, StorageError>>;

    /// All files under a folder and the folders in it, ordered by path; `""` is the whole storage. A missing folder is
    /// an empty one. Files that are still being written are not seen.
    fn list<'a>(&'a self, folder: &'a str) -> BoxFuture<'a, Result<Vec<StoredFile>, StorageError>>;

    /// The names of the folders right in a folder, in order.
    fn folders<'a>(&'a self, folder: &'a str) -> BoxFuture<'a, Result<Vec<String>, StorageError>>;

    /// Deletes a file; one that is missing is deleted already. A folder goes with its last file.
    fn delete<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<(), StorageError>>;

    /// What writes under a folder that were broken off have left, or are writing still: paths that `delete_unfinished`
    /// takes, each with the path of the file that it was to become. Empty where nothing is left.
    fn unfinished<'a>(&'a self, folder: &'a str) -> BoxFuture<'a, Result<Vec<UnfinishedFile>, StorageError>> {
        let _ = folder;
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    /// Deletes what a write that was broken off has left. A write that still goes on fails.
    fn delete_unfinished<'a>(&'a self, file: &'a UnfinishedFile) -> BoxFuture<'a, Result<(), StorageError>> {
        let _ = file;
        Box::pin(std::future::ready(Ok(())))
    }

    /// A path as errors name it, with the storage that it is in.
    fn show(&self, path: &str) -> String {
        path.to_owned()
    }

    /// The directory on this machine in which the files are, if that is where they are.
    fn local_root(&self) -> Option<PathBuf> {
        None
    }
}

/// A file that is being written. Nothing is seen under its path before `finish`. Dropping it gives it up, but only
/// `abort` tells when that is done.
pub trait ObjectWriter: Send {
    /// Adds a piece. After an error nothing but giving up is left.
    fn write(&mut self, chunk: Bytes) -> BoxFuture<'_, Result<(), StorageError>>;

    /// Makes the file durable and visible.
    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<(), StorageError>>;

    /// Gives the file up.
    fn abort(self: Box<Self>) -> BoxFuture<'static, Result<(), StorageError>>;
}

/// A file, as it is listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredFile {
    /// Its path, from the root of the storage.
    pub path: String,
    /// Its length.
    pub bytes: u64,
}

/// What a write that did not come to its end has left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnfinishedFile {
    /// Where it is.
    pub path: String,
    /// The path that the file was to have.
    pub finished: String,
}

/// A storage could not do something.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {path}{}", .failure.note())]
pub struct StorageError {
    /// What was tried: "write", "read".
    pub action: &'static str,
    /// The file, with the storage it is in.
    pub path: String,
    /// What is known about it.
    pub failure: StorageFailure,
    /// What the store said.
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// What is known about an operation that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorageFailure {
    /// It did not happen: there is a file at the path. It may be what an earlier try of the same wrote.
    AlreadyExists,
    /// It did not happen: there is no file at the path.
    NotFound,
    /// It did not happen and never will.
    Failed,
    /// It may have happened, or may still happen.
    Unknown,
}

impl StorageFailure {
    fn note(self) -> &'static str {
        match self {
            Self::AlreadyExists => ": it exists already",
            Self::NotFound => ": there is no such file",
            Self::Failed => "",
            Self::Unknown => ": it may or may not have happened",
        }
    }
}

/// Where checkpoints are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorageLocation {
    /// In the memory of the process: they survive a restart of tasks, and nothing else.
    Memory,
    /// In this directory, each job in one of its own. An absolute path.
    Directory(PathBuf),
}

/// As a URL, which is how the job file has it.
impl fmt::Display for StorageLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Directory(path) = self else { return f.write_str("memory:") };
        f.write_str("file://")?;
        for byte in path.as_os_str().as_encoded_bytes() {
            match byte {
                0x21..=0x7e if !b"%?#\"".contains(byte) => write!(f, "{}", char::from(*byte))?,
                _ => write!(f, "%{byte:02X}")?,
            }
        }
        Ok(())
    }
}

/// Opens storages: how a job gets at its own, and how the simulation puts another in its place.
pub trait StorageOpener: Send + Sync {
    /// Opens a storage, making its directory if need be. One in memory is new and empty each time.
    fn open<'a>(&'a self, location: &'a StorageLocation) -> BoxFuture<'a, Result<Arc<dyn Storage>, StorageError>>;
}
