//! A job's log in storage: reading it, taking the job, adding to it.
//!
//! The rules are those of `protocol::run_log`; this is what performs them. Each record is a file of its own that is put
//! once, and the put is what decides: of several processes that want the next number one gets it.
//!
//! What always holds: a record that was appended is found by everyone who opens the log afterwards, and a run that found
//! itself fenced, or does not know what became of its last record, appends nothing any more. Of a record whose fate is
//! unknown only a new claim makes sure: either the record is there by then, or its place is taken and it never comes.

#[cfg(test)]
pub(super) mod testing;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::directory::{JobDirectory, JobFile};
use super::envelope::{EnvelopeError, Format};
use super::settle::{self, Settled};
use super::storage::{Storage, StorageError, StorageFailure};
use crate::clock::Clock;
use crate::id::CheckpointId;
use crate::protocol::run_log::{Claim, Entry, Log, LogError, Record, Resume, Taken};

const FORMAT: Format = Format { name: "record of a job's log", magic: *b"tg-runlg", version: 1 };

/// How many of the newest records are kept. More than checkpoints are ever kept, since what the log does not speak of
/// is collected as garbage.
pub const KEPT_RECORDS: u64 = 128;

/// How often a log is read that changes while it is read.
const READ_TRIES: u32 = 5;

/// The pause between two of them.
const READ_PAUSE: Duration = Duration::from_millis(50);

/// A log that was read.
#[derive(Clone)]
pub struct LogView {
    storage: Arc<dyn Storage>,
    clock: Arc<dyn Clock>,
    directory: JobDirectory,
    log: Log,
    kept: u64,
}

/// The log of a job that this process has taken.
pub struct RunLog {
    view: LogView,
    run: u64,
    nonce: u64,
    standing: Standing,
}

/// What a run knows about its hold on the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Holds,
    Fenced {
        by: u64,
    },
    /// A record is being put, or nobody knows what became of one.
    Unsure,
}

/// What became of a record.
#[derive(Debug)]
#[must_use]
pub enum Appended {
    /// It is there for good.
    Appended,
    /// Another process has taken the job. The record counts only if that process found it; here nothing may be
    /// committed or deleted any more.
    Fenced {
        /// The run of the other process, or of one after it.
        by: u64,
    },
    /// Nobody knows. Nothing may be committed or deleted until the log was opened and claimed anew.
    Unknown(RunLogError),
}

/// Why a log cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RunLogError {
    /// A file could not be read or written.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// A record does not open.
    #[error("cannot read {path}, a record of the job's log; without it nobody knows where the job stands")]
    Record {
        /// The record's file.
        path: String,
        /// What is wrong with it.
        source: EnvelopeError,
    },
    /// The records do not make a log.
    #[error("the job's log in {folder} is broken")]
    Broken {
        /// The log's folder.
        folder: String,
        /// What is wrong.
        source: LogError,
    },
    /// A record is where none can be.
    #[error("{path}, or a record behind it, was written by somebody who has no right to")]
    Intruder {
        /// The record's file.
        path: String,
    },
    /// A record went away.
    #[error("{path} was written and is not there any more")]
    Vanished {
        /// The record's file.
        path: String,
    },
    /// An earlier record's fate is unknown.
    #[error("the job's log cannot be written until it was claimed anew: an earlier record may or may not be in it")]
    Unsure,
}

/// Why a job could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// Another process was faster.
    #[error("another process has claimed the job in {directory}, as run {run}")]
    Claimed {
        /// The job's directory.
        directory: String,
        /// The other's run.
        run: u64,
    },
    /// The log has grown since it was read, by a process that has not ended yet. Where to go on from must be decided
    /// again.
    #[error("the job in {} went on while it was being claimed: another process is still running it", .0.storage.show(.0.directory.folder()))]
    Moved(Box<LogView>),
    /// The log could not be read or written.
    #[error(transparent)]
    Log(#[from] RunLogError),
}

impl LogView {
    /// Reads the log in a job's directory. One that is not there is an empty one.
    ///
    /// # Errors
    /// When a record cannot be read or is missing: an older one never stands in for it.
    pub async fn open(
        storage: Arc<dyn Storage>,
        clock: Arc<dyn Clock>,
        directory: JobDirectory,
    ) -> Result<Self, RunLogError> {
        let mut view = Self { storage, clock, directory, log: Log::default(), kept: KEPT_RECORDS };
        view.read().await?;
        Ok(view)
    }

