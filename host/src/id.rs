//! Names and numbers of the parts of a job.
//!
//! A node is named by its author and the name is its identity for state; inside one running job it also has a dense
//! index, which is what the hot paths carry.

use std::fmt;

use serde::{Deserialize, Serialize};

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

/// A checkpoint of a job. Ids grow, and none is ever used twice within a job's directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CheckpointId(pub u64);

impl fmt::Display for CheckpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "checkpoint {}", self.0)
    }
}

/// One start of all tasks of a job. Attempts are ordered: those of a later run, and later ones of one run, are greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Attempt {
    /// One process's life with the job; fences storage.
    pub run: u64,
    /// Counts the restarts inside the run, from 1.
    pub number: u32,
}

impl Attempt {
    /// The first attempt of a run.
    #[must_use]
    pub fn first(run: u64) -> Self {
        Self { run, number: 1 }
    }

    /// The attempt that follows a failed one in the same run.
    #[must_use]
    pub fn next(self) -> Self {
        Self { number: self.number + 1, ..self }
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.run, self.number)
    }
}

/// Who writes: one attempt of one job. What an attempt writes outside of the job's directory carries this in its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Owner {
    /// Tells the job from all others, of the same name too: letters and digits.
    pub job: String,
    /// The attempt.
    pub attempt: Attempt,
}

impl Owner {
    /// The same job in its next attempt.
    #[must_use]
    pub fn next_attempt(&self) -> Self {
        Self { attempt: self.attempt.next(), ..self.clone() }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.job, self.attempt)
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
