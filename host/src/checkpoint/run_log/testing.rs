//! What tests around a job's log share.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::{Appended, LogView, RunLog};
use crate::checkpoint::directory::JobDirectory;
use crate::checkpoint::storage::Storage;
use crate::clock::Clock;
use crate::protocol::run_log::{Claim, Digest, Record, RestorePoint, Resume};
use crate::task::yield_now;

/// A clock that stands still and lets others go first.
pub(crate) struct StillClock;

impl Clock for StillClock {
    fn wall(&self) -> Duration {
        Duration::ZERO
    }

    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }

    fn sleep(&self, _duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(yield_now())
    }
}

/// The result of what need not wait.
pub(crate) fn at_once<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("memory does not wait")
}

/// The directory of the job.
pub(crate) fn directory() -> JobDirectory {
    JobDirectory::new("job", 1)
}

/// A claim.
pub(crate) fn claim(restored_from: Option<RestorePoint>) -> Claim {
    Claim { restored_from, job_file: "job.toml".to_owned(), graph: Digest([0; 16]) }
}

/// What a claim says that goes on from there.
pub(crate) fn restore_point(resume: Resume) -> Option<RestorePoint> {
    match resume {
        Resume::Fresh => None,
        Resume::From(point) => Some(point),
        Resume::Stopped { savepoint } => Some(RestorePoint::Elsewhere { path: savepoint }),
        Resume::Finished { last } => last.map(RestorePoint::Checkpoint),
    }
}

/// Reads the job's log.
pub(crate) async fn view_at(storage: &Arc<dyn Storage>) -> LogView {
    LogView::open(Arc::clone(storage), Arc::new(StillClock), directory()).await.unwrap()
}

/// Takes the job.
pub(crate) async fn claim_at(storage: &Arc<dyn Storage>, nonce: u64) -> RunLog {
    let view = view_at(storage).await;
    let claim = claim(restore_point(view.resume()));
    view.claim(nonce, claim).await.unwrap()
}

/// Takes a job that is in memory.
pub(crate) fn claimed(storage: &Arc<dyn Storage>, nonce: u64) -> RunLog {
    at_once(claim_at(storage, nonce))
}

/// Adds a record.
pub(crate) async fn append_at(log: &mut RunLog, record: Record) {
    assert!(matches!(log.append(record).await, Appended::Appended));
}

/// Adds a record to a log that is in memory.
pub(crate) fn append(log: &mut RunLog, record: Record) {
    at_once(append_at(log, record));
}