    /// The job's directory.
    #[must_use]
    pub fn directory(&self) -> &JobDirectory {
        &self.directory
    }

    /// What was read.
    #[must_use]
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// From where the job goes on.
    #[must_use]
    pub fn resume(&self) -> Resume {
        self.log.resume()
    }

    /// Takes the job. To be done before anything is committed or deleted, with what `resume` says now. The nonce is a
    /// random number that no other process draws.
    ///
    /// # Errors
    /// When another process has taken it meanwhile or still adds to the log, or the log cannot be written.
    pub async fn claim(mut self, nonce: u64, claim: Claim) -> Result<RunLog, ClaimError> {
        let entry = self.log.claim(nonce, self.now_ms(), claim);
        match self.write(&entry).await? {
            None => {
                let run = entry.run;
                self.log.push(entry);
                Ok(RunLog { view: self, run, nonce, standing: Standing::Holds })
            }
            Some(Taken::Fenced { by }) => {
                Err(ClaimError::Claimed { directory: self.storage.show(self.directory.folder()), run: by })
            }
            Some(Taken::Moved) => {
                self.read().await?;
                Err(ClaimError::Moved(Box::new(self)))
            }
            Some(Taken::Broken) => Err(RunLogError::Intruder { path: self.shown(entry.sequence) }.into()),
        }
    }

    async fn read(&mut self) -> Result<(), RunLogError> {
        for tries_left in (0..READ_TRIES).rev() {
            // Meanwhile records may be added, and deleted, and a process that slept for long may put one where there had
            // been another. What was read then makes no log; what stays broken is.
            match self.read_once().await {
                Ok(log) => {
                    self.log = log;
                    return Ok(());
                }
                Err(RunLogError::Broken { .. }) if tries_left > 0 => {}
                Err(RunLogError::Storage(error)) if error.failure == StorageFailure::NotFound && tries_left > 0 => {}
                Err(error) => return Err(error),
            }
            self.clock.sleep(READ_PAUSE).await;
        }
        unreachable!("the last try returns")
    }

    async fn read_once(&self) -> Result<Log, RunLogError> {
        let mut found = BTreeMap::new();
        let listed = self.sequences().await?;
        if let Some(&newest) = listed.last() {
            let entry = self.record(newest).await?;
            for sequence in listed.into_iter().filter(|sequence| (entry.first..newest).contains(sequence)) {
                found.insert(sequence, self.record(sequence).await?);
            }
            found.insert(newest, entry);
        }
        let folder = self.storage.show(&self.directory.path(JobFile::LOG_FOLDER));
        Log::new(found).map_err(|source| RunLogError::Broken { folder, source })
    }

    /// The numbers of the records that are there, in order.
    async fn sequences(&self) -> Result<Vec<u64>, RunLogError> {
        let files = self.storage.list(&self.directory.path(JobFile::LOG_FOLDER)).await?;
        let sequence = |path: &str| match JobFile::parse(self.directory.relative(path)?) {
            JobFile::LogRecord(sequence) => Some(sequence),
            _ => None,
        };
        Ok(files.iter().filter_map(|file| sequence(&file.path)).collect())
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.clock.wall().as_millis()).unwrap_or(u64::MAX)
    }

    fn path(&self, sequence: u64) -> String {
        self.directory.path(JobFile::LogRecord(sequence))
    }

    /// The record's file, as errors name it.
    fn shown(&self, sequence: u64) -> String {
        self.storage.show(&self.path(sequence))
    }

    async fn record(&self, sequence: u64) -> Result<Entry, RunLogError> {
        let bytes = self.storage.get(&self.path(sequence)).await?;
        self.decode(sequence, &bytes)
    }

    fn decode(&self, sequence: u64, bytes: &[u8]) -> Result<Entry, RunLogError> {
        FORMAT.open(bytes).map_err(|source| RunLogError::Record { path: self.shown(sequence), source })
    }

    /// Puts a record, and says what another one in its place means.
    async fn put(&self, entry: &Entry) -> Result<Option<Taken>, RunLogError> {
        let bytes = Bytes::from(FORMAT.seal(entry));
        match settle::put(&*self.storage, &*self.clock, &self.path(entry.sequence), &bytes).await {
            Settled::Ours => Ok(None),
            Settled::Theirs(bytes) => Ok(Some(Taken::by(&self.decode(entry.sequence, &bytes)?, entry))),
            Settled::Unknown(error) => Err(error.into()),
        }
    }

    /// Looks again after a record was put, and says what a newer one means. This is not only to be early: a process that
    /// slept for long may have put its record where there had been another one, deleted since.
    async fn look_behind(&self, entry: &Entry) -> Result<Option<Taken>, RunLogError> {
        match self.sequences().await?.last() {
            Some(&newest) if newest > entry.sequence => Ok(Some(Taken::by(&self.record(newest).await?, entry))),
            Some(&newest) if newest == entry.sequence => Ok(None),
            _ => Err(RunLogError::Vanished { path: self.shown(entry.sequence) }),
        }
    }

    /// Puts a record and looks again.
    async fn write(&self, entry: &Entry) -> Result<Option<Taken>, RunLogError> {
        match self.put(entry).await? {
            None => self.look_behind(entry).await,
            taken => Ok(taken),
        }
    }
}

