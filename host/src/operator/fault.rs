//! Why a call failed, by who is to blame.
//!
//! *Guest faults* are about the record or the code at hand, and a node's `on-error` decides what becomes of them. *Host
//! faults* (storage, budgets, our bugs) always fail the task: a full disk must never look like a bad record.

use std::time::Duration;

use crate::record::{MalformedBatch, MalformedColumn};
use crate::state::StateError;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The operator or its record is to blame.
    #[error(transparent)]
    Guest(#[from] GuestFault),
    /// State could not be read or written.
    #[error("keyed state failed")]
    State(#[from] StateError),
    /// Something else on the host's side.
    #[error("{0}")]
    Host(String),
}

impl From<RuleViolation> for Fault {
    fn from(violation: RuleViolation) -> Self {
        Self::Guest(GuestFault::Rule(violation))
    }
}

/// A failure that the operator or its record is to blame for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GuestFault {
    /// The operator returned an error.
    #[error("the operator returned an error: {message}")]
    Returned {
        /// What it said.
        message: String,
        /// The record that it named, by its position in the batch.
        position: Option<u32>,
    },
    /// The operator gave up a record with `reject`, and the node does not tolerate that.
    #[error("the operator rejected a record: {reason}")]
    Rejected {
        /// What it said.
        reason: String,
        /// The position of the record in the batch.
        position: u32,
    },
    /// The guest panicked, aborted or hit a trap of the Wasm machine.
    #[error("the operator trapped: {message}")]
    Trap {
        /// What is known: the trap, and the last lines that the guest wrote to stderr.
        message: String,
    },
    /// One call ran longer than it may.
    #[error("the operator ran longer than limits.call = {limit:?} in one call")]
    CallTime {
        /// The limit.
        limit: Duration,
    },
    /// The guest asked for more memory than it may have.
    #[error("the operator needs more memory than limits.memory = {limit} bytes")]
    Memory {
        /// The limit in bytes.
        limit: u64,
    },
    /// The guest recursed too deep.
    #[error("the operator overflowed its stack")]
    StackOverflow,
    /// The guest handed over more bytes in one call than the host takes.
    #[error("the operator handed over more than {limit} bytes at once")]
    TooMuchData {
        /// The limit in bytes.
        limit: u64,
    },
    /// The batch is larger than the host hands to a guest in one call.
    #[error("a batch of {bytes} bytes is over the limit of {limit} for one call of an operator")]
    BatchSize {
        /// The batch's size.
        bytes: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// Output that is held back until the call returns passed its limit.
    #[error(
        "one call emitted more than limits.output = {limit} bytes, which on-error = \"skip\" and \"dead-letter\" hold back"
    )]
    Output {
        /// The limit in bytes.
        limit: u64,
    },
    /// The guest broke a rule of the contract.
    #[error("the operator broke the contract: {0}")]
    Rule(RuleViolation),
}

impl GuestFault {
    /// The record that the fault names, by its position in the batch.
    #[must_use]
    pub fn position(&self) -> Option<usize> {
        match self {
            Self::Returned { position, .. } => position.map(|position| position as usize),
            Self::Rejected { position, .. } => Some(*position as usize),
            _ => None,
        }
    }
}

/// A rule of the operator contract that a call broke.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RuleViolation {
    /// A column is malformed.
    #[error("{0}")]
    Column(#[from] MalformedColumn),
    /// A batch is malformed.
    #[error("{0}")]
    Batch(#[from] MalformedBatch),
    /// Parts of one argument have different lengths.
    #[error("{what}: {left} and {right} must be equal")]
    Lengths {
        /// What was counted.
        what: &'static str,
        /// One length.
        left: usize,
        /// The other.
        right: usize,
    },
    /// A slot that the call does not have.
    #[error("slot {slot} is out of range: this call has {slots}")]
    Slot {
        /// The slot.
        slot: u32,
        /// How many slots the call has.
        slots: usize,
    },
    /// A slot is named twice where it may be named once.
    #[error("slot {slot} appears twice")]
    SlotTwice {
        /// The slot.
        slot: u32,
    },
    /// A state that was not declared.
    #[error("state {state} was not declared in the descriptor")]
    UnknownState {
        /// The id.
        state: u32,
    },
    /// A state of another kind than the call is for.
    #[error("state {name} is {kind}, which this call cannot use")]
    StateKind {
        /// The state's name.
        name: String,
        /// What it is.
        kind: String,
    },
    /// An output that was not declared.
    #[error("output {output} was not declared in the descriptor")]
    UnknownOutput {
        /// The id.
        output: u32,
    },
    /// A position outside the batch.
    #[error("position {position} is out of range: the batch has {records} records")]
    Position {
        /// The position.
        position: u32,
        /// The number of records.
        records: usize,
    },
    /// Emitted records of an output have keys sometimes and sometimes not, or timestamps.
    #[error(
        "records of the {output} output had {before} and now have {now}: a stream has keys and timestamps as a whole"
    )]
    Shape {
        /// The output's name.
        output: String,
        /// What its records were like.
        before: &'static str,
        /// What they are like now.
        now: &'static str,
    },
    /// A record larger than a record may be.
    #[error("a key or value of {bytes} bytes is over record-limit = {limit} bytes")]
    RecordSize {
        /// The record's size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// A result that the guest asked for would be too large.
    #[error("{what} would take {bytes} bytes, over the limit of {limit}: ask for less at once")]
    ResultSize {
        /// What was asked for.
        what: &'static str,
        /// The size.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// A function was called where it may not be.
    #[error("{function} cannot be called {place}")]
    Scope {
        /// The function.
        function: &'static str,
        /// Where it was called from.
        place: &'static str,
    },
    /// Anything else that the contract forbids.
    #[error("{0}")]
    Other(String),
}
