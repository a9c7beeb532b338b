//! A sink in memory, which remembers what was written, prepared and committed.
//!
//! A part is what one writer wrote between two `prepare`s. The rules of the traits are checked: a broken one is a panic
//! in the task that broke it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use tidegate::clock::Clock;
use tidegate::connectors::{
    Commit, Committable, Committer, ConnectorError, Prepared, Sink, SinkWriter, TargetStart, WriterContext,
};
use tidegate::env::Env;
use tidegate::id::{Attempt, Owner, SubtaskId};
use tidegate::random::Random;
use tidegate::record::Batch;

use super::counters::Counters;
use super::record::Record;
use super::source::Pace;

/// How far a part has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Records are being added.
    Written,
    /// It waits for its commit.
    Prepared,
    /// It is visible.
    Committed,
    /// It never will be.
    Discarded,
}

/// Names a part: the attempt and the subtask that wrote it, and its number among those.
type PartId = (Owner, SubtaskId, u64);

#[derive(Debug)]
struct Part {
    stage: Stage,
    records: Vec<Record>,
}

/// What the outside sees of a sink. Outlives the job.
#[derive(Debug, Default)]
pub struct Output(Mutex<Contents>);

#[derive(Debug, Default)]
struct Contents {
    targets_prepared: u64,
    parts: BTreeMap<PartId, Part>,
}

impl Output {
    fn lock(&self) -> MutexGuard<'_, Contents> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The records that have come to a stage, by the subtask that wrote them, in the order of writing.
    #[must_use]
    pub fn records(&self, stage: Stage) -> BTreeMap<SubtaskId, Vec<Record>> {
        let mut records: BTreeMap<SubtaskId, Vec<Record>> = BTreeMap::new();
        for ((_, subtask, _), part) in self.lock().parts.iter().filter(|(_, part)| part.stage == stage) {
            records.entry(subtask.clone()).or_default().extend_from_slice(&part.records);
        }
        records
    }
}

/// A sink in memory.
#[derive(Clone)]
pub struct SimSink {
    /// Tells the sink's random numbers from those of others.
    pub name: &'static str,
    /// Where its records go.
    pub output: Arc<Output>,
    /// How slow it is; the largest batch has no meaning here.
    pub pace: Pace,
    /// Where it counts.
    pub counters: Arc<Counters>,
}

impl fmt::Debug for SimSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimSink").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Sink for SimSink {
    fn commit(&self) -> Commit {
        Commit::OnCommit
    }

    fn prepare_target<'a>(
        &'a self,
        env: &'a Env,
        start: TargetStart,
    ) -> BoxFuture<'a, Result<Vec<Committable>, ConnectorError>> {
        async move {
            Patience::new(self.pace, Random::for_purpose(env.seed, self.name, &[1]), env).wait().await;
            let mut contents = self.output.lock();
            contents.targets_prepared += 1;
            let committed = contents.parts.values().any(|part| part.stage == Stage::Committed);
            assert!(start == TargetStart::Restored || !committed, "a job that has committed does not start afresh");
            Ok(Vec::new())
        }
        .boxed()
    }

    fn writer(&self, context: WriterContext) -> Box<dyn SinkWriter> {
        assert!(self.output.lock().targets_prepared > 0, "a writer was made before the target was ready");
        let random = Random::for_purpose(context.env.seed, self.name, &[2, u64::from(context.subtask.index)]);
        Box::new(SimWriter {
            owner: context.owner,
            subtask: context.subtask,
            patience: Patience::new(self.pace, random, &context.env),
            sink: self.clone(),
            env: context.env,
            parts: 0,
            open: None,
        })
    }

    fn committer(&self, env: &Env) -> Box<dyn Committer> {
        let random = Random::for_purpose(env.seed, self.name, &[3]);
        Box::new(SimCommitter {
            output: Arc::clone(&self.output),
            counters: Arc::clone(&self.counters),
            patience: Patience::new(self.pace, random, env),
        })
    }
}

/// Waits now and then.
struct Patience {
    pace: Pace,
    random: Random,
    clock: Arc<dyn Clock>,
}

impl Patience {
    fn new(pace: Pace, random: Random, env: &Env) -> Self {
        Self { pace, random, clock: Arc::clone(&env.clock) }
    }

    async fn wait(&mut self) {
        if let Some(delay) = self.pace.delay(&mut self.random) {
            self.clock.sleep(delay).await;
        }
    }
}

struct SimWriter {
    owner: Owner,
    subtask: SubtaskId,
    patience: Patience,
    sink: SimSink,
    env: Env,
    parts: u64,
    open: Option<PartId>,
}

