//! Which directory a job starts in.

use std::sync::Arc;

use super::directory::JobDirectory;
use super::run_log::{LogView, RunLogError};
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
    /// The storage could not be listed.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The log of a directory cannot be used.
    #[error(transparent)]
    Log(#[from] RunLogError),
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
    let mut latest: Option<LogView> = None;
    if start != StartIn::Fresh {
        for directory in JobDirectory::find(&**storage, job).await? {
            let view = open(directory).await?;
            let used_at = |view: &LogView| view.log().newest().map(|newest| newest.at_ms);
            if latest.as_ref().is_none_or(|latest| used_at(latest) <= used_at(&view)) {
                latest = Some(view);
            }
        }
    }
    match (start, latest) {
        (StartIn::Latest, Some(latest)) => Ok(latest),
        (StartIn::New, Some(latest)) => match left(&latest) {
            Some(what) => {
                let directory = storage.show(latest.directory().folder());
                Err(ChooseError::Left { job: job.to_owned(), directory, what })
            }
            None => Ok(open(JobDirectory::new(job, key)).await?),
        },
        (_, None) | (StartIn::Fresh, Some(_)) => Ok(open(JobDirectory::new(job, key)).await?),
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
    fn the_directory_that_was_used_last_is_gone_on_with() {
        let storage = memory();
        assert_eq!(choose_at(&storage, 1, StartIn::Latest, 9).unwrap().directory().key(), "00000009");
        for (key, at) in [(1, 20), (2, 30), (3, 10)] {
            claim(choose_at(&storage, at, StartIn::Fresh, key).unwrap());
        }
        assert_eq!(choose_at(&storage, 40, StartIn::Latest, 9).unwrap().directory().key(), "00000002");
    }
}
