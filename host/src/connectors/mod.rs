//! Connectors: where records come from and where results go.
//!
//! The `Source` and `Sink` traits and their implementations, one per file or folder. A connector knows its own settings,
//! files and sockets; what it never knows is subtasks' channels, checkpoints or operators.

pub mod blackhole;
mod error;
pub mod file_sink;
pub mod file_source;
pub mod generator;
mod histogram;
mod line_encoder;
mod output_lock;
pub mod registry;
pub mod settings;
mod sink;
pub mod socket;
mod source;
pub mod stdout;
mod versioned;

#[cfg(test)]
mod testing;

pub use error::ConnectorError;
pub(crate) use output_lock::OutputLock;
pub use sink::{Commit, Committable, Committer, Prepared, Sink, SinkWriter, TargetStart, WriterContext};
pub use source::{
    Boundedness, Extent, ReaderContext, ReaderEvent, RestoredSource, Source, SourceReader, Split, SplitEnumerator,
};

pub use crate::record::StreamShape;
