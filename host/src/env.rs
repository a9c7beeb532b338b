//! The seams between the runtime and the world, in one bundle that every job is given.
//!
//! Two jobs in one process may share an `Env`; the simulation builds its own. Nothing in the crate reaches around it.

use std::fmt;
use std::sync::Arc;

use crate::checkpoint::SystemStorage;
use crate::checkpoint::storage::StorageOpener;
use crate::clock::{Clock, SystemClock};
use crate::runtime::channel::{InProcess, Transport};
use crate::task::{BackgroundThread, Compute, Spawner, TokioTasks};

/// Everything that a job needs of the world.
#[derive(Clone)]
pub struct Env {
    /// Tells the time and waits.
    pub clock: Arc<dyn Clock>,
    /// Runs subtasks.
    pub workers: Arc<dyn Spawner>,
    /// Runs what must never wait behind guests: coordination, enumerators, status.
    pub control: Arc<dyn Spawner>,
    /// Runs what blocks: files, compilation.
    pub compute: Arc<dyn Compute>,
    /// Runs what may take its time, one piece after the other: writing snapshots.
    pub background: Arc<dyn Compute>,
    /// Makes the channels between subtasks.
    pub transport: Arc<dyn Transport>,
    /// Opens where checkpoints are kept.
    pub storage: Arc<dyn StorageOpener>,
    /// What every random stream of the job derives from.
    pub seed: u64,
}

impl Env {
    /// The machine itself: tokio runtimes, the system's clocks, channels in memory, files.
    #[must_use]
    pub fn system(workers: &tokio::runtime::Handle, control: &tokio::runtime::Handle, seed: u64) -> Self {
        Self {
            clock: Arc::new(SystemClock::new()),
            workers: Arc::new(TokioTasks(workers.clone())),
            control: Arc::new(TokioTasks(control.clone())),
            compute: Arc::new(TokioTasks(control.clone())),
            background: Arc::new(BackgroundThread::start()),
            transport: Arc::new(InProcess),
            storage: Arc::new(SystemStorage::new(control)),
            seed,
        }
    }
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Env").field("seed", &self.seed).finish_non_exhaustive()
    }
}
