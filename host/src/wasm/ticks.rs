//! Interrupt ticks, and how long a guest has run in one call.
//!
//! A thread of the engine ticks; at every tick a running guest is interrupted, yields so that its neighbours run, and
//! traps once it has run longer than it may. What counts is the time between ticks in which the future of its call was
//! being polled: a guest that waits for room in its output, or for its neighbours, is not running.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use wasmtime::Engine;

/// The time at the last tick, in nanoseconds since the engine was made.
#[derive(Debug, Default)]
struct LastTick(AtomicU64);

/// The thread that ticks. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Ticker {
    last: Arc<LastTick>,
    /// None when nothing ticks.
    thread: Option<(Arc<AtomicBool>, JoinHandle<()>)>,
}

impl Ticker {
    /// Ticks that often, or never.
    #[expect(clippy::disallowed_methods, reason = "interrupts come from outside the threads that guests keep busy")]
    pub(super) fn start(engine: &Engine, interval: Option<Duration>) -> std::io::Result<Self> {
        let last = Arc::new(LastTick::default());
        let Some(interval) = interval else { return Ok(Self { last, thread: None }) };
        let stopped = Arc::new(AtomicBool::new(false));
        let thread = thread::Builder::new().name("tidegate-ticks".to_owned()).spawn({
            let (engine, last, stopped) = (engine.weak(), Arc::clone(&last), Arc::clone(&stopped));
            move || {
                let start = Instant::now();
                while !stopped.load(Ordering::Relaxed) {
                    thread::park_timeout(interval);
                    let nanos = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
                    last.0.store(nanos, Ordering::Relaxed);
                    let Some(engine) = engine.upgrade() else { break };
                    engine.increment_epoch();
                }
            }
        })?;
        Ok(Self { last, thread: Some((stopped, thread)) })
    }

    /// A count of the time in which one guest runs.
    pub(super) fn run_time(&self) -> RunTime {
        RunTime(Arc::new(Counts {
            last: Arc::clone(&self.last),
            resumed: AtomicU64::new(0),
            ran: AtomicU64::new(0),
            overslept: AtomicBool::new(false),
        }))
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        if let Some((stopped, thread)) = self.thread.take() {
            stopped.store(true, Ordering::Relaxed);
            thread.thread().unpark();
            // The thread only counts; it cannot have panicked.
            let _ = thread.join();
        }
    }
}

/// How long a guest has run in the call at hand.
#[derive(Clone, Debug)]
pub(super) struct RunTime(Arc<Counts>);

/// One task polls the call, and it alone changes these.
#[derive(Debug)]
struct Counts {
    last: Arc<LastTick>,
    /// The last tick before the guest was resumed.
    resumed: AtomicU64,
    /// How long it ran before that.
    ran: AtomicU64,
    /// Whether it wanted to sleep for longer than it may run.
    overslept: AtomicBool,
}

impl RunTime {
    /// A call begins.
    pub(super) fn begin_call(&self) {
        self.0.ran.store(0, Ordering::Relaxed);
        self.0.overslept.store(false, Ordering::Relaxed);
        self.resume();
    }

    /// Whether the guest has run for longer than `limit`, while it runs.
    pub(super) fn is_over(&self, limit: Duration) -> bool {
        self.overslept() || self.elapsed() > limit
    }

    /// Whether the guest wanted to sleep for longer than it may run.
    pub(super) fn overslept(&self) -> bool {
        self.0.overslept.load(Ordering::Relaxed)
    }

    /// How long the guest has run, while it runs.
    fn elapsed(&self) -> Duration {
        let since = self.now().saturating_sub(self.0.resumed.load(Ordering::Relaxed));
        Duration::from_nanos(self.0.ran.load(Ordering::Relaxed).saturating_add(since))
    }

    /// The guest sleeps. Returns for how long, which is no longer than it may run, and counts that as if it had run.
    pub(super) fn sleep(&self, time: Duration, limit: Duration) -> Duration {
        let left = limit.saturating_sub(self.elapsed());
        self.0.overslept.fetch_or(time > left, Ordering::Relaxed);
        let time = time.min(left);
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.0.ran.fetch_add(nanos, Ordering::Relaxed);
        time
    }

    /// Runs a future, counting its polls.
    pub(super) async fn count<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        poll_fn(|context| {
            self.resume();
            let polled = future.as_mut().poll(context);
            self.suspend();
            polled
        })
        .await
    }

    fn now(&self) -> u64 {
        self.0.last.0.load(Ordering::Relaxed)
    }

    fn resume(&self) {
        self.0.resumed.store(self.now(), Ordering::Relaxed);
    }

    fn suspend(&self) {
        let ran = u64::try_from(self.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.0.ran.store(ran, Ordering::Relaxed);
    }
}
