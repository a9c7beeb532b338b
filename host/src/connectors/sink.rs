//! The `Sink` traits.
//!
//! Writing is in two steps: a writer, one per subtask, writes so that nobody sees it yet, and on `prepare` makes what it
//! wrote durable and hands out committables, opaque bytes that say what is to be made visible. A committer, one per
//! job, makes it visible. Committing twice is the same as committing once, because after a crash it happens again.

use futures_util::future::BoxFuture;

use super::ConnectorError;
use crate::env::Env;
use crate::id::SubtaskId;
use crate::record::Batch;

/// Something prepared, to be committed: opaque to everyone but the sink that made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committable(pub Vec<u8>);

/// When written records become visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commit {
    /// With a commit, so that results are exactly once.
    OnCommit,
    /// As they are written; after a failure some may be seen twice. The user is told once.
    AtOnce,
}

/// A sink, made from its table of the job file.
pub trait Sink: Send + Sync {
    /// When written records become visible.
    fn commit(&self) -> Commit;

    /// Makes the target ready for a fresh start, or says why it cannot be used: called once, before any writer is made.
    fn prepare_target<'a>(&'a self, env: &'a Env) -> BoxFuture<'a, Result<(), ConnectorError>>;

    /// Makes the writer of a subtask.
    fn writer(&self, context: WriterContext) -> Box<dyn SinkWriter>;

    /// Makes the committer of the job.
    fn committer(&self, env: &Env) -> Box<dyn Committer>;
}

/// What a writer is given.
#[derive(Clone, Debug)]
pub struct WriterContext {
    /// The subtask that writes.
    pub subtask: SubtaskId,
    /// Distinguishes this life of the job from all others; unique, and safe in a file name.
    pub run: String,
    /// The world.
    pub env: Env,
}

/// Writes records. Driven by a subtask's loop; a call is awaited to its end unless the subtask is thrown away.
pub trait SinkWriter: Send {
    /// Writes records. May keep some back until `flush`.
    fn write<'a>(&'a mut self, batch: &'a Batch) -> BoxFuture<'a, Result<(), ConnectorError>>;

    /// No record is at hand: let go of what was kept back, for those who watch.
    fn flush(&mut self) -> BoxFuture<'_, Result<(), ConnectorError>>;

    /// Makes everything written since the last time durable and says what to commit; nothing if nothing was written.
    fn prepare(&mut self) -> BoxFuture<'_, Result<Vec<Committable>, ConnectorError>>;

    /// One line about what was written, for the summary of the job; none when there is nothing to add to the count.
    fn summary(&self) -> Option<String> {
        None
    }
}

/// Makes prepared output visible.
pub trait Committer: Send {
    /// Commits. Idempotent.
    fn commit(&mut self, committables: Vec<Committable>) -> BoxFuture<'_, Result<(), ConnectorError>>;

    /// Gives up what was prepared or written by this run and will never be committed.
    fn discard(&mut self, run: &str) -> BoxFuture<'_, Result<(), ConnectorError>>;
}
