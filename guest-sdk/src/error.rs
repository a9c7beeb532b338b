//! Why an operator could not do what it was asked.

use std::fmt;

/// Why an operator could not do what it was asked: a message for people.
///
/// Every `std::error::Error` becomes one with `?`, its causes included. The host names the record, the node and the job
/// around it, so the message only has to say what was wrong with the record.
///
/// ```
/// fn parse(text: &str) -> Result<i64, tidegate_sdk::Error> {
///     if text.is_empty() {
///         return Err(tidegate_sdk::Error::new("expected a number, found nothing"));
///     }
///     Ok(text.parse()?)
/// }
/// assert_eq!(parse("x").unwrap_err().to_string(), "invalid digit found in string");
/// ```
// It is no `std::error::Error` itself, which is what lets it be made from all of them.
pub struct Error {
    message: String,
}

impl Error {
    /// An error with a message.
    pub fn new(message: impl fmt::Display) -> Self {
        Self { message: message.to_string() }
    }

    /// The same error with what was being done put before it.
    #[must_use]
    pub fn context(self, what: impl fmt::Display) -> Self {
        Self { message: format!("{what}: {}", self.message) }
    }

    pub(crate) fn into_message(self) -> String {
        self.message
    }
}

impl<E: std::error::Error> From<E> for Error {
    fn from(error: E) -> Self {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            message = format!("{message}: {cause}");
            source = cause.source();
        }
        Self { message }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
