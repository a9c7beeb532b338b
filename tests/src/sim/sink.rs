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

use super::faults::Fault;
use super::record::Record;
use super::source::Pace;
use super::surroundings::Surroundings;

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
    /// The seed of the process that wrote it.
    process_seed: u64,
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

    /// What is neither visible nor given up, but for what some processes wrote, known by their seeds.
    #[must_use]
    pub fn pending(&self, except: impl Fn(u64) -> bool) -> Vec<String> {
        let contents = self.lock();
        let pending = contents
            .parts
            .iter()
            .filter(|(_, part)| matches!(part.stage, Stage::Written | Stage::Prepared) && !except(part.process_seed));
        pending.map(|((owner, subtask, number), part)| format!("{owner} {subtask} {number} {:?}", part.stage)).collect()
    }

    /// Whether something that is to be committed is there, committed or not.
    ///
    /// # Errors
    /// What became of it, in words.
    pub fn check_whole(&self, committable: &Committable) -> Result<(), String> {
        let contents = self.lock();
        let part = parse(committable).and_then(|id| contents.parts.get(&id));
        match part.map(|part| part.stage) {
            Some(Stage::Prepared | Stage::Committed) => Ok(()),
            stage => {
                let text = String::from_utf8_lossy(&committable.0);
                Err(format!("{text} is in a checkpoint that is complete, and is {stage:?}"))
            }
        }
    }

    /// A process is gone: what it had not made durable is lost, or not. Returns how many parts are.
    pub fn crashed(&self, process_seed: u64, random: &mut Random) -> u64 {
        let mut lost = 0;
        for part in self.lock().parts.values_mut() {
            if part.process_seed == process_seed && part.stage == Stage::Written && random.below(2) == 0 {
                part.stage = Stage::Discarded;
                lost += 1;
            }
        }
        lost
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
    /// What is around it.
    pub around: Arc<Surroundings>,
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
            self.strikes(Fault::TargetFails)?;
            let mut contents = self.output.lock();
            contents.targets_prepared += 1;
            let committed = contents.parts.values().any(|part| part.stage == Stage::Committed);
            if start == TargetStart::Fresh && committed && !self.around.is_overtaken(env.seed) {
                self.around.journal.broken(format!("{}: a job that has committed starts afresh", self.name));
            }
            Ok(Vec::new())
        }
        .boxed()
    }

    fn writer(&self, context: WriterContext) -> Box<dyn SinkWriter> {
        assert!(self.output.lock().targets_prepared > 0, "a writer was made before the target was ready");
        self.around.begins_to_write(context.env.seed);
        if context.subtask.index == 0 && context.owner.attempt.number > 1 {
            self.around.counters.restarts.fetch_add(1, Relaxed);
        }
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
        Box::new(SimCommitter { sink: self.clone(), patience: Patience::new(self.pace, random, env) })
    }
}

impl SimSink {
    /// Fails if this goes wrong now.
    fn strikes(&self, fault: Fault) -> Result<(), ConnectorError> {
        if !self.around.faults.strikes(fault) {
            return Ok(());
        }
        self.around.counters.connector_errors.fetch_add(1, Relaxed);
        Err(ConnectorError::Other(format!("simulated: {fault:?} at {}", self.name)))
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
            self.sink.strikes(Fault::WriteFails)?;
            let id = self.open.get_or_insert_with(|| {
                self.parts += 1;
                (self.owner.clone(), self.subtask.clone(), self.parts)
            });
            let mut contents = self.sink.output.lock();
            let process_seed = self.env.seed;
            let fresh = || Part { stage: Stage::Written, process_seed, records: Vec::new() };
            let part = contents.parts.entry(id.clone()).or_insert_with(fresh);
            // As with a file that somebody else deleted: what is written goes nowhere, and its commit will be refused.
            if part.stage == Stage::Written {
                part.records.extend(Record::of(batch));
            }
            if part.process_seed != process_seed {
                self.sink.around.journal.broken(format!("{id:?} was written by two processes"));
            }
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
            let sink = self.sink.clone();
            let prepared = async move {
                patience.wait().await;
                sink.strikes(Fault::PrepareFails)?;
                if let Some(part) = sink.output.lock().parts.get_mut(&id) {
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
    sink: SimSink,
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

impl SimCommitter {
    fn commit_one(&self, committable: &Committable) -> Result<(), ConnectorError> {
        let (mut contents, around) = (self.sink.output.lock(), &self.sink.around);
        let part = parse(committable).and_then(|id| contents.parts.get_mut(&id));
        let part = part.ok_or_else(|| unknown(committable))?;
        match part.stage {
            Stage::Prepared => {
                part.stage = Stage::Committed;
                around.counters.committed_records.fetch_add(part.records.len() as u64, Relaxed);
                Ok(())
            }
            Stage::Committed => {
                around.counters.replayed_commits.fetch_add(1, Relaxed);
                Ok(())
            }
            Stage::Written | Stage::Discarded => {
                let text = String::from_utf8_lossy(&committable.0);
                around.journal.broken(format!("{}: {text} is to be committed but {:?}", self.sink.name, part.stage));
                Err(unknown(committable))
            }
        }
    }
}

impl Committer for SimCommitter {
    fn check<'a>(&'a mut self, committables: &'a [Committable]) -> BoxFuture<'a, Result<(), ConnectorError>> {
        async move {
            self.patience.wait().await;
            for committable in committables {
                self.sink.output.check_whole(committable).map_err(|problem| {
                    self.sink.around.journal.broken(format!("{}: {problem}", self.sink.name));
                    unknown(committable)
                })?;
            }
            Ok(())
        }
        .boxed()
    }

    fn commit(&mut self, committables: Vec<Committable>) -> BoxFuture<'_, Result<(), ConnectorError>> {
        async move {
            for committable in &committables {
                self.patience.wait().await;
                self.sink.strikes(Fault::CommitFails)?;
                self.commit_one(committable)?;
            }
            self.sink.strikes(Fault::CommitFailsAfterwards)
        }
        .boxed()
    }

    fn sweep<'a>(&'a mut self, before: &'a Owner) -> BoxFuture<'a, Result<(), ConnectorError>> {
        async move {
            self.patience.wait().await;
            if let Err(error) = self.sink.strikes(Fault::SweepFails) {
                self.sink.around.counters.failed_sweeps.fetch_add(1, Relaxed);
                return Err(error);
            }
            for ((owner, ..), part) in &mut self.sink.output.lock().parts {
                let earlier = owner.job == before.job && owner.attempt < before.attempt;
                if earlier && matches!(part.stage, Stage::Written | Stage::Prepared) {
                    part.stage = Stage::Discarded;
                    self.sink.around.counters.swept_parts.fetch_add(1, Relaxed);
                }
            }
            Ok(())
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests;
