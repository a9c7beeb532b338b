//! stdout, for what scripts read. What could not be written is an error: a script must not take silence for success.

use std::io::{ErrorKind, Write};
use std::ops::ControlFlow;

use super::exit::Failure;

/// Writes text.
///
/// A reader that has gone away, as `head` does, wanted no more: that is no error, and nothing is written.
pub(super) fn print(text: &str) -> Result<(), Failure> {
    print_part(text).map(drop)
}

/// Writes a part of a longer text, and says whether anybody is there to read the rest.
pub(super) fn print_part(text: &str) -> Result<ControlFlow<()>, Failure> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(ControlFlow::Continue(())),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(ControlFlow::Break(())),
        Err(error) => Err(Failure::Stdout(error)),
    }
}
