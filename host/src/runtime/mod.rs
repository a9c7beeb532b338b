//! The runtime of one job: subtasks, the channels between them, and what drives both.
//!
//! A job is a set of tasks joined by channels. A task is a chain: a source or a gate over channels, then operators, then
//! perhaps a sink. Nothing is shared between tasks but channels and counters, and nothing between jobs at all.

mod attempt;
mod chain;
pub mod channel;
mod checkpoints;
mod commit;
pub mod commit_gate;
mod cut;
mod epochs;
mod error;
mod failed_record;
mod fault_search;
mod impatient_writer;
mod input;
mod job;
mod load_state;
pub mod metrics;
mod operator_stage;
mod output;
mod plan;
mod restored;
mod signals;
mod sink_stage;
mod skip_budget;
mod snapshot;
mod splits;
mod store;
mod stored_snapshot;
mod subtask;
mod targets;

pub use error::JobError;
pub(crate) use job::Job;
pub use job::{JobOptions, JobReport, Left, Outcome};
pub use load_state::LoadError;
pub use restored::RestoreError;
pub use snapshot::SaveError;
pub use store::{PersistError, StartError};
pub(crate) use stored_snapshot::StoredSnapshot;
