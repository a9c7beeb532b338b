//! The `Source` traits.
//!
//! A source is cut into splits that do not depend on parallelism. Its enumerator, one per job, finds them and hands
//! them out; a reader, one per subtask, reads the splits that it was given and can tell at any time how far each has
//! come. Enumerator state and split positions together are what a checkpoint must keep to read every record once.

use std::path::Path;

use futures_util::future::BoxFuture;

use super::ConnectorError;
use crate::env::Env;
use crate::id::SubtaskId;
use crate::record::{Batch, StreamShape};

/// Whether a source ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Boundedness {
    /// It ends by itself.
    Bounded,
    /// It goes on until the job is stopped.
    Unbounded,
}

/// How much there is to read in all, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// So many bytes.
    Bytes(u64),
    /// So many records.
    Records(u64),
}

/// A part of a source's input, read by one reader at a time, and how far it has been read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// Names the split among those of its source.
    pub id: String,
    /// Where it begins or how far it has been read, in the source's own encoding.
    pub position: Vec<u8>,
}

/// What a source left in a checkpoint, to go on from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoredSource {
    /// What the enumerator's [`snapshot`](SplitEnumerator::snapshot) returned.
    pub enumerator: Vec<u8>,
    /// The splits that readers had not finished, with how far each had been read. They are handed out first, to whichever
    /// reader asks.
    pub splits: Vec<Split>,
}

/// A source, made from its table of the job file.
pub trait Source: Send + Sync {
    /// Whether it ends by itself.
    fn boundedness(&self) -> Boundedness;

    /// What its records carry.
    fn shape(&self) -> StreamShape;

    /// Why records that were read once cannot be read again, if so. The user is told once.
    fn cannot_replay(&self) -> Option<String>;

    /// Whether it reads, or may come to read, what a file sink writes into this directory, or reads what such a sink may
    /// remove from there. Blocks. The path is canonical.
    fn meets_output_in(&self, _directory: &Path) -> bool {
        false
    }

    /// Makes the enumerator: of a fresh start, or one that goes on from a checkpoint.
    fn enumerator(&self, env: &Env, restored: Option<RestoredSource>) -> Box<dyn SplitEnumerator>;

    /// Makes the reader of a subtask.
    fn reader(&self, context: ReaderContext) -> Box<dyn SourceReader>;
}

/// What a reader is given.
#[derive(Clone, Debug)]
pub struct ReaderContext {
    /// The subtask that reads.
    pub subtask: SubtaskId,
    /// The world.
    pub env: Env,
    /// The largest record, in bytes; a larger one is an error that names it.
    pub max_record_bytes: usize,
}

/// Finds the splits of a source and hands them out. Runs on the control threads, one per source and job.
pub trait SplitEnumerator: Send {
    /// Looks at the input. Called once, before anything else; an input that is missing shows here, and so does a restored
    /// state that cannot be read. What was found before the checkpoint is not looked for again.
    fn start(&mut self) -> BoxFuture<'_, Result<(), ConnectorError>>;

    /// The next split for a subtask, or none when there will be no more. May wait for input to appear; dropping the
    /// future loses no split.
    fn next_split(&mut self, subtask: u32) -> BoxFuture<'_, Result<Option<Split>, ConnectorError>>;

    /// Everything that a new enumerator needs to go on: what was found and not handed out, and how to find the rest. Says
    /// nothing of splits that were handed out, which are the readers' to snapshot, but that they are not to be found again.
    fn snapshot(&self) -> Vec<u8>;

    /// A reader has read a split to its end. May come late, or never after a failure.
    fn split_finished(&mut self, split: &str);

    /// How much there is to read from this start on, if that is known once started; what was read before a checkpoint
    /// does not count.
    fn extent(&self) -> Option<Extent>;
}

/// What a reader came across.
#[derive(Debug)]
pub enum ReaderEvent {
    /// Records. Their shape is the source's.
    Batch(Batch),
    /// The split of this id has been read to its end; another may be asked for.
    SplitFinished(String),
}

/// Reads splits. Driven by a subtask's loop.
pub trait SourceReader: Send {
    /// Takes on a split, behind those it has.
    ///
    /// # Errors
    /// When the split's position cannot be understood.
    fn add_split(&mut self, split: Split) -> Result<(), ConnectorError>;

    /// Whether it takes on more splits while it has unfinished ones, as a reader must whose splits never end.
    fn takes_more_splits(&self) -> bool {
        false
    }

    /// Waits for what comes next. Cancel-safe: dropping the future loses nothing, and it is dropped often. Never called
    /// without a split at hand. A batch is what can be had without waiting, up to some 4,096 records or 64 KiB.
    fn next(&mut self) -> BoxFuture<'_, Result<ReaderEvent, ConnectorError>>;

    /// The splits at hand with how far each has been read: exactly the records returned by `next` lie behind. At any time,
    /// also right after `add_split`.
    fn snapshot(&self) -> Vec<Split>;

    /// How much this reader has read, in the unit of the enumerator's extent, else in bytes.
    fn progress(&self) -> u64;
}
