//! stderr, with a few lines at its end that are drawn anew and everything else above them.

use std::io::{IsTerminal, Write};
use std::sync::{Arc, Mutex, PoisonError};

/// stderr. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Screen {
    /// The lines at the end.
    drawn: Arc<Mutex<Vec<String>>>,
}

impl Screen {
    /// Whether somebody is looking.
    pub(super) fn is_terminal(&self) -> bool {
        std::io::stderr().is_terminal()
    }

    /// Prints text, which has its own newlines, above the lines at the end.
    pub(super) fn print(&self, text: &str) {
        let drawn = self.drawn.lock().unwrap_or_else(PoisonError::into_inner);
        show(&format!("{}{text}{}", erase(&drawn), lines(&drawn)));
    }

    /// Removes the lines at the end.
    pub(super) fn draw_nothing(&self) {
        self.draw(Vec::new());
    }

    /// Replaces the lines at the end. Only for a terminal.
    pub(super) fn draw(&self, new: Vec<String>) {
        let mut drawn = self.drawn.lock().unwrap_or_else(PoisonError::into_inner);
        show(&format!("{}{}", erase(&drawn), lines(&new)));
        *drawn = new;
    }
}

/// Nothing can be done about a stderr that is gone, and a job must not end because of it.
fn show(text: &str) {
    let mut stderr = std::io::stderr().lock();
    let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}

/// Goes up to the first line drawn and clears from there.
fn erase(drawn: &[String]) -> String {
    if drawn.is_empty() { String::new() } else { format!("\x1b[{}A\x1b[J", drawn.len()) }
}

/// Without line wrapping meanwhile, so that a line is one line however narrow the terminal is.
fn lines(lines: &[String]) -> String {
    if lines.is_empty() { String::new() } else { format!("\x1b[?7l{}\n\x1b[?7h", lines.join("\n")) }
}
