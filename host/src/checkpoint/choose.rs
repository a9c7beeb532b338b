//! Which directory a job starts in.
//!
//! Two processes that start a job at the same time must not begin in two directories, where neither would ever see the
//! other's log. So a new directory is agreed on by a file that can be made once, named by what was there before.

use std::sync::Arc;

use bytes::Bytes;

use super::directory::JobDirectory;
use super::run_log::{LogView, RunLogError};
use super::settle::{self, Settled};
use super::storage::{Storage, StorageError};
use crate::clock::Clock;
use crate::protocol::run_log::Resume;

/// Where a job is to start, as far as its directory depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartIn {
    /// A new directory, unless there is one of the job's name with something to go on from: that would be forgotten.
    New,
    /// The directory of the job's name that was used last; a new one if there is none.
    Latest,
    /// A new directory, whatever is there.
    Fresh,
}

/// Why there is no directory to start in.
#[derive(Debug, thiserror::Error)]
pub enum ChooseError {
    /// Starting over would forget what is there.
    #[error(
        "{directory} holds {} of an earlier run of the job {job:?}; go on from there with --resume, or start over with --fresh",
        .what
    )]
    Left {
        /// The job's name.
        job: String,
        /// The directory.
        directory: String,
        /// "a checkpoint", "the savepoint at ...".
        what: String,
    },
    /// Another process has begun the job meanwhile.
    #[error("another process has just begun the job {job:?} in {directory}")]
    Begun {
        /// The job's name.
        job: String,
        /// The directory.
        directory: String,
    },
    /// The storage could not be listed.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The log of a directory cannot be used.
    #[error(transparent)]
    Log(#[from] RunLogError),
    /// The file that names the directory to start in names none.
    #[error("{path} names no directory of a job: it was damaged or changed after it was written")]
    Agreement {
        /// The file.
        path: String,
    },
}

/// Chooses the directory of a job and reads its log. The key, a random number, is for a new one.
///
/// # Errors
/// When that would forget an earlier run, or what is there cannot be read.
pub async fn choose(
    storage: &Arc<dyn Storage>,
    clock: &Arc<dyn Clock>,
    job: &str,
    start: StartIn,
    key: u32,
) -> Result<LogView, ChooseError> {
    let open = |directory| LogView::open(Arc::clone(storage), Arc::clone(clock), directory);
    let directories = JobDirectory::find(&**storage, job).await?;
    let mut latest: Option<LogView> = None;
    if start != StartIn::Fresh {
        for directory in &directories {
            let view = open(directory.clone()).await?;
            let used_at = |view: &LogView| view.log().newest().map(|newest| newest.at_ms);
            if latest.as_ref().is_none_or(|latest| used_at(latest) <= used_at(&view)) {
                latest = Some(view);
            }
        }
    }
    match (start, latest) {
        (StartIn::Latest, Some(latest)) => return Ok(latest),
        (StartIn::New, Some(latest)) => {
            if let Some(what) = left(&latest) {
                let directory = storage.show(latest.directory().folder());
                return Err(ChooseError::Left { job: job.to_owned(), directory, what });
            }
        }
        (_, None) | (StartIn::Fresh, Some(_)) => {}
    }
    let view = open(agree(storage, clock, job, &directories, key).await?).await?;
    match view.log().newest() {
        Some(_) if start != StartIn::Latest => {
            let directory = storage.show(view.directory().folder());
            Err(ChooseError::Begun { job: job.to_owned(), directory })
        }
        _ => Ok(view),
    }
}

/// Agrees on a new directory with all who want one and see the same ones before it. One that was agreed on before and
/// never came to be, or is gone, is used then.
async fn agree(
    storage: &Arc<dyn Storage>,
    clock: &Arc<dyn Clock>,
    job: &str,
    seen: &[JobDirectory],
    key: u32,
) -> Result<JobDirectory, ChooseError> {
    let proposed = JobDirectory::new(job, key);
    let path = JobDirectory::agreement(job, seen);
    match settle::put(&**storage, &**clock, &path, &Bytes::from(proposed.folder().to_owned())).await {
        Settled::Ours => Ok(proposed),
        Settled::Theirs(bytes) => {
            let agreed = std::str::from_utf8(&bytes).ok().and_then(JobDirectory::from_folder);
            agreed.ok_or_else(|| ChooseError::Agreement { path: storage.show(&path) })
        }
        Settled::Unknown(error) => Err(error.into()),
    }
}

