//! The `Sink` traits.
//!
//! Writing is in two steps: a writer, one per subtask, writes so that nobody sees it yet, and on `prepare` makes what it
//! wrote durable and hands out committables, opaque bytes that say what is to be made visible. A committer, one per
//! sink, makes it visible. Committing twice is the same as committing once, because after a crash it happens again.

use std::path::Path;

use futures_util::future::BoxFuture;

use super::ConnectorError;
use crate::env::Env;
use crate::id::{Owner, SubtaskId};
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

    /// The directory that it writes into, if it does: one job at a time may, and none of the job's sources may read there.
    fn directory(&self) -> Option<&Path> {
        None
    }

    /// Makes the target ready, or says why it cannot be used: called at each start of the job's tasks, before any writer is
    /// made. Changes nothing that anyone sees; what is to change with the first results is returned, to be committed
    /// with the first commit.
    fn prepare_target<'a>(
        &'a self,
        env: &'a Env,
        start: TargetStart,
    ) -> BoxFuture<'a, Result<Vec<Committable>, ConnectorError>>;

    /// Makes the writer of a subtask.
    fn writer(&self, context: WriterContext) -> Box<dyn SinkWriter>;

    /// Makes the committer of the sink.
    fn committer(&self, env: &Env) -> Box<dyn Committer>;
}

/// From where a job starts to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetStart {
    /// From the beginning: nothing of this job has been committed.
    Fresh,
    /// From a checkpoint: the target is the job's own already.
    Restored,
}

/// The second stage of [`SinkWriter::prepare`]: makes durable what was written and says what to commit; nothing if nothing
/// was written.
pub type Prepared = BoxFuture<'static, Result<Vec<Committable>, ConnectorError>>;

/// What a writer is given.
#[derive(Clone, Debug)]
pub struct WriterContext {
    /// The subtask that writes.
    pub subtask: SubtaskId,
    /// Who writes. What is pending carries this, so that no writer ever meets another's.
    pub owner: Owner,
    /// The world.
    pub env: Env,
}

/// Writes records. Driven by a subtask's loop; a call is awaited to its end unless the subtask is thrown away.
pub trait SinkWriter: Send {
    /// Writes records. May keep some back until `flush`.
    fn write<'a>(&'a mut self, batch: &'a Batch) -> BoxFuture<'a, Result<(), ConnectorError>>;

    /// No record is at hand: let go of what was kept back, for those who watch.
    fn flush(&mut self) -> BoxFuture<'_, Result<(), ConnectorError>>;

    /// Cuts the epoch: what was written since the last time is for the future that is returned to make durable, while what
    /// is written from now on belongs to the next one. Short. The future may be polled late and beside others of
    /// its kind; when it is dropped, nothing of the epoch is ever seen.
    fn prepare(&mut self) -> BoxFuture<'_, Result<Prepared, ConnectorError>>;

    /// One line about what was written, for the summary of the job; none when there is nothing to add to the count.
    fn summary(&self) -> Option<String> {
        None
    }
}

/// Makes prepared output visible.
pub trait Committer: Send {
    /// Makes sure that all of it is there, committed or not, and changes nothing: with several sinks each is checked before
    /// the first commits, so that what is incomplete stays unseen as a whole.
    fn check<'a>(&'a mut self, committables: &'a [Committable]) -> BoxFuture<'a, Result<(), ConnectorError>>;

    /// Commits. Idempotent: what was committed before is done.
    fn commit(&mut self, committables: Vec<Committable>) -> BoxFuture<'_, Result<(), ConnectorError>>;

    /// Removes what was written and not committed by the same job in attempts below this one; nobody else's. Only for when
    /// all that is to be committed by any sink of the job has been, since sinks may share a target.
    fn sweep<'a>(&'a mut self, before: &'a Owner) -> BoxFuture<'a, Result<(), ConnectorError>>;
}
