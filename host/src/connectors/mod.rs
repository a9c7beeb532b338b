//! Connectors: where records come from and where results go.
//!
//! The `Source` and `Sink` traits and their implementations, one per file. A connector knows its own settings, files
//! and sockets; what it never knows is subtasks' channels, checkpoints or operators.

mod error;
mod sink;
mod source;

pub use error::ConnectorError;
pub use sink::{Commit, Committable, Committer, Sink, SinkWriter, WriterContext};
pub use source::{
    Boundedness, Extent, ReaderContext, ReaderEvent, Source, SourceReader, Split, SplitEnumerator, StreamShape,
};
