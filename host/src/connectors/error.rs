//! Why a connector failed.

use std::io;
use std::path::PathBuf;

/// Why a source or a sink failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectorError {
    /// A file or directory could not be used.
    #[error("cannot {action} {path}", path = .path.display())]
    File {
        /// What was tried: "open", "read", "rename".
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A network peer could not be used.
    #[error("cannot {action} {address}")]
    Network {
        /// What was tried: "connect to", "read from".
        action: &'static str,
        /// The peer.
        address: String,
        /// What the system said.
        source: io::Error,
    },
    /// The data itself is not what it must be.
    #[error("{place}: {problem}")]
    Data {
        /// Where: a file and line, or a peer.
        place: String,
        /// What was wrong and what to do.
        problem: String,
    },
    /// Anything else that the connector's user has to know.
    #[error("{0}")]
    Other(String),
    /// Off-thread work ended without a result.
    #[error(transparent)]
    Task(#[from] crate::task::TaskError),
}