impl SinkWriter for SimWriter {
    fn write<'a>(&'a mut self, batch: &'a Batch) -> BoxFuture<'a, Result<(), ConnectorError>> {
        async move {
            assert!(!batch.is_empty(), "a sink is given records");
            self.patience.wait().await;
            let id = self.open.get_or_insert_with(|| {
                self.parts += 1;
                (self.owner.clone(), self.subtask.clone(), self.parts)
            });
            let mut contents = self.sink.output.lock();
            let part = contents.parts.entry(id.clone()).or_insert(Part { stage: Stage::Written, records: Vec::new() });
            assert_eq!(part.stage, Stage::Written);
            part.records.extend(Record::of(batch));
            Ok(())
        }
        .boxed()
    }

    fn flush(&mut self) -> BoxFuture<'_, Result<(), ConnectorError>> {
        async move {
            self.patience.wait().await;
            Ok(())
        }
        .boxed()
    }

    fn prepare(&mut self) -> BoxFuture<'_, Result<Prepared, ConnectorError>> {
        async move {
            self.patience.wait().await;
            let Some(id) = self.open.take() else { return Ok(ready(Ok(Vec::new())).boxed()) };
            let purpose = [4, u64::from(self.subtask.index), self.parts];
            let random = Random::for_purpose(self.env.seed, self.sink.name, &purpose);
            let mut patience = Patience::new(self.sink.pace, random, &self.env);
            let output = Arc::clone(&self.sink.output);
            let prepared = async move {
                patience.wait().await;
                if let Some(part) = output.lock().parts.get_mut(&id) {
                    // What was given up meanwhile stays so: its commit will be refused.
                    if part.stage == Stage::Written {
                        part.stage = Stage::Prepared;
                    }
                }
                let (Owner { job, attempt: Attempt { run, number: attempt } }, SubtaskId { node, index }, number) = id;
                Ok(vec![Committable(format!("{job}/{run}/{attempt}/{node}/{index}/{number}").into_bytes())])
            };
            Ok(prepared.boxed())
        }
        .boxed()
    }
}

struct SimCommitter {
    output: Arc<Output>,
    counters: Arc<Counters>,
    patience: Patience,
}

fn parse(committable: &Committable) -> Option<PartId> {
    let text = std::str::from_utf8(&committable.0).ok()?;
    let [job, run, attempt, node, index, number] = text.split('/').collect::<Vec<_>>().try_into().ok()?;
    let attempt = Attempt { run: run.parse().ok()?, number: attempt.parse().ok()? };
    let subtask = SubtaskId { node: node.to_owned(), index: index.parse().ok()? };
    Some((Owner { job: job.to_owned(), attempt }, subtask, number.parse().ok()?))
}

fn unknown(committable: &Committable) -> ConnectorError {
    ConnectorError::Other(format!("{committable:?} was not prepared here"))
}

impl Committer for SimCommitter {
    fn check<'a>(&'a mut self, committables: &'a [Committable]) -> BoxFuture<'a, Result<(), ConnectorError>> {
        async move {
            self.patience.wait().await;
            let contents = self.output.lock();
            for committable in committables {
                let part = parse(committable).and_then(|id| contents.parts.get(&id));
                let there = part.is_some_and(|part| matches!(part.stage, Stage::Prepared | Stage::Committed));
                if !there {
                    return Err(unknown(committable));
                }
            }
            Ok(())
        }
        .boxed()
    }

    fn commit(&mut self, committables: Vec<Committable>) -> BoxFuture<'_, Result<(), ConnectorError>> {
        async move {
            for committable in committables {
                self.patience.wait().await;
                let mut contents = self.output.lock();
                let part = parse(&committable).and_then(|id| contents.parts.get_mut(&id));
                let Some(part) = part else { return Err(unknown(&committable)) };
                match part.stage {
                    Stage::Prepared => {
                        part.stage = Stage::Committed;
                        self.counters.committed_records.fetch_add(part.records.len() as u64, Relaxed);
                    }
                    Stage::Committed => {}
                    Stage::Written | Stage::Discarded => panic!("a part was committed that is {:?}", part.stage),
                }
            }
            Ok(())
        }
        .boxed()
    }

    fn sweep<'a>(&'a mut self, before: &'a Owner) -> BoxFuture<'a, Result<(), ConnectorError>> {
        async move {
            self.patience.wait().await;
            for ((owner, ..), part) in &mut self.output.lock().parts {
                let earlier = owner.job == before.job && owner.attempt < before.attempt;
                if earlier && part.stage != Stage::Committed {
                    part.stage = Stage::Discarded;
                }
            }
            Ok(())
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests;
