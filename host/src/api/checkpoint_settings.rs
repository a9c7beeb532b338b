//! How a job takes checkpoints, and where from it starts: plain data, with every default in one place.
//!
//! Nothing is checked here: the job file is, where it is read. A job without these settings takes no checkpoints.

use std::path::PathBuf;
use std::time::Duration;

use crate::checkpoint::storage::StorageLocation;
use crate::protocol::alignment::Mode;
use crate::protocol::retention::Retention;

/// How a job takes checkpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointSettings {
    /// The time from the trigger of one checkpoint to the next.
    pub interval: Duration,
    /// The least time from the completion of a checkpoint or savepoint to the next trigger. Failures do not count.
    pub min_pause: Duration,
    /// How long a checkpoint may take, from its trigger.
    pub timeout: Duration,
    /// How many checkpoints in a row may fail before the job does.
    pub tolerable_failures: u32,
    /// What holds for the state after a restore.
    pub mode: Mode,
    /// When checkpoints outlive the job.
    pub retain: Retention,
    /// How many completed checkpoints are kept, from 1.
    pub keep: u32,
    /// Where checkpoints are.
    pub storage: StorageLocation,
}

/// Where from a job starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StartMode {
    /// From nothing; refused beside checkpoints of an earlier life that would be left behind.
    #[default]
    Default,
    /// From the newest checkpoint of an earlier life; from nothing if there was none.
    Resume,
    /// From nothing, whatever is there.
    Fresh,
    /// From the checkpoint or savepoint at this path.
    From(PathBuf),
}

impl CheckpointSettings {
    /// Everything as it is unless somebody says otherwise, with checkpoints this often and in this place.
    #[must_use]
    pub fn new(interval: Duration, storage: StorageLocation) -> Self {
        Self {
            interval,
            min_pause: Duration::ZERO,
            timeout: Duration::from_secs(600),
            tolerable_failures: 0,
            mode: Mode::default(),
            retain: Retention::default(),
            keep: 1,
            storage,
        }
    }
}
