//! Names and numbers of the parts of a job.
//!
//! A node is named by its author and the name is its identity for state; inside one running job it also has a dense
//! index, which is what the hot paths carry.

use std::fmt;

/// The dense index of a node within one job graph, in the order in which the graph was built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

/// The number of an output of an operator: 0 is the main output, the others are its side outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OutputId(pub u32);

impl OutputId {
    /// The output that every operator has.
    pub const MAIN: Self = Self(0);

    /// The output for records on which an operator failed. The host's own: no operator can declare or emit to it.
    pub const DEAD_LETTER: Self = Self(u32::MAX);
}

/// One parallel instance of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SubtaskId {
    /// The node's name in the job file.
    pub node: String,
    /// Counts from 0 to the node's parallelism, exclusive.
    pub index: u32,
}

impl fmt::Display for SubtaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.node, self.index)
    }
}

/// A channel: from one subtask to another, along one edge of the graph.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChannelId {
    /// The sending subtask.
    pub from: SubtaskId,
    /// The output of the sender that feeds the channel.
    pub output: OutputId,
    /// The receiving subtask.
    pub to: SubtaskId,
    /// The input of the receiver that the channel feeds.
    pub input: u32,
}

impl fmt::Display for ChannelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{} -> {}.{}", self.from, self.output.0, self.to, self.input)
    }
}
