//! A subtask's side of checkpoints: what it is told, and what becomes of its cuts.
//!
//! A cut is made durable in a task of its own while the subtask goes on. At most one is in the making: a newer barrier
//! means that the older checkpoint was given up.

use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::cut::Cut;
use super::error::JobError;
use super::snapshot::{SaveError, Saved, Snapshots};
use super::store::{CheckpointStore, PersistError};
use crate::id::{CheckpointId, NodeId};
use crate::protocol::coordinator::TaskIndex;
use crate::task::{self, Spawner};

/// What the coordinator lets all subtasks know. Only the newest state of things counts, so a notice that is overtaken
/// by another loses nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Notices {
    /// This checkpoint was given up, and so was every earlier one that is not complete.
    pub(super) aborted: Option<CheckpointId>,
    /// The output of this checkpoint has been committed, and so has that of every earlier one.
    pub(super) committed: Option<CheckpointId>,
}

/// What the coordinator hears, of subtasks and of the tasks that act for it.
pub(super) enum Report {
    /// A task's part of a checkpoint is durable.
    Acknowledged { task: TaskIndex, checkpoint: CheckpointId, saved: Vec<Saved> },
    /// A task's part of a checkpoint could not be made durable.
    Declined { task: TaskIndex, checkpoint: CheckpointId, source: SaveError },
    /// What a task held in the end is durable.
    Ended { task: TaskIndex, saved: Vec<Saved> },
    /// Something is not durable that no later checkpoint can make up for.
    Failed(SaveError),
    /// What the enumerators told, unless one is gone.
    Enumerators { checkpoint: CheckpointId, states: Option<Vec<(NodeId, Vec<u8>)>> },
    /// The metadata and the record of a checkpoint were written, or not.
    Persisted { checkpoint: CheckpointId, store: Box<CheckpointStore>, outcome: Result<(), PersistError> },
    /// What sinks had prepared for a checkpoint was committed, or not.
    Committed { checkpoint: CheckpointId, outcome: Result<(), JobError> },
    /// A task that acts for the coordinator came to no end: a bug.
    Died { place: String },
}

/// Runs a task that acts for the coordinator, and reports what it comes to; nothing if it was given up.
pub(super) fn spawn_reporting(
    control: &dyn Spawner,
    place: String,
    reports: &mpsc::UnboundedSender<Report>,
    work: impl Future<Output = Option<Report>> + Send + 'static,
) {
    let reporter = Reporter { place: place.clone(), reports: reports.clone(), silent: false };
    drop(task::spawn(control, place, async move { reporter.report(work.await) }));
}

/// Reports once: if the task comes to its end without, by a panic, that is told.
struct Reporter {
    place: String,
    reports: mpsc::UnboundedSender<Report>,
    silent: bool,
}

impl Reporter {
    fn report(mut self, report: Option<Report>) {
        self.silent = true;
        if let Some(report) = report {
            // A coordinator that is gone has ended its attempt.
            let _ = self.reports.send(report);
        }
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        if !self.silent {
            let _ = self.reports.send(Report::Died { place: std::mem::take(&mut self.place) });
        }
    }
}

/// What a job with checkpoints gives to each of its subtasks.
#[derive(Clone)]
pub(super) struct EpochLink {
    pub(super) notices: watch::Receiver<Notices>,
    pub(super) reports: mpsc::UnboundedSender<Report>,
    pub(super) snapshots: Arc<Snapshots>,
    /// The attempt is over before its end: no cut need become durable.
    pub(super) over: CancellationToken,
}

/// A subtask's side of checkpoints; without a link when the job has none.
pub(super) struct Epochs {
    task: TaskIndex,
    link: Option<EpochLink>,
    /// The last checkpoint whose barrier was passed on, and what ends the making of its cut.
    last: Option<(CheckpointId, CancellationToken)>,
}

impl Epochs {
    pub(super) fn new(task: TaskIndex, link: Option<EpochLink>) -> Self {
        Self { task, link, last: None }
    }

    /// What is new; none when nothing is.
    pub(super) fn news(&mut self) -> Option<Notices> {
        let notices = &mut self.link.as_mut()?.notices;
        // A coordinator that is gone has nothing to tell any more.
        let changed = notices.has_changed().unwrap_or(false);
        changed.then(|| *notices.borrow_and_update())
    }

    /// Waits for what is new, for ever if there are no checkpoints.
    pub(super) async fn wait_for_news(&mut self) -> Notices {
        if let Some(link) = &mut self.link
            && link.notices.changed().await.is_ok()
        {
            return *link.notices.borrow_and_update();
        }
        std::future::pending().await
    }

    /// A checkpoint was given up, and all before it: its cut need not become durable.
    pub(super) fn abort(&mut self, checkpoint: CheckpointId) {
        if let Some((last, making)) = &self.last
            && *last <= checkpoint
        {
            making.cancel();
        }
    }

    /// The last checkpoint whose barrier was passed on. What the task holds at its end can stand for later ones only:
    /// who received that barrier counts on what the task held then.
    pub(super) fn last_barrier(&self) -> Option<CheckpointId> {
        self.last.as_ref().map(|(last, _)| *last)
    }

    /// Makes a cut durable in the background, and tells the coordinator.
    pub(super) fn save(&mut self, checkpoint: CheckpointId, cut: Cut) {
        let link = self.link.as_ref().expect("barriers come from a coordinator");
        let making = link.over.child_token();
        if let Some((_, older)) = self.last.replace((checkpoint, making.clone())) {
            older.cancel();
        }
        let (task, place) = (self.task, format!("{checkpoint} of task {}", self.task.0));
        let snapshots = Arc::clone(&link.snapshots);
        let saving = async move {
            Some(match snapshots.save(checkpoint, cut, &making).await? {
                Ok(saved) => Report::Acknowledged { task, checkpoint, saved },
                // What a sink wrote is lost with its file: no later checkpoint can carry it.
                Err(source @ SaveError::Sink { .. }) => Report::Failed(source),
                Err(source) => Report::Declined { task, checkpoint, source },
            })
        };
        spawn_reporting(&*link.snapshots.env.control, place, &link.reports, saving);
    }
}