impl RunLog {
    /// This run.
    #[must_use]
    pub fn run(&self) -> u64 {
        self.run
    }

    /// The random number of this run.
    #[must_use]
    pub fn nonce(&self) -> u64 {
        self.nonce
    }

    /// The job's directory.
    #[must_use]
    pub fn directory(&self) -> &JobDirectory {
        &self.view.directory
    }

    /// What was read and added.
    #[must_use]
    pub fn log(&self) -> &Log {
        &self.view.log
    }

    /// The id of the next checkpoint, above every id that was ever seen in the directory, those of checkpoints that came
    /// to nothing included.
    ///
    /// # Errors
    /// When the directory cannot be listed.
    pub async fn next_checkpoint(&self) -> Result<CheckpointId, StorageError> {
        let folders = self.view.storage.folders(self.directory().folder()).await?;
        let seen = folders.iter().filter_map(|folder| JobFile::parse_checkpoint_folder(folder));
        let logged = self.log().checkpoints().into_iter().map(|logged| logged.checkpoint);
        Ok(CheckpointId(seen.chain(logged).max().map_or(1, |highest| highest.0 + 1)))
    }

    /// Whether this run has the job, as far as it knows.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.standing == Standing::Holds
    }

    /// Adds a record. Only when it is there for good may be done what it stands for. When the future is dropped, the
    /// record's fate is unknown.
    ///
    /// # Panics
    /// When the run has written its last record, or the record is about a checkpoint that is not newer than all others.
    pub async fn append(&mut self, record: Record) -> Appended {
        match self.standing {
            Standing::Holds => {}
            Standing::Fenced { by } => return Appended::Fenced { by },
            Standing::Unsure => return Appended::Unknown(RunLogError::Unsure),
        }
        let entry = self.view.log.next(self.view.now_ms(), record, self.view.kept);
        self.standing = Standing::Unsure;
        match self.view.write(&entry).await {
            Ok(None) => {
                self.standing = Standing::Holds;
                let first_before = self.view.log.first();
                self.view.log.push(entry);
                self.delete_below_first(first_before).await;
                Appended::Appended
            }
            Ok(Some(Taken::Fenced { by })) => {
                self.standing = Standing::Fenced { by };
                Appended::Fenced { by }
            }
            Ok(Some(Taken::Broken | Taken::Moved)) => {
                Appended::Unknown(RunLogError::Intruder { path: self.view.shown(entry.sequence) })
            }
            Err(error) => Appended::Unknown(error),
        }
    }

    /// Deletes records that count no more.
    async fn delete_below_first(&self, first_before: u64) {
        for sequence in first_before..self.view.log.first() {
            if let Err(error) = self.view.storage.delete(&self.view.path(sequence)).await {
                // It counts no more, whether it is there or not, and is collected with the next claim.
                tracing::debug!(%error, "could not delete an old record of the job's log");
            }
        }
    }
}

impl fmt::Debug for LogView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogView").field("directory", &self.directory).field("log", &self.log).finish_non_exhaustive()
    }
}

impl fmt::Debug for RunLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunLog").field("view", &self.view).field("standing", &self.standing).finish_non_exhaustive()
    }
}
