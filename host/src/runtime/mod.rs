//! The runtime of one job: subtasks, the channels between them, and what drives both.

pub mod channel;
pub mod metrics;
