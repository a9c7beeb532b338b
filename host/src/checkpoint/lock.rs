//! The lock on a job's directory in local files, so that a second process is told at once that it is one too many.
//!
//! A courtesy: what keeps two processes from doing harm is the log. A process that was stopped, or hangs, keeps its lock
//! while it lives. Taking over is therefore a decision of the user, who is told which process holds it, and not of a
//! lease that runs out: a lease would hand the job of a laptop that slept to the next one who tries, and whoever knows
//! better can end the process, which frees the lock. Whoever takes over puts a lock of their own in place of the old
//! one, so that a third process is turned away as well.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::directory::{JobDirectory, JobFile};
use super::local;
use super::storage::Storage;
use crate::task::{self, Compute, TaskError};

/// How often the lock is tried when it changes under one's hands.
const TRIES: u32 = 5;

/// A lock that is held until it is dropped or the process ends.
#[derive(Debug)]
pub struct DirectoryLock {
    /// Closing it frees the lock. None where there are no local files.
    _file: Option<File>,
}

/// What to do about a lock that another process holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfLocked {
    /// That is an error.
    Fail,
    /// The job is taken over, and the other process finds out by the log.
    TakeOver,
}

/// A job's directory could not be locked.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process has it.
    #[error(
        "the job in {directory} is being run by another process{}; end that first, or take the job over with --takeover",
        .pid.as_ref().map(|pid| format!(" (pid {pid})")).unwrap_or_default()
    )]
    Held {
        /// The job's directory.
        directory: PathBuf,
        /// The process, as far as it said.
        pid: Option<u32>,
    },
    /// A file could not be used.
    #[error("cannot lock {path}", path = .path.display())]
    File {
        /// The lock's file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Off-thread work ended without a result.
    #[error(transparent)]
    Task(#[from] TaskError),
}

impl DirectoryLock {
    /// Locks a job's directory, making it if need be. Where there are no local files, this does nothing.
    ///
    /// # Errors
    /// When another process holds the lock and keeps it, or the file cannot be used.
    pub async fn acquire(
        storage: &dyn Storage,
        compute: &dyn Compute,
        directory: &JobDirectory,
        if_locked: IfLocked,
    ) -> Result<Self, LockError> {
        let Some(root) = storage.local_root() else { return Ok(Self { _file: None }) };
        let directory = root.join(directory.folder());
        let file = task::compute(compute, "lock", move || acquire(&directory, if_locked)).await??;
        Ok(Self { _file: Some(file) })
    }
}

fn acquire(directory: &Path, if_locked: IfLocked) -> Result<File, LockError> {
    let path = directory.join(JobFile::Lock.to_string());
    let error = |source| LockError::File { path: path.clone(), source };
    local::create_directory(directory).map_err(error)?;
    for _ in 0..TRIES {
        let mut file =
            File::options().read(true).write(true).create(true).truncate(false).open(&path).map_err(error)?;
        match file.try_lock() {
            // Somebody may have put another lock in its place, or deleted it, between opening and locking it.
            Ok(()) if is_at(&file, &path) => {
                sign(&mut file).map_err(error)?;
                return Ok(file);
            }
            Ok(()) => {}
            Err(TryLockError::WouldBlock) if if_locked == IfLocked::TakeOver => return replace(&path).map_err(error),
            Err(TryLockError::WouldBlock) => {
                return Err(LockError::Held { directory: directory.to_owned(), pid: signature(&mut file) });
            }
            Err(TryLockError::Error(source)) => return Err(error(source)),
        }
    }
    Err(error(io::Error::other("it changed while it was being locked, again and again")))
}

/// Puts a lock of our own in the place of another.
fn replace(path: &Path) -> io::Result<File> {
    let temporary = path.with_extension(format!("{}", std::process::id()));
    let mut file = File::options().read(true).write(true).create(true).truncate(true).open(&temporary)?;
    file.try_lock()?;
    sign(&mut file)?;
    fs::rename(&temporary, path)?;
    Ok(file)
}

/// Says who holds the lock.
fn sign(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())
}

/// Who holds the lock.
fn signature(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(32).read_to_string(&mut text).ok()?;
    text.trim_end().parse().ok()
}

fn is_at(file: &File, path: &Path) -> bool {
    let place = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    match (file.metadata(), fs::metadata(path)) {
        (Ok(file), Ok(path)) => place(file) == place(path),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_process_is_turned_away_and_told_by_whom() {
        let directory = tempfile::tempdir().unwrap();
        let first = acquire(directory.path(), IfLocked::Fail).unwrap();
        let error = acquire(directory.path(), IfLocked::Fail).unwrap_err().to_string();
        assert!(error.contains(&format!("(pid {})", std::process::id())), "{error}");
        drop(first);
        acquire(directory.path(), IfLocked::Fail).unwrap();
    }

    #[test]
    fn whoever_takes_over_keeps_others_out() {
        let directory = tempfile::tempdir().unwrap();
        let stopped = acquire(directory.path(), IfLocked::Fail).unwrap();
        let second = acquire(directory.path(), IfLocked::TakeOver).unwrap();
        assert!(matches!(acquire(directory.path(), IfLocked::Fail), Err(LockError::Held { .. })));
        drop(stopped);
        assert!(matches!(acquire(directory.path(), IfLocked::Fail), Err(LockError::Held { .. })));
        drop(second);
        acquire(directory.path(), IfLocked::Fail).unwrap();
    }
}
