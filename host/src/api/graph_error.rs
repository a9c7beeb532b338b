//! Why nodes do not make a job.

use crate::protocol::key_group::LARGEST_MAX_PARALLELISM;

/// Why nodes do not make a job: what is wrong. [`GraphError::help`] says what to do.
///
/// Each error names the node it is about, and the position of the input where it is about one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// A name of a job that cannot be used.
    #[error("{name:?} cannot name a job")]
    JobName {
        /// The name.
        name: String,
    },
    /// A name of a node that cannot be used.
    #[error("{name:?} cannot name a node")]
    Name {
        /// The name.
        name: String,
    },
    /// Two nodes of one name.
    #[error("two nodes are named {node}")]
    Duplicate {
        /// The name.
        node: String,
    },
    /// Nothing comes in.
    #[error("the job has no source")]
    NoSource,
    /// Nothing goes out.
    #[error("the job has no sink")]
    NoSink,
    /// Parallelism out of range.
    #[error("{node} has parallelism {parallelism}, which is not from 1 to max-parallelism = {max_parallelism}")]
    Parallelism {
        /// The node.
        node: String,
        /// What was asked for.
        parallelism: u32,
        /// The bound.
        max_parallelism: u32,
    },
    /// The number of key groups is out of range.
    #[error("max-parallelism is {max_parallelism}, which is not from 1 to {LARGEST_MAX_PARALLELISM}")]
    MaxParallelism {
        /// What was asked for.
        max_parallelism: u32,
    },
    /// A node without inputs that is not a source.
    #[error("{node} has no input")]
    NoInput {
        /// The node.
        node: String,
    },
    /// A source with inputs.
    #[error("the source {node} has an input")]
    SourceInput {
        /// The node.
        node: String,
    },
    /// An input that does not exist.
    #[error("{node} reads from {from}, but there is no node of that name")]
    UnknownInput {
        /// The node.
        node: String,
        /// The position of the input.
        input: usize,
        /// What it names.
        from: String,
        /// The closest name that exists.
        guess: Option<String>,
        /// All names that exist and could be read from.
        known: Vec<String>,
    },
    /// A side output that does not exist.
    #[error("{node} reads from {from}.{output}, but {from} has no output of that name")]
    UnknownOutput {
        /// The node.
        node: String,
        /// The position of the input.
        input: usize,
        /// The sending node.
        from: String,
        /// The output that it does not have.
        output: String,
        /// The side outputs that it has.
        known: Vec<String>,
    },
    /// The dead letters of a node that makes none.
    #[error("{node} reads the dead letters of {from}, but {from} sends none")]
    NoDeadLetters {
        /// The node.
        node: String,
        /// The position of the input.
        input: usize,
        /// The sending node.
        from: String,
    },
    /// A sink where a source of records is needed.
    #[error("{node} reads from {from}, but {from} is a sink: nothing comes out of it")]
    FromSink {
        /// The node.
        node: String,
        /// The position of the input.
        input: usize,
        /// The sink.
        from: String,
    },
    /// Nodes that feed each other in a circle.
    #[error("nodes feed each other in a circle: {}", .nodes.join(" -> "))]
    Cycle {
        /// The nodes of the circle in the order of flow; the first is repeated at the end.
        nodes: Vec<String>,
    },
    /// A forward edge between nodes of different parallelism.
    #[error(
        "partition \"forward\" joins nodes of equal parallelism, but {from} has {from_parallelism} and {node} has {parallelism}"
    )]
    Forward {
        /// The node.
        node: String,
        /// The position of the input.
        input: usize,
        /// The sending node.
        from: String,
        /// Its parallelism.
        from_parallelism: u32,
        /// The node's own.
        parallelism: u32,
    },
    /// A hash edge behind a source whose records have no keys.
    #[error("{node} wants records by key, but records of the source {from} have no keys")]
    NoKeys {
        /// The node.
        node: String,
        /// The position of the input.
        input: usize,
        /// The source.
        from: String,
    },
    /// Keyed state without a hash edge.
    #[error("{node} keeps state by key ({state}), but none of its inputs is partitioned by key")]
    NoHash {
        /// The node.
        node: String,
        /// One of its keyed states.
        state: String,
    },
}

impl GraphError {
    /// What to do about it.
    #[must_use]
    pub fn help(&self) -> String {
        match self {
            Self::JobName { .. } => "a name has 1 to 100 letters, digits, '-' or '_'".into(),
            Self::Name { .. } => {
                "a name has 1 to 100 letters, digits, '-' or '_'; a dot would mean a side output".into()
            }
            Self::Duplicate { .. } => {
                "sources, operators and sinks share one set of names; rename one of the two".into()
            }
            Self::NoSource => "add a table such as [sources.lines]".into(),
            Self::NoSink => "add a table such as [sinks.out]".into(),
            Self::Parallelism { max_parallelism, .. } => {
                format!("use a number from 1 to {max_parallelism}, or raise max-parallelism")
            }
            Self::MaxParallelism { .. } => format!("use a number from 1 to {LARGEST_MAX_PARALLELISM}"),
            Self::NoInput { .. } => "say where its records come from: input = \"the name of a node\"".into(),
            Self::SourceInput { .. } => "only operators and sinks have inputs; remove it".into(),
            Self::UnknownInput { guess: Some(guess), .. } => format!("did you mean {guess}?"),
            Self::UnknownInput { known, .. } => {
                format!("it can read from {}", listed(known, "nothing yet: add a source"))
            }
            Self::UnknownOutput { from, known, .. } => {
                let main = format!("only its main output; write {from} alone");
                format!("it has {}", listed(known, &main))
            }
            Self::NoDeadLetters { from, .. } => format!("set operators.{from}.on-error = \"dead-letter\""),
            Self::FromSink { .. } => "read from the node that feeds the sink instead".into(),
            Self::Cycle { .. } => "records must flow one way: change one of these inputs".into(),
            Self::Forward { node, from, .. } => {
                format!("give {from} and {node} the same parallelism, or use partition = \"rebalance\" or \"hash\"")
            }
            Self::NoKeys { from, .. } => format!("put an operator behind {from} that gives its records keys"),
            Self::NoHash { .. } => "add partition = \"hash\": input = { from = \"...\", partition = \"hash\" }".into(),
        }
    }
}

fn listed(names: &[String], none: &str) -> String {
    if names.is_empty() { none.to_owned() } else { names.join(", ") }
}