/// What a job could go on from.
fn left(view: &LogView) -> Option<String> {
    match view.resume() {
        Resume::Fresh | Resume::Finished { .. } => None,
        Resume::From(_) => Some("a checkpoint".to_owned()),
        Resume::Stopped { savepoint } => Some(format!("the savepoint {savepoint}")),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt;
    use futures_util::future::BoxFuture;

    use super::*;
    use crate::checkpoint::memory;
    use crate::checkpoint::run_log::{Appended, RunLog};
    use crate::id::CheckpointId;
    use crate::protocol::run_log::{Claim, Digest, LoggedCheckpoint, Record};

    struct ClockAt(u64);

    impl Clock for ClockAt {
        fn wall(&self) -> Duration {
            Duration::from_millis(self.0)
        }

        fn monotonic(&self) -> Duration {
            self.wall()
        }

        fn sleep(&self, _duration: Duration) -> BoxFuture<'static, ()> {
            unreachable!("memory does not fail")
        }
    }

    fn at_once<T>(future: impl Future<Output = T>) -> T {
        future.now_or_never().expect("memory does not wait")
    }

    fn choose_at(storage: &Arc<dyn Storage>, at: u64, start: StartIn, key: u32) -> Result<LogView, ChooseError> {
        let clock: Arc<dyn Clock> = Arc::new(ClockAt(at));
        at_once(choose(storage, &clock, "job", start, key))
    }

    fn claim(view: LogView) -> RunLog {
        let claim = Claim { restored_from: None, job_file: String::new(), graph: Digest([0; 16]) };
        at_once(view.claim(1, claim)).unwrap()
    }

    fn append(log: &mut RunLog, record: Record) {
        assert!(matches!(at_once(log.append(record)), Appended::Appended));
    }

    #[test]
    fn what_an_earlier_run_left_is_not_forgotten_in_silence() {
        let storage = memory();
        let mut log = claim(choose_at(&storage, 5, StartIn::New, 1).unwrap());
        // A run that came to no checkpoint leaves nothing.
        assert_eq!(choose_at(&storage, 6, StartIn::New, 2).unwrap().directory().key(), "00000002");
        let (run, metadata) = (log.run(), Digest([0; 16]));
        append(&mut log, Record::Checkpoint(LoggedCheckpoint { run, checkpoint: CheckpointId(1), metadata }));
        let error = choose_at(&storage, 7, StartIn::New, 2).unwrap_err().to_string();
        assert!(error.starts_with("memory:job-00000001 holds a checkpoint") && error.contains("--fresh"), "{error}");
        assert_eq!(choose_at(&storage, 8, StartIn::Fresh, 2).unwrap().directory().key(), "00000002");
        append(&mut log, Record::Finished { last: None });
        assert_eq!(choose_at(&storage, 9, StartIn::New, 2).unwrap().directory().key(), "00000002");
    }

    #[test]
    fn those_who_start_at_the_same_time_start_in_the_same_directory() {
        let storage = memory();
        for start in [StartIn::New, StartIn::Latest] {
            let one = choose_at(&storage, 1, start, 1).unwrap();
            let other = choose_at(&storage, 1, start, 2).unwrap();
            assert_eq!((one.directory().key(), other.directory()), ("00000001", one.directory()));
        }
        // With another one there the next is new.
        claim(choose_at(&storage, 2, StartIn::New, 3).unwrap());
        let fresh = [4, 5].map(|key| choose_at(&storage, 3, StartIn::Fresh, key).unwrap());
        assert_eq!(fresh.map(|view| view.directory().key().to_owned()), ["00000004", "00000004"]);
    }

    #[test]
    fn the_directory_that_was_used_last_is_gone_on_with() {
        let storage = memory();
        assert_eq!(choose_at(&storage, 1, StartIn::Latest, 9).unwrap().directory().key(), "00000009");
        for (key, at) in [(1, 20), (2, 30), (3, 10)] {
            claim(choose_at(&storage, at, StartIn::Fresh, key).unwrap());
        }
        assert_eq!(choose_at(&storage, 40, StartIn::Latest, 9).unwrap().directory().key(), "00000002");
    }
}
