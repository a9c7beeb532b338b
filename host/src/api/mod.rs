//! What a program that embeds tidegate uses: build a [`JobGraph`], start it, follow it, wait for its end.

mod job_graph;
mod job_handle;

pub use job_graph::{
    Edge, GraphError, InputSpec, JobGraph, JobGraphBuilder, Node, NodeKind, NodeSpec, OperatorNode, Partition,
};
pub use job_handle::{JobHandle, start};

pub use crate::runtime::{JobError, JobOptions, JobReport, Outcome};
