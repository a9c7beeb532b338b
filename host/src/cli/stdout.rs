//! stdout, for what scripts read. What could not be written is an error: a script must not take silence for success.

use std::io::{ErrorKind, Write};

use super::exit::Failure;

/// Writes text.
///
/// A reader that has gone away, as `head` does, wanted no more: that is no error, and nothing is written.
pub(super) fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::Stdout(error)),
        _ => Ok(()),
    }
}
