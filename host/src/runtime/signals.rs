//! How a job tells its subtasks to end before their input does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::{Either, select};
use tokio_util::sync::CancellationToken;

use super::error::Failure;

/// Heard by all subtasks of a job. Ending is in good order unless the job has failed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Signals {
    stop: CancellationToken,
    failed: Arc<AtomicBool>,
}

impl Signals {
    /// Signals that are given when `stop` is.
    pub(crate) fn new(stop: CancellationToken) -> Self {
        Self { stop, failed: Arc::default() }
    }

    /// Ends all subtasks because one has failed.
    pub(crate) fn fail(&self) {
        self.failed.store(true, Ordering::Release);
        self.stop.cancel();
    }

    /// Whether the job has failed, so that nothing is worth finishing.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Whether subtasks are to end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Waits for a future, or drops it when subtasks are to end.
    pub(super) async fn unless_stopped<T>(&self, future: impl Future<Output = T> + Unpin) -> Result<T, Failure> {
        // The future first: most are ready at once, and listening for the signal is the dearer part.
        let stopped = std::pin::pin!(self.stop.cancelled());
        match select(future, stopped).await {
            Either::Left((value, _)) => Ok(value),
            Either::Right(_) => Err(Failure::Stopped),
        }
    }
}
