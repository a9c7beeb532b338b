//! Configuration: the job file, the host-wide defaults and `--set`, read and checked as a whole.
//!
//! Owns the notation and the blame: every mistake names the place where it was made. What a job is when nothing is wrong
//! is `api`'s; connectors check their own fields and components themselves.

mod checkpoint_section;
mod deserializer;
mod error;
mod graph_problem;
mod host_file;
mod job_file;
mod node;
mod overrides;
mod plan;
mod restart_section;
mod section;
mod storage_url;
#[cfg(test)]
mod tests;
mod units;
mod value;

pub use error::{ConfigError, Problem};
pub use host_file::HOST_FILE;
pub use job_file::{JobFile, JobSources};
pub use plan::WantedOperator;
pub use storage_url::checkpoint_path;
pub use units::{ByteSize, HumanDuration, UnitError};
