//! What a program that embeds tidegate uses: build a [`JobGraph`], start it, follow it, wait for its end.

mod checkpoint_settings;
pub(crate) mod graph_check;
mod graph_error;
mod job_graph;
mod job_handle;
mod restart_settings;
#[cfg(test)]
mod tests;

pub use checkpoint_settings::{CheckpointMode, CheckpointSettings, Retention, StartMode, StorageLocation};
pub use graph_error::GraphError;
pub use job_graph::{
    DEAD_LETTER, Edge, InputSpec, JobGraph, JobGraphBuilder, Node, NodeKind, NodeSpec, OperatorNode, Partition,
};
pub use job_handle::{JobHandle, start};
pub use restart_settings::RestartSettings;

pub use crate::runtime::{JobError, JobOptions, JobReport, Outcome};
