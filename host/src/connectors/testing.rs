//! What the connectors' tests share: a world to run in and ways to drive a source.

use std::future::Future;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::runtime::{Builder, Runtime};

use super::{Committable, ConnectorError, ReaderContext, ReaderEvent, SinkWriter, Source, SourceReader, WriterContext};
use crate::clock::Clock;
use crate::env::Env;
use crate::id::{Attempt, Owner, SubtaskId};
use crate::record::Batch;

static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime"));

/// The machine itself.
pub(super) fn env() -> Env {
    Env::system(RUNTIME.handle(), RUNTIME.handle(), 1)
}

/// Runs a future to its end.
pub(super) fn block_on<F: Future>(future: F) -> F::Output {
    RUNTIME.block_on(future)
}

/// A clock whose time passes only where it is slept.
#[derive(Default)]
pub(super) struct VirtualClock {
    now: Mutex<Duration>,
}

impl Clock for VirtualClock {
    fn wall(&self) -> Duration {
        Duration::from_secs(1_000_000_000) + self.monotonic()
    }

    fn monotonic(&self) -> Duration {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner) += duration;
        crate::task::yield_now().boxed()
    }
}

/// The machine itself, but for its clock.
pub(super) fn env_with_clock(clock: &Arc<VirtualClock>) -> Env {
    let clock: Arc<dyn Clock> = clock.clone();
    Env { clock, ..env() }
}

fn subtask(index: u32) -> SubtaskId {
    SubtaskId { node: "node".to_owned(), index }
}

/// The first attempt of a job.
pub(super) fn owner(job: &str) -> Owner {
    Owner { job: job.to_owned(), attempt: Attempt::first(1) }
}

/// The context of a writer in the first attempt of a job.
pub(super) fn writer_context(env: &Env, index: u32, job: &str) -> WriterContext {
    WriterContext { subtask: subtask(index), owner: owner(job), env: env.clone() }
}

/// Both stages of preparing.
pub(super) async fn prepare(writer: &mut dyn SinkWriter) -> Result<Vec<Committable>, ConnectorError> {
    writer.prepare().await?.await
}

/// A reader's context.
pub(super) fn reader_context(env: &Env, index: u32, max_record_bytes: usize) -> ReaderContext {
    ReaderContext { subtask: subtask(index), env: env.clone(), max_record_bytes }
}

/// A record as a tuple.
pub(super) type Record = (Option<Vec<u8>>, Vec<u8>, Option<i64>);

/// The records of a batch.
pub(super) fn records(batch: &Batch) -> Vec<Record> {
    let record = |at: usize| {
        let key = batch.key(at).map(<[u8]>::to_vec);
        (key, batch.values().get(at).to_vec(), batch.timestamps().get(at).copied())
    };
    (0..batch.len()).map(record).collect()
}

/// Everything that a bounded source holds, read by as many readers as told, in turns of one event.
pub(super) fn read_all(
    source: &dyn Source,
    readers: u32,
    max_record_bytes: usize,
) -> Result<Vec<Record>, ConnectorError> {
    let env = env();
    block_on(async {
        let mut enumerator = source.enumerator(&env, None);
        enumerator.start().await?;
        let mut all = Vec::new();
        let mut readers: Vec<Box<dyn SourceReader>> =
            (0..readers).map(|index| source.reader(reader_context(&env, index, max_record_bytes))).collect();
        let mut working = vec![true; readers.len()];
        while working.contains(&true) {
            for (index, reader) in readers.iter_mut().enumerate() {
                if !working[index] {
                    continue;
                }
                if reader.snapshot().is_empty() {
                    match enumerator.next_split(u32::try_from(index).expect("few")).await? {
                        Some(split) => reader.add_split(split)?,
                        None => working[index] = false,
                    }
                    continue;
                }
                if let ReaderEvent::Batch(batch) = reader.next().await? {
                    all.extend(records(&batch));
                }
            }
        }
        Ok(all)
    })
}
