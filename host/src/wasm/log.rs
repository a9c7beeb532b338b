//! What a guest has to say: log messages, stdout and stderr, all of which go to the job's log.
//!
//! Bounded in every way: the length of a line, the lines a second of one instance, and the last lines of stderr that
//! are kept so that a trap can be explained.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncWrite;
use tracing::Level;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamResult};

use crate::clock::Clock;
use crate::id::SubtaskId;

/// How long a line may be, in bytes; longer ones are cut.
const LONGEST_LINE: usize = 4096;

/// How many lines an instance may write at once.
const BURST_LINES: u64 = 200;

/// How long it takes until it may write another one.
const LINE_INTERVAL: Duration = Duration::from_millis(10);

/// How many lines are known of a call that failed, so that they are not written again while the record at fault is
/// looked for.
const KNOWN_LINES: usize = 256;

/// How many lines of stderr are kept for the message of a trap.
const TAIL_LINES: usize = 8;

/// The most that WASI lets a guest write at once.
const WRITE_PERMIT: usize = 64 << 10;

/// What the instances of a subtask have written in the call at hand, and in all that repeat it.
pub(super) type KnownLines = Arc<Mutex<BTreeSet<String>>>;

/// The log of one operator instance.
#[derive(Clone)]
pub(super) struct GuestLog(Arc<Shared>);

struct Shared {
    job: Arc<str>,
    subtask: SubtaskId,
    clock: Arc<dyn Clock>,
    known: KnownLines,
    state: Mutex<State>,
}

struct State {
    rate: LineRate,
    /// Whether the call at hand repeats one that failed.
    repeats: bool,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    tail: VecDeque<String>,
}

impl fmt::Debug for GuestLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuestLog").field("subtask", &self.0.subtask).finish_non_exhaustive()
    }
}

impl GuestLog {
    pub(super) fn new(job: Arc<str>, subtask: SubtaskId, clock: Arc<dyn Clock>, known: KnownLines) -> Self {
        let rate = LineRate::new(clock.monotonic());
        let state = State { rate, repeats: false, stdout: Vec::new(), stderr: Vec::new(), tail: VecDeque::new() };
        Self(Arc::new(Shared { job, subtask, clock, known, state: Mutex::new(state) }))
    }

    /// Writes one message.
    pub(super) fn write(&self, level: Level, message: &str) {
        self.event(&mut self.lock(), level, message);
    }

    /// The stream behind stdout or stderr.
    pub(super) fn stream(&self, stream: Stream) -> Console {
        Console { log: self.clone(), stream }
    }

    /// Forgets what was written to stderr before this call. One that repeats a call that failed writes no line again.
    pub(super) fn begin_call(&self, repeats: bool) {
        let mut state = self.lock();
        state.tail.clear();
        state.repeats = repeats;
        if !repeats {
            self.known().clear();
        }
    }

    /// Writes lines that lack their end, as a call is over, and returns the last lines of stderr in one.
    pub(super) fn end_call(&self) -> String {
        let mut state = self.lock();
        for stream in [Stream::Stdout, Stream::Stderr] {
            let rest = std::mem::take(state.buffer(stream));
            if !rest.is_empty() {
                self.line(&mut state, stream, &rest);
            }
        }
        let lines = state.tail.iter().map(|line| line.trim());
        lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn print(&self, stream: Stream, mut bytes: &[u8]) {
        let mut state = self.lock();
        while !bytes.is_empty() {
            let end = bytes.iter().position(|&byte| byte == b'\n');
            let buffer = state.buffer(stream);
            let room = LONGEST_LINE.saturating_sub(buffer.len());
            let part = &bytes[..end.unwrap_or(bytes.len())];
            buffer.extend_from_slice(&part[..part.len().min(room)]);
            let Some(end) = end else { break };
            bytes = &bytes[end + 1..];
            let line = std::mem::take(state.buffer(stream));
            self.line(&mut state, stream, &line);
        }
    }

    fn line(&self, state: &mut State, stream: Stream, line: &[u8]) {
        let line = String::from_utf8_lossy(line);
        if stream == Stream::Stderr && !line.starts_with("note: run with `RUST_BACKTRACE") {
            if state.tail.len() == TAIL_LINES {
                state.tail.pop_front();
            }
            state.tail.push_back(line.clone().into_owned());
        }
        let level = if stream == Stream::Stderr { Level::WARN } else { Level::INFO };
        self.event(state, level, &line);
    }

    fn event(&self, state: &mut State, level: Level, message: &str) {
        if state.repeats && self.known().contains(&message[..message.floor_char_boundary(LONGEST_LINE)]) {
            return;
        }
        let Some(missed) = state.rate.admit(self.0.clock.monotonic()) else { return };
        self.0.admit_missing(missed);
        let cut = message.floor_char_boundary(LONGEST_LINE);
        self.0.emit(level, &message[..cut]);
        let mut known = self.known();
        if known.len() < KNOWN_LINES {
            known.insert(message[..cut].to_owned());
        }
    }
}

impl Shared {
    /// Owns up to lines that were left out.
    fn admit_missing(&self, missed: u64) {
        if missed > 0 {
            self.emit(Level::WARN, &format!("left out {missed} lines of this operator, which writes too many"));
        }
    }

