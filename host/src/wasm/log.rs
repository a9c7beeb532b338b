//! What a guest has to say: log messages, stdout and stderr, all of which go to the job's log.
//!
//! Bounded in every way: the length of a line, the lines a second of one instance, and the last lines of stderr that
//! are kept so that a trap can be explained.

use std::collections::VecDeque;
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

/// How many lines of stderr are kept for the message of a trap.
const TAIL_LINES: usize = 8;

/// The most that WASI lets a guest write at once.
const WRITE_PERMIT: usize = 64 << 10;

/// The log of one operator instance.
#[derive(Clone)]
pub(super) struct GuestLog(Arc<Shared>);

struct Shared {
    job: Arc<str>,
    subtask: SubtaskId,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

struct State {
    rate: LineRate,
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
    pub(super) fn new(job: Arc<str>, subtask: SubtaskId, clock: Arc<dyn Clock>) -> Self {
        let rate = LineRate::new(clock.monotonic());
        let state = State { rate, stdout: Vec::new(), stderr: Vec::new(), tail: VecDeque::new() };
        Self(Arc::new(Shared { job, subtask, clock, state: Mutex::new(state) }))
    }

    /// Writes one message.
    pub(super) fn write(&self, level: Level, message: &str) {
        self.event(&mut self.lock(), level, message);
    }

    /// The stream behind stdout or stderr.
    pub(super) fn stream(&self, stream: Stream) -> Console {
        Console { log: self.clone(), stream }
    }

    /// Forgets what was written to stderr before this call.
    pub(super) fn begin_call(&self) {
        self.lock().tail.clear();
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
        let Some(missed) = state.rate.admit(self.0.clock.monotonic()) else { return };
        if missed > 0 {
            self.emit(Level::WARN, &format!("{missed} lines of the operator were left out: it writes too many"));
        }
        let cut = message.floor_char_boundary(LONGEST_LINE);
        self.emit(level, &message[..cut]);
    }

    fn emit(&self, level: Level, message: &str) {
        let (job, node, subtask) = (&*self.0.job, &*self.0.subtask.node, self.0.subtask.index);
        match level {
            Level::TRACE => tracing::trace!(target: "tidegate::guest", job, node, subtask, "{message}"),
            Level::DEBUG => tracing::debug!(target: "tidegate::guest", job, node, subtask, "{message}"),
            Level::INFO => tracing::info!(target: "tidegate::guest", job, node, subtask, "{message}"),
            Level::WARN => tracing::warn!(target: "tidegate::guest", job, node, subtask, "{message}"),
            Level::ERROR => tracing::error!(target: "tidegate::guest", job, node, subtask, "{message}"),
        }
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
