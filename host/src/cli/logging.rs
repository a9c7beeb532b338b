//! The log, on stderr.

use std::io;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use super::exit::Failure;
use super::screen::Screen;

/// What is logged unless somebody says otherwise.
const DEFAULT: &str = "warn";

/// What a word alone may be.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Starts logging as the argument says, or the variable.
pub(super) fn start(argument: Option<&str>, screen: &Screen) -> Result<(), Failure> {
    let variable = std::env::var("TIDEGATE_LOG").ok().filter(|value| !value.is_empty());
    let (name, wanted) = match (argument, &variable) {
        (Some(wanted), _) => ("--log", wanted),
        (None, Some(wanted)) => ("TIDEGATE_LOG", wanted.as_str()),
        (None, None) => ("", DEFAULT),
    };
    let filter = filter(name, wanted)?;
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(LogWriter(screen.clone()));
    subscriber.with_ansi(screen.is_terminal()).try_init().map_err(Failure::Other)
}

fn filter(name: &str, wanted: &str) -> Result<EnvFilter, Failure> {
    let refuse = |what: &str, why: &str| {
        Failure::Argument(format!(
            "{name}: {what:?} is not a log level{why}; use {}, or a list such as warn,tidegate::wasm=debug",
            LEVELS.join(", ")
        ))
    };
    // A word alone that is no level would be taken for the name of a target, and all else be silent.
    let mut words = wanted.split(',').map(str::trim);
    if let Some(word) = words.find(|word| !word.contains('=') && !LEVELS.contains(&word.to_lowercase().as_str())) {
        return Err(refuse(word, ""));
    }
    EnvFilter::try_new(wanted).map_err(|error| refuse(wanted, &format!(": {error}")))
}

/// Writes log lines past whatever is on the screen.
struct LogWriter(Screen);

impl<'a> MakeWriter<'a> for LogWriter {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line { screen: &self.0, bytes: Vec::new() }
    }
}

/// One event, shown when it is complete.
struct Line<'a> {
    screen: &'a Screen,
    bytes: Vec<u8>,
}

impl io::Write for Line<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        self.screen.print(&String::from_utf8_lossy(&self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_checked() {
        for good in ["info", "WARN", "warn,tidegate::wasm=debug", "off"] {
            assert!(filter("--log", good).is_ok(), "{good}");
        }
        let error = filter("--log", "warn,verbose").expect_err("an error").to_string();
        assert!(error.starts_with("error: --log: \"verbose\" is not a log level; use off, error, warn,"), "{error}");
        assert!(filter("--log", "tidegate=loud").is_err());
    }
}
