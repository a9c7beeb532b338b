//! Where a job's checkpoints are kept: its directory, its log, and which checkpoints are in there.
//!
//! Owns what a run does with them, in the order that matters: claim, read, collect garbage; metadata, record, and only
//! then the end of older checkpoints. The rules are those of `protocol::{run_log, retention}`, the files those of
//! `checkpoint`.

use std::path::Path;
use std::sync::Arc;

use super::job::JobContext;
use super::restored::{RestoreError, RestoreRules, Restored, node_metadata};
use crate::api::{CheckpointSettings, StartMode};
use crate::checkpoint::choose::{ChooseError, StartIn, choose};
use crate::checkpoint::directory::JobDirectory;
use crate::checkpoint::garbage;
use crate::checkpoint::lock::{DirectoryLock, IfLocked, LockError};
use crate::checkpoint::metadata::{CheckpointMetadata, NodeMetadata};
use crate::checkpoint::metadata_file::{self, LoadError, LoadedCheckpoint, Written};
use crate::checkpoint::run_log::{Appended, ClaimError, LogView, RunLog, RunLogError};
use crate::checkpoint::storage::{Storage, StorageError};
use crate::connectors::Committable;
use crate::env::Env;
use crate::id::{Attempt, CheckpointId, NodeId, Owner};
use crate::protocol::retention::{CompletedCheckpoints, JobEnd};
use crate::protocol::run_log::{Claim, Digest, LoggedCheckpoint, Record, RestorePoint, Resume};
use crate::random::Random;
use crate::task;

/// How often a job is claimed anew because another process moved on meanwhile.
const CLAIM_TRIES: u32 = 3;