    fn emit(&self, level: Level, message: &str) {
        let (job, node, subtask) = (&*self.job, &*self.subtask.node, self.subtask.index);
        match level {
            Level::TRACE => tracing::trace!(target: "tidegate::guest", job, node, subtask, "{message}"),
            Level::DEBUG => tracing::debug!(target: "tidegate::guest", job, node, subtask, "{message}"),
            Level::INFO => tracing::info!(target: "tidegate::guest", job, node, subtask, "{message}"),
            Level::WARN => tracing::warn!(target: "tidegate::guest", job, node, subtask, "{message}"),
            Level::ERROR => tracing::error!(target: "tidegate::guest", job, node, subtask, "{message}"),
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let missed = self.state.get_mut().unwrap_or_else(PoisonError::into_inner).rate.missed;
        self.admit_missing(missed);
    }
}

/// How many lines may still be written. Full at first; fills up as time passes.
struct LineRate {
    lines: u64,
    counted_to: Duration,
    missed: u64,
}

impl LineRate {
    fn new(now: Duration) -> Self {
        Self { lines: BURST_LINES, counted_to: now, missed: 0 }
    }

    /// Whether a line may be written, and how many were left out before it.
    fn admit(&mut self, now: Duration) -> Option<u64> {
        let earned = now.saturating_sub(self.counted_to).as_nanos() / LINE_INTERVAL.as_nanos();
        if earned > 0 {
            let earned = u64::try_from(earned).unwrap_or(u64::MAX);
            self.lines = self.lines.saturating_add(earned).min(BURST_LINES);
            self.counted_to = now;
        }
        if self.lines == 0 {
            self.missed += 1;
            return None;
        }
        self.lines -= 1;
        Some(std::mem::take(&mut self.missed))
    }
}

impl State {
    fn buffer(&mut self, stream: Stream) -> &mut Vec<u8> {
        match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        }
    }
}

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    /// Goes to the log as information.
    Stdout,
    /// Goes to the log as a warning; its last lines explain a trap.
    Stderr,
}

/// A guest's stdout or stderr.
#[derive(Clone, Debug)]
pub(super) struct Console {
    log: GuestLog,
    stream: Stream,
}

impl IsTerminal for Console {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Console {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        // Without the adapter that the default goes through, which would start a task on tokio.
        Box::new(self.clone())
    }
}

#[wasmtime_wasi::async_trait]
impl Pollable for Console {
    async fn ready(&mut self) {}
}

impl OutputStream for Console {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.log.print(self.stream, &bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(WRITE_PERMIT)
    }
}

impl AsyncWrite for Console {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.log.print(self.stream, bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;

    #[test]
    fn lines_are_admitted_as_time_passes() {
        let mut rate = LineRate::new(Duration::ZERO);
        let mut admitted = |milliseconds| rate.admit(Duration::from_millis(milliseconds));
        assert!((0..BURST_LINES).all(|_| admitted(0) == Some(0)));
        assert_eq!((admitted(0), admitted(9)), (None, None));
        assert_eq!((admitted(10), admitted(10)), (Some(2), None));
        assert!((0..BURST_LINES).all(|line| admitted(60_000) == Some(u64::from(line == 0))));
        assert_eq!(admitted(60_000), None);
    }

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_call_that_is_repeated_says_nothing_again() {
        let (written, known) = (Written::default(), KnownLines::default());
        let writer = written.clone();
        let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
        tracing::subscriber::with_default(subscriber, || {
            // A fresh instance each time, as after every fault.
            for (repeats, second) in [(false, "boom 2"), (true, "boom 2"), (true, "boom 3"), (true, "boom 3")] {
                let subtask = SubtaskId { node: "node".to_owned(), index: 0 };
                let log = GuestLog::new("job".into(), subtask, Arc::new(SystemClock::new()), Arc::clone(&known));
                log.begin_call(repeats);
                log.print(Stream::Stderr, format!("boom 1\n{second}\n").as_bytes());
                assert_eq!(log.end_call(), format!("boom 1 {second}"), "what explains the fault is kept");
            }
        });
        let written = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        let counts = ["boom 1", "boom 2", "boom 3"].map(|line| written.matches(line).count());
        assert_eq!(counts, [1, 1, 1], "{written}");
    }

    #[test]
    fn the_tail_of_stderr_is_one_short_line() {
        let subtask = SubtaskId { node: "node".to_owned(), index: 0 };
        let log = GuestLog::new("job".into(), subtask, Arc::new(SystemClock::new()), KnownLines::default());
        log.print(Stream::Stdout, b"not this\n");
        log.print(Stream::Stderr, b"\nthread panicked at x:1:2:\nbo");
        log.print(Stream::Stderr, b"om\nnote: run with `RUST_BACKTRACE=1` environment variable to display a backtrace");
        assert_eq!(log.end_call(), "thread panicked at x:1:2: boom");
        log.begin_call(false);
        assert_eq!(log.end_call(), "");
        log.print(Stream::Stderr, &[b'x'; 3 * LONGEST_LINE]);
        assert_eq!(log.end_call().len(), LONGEST_LINE);
        (0..100).for_each(|line| log.print(Stream::Stderr, format!("{line}\n").as_bytes()));
        assert_eq!(log.end_call(), "92 93 94 95 96 97 98 99");
    }
}
