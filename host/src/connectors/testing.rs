//! What the connectors' tests share: a world to run in and ways to drive a source.

use std::future::Future;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::runtime::{Builder, Runtime};

use super::{
    Committable, ConnectorError, Extent, ReaderContext, ReaderEvent, RestoredSource, SinkWriter, Source, SourceReader,
    SplitEnumerator, WriterContext,
};
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
    read_in_lives(source, &[], readers, max_record_bytes)
}

/// The same, by a job of several lives: each has so many events and readers before a checkpoint is taken that the next one
/// goes on from. The last one has what is left, and knows how much that is.
pub(super) fn read_in_lives(
    source: &dyn Source,
    lives: &[(usize, u32)],
    last_readers: u32,
    max_record_bytes: usize,
) -> Result<Vec<Record>, ConnectorError> {
    block_on(async {
        let (mut all, mut restored) = (Vec::new(), None);
        for (events, readers) in lives {
            let mut life = Life::start(source, restored, *readers, max_record_bytes).await?;
            life.go(*events, &mut all).await?;
            restored = Some(life.checkpoint());
        }
        let mut life = Life::start(source, restored, last_readers, max_record_bytes).await?;
        life.go(usize::MAX, &mut all).await?;
        let read: u64 = life.readers.iter().map(|reader| reader.progress()).sum();
        if let Some(Extent::Bytes(extent) | Extent::Records(extent)) = life.enumerator.extent() {
            assert_eq!(extent, read, "what is left is what is read");
        }
        Ok(all)
    })
}

/// A source being read.
struct Life {
    enumerator: Box<dyn SplitEnumerator>,
    readers: Vec<Box<dyn SourceReader>>,
}

impl Life {
    async fn start(
        source: &dyn Source,
        restored: Option<RestoredSource>,
        readers: u32,
        max_record_bytes: usize,
    ) -> Result<Self, ConnectorError> {
        let env = env();
        let mut enumerator = source.enumerator(&env, restored);
        enumerator.start().await?;
        let reader = |index| source.reader(reader_context(&env, index, max_record_bytes));
        Ok(Self { enumerator, readers: (0..readers).map(reader).collect() })
    }

    /// So many events, a split or what a reader comes across, or all that there are.
    async fn go(&mut self, mut events: usize, all: &mut Vec<Record>) -> Result<(), ConnectorError> {
        let mut working = vec![true; self.readers.len()];
        while working.contains(&true) {
            for (index, reader) in self.readers.iter_mut().enumerate() {
                if !working[index] {
                    continue;
                }
                if events == 0 {
                    return Ok(());
                }
                events -= 1;
                if reader.snapshot().is_empty() {
                    match self.enumerator.next_split(u32::try_from(index).expect("few")).await? {
                        Some(split) => reader.add_split(split)?,
                        None => working[index] = false,
                    }
                    continue;
                }
                match reader.next().await? {
                    ReaderEvent::Batch(batch) => all.extend(records(&batch)),
                    ReaderEvent::SplitFinished(split) => self.enumerator.split_finished(&split),
                }
            }
        }
        Ok(())
    }

    fn checkpoint(&self) -> RestoredSource {
        let splits = self.readers.iter().flat_map(|reader| reader.snapshot()).collect();
        RestoredSource { enumerator: self.enumerator.snapshot(), splits }
    }
}
