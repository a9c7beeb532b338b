//! What happened in a run: a running hash over all of it, and its last lines for whoever looks for the cause.
//!
//! Invariant: two runs with one hash made the same steps at the same virtual times and reported the same events.

use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::sync::Arc;

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// How many lines are kept unless the environment says otherwise. Enough to see who waited for whom, short enough to
/// read.
const KEPT_LINES: usize = 60;
/// The variable that says otherwise.
const LINES_VARIABLE: &str = "TIDEGATE_TRACE";

/// A name that the trace knows: of a task, a channel, a sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Label(u32);

/// Something that happened, apart from the names in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// The task was polled and goes on.
    Polled,
    /// The task was polled without having been woken, as a runtime may do.
    PolledUnasked,
    /// The task ended.
    Ended,
    /// The task was dropped where it stood.
    Dropped,
    /// The world reported an event with a number.
    Event(&'static str, u64),
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Polled => f.write_str("polled"),
            Self::PolledUnasked => f.write_str("polled unasked"),
            Self::Ended => f.write_str("ended"),
            Self::Dropped => f.write_str("dropped"),
            Self::Event(event, number) => write!(f, "  {event} {number}"),
        }
    }
}

/// The trace of one run.
pub(super) struct Trace {
    hash: Xxh3,
    /// Each name with its hash, so that a step hashes no strings.
    names: Vec<(Arc<str>, u64)>,
    kept: usize,
    lines: VecDeque<Line>,
}

struct Line {
    step: u64,
    now_ns: u64,
    label: Label,
    what: What,
}

impl Trace {
    pub(super) fn new() -> Self {
        let kept = std::env::var(LINES_VARIABLE).ok().and_then(|lines| lines.parse().ok()).unwrap_or(KEPT_LINES);
        Self { hash: Xxh3::new(), names: Vec::new(), kept, lines: VecDeque::new() }
    }

    pub(super) fn label(&mut self, name: &str) -> Label {
        self.names.push((name.into(), xxh3_64(name.as_bytes())));
        Label(u32::try_from(self.names.len() - 1).expect("fewer than 2^32 names"))
    }

    pub(super) fn name(&self, label: Label) -> &str {
        &self.names[label.0 as usize].0
    }

    pub(super) fn record(&mut self, step: u64, now_ns: u64, label: Label, what: What) {
        let (kind, number) = match what {
            What::Polled => (0, 0),
            What::PolledUnasked => (1, 0),
            What::Ended => (2, 0),
            What::Dropped => (3, 0),
            What::Event(event, number) => (xxh3_64(event.as_bytes()), number),
        };
        let mut bytes = [0; 40];
        let parts = [step, now_ns, self.names[label.0 as usize].1, kind, number];
        for (chunk, part) in bytes.chunks_exact_mut(8).zip(parts) {
            chunk.copy_from_slice(&part.to_le_bytes());
        }
        self.hash.update(&bytes);
        if self.lines.len() >= self.kept {
            self.lines.pop_front();
        }
        self.lines.push_back(Line { step, now_ns, label, what });
    }

    pub(super) fn hash(&self) -> u64 {
        self.hash.digest()
    }

    pub(super) fn tail(&self) -> String {
        let mut text = String::new();
        for line in &self.lines {
            let (whole, part) = (line.now_ns / 1_000_000, line.now_ns % 1_000_000);
            let name = self.name(line.label);
            writeln!(text, "{:>7} {whole:>6}.{part:06} ms  {name} {}", line.step, line.what).expect("strings grow");
        }
        text
    }
}
