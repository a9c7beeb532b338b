//! What happened in a world, in words: what its player did, and which promise the job broke.
//!
//! Short beside the trace, which has every step. A promise that is broken in a task of the job must not depend on what
//! becomes of that task, so it is noted here.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The most lines that are kept: the newest.
const MOST_LINES: usize = 400;

/// The notes of one world.
#[derive(Debug, Default)]
pub struct Journal(Mutex<Notes>);

#[derive(Debug, Default)]
struct Notes {
    lines: VecDeque<String>,
    broken: Option<String>,
}

impl Journal {
    fn lock(&self) -> MutexGuard<'_, Notes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes something that happened at a moment of virtual time.
    pub fn note(&self, now_ns: u64, text: &str) {
        let mut notes = self.lock();
        if notes.lines.len() == MOST_LINES {
            notes.lines.pop_front();
        }
        notes.lines.push_back(format!("{:>6}.{:06} ms  {text}", now_ns / 1_000_000, now_ns % 1_000_000));
    }

    /// Notes that a promise was broken. The first one counts.
    pub fn broken(&self, promise: String) {
        self.lock().broken.get_or_insert(promise);
    }

    /// Passes if no promise was broken.
    ///
    /// # Errors
    /// The first that was.
    pub fn check(&self) -> Result<(), String> {
        self.lock().broken.clone().map_or(Ok(()), Err)
    }

    /// All lines.
    #[must_use]
    pub fn text(&self) -> String {
        self.lock().lines.iter().map(|line| format!("{line}\n")).collect()
    }
}
