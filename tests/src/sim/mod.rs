//! A seeded simulation of whole jobs.
//!
//! Production code runs on a virtual world: an executor that polls a random ready task and owns the time, channels that
//! deliver late, sources and sinks in memory. A seed decides everything, so a failure is found again by its seed
//! (`TIDEGATE_SEED=n cargo test -p tidegate-tests`). What a job must output is computed by plain code and compared.

pub mod checker;
mod counters;
mod disk_check;
pub mod executor;
pub mod faults;
pub mod journal;
mod lives;
pub mod operators;
mod record;
pub mod sink;
pub mod source;
pub mod storage;
pub mod surroundings;
mod timers;
pub mod topology;
pub mod trace;
pub mod transport;
mod world;

pub use counters::Counters;
pub use lives::Lives;
pub use record::Record;
pub use topology::Topology;
pub use world::{Run, World};
