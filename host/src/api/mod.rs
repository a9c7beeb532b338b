//! What a program that embeds tidegate uses: build a [`JobGraph`], start it, follow it, wait for its end.

mod checkpoint_settings;
pub(crate) mod graph_check;
mod graph_error;
mod job_graph;
mod job_handle;
#[cfg(test)]
mod tests;

pub use checkpoint_settings::{CheckpointSettings, StartMode};
pub use graph_error::GraphError;
pub use job_graph::{
    DEAD_LETTER, Edge, InputSpec, JobGraph, JobGraphBuilder, Node, NodeKind, NodeSpec, OperatorNode, Partition,
};
pub use job_handle::{JobHandle, start};

pub use crate::checkpoint::storage::StorageLocation;
pub use crate::protocol::alignment::Mode as CheckpointMode;
pub use crate::protocol::restart::RestartSettings;
pub use crate::protocol::retention::Retention;
pub use crate::runtime::{JobError, JobOptions, JobReport, Left, Outcome};