/// Why a job cannot start where it was told to, or go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The storage cannot be used.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// There is no directory to start in.
    #[error(transparent)]
    Directory(#[from] ChooseError),
    /// Another process runs the job.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The log cannot be used.
    #[error(transparent)]
    Log(#[from] RunLogError),
    /// The job could not be claimed.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// The checkpoint cannot be read.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The checkpoint does not fit the job.
    #[error("{checkpoint} does not fit the job")]
    Restore {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// What does not fit.
        source: RestoreError,
    },
}

/// Why a checkpoint is not complete, or perhaps not.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PersistError {
    /// It is not, and never will be.
    #[error("its metadata could not be written")]
    Failed(#[source] StorageError),
    /// It is not: the id was used by another process, which has lost the job.
    #[error("its id was used by another process")]
    Taken,
    /// Another process has taken the job over.
    #[error("another process has taken the job over, as run {by}; this one ends, and commits nothing more")]
    Fenced {
        /// The run of the other.
        by: u64,
    },
    /// Nobody knows.
    #[error("it is not known whether its record is in the job's log")]
    Unknown(#[source] RunLogError),
}

/// Where a job's checkpoints are kept.
pub(super) struct CheckpointStore {
    env: Env,
    settings: CheckpointSettings,
    storage: Arc<dyn Storage>,
    log: RunLog,
    /// What the log is claimed with once more, should its end become unknown.
    claim: Claim,
    job: String,
    max_parallelism: u32,
    attempt: Attempt,
    next: CheckpointId,
    /// The checkpoints of this directory that are complete and kept.
    completed: CompletedCheckpoints<CheckpointMetadata>,
    _lock: DirectoryLock,
}

/// What opening a store led to.
pub(super) enum Opened {
    /// The job can run.
    Ready { store: Box<CheckpointStore>, restored: Restored },
    /// The job had finished; this is what its last checkpoint has to commit.
    Finished(Vec<(NodeId, Vec<Committable>)>),
}

impl CheckpointStore {
    /// Finds the job's directory, claims the job in it, and reads what it goes on from.
    pub(super) async fn open(job: &JobContext, settings: &CheckpointSettings) -> Result<Opened, StartError> {
        let (env, options) = (&job.env, &job.options);
        let storage = env.storage.open(&settings.storage).await?;
        let (start, from) = match &options.start {
            StartMode::Default => (StartIn::New, None),
            StartMode::Resume => (StartIn::Latest, None),
            StartMode::Fresh => (StartIn::Fresh, None),
            StartMode::From(path) => (StartIn::Fresh, Some(path)),
        };
        let key = u32::try_from(random(env, "directory") >> 32).expect("half of the bits");
        let mut view = choose(&storage, &env.clock, job.graph.name(), start, key).await?;
        let if_locked = if options.take_over { IfLocked::TakeOver } else { IfLocked::Fail };
        let lock = DirectoryLock::acquire(&*storage, &*env.compute, view.directory(), if_locked).await?;
        // A checkpoint that does not fit is refused before the log says that the job goes on from it.
        let mut restored = match from {
            Some(path) => Some(matched(job, elsewhere(env, path).await?)?),
            None => None,
        };
        let mut tries = 0;
        let (log, claim) = loop {
            let restored_from = match (from, view.resume()) {
                (Some(path), _) => Some(RestorePoint::Elsewhere { path: path.display().to_string() }),
                (None, Resume::Fresh) => None,
                (None, Resume::From(point)) => Some(point),
                (None, Resume::Stopped { savepoint }) => Some(RestorePoint::Elsewhere { path: savepoint }),
                (None, Resume::Finished { last }) => return finished(job, &storage, view.directory(), last).await,
            };
            let claim = Claim { restored_from, job_file: options.job_file.clone(), graph: graph_digest(job) };
            tries += 1;
            match view.claim(random(env, "claim"), claim.clone()).await {
                Ok(log) => break (log, claim),
                // Who starts afresh meant to start alone.
                Err(ClaimError::Moved(moved)) if tries < CLAIM_TRIES && start == StartIn::Latest => view = *moved,
                Err(error) => return Err(error.into()),
            }
        };
        let mut store = Self {
            env: env.clone(),
            settings: settings.clone(),
            storage,
            attempt: Attempt::first(log.run()),
            next: CheckpointId(1),
            log,
            claim,
            job: job.graph.name().to_owned(),
            max_parallelism: job.graph.max_parallelism(),
            completed: CompletedCheckpoints::new(settings.keep, []),
            _lock: lock,
        };
        let read = store.take_stock(job, restored.is_some()).await?;
        let restored = restored.take().unwrap_or(read);
        Ok(Opened::Ready { store: Box::new(store), restored })
    }

    /// Where files are.
    pub(super) fn storage(&self) -> Arc<dyn Storage> {
        Arc::clone(&self.storage)
    }

    /// The job's directory.
    pub(super) fn directory(&self) -> &JobDirectory {
        self.log.directory()
    }

    /// The random number of the run.
    pub(super) fn nonce(&self) -> u64 {
        self.log.nonce()
    }

    /// Who writes now.
    pub(super) fn owner(&self) -> Owner {
        Owner { job: self.directory().key().to_owned(), attempt: self.attempt }
    }

    /// The id of the next checkpoint: above every one ever seen in the directory.
    pub(super) fn next_checkpoint(&self) -> CheckpointId {
        self.next
    }

    /// An id was used, whatever came of it.
    pub(super) fn used(&mut self, checkpoint: CheckpointId) {
        self.next = self.next.max(CheckpointId(checkpoint.0 + 1));
    }

    /// Makes a checkpoint complete: its metadata first, then its record, which is what counts. Older ones go then.
    pub(super) async fn persist(
        &mut self,
        checkpoint: CheckpointId,
        nodes: Vec<NodeMetadata>,
    ) -> Result<(), PersistError> {
        let metadata = CheckpointMetadata {
            job: self.job.clone(),
            job_key: self.directory().key().to_owned(),
            checkpoint,
            attempt: self.attempt,
            nonce: self.log.nonce(),
            completed_at_ms: u64::try_from(self.env.clock.wall().as_millis()).unwrap_or(u64::MAX),
            max_parallelism: self.max_parallelism,
            nodes,
        };
        let written = metadata_file::write(&*self.storage, &*self.env.clock, self.directory(), &metadata).await;
        let digest = match written {
            Written::Written(digest) => digest,
            // As a rule by the process that has taken the job over.
            Written::Taken => {
                return Err(match self.read_log().await.map(|view| self.overtaken_by(&view)) {
                    Ok(Some(by)) => PersistError::Fenced { by },
                    Ok(None) | Err(_) => PersistError::Taken,
                });
            }
            // Even if it is there: without a record it does not count, and is collected one day.
            Written::Unknown(error) => return Err(PersistError::Failed(error)),
        };
        let logged = LoggedCheckpoint { run: self.log.run(), checkpoint, metadata: digest };
        self.append(Record::Checkpoint(logged)).await?;
        let subsumed = self.completed.completed(checkpoint, metadata);
        self.delete_in_background(&subsumed);
        Ok(())
    }

    /// Puts on record what counts from now on.
    async fn append(&mut self, record: Record) -> Result<(), PersistError> {
        match self.log.append(record).await {
            Appended::Appended => Ok(()),
            Appended::Fenced { by } => Err(PersistError::Fenced { by }),
            Appended::Unknown(error) => Err(PersistError::Unknown(error)),
        }
    }

    /// Turns to the next attempt of this process. Returns what it goes on from.
    pub(super) async fn recover(&mut self, job: &JobContext) -> Result<Restored, StartError> {
        self.attempt = self.attempt.next();
        let view = self.read_log().await?;
        if let Some(run) = self.overtaken_by(&view) {
            let directory = self.directory().to_string();
            return Err(ClaimError::Claimed { directory, run }.into());
        }
        if !self.log.holds() {
            // Nobody knows what became of the last record. A new claim makes sure that it is there or never will be.
            let restored_from = match view.resume() {
                Resume::From(point) => Some(point),
                Resume::Fresh | Resume::Stopped { .. } | Resume::Finished { .. } => None,
            };
            self.claim.restored_from = restored_from;
            self.log = view.claim(random(&self.env, "claim"), self.claim.clone()).await?;
            self.attempt = Attempt::first(self.log.run());
        }
        self.take_stock(job, false).await
    }

    async fn read_log(&self) -> Result<LogView, RunLogError> {
        let (storage, clock) = (Arc::clone(&self.storage), Arc::clone(&self.env.clock));
        LogView::open(storage, clock, self.directory().clone()).await
    }

    /// The run of another process that has claimed the job since.
    fn overtaken_by(&self, view: &LogView) -> Option<u64> {
        view.log().newest().map(|newest| newest.run).filter(|run| *run != self.log.run())
    }

    /// Reads what the job goes on from, unless that is known, and collects what nobody needs. Only after the claim.
    async fn take_stock(&mut self, job: &JobContext, known: bool) -> Result<Restored, StartError> {
        let point = match self.log.log().resume() {
            Resume::From(point) => Some(point),
            Resume::Fresh | Resume::Stopped { .. } | Resume::Finished { .. } => None,
        };
        let (mut restored, mut found) = (Restored::default(), Vec::new());
        match point {
            Some(RestorePoint::Elsewhere { path }) if !known => {
                restored = matched(job, elsewhere(&self.env, path.as_ref()).await?)?;
            }
            Some(RestorePoint::Elsewhere { .. }) | None => {}
            Some(RestorePoint::Checkpoint(newest)) => {
                let loaded = metadata_file::load_logged(&self.storage, self.directory(), &newest).await?;
                let metadata = loaded.metadata.clone();
                restored = matched(job, loaded)?;
                found = self.find_older(&newest).await;
                found.push(metadata);
            }
        }
        let found = found.into_iter().map(|metadata| (metadata.checkpoint, metadata));
        self.completed = CompletedCheckpoints::new(self.settings.keep, found);
        let next = self.log.next_checkpoint().await?;
        self.next = self.next.max(next);
        // The job goes on without: it deletes nothing, and what it goes on from is sound.
        if let Err(error) = garbage::collect(&self.storage, &self.log, self.settings.keep, self.attempt).await {
            let error = crate::error_chain::on_one_line(&error);
            tracing::warn!(job = self.job, "could not collect what nobody needs in the job's directory: {error}");
        }
        Ok(restored)
    }

    /// The checkpoints that were kept besides the newest, the oldest first.
    async fn find_older(&self, newest: &LoggedCheckpoint) -> Vec<CheckpointMetadata> {
        let mut found = Vec::new();
        let older = self.log.log().checkpoints().into_iter().filter(|logged| logged != newest);
        for logged in older.take(self.settings.keep.saturating_sub(1) as usize) {
            match metadata_file::load_logged(&self.storage, self.directory(), &logged).await {
                Ok(loaded) => found.push(loaded.metadata),
                Err(error) if error.is_gone() => break,
                Err(error) => {
                    let (checkpoint, error) = (logged.checkpoint, crate::error_chain::on_one_line(&error));
                    tracing::warn!(
                        job = self.job,
                        "cannot read {checkpoint}, which was kept besides the newest: {error}"
                    );
                    break;
                }
            }
        }
        found.reverse();
        found
    }

    /// Deletes checkpoints that are not kept any more. What this misses is collected with the next claim.
    fn delete_in_background(&self, subsumed: &[CheckpointMetadata]) {
        if subsumed.is_empty() {
            return;
        }
        let paths = subsumed.iter().map(|dropped| garbage::subsumed(dropped, self.completed.kept()));
        let (storage, directory, paths) =
            (Arc::clone(&self.storage), self.directory().clone(), paths.collect::<Vec<_>>());
        let deleting = async move {
            for paths in paths {
                if let Err(error) = garbage::delete_subsumed(&*storage, &directory, paths).await {
                    tracing::warn!(%error, "could not delete an old checkpoint");
                }
            }
        };
        drop(task::spawn(&*self.env.control, "delete subsumed checkpoints", deleting));
    }

    /// The newest complete checkpoint of the job's directory.
    pub(super) fn newest(&self) -> Option<CheckpointId> {
        self.completed.newest()
    }

    /// The newest checkpoint that is still there after such an end.
    pub(super) fn newest_after(&self, end: JobEnd) -> Option<CheckpointId> {
        self.newest().filter(|_| self.settings.retain.keeps_after(end))
    }

    /// The job ends: says so in the log, and deletes what is not to be kept.
    pub(super) async fn close(mut self, end: JobEnd) -> Result<(), PersistError> {
        let keeps = self.settings.retain.keeps_after(end);
        let record = match end {
            JobEnd::Finished => {
                let last = self.log.log().checkpoints().into_iter().next();
                Some(Record::Finished { last })
            }
            // The log must not send anyone to a checkpoint that is gone.
            JobEnd::Cancelled | JobEnd::Failed if !keeps => Some(Record::Discarded),
            JobEnd::Cancelled | JobEnd::Failed => None,
        };
        let Some(record) = record else { return Ok(()) };
        self.append(record).await?;
        if let Err(error) = garbage::collect(&self.storage, &self.log, 0, self.attempt.next()).await {
            let error = crate::error_chain::on_one_line(&error);
            tracing::warn!("could not delete the checkpoints of a job that is over: {error}");
        }
        Ok(())
    }
}

/// Reads what a job starts from that takes no checkpoints itself.
pub(super) async fn restore_from(job: &JobContext, path: &Path) -> Result<Restored, StartError> {
    matched(job, elsewhere(&job.env, path).await?)
}

/// A checkpoint or savepoint at a path of this machine.
async fn elsewhere(env: &Env, path: &Path) -> Result<LoadedCheckpoint, StartError> {
    Ok(metadata_file::load(&*env.storage, &*env.compute, path).await?)
}

/// A checkpoint, matched to the job.
fn matched(job: &JobContext, loaded: LoadedCheckpoint) -> Result<Restored, StartError> {
    let LoadedCheckpoint { metadata, files, .. } = loaded;
    let rules = RestoreRules {
        allow_non_restored_state: job.options.allow_non_restored_state,
        renames: job.options.renames.clone(),
    };
    let checkpoint = metadata.checkpoint;
    let restored = Restored::new(&job.graph, metadata, files, &rules);
    restored.map_err(|source| StartError::Restore { checkpoint, source })
}

/// The job had finished: its last checkpoint may still have something to commit, if it is still there.
async fn finished(
    job: &JobContext,
    storage: &Arc<dyn Storage>,
    directory: &JobDirectory,
    last: Option<LoggedCheckpoint>,
) -> Result<Opened, StartError> {
    let Some(logged) = last else { return Ok(Opened::Finished(Vec::new())) };
    match metadata_file::load_logged(storage, directory, &logged).await {
        Ok(loaded) => Ok(Opened::Finished(matched(job, loaded)?.committables())),
        Err(error) if error.is_gone() => Ok(Opened::Finished(Vec::new())),
        Err(error) => Err(error.into()),
    }
}

/// Tells the graphs of jobs apart: nodes, their kinds, inputs, parallelism and states.
fn graph_digest(job: &JobContext) -> Digest {
    Digest::of(format!("{:?} {:?}", job.graph.max_parallelism(), node_metadata(&job.graph)).as_bytes())
}

/// A random number that no other process draws: from the seed of the process and the time.
fn random(env: &Env, purpose: &str) -> u64 {
    let now = u64::try_from(env.clock.wall().as_nanos()).unwrap_or(u64::MAX);
    Random::for_purpose(env.seed, purpose, &[now]).next_u64()
}
