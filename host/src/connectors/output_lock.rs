//! Keeps jobs apart that would write into one directory.
//!
//! An advisory lock on a hidden file, which the system gives up when the process ends, however it ends. The file is removed
//! when the lock is given up in good order; one that is left behind by a crash keeps nobody out.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::ConnectorError;

const NAME: &str = ".tidegate-lock";

/// The right to write into a directory, for as long as this lives.
#[derive(Debug)]
pub(crate) struct OutputLock {
    path: PathBuf,
    _file: File,
}

impl OutputLock {
    /// Takes the lock of a directory, which exists. Blocks, but not for whoever has it.
    ///
    /// # Errors
    /// When another job has it, in this process or another.
    pub(crate) fn take(directory: &Path) -> Result<Self, ConnectorError> {
        let path = directory.join(NAME);
        let failed = |source| ConnectorError::File { action: "lock", path: path.clone(), source };
        loop {
            let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path).map_err(failed)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => {
                    return Err(ConnectorError::Other(format!(
                        "another tidegate job writes into {}; wait for its end, or choose another directory",
                        directory.display()
                    )));
                }
                // Some network file systems have no locks. What is left is that no two jobs write files of one name.
                Err(error @ (Errno::NOTSUP | Errno::NOSYS | Errno::NOLCK)) => {
                    tracing::warn!(path = %path.display(), %error, "cannot tell whether another job writes here");
                }
                Err(error) => return Err(failed(error.into())),
            }
            // Whoever had the lock may have removed the file between the two calls above.
            let opened = file.metadata().map_err(failed)?;
            match fs::metadata(&path) {
                Ok(found) if (found.dev(), found.ino()) == (opened.dev(), opened.ino()) => {
                    return Ok(Self { path, _file: file });
                }
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
                Ok(_) | Err(_) => {}
            }
        }
    }
}

impl Drop for OutputLock {
    fn drop(&mut self) {
        // Before the lock goes with the file: nobody else can have taken it. A file that stays does no harm.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    #[test]
    fn one_at_a_time_has_the_lock() {
        let dir = TempDir::new().unwrap();
        // As after a crash.
        fs::write(dir.path().join(NAME), "").unwrap();
        for _ in 0..2 {
            let lock = OutputLock::take(dir.path()).unwrap();
            let error = OutputLock::take(dir.path()).unwrap_err().to_string();
            assert!(error.starts_with("another tidegate job writes into "), "{error}");
            drop(lock);
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        }
    }
}
