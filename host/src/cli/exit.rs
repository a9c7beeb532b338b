//! How the program ends.

use std::error::Error;
use std::fmt;
use std::io;
use std::process::ExitCode;

use crate::config::{ConfigError, Problem};
use crate::error_chain::links;

/// What the exit code says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    /// 0: it is done, or was cancelled on request.
    Done,
    /// 1: it failed.
    Failed,
    /// 2: the command line or the job file is wrong.
    Usage,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Done => 0,
            Exit::Failed => 1,
            Exit::Usage => 2,
        })
    }
}

/// Why a command could not do what it was asked.
#[derive(Debug)]
pub(super) enum Failure {
    /// The job file is wrong.
    Config(ConfigError),
    /// An argument or a variable is wrong: what, and what to do.
    Argument(String),
    /// What belongs on stdout could not be written there.
    Stdout(io::Error),
    /// Anything else.
    Other(Box<dyn Error + Send + Sync>),
}

impl Failure {
    /// A failure that is nobody's mistake.
    pub(super) fn other(error: impl Error + Send + Sync + 'static) -> Self {
        Self::Other(Box::new(error))
    }

    /// The exit code for it.
    pub(super) fn exit(&self) -> Exit {
        match self {
            Self::Config(_) | Self::Argument(_) => Exit::Usage,
            Self::Stdout(_) | Self::Other(_) => Exit::Failed,
        }
    }
}

impl Failure {
    /// What is wrong, a line each.
    pub(super) fn lines(&self) -> Vec<String> {
        match self {
            Self::Config(error) => error.problems().iter().map(Problem::on_one_line).collect(),
            Self::Argument(problem) => vec![problem.clone()],
            Self::Stdout(error) => vec![format!("cannot write to stdout: {error}")],
            Self::Other(error) => links(&**error),
        }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

/// As it is shown to people, without a newline at the end.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::Argument(problem) => write!(f, "error: {problem}"),
            Self::Stdout(error) => write!(f, "error: cannot write to stdout: {error}"),
            Self::Other(error) => f.write_str(&chain(&**error)),
        }
    }
}

/// An error with its causes, a line each.
pub(super) fn chain(error: &dyn Error) -> String {
    format!("error: {}", links(error).join("\n  caused by: "))
}
