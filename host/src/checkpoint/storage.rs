//! The seam to durable storage: immutable files under paths, made once and never changed.
//!
//! Owns the traits and what their errors promise. Which store is behind them is the business of `object_store` here and
//! of the simulation; what the files mean is that of the modules around this one.
//!
//! Only one thing is relied on to tell processes apart: of several that put a new file at one path, at most one succeeds.
//! Conditional updates exist neither on local files nor on HDFS. An operation whose future is dropped may still happen.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
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

/// Where a job keeps its checkpoints, as its file says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorageUrl {
    /// In the memory of the process: gone when it ends.
    Memory,
    /// In a directory of this machine.
    File(PathBuf),
}

/// A text that names no storage.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} names no storage: {problem}")]
pub struct StorageUrlError {
    /// The text.
    pub text: String,
    /// What is wrong and what would be right.
    pub problem: String,
}

impl StorageUrl {
    /// Reads `memory:`, `file:///absolute/path` or `file:relative/path`, the latter starting at `base_dir`. The path is
    /// taken as it is written: percent signs have no meaning.
    ///
    /// # Errors
    /// When it is none of these.
    pub fn parse(text: &str, base_dir: &Path) -> Result<Self, StorageUrlError> {
        let problem = |problem: String| Err(StorageUrlError { text: text.to_owned(), problem });
        let Some((scheme, rest)) = text.split_once(':') else {
            let slashes = if text.starts_with('/') { "//" } else { "" };
            return problem(format!("a directory is written with its scheme, \"file:{slashes}{text}\""));
        };
        match (scheme, rest) {
            ("memory", "" | "//" | "///") => Ok(Self::Memory),
            ("memory", _) => problem("\"memory:\" has nothing behind the colon".to_owned()),
            ("file", _) => {
                let path = match rest.strip_prefix("//") {
                    Some(path) if path.starts_with('/') => path,
                    Some(path) if !path.is_empty() => {
                        return problem(format!(
                            "two slashes begin the name of a host; write \"file:///{path}\" for an absolute path or \
                             \"file:{path}\" for one relative to the job file"
                        ));
                    }
                    Some(_) => "",
                    None => rest,
                };
                if path.is_empty() {
                    return problem("the directory is missing, as in \"file:///var/lib/tidegate\"".to_owned());
                }
                Ok(Self::File(base_dir.join(path)))
            }
            ("s3" | "s3a" | "hdfs", _) => {
                problem(format!("{scheme}:// is not available in this version; use \"file:///some/directory\""))
            }
            _ => problem("the scheme is unknown; use \"memory:\" or \"file:///some/directory\"".to_owned()),
        }
    }
}

impl fmt::Display for StorageUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory:"),
            Self::File(path) if path.is_absolute() => write!(f, "file://{}", path.display()),
            Self::File(path) => write!(f, "file:{}", path.display()),
        }
    }
}

/// Opens storages: how a job finds what is behind a URL, and how the simulation puts its own there.
pub trait StorageOpener: Send + Sync {
    /// Opens a storage, making its directory if need be. `memory:` is a new and empty one each time.
    fn open<'a>(&'a self, url: &'a StorageUrl) -> BoxFuture<'a, Result<Arc<dyn Storage>, StorageError>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<StorageUrl, String> {
        StorageUrl::parse(text, Path::new("/jobs")).map_err(|error| error.to_string())
    }

    #[test]
    fn urls_are_understood() {
        assert_eq!(parse("memory:"), Ok(StorageUrl::Memory));
        for (text, path) in [
            ("file:///var/lib/x y", "/var/lib/x y"),
            ("file:/var", "/var"),
            ("file:checkpoints", "/jobs/checkpoints"),
            ("file:../c%20d", "/jobs/../c%20d"),
        ] {
            assert_eq!(parse(text), Ok(StorageUrl::File(PathBuf::from(path))), "{text}");
        }
    }

    #[test]
    fn what_is_no_url_says_what_to_write() {
        for (text, expected) in [
            ("/var/lib", "\"file:///var/lib\""),
            ("checkpoints", "\"file:checkpoints\""),
            ("file://checkpoints", "\"file:checkpoints\""),
            ("file://", "directory is missing"),
            ("file:", "directory is missing"),
            ("memory:x", "nothing behind the colon"),
            ("s3://bucket/x", "s3:// is not available in this version"),
            ("hdfs://name:9000/x", "hdfs:// is not available in this version"),
            ("ftp://x", "scheme is unknown"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(expected) && error.contains(&format!("{text:?}")), "{text}: {error}");
        }
    }
}
