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
    file: File,
}

impl OutputLock {
    /// Takes the lock of a directory, which exists. Blocks, but not for whoever has it. With `take_over` it is taken from
    /// them: that is for one who hangs, and who is kept from doing harm by other means.
    ///
    /// # Errors
    /// When another job has it, in this process or another.
    pub(crate) fn take(directory: &Path, take_over: bool) -> Result<Self, ConnectorError> {
        let path = directory.join(NAME);
        let failed = |source| ConnectorError::File { action: "lock", path: path.clone(), source };
        loop {
            let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path).map_err(failed)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) if take_over => {
                    fs::remove_file(&path).or_else(unless_gone).map_err(failed)?;
                    continue;
                }
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
            if is_at(&file, &path).map_err(failed)? {
                return Ok(Self { path, file });
            }
        }
    }
}

impl Drop for OutputLock {
    fn drop(&mut self) {
        // Before the lock goes with the file: nobody else can have taken it, save by taking over. A file that stays does
        // no harm.
        if is_at(&self.file, &self.path).unwrap_or(false) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Whether a file is the one that stands at a path.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let opened = file.metadata()?;
    match fs::metadata(path) {
        Ok(found) => Ok((found.dev(), found.ino()) == (opened.dev(), opened.ino())),
        Err(error) => unless_gone(error).map(|()| false),
    }
}

fn unless_gone(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
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
            let lock = OutputLock::take(dir.path(), false).unwrap();
            let error = OutputLock::take(dir.path(), false).unwrap_err().to_string();
            assert!(error.starts_with("another tidegate job writes into "), "{error}");
            drop(lock);
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        }
    }

    #[test]
    fn whoever_takes_over_keeps_the_lock_when_the_other_lets_go() {
        let dir = TempDir::new().unwrap();
        let hanging = OutputLock::take(dir.path(), false).unwrap();
        let lock = OutputLock::take(dir.path(), true).unwrap();
        drop(hanging);
        assert!(OutputLock::take(dir.path(), false).is_err());
        drop(lock);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
