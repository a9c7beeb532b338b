//! Time, as the runtime sees it: the one place that reads clocks and sleeps.
//!
//! The simulation brings a clock of its own, so nothing else in the crate may look at the time.

use std::time::{Duration, Instant, SystemTime};

use futures_util::future::BoxFuture;

/// A wall clock, a monotonic clock and a way to wait, which agree with one another.
pub trait Clock: Send + Sync {
    /// Time since 1970.
    fn wall(&self) -> Duration;

    /// Time since an unspecified moment, never falling.
    fn monotonic(&self) -> Duration;

    /// Waits for at least `duration`.
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()>;
}

/// The machine's clocks, and tokio's timer.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// A clock whose monotonic time starts now.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the seam that the ban points to")]
    pub fn new() -> Self {
        Self { start: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the seam that the ban points to")]
impl Clock for SystemClock {
    fn wall(&self) -> Duration {
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(duration))
    }
}
