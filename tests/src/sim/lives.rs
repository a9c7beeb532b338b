//! A job that lives on: its tasks and processes crash, stand still and come back, storage and connectors fail, and in
//! the end its output is what it had to be.
//!
//! A player makes it happen: it starts the job in a process, waits a while, does something to it, and resumes it in
//! another process when that is what an operator would do. After so many turns the world becomes calm, and then the job
//! must finish.
//!
//! What is judged: committed output is a part of what a job without faults commits, at every moment, and all of it at
//! the end; nothing is left behind; who was overtaken by another process ends and does no harm.

use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use futures_util::future::{Either, select};
use tidegate::api::{
    self, CheckpointMode, CheckpointSettings, JobGraph, JobHandle, JobOptions, JobReport, Outcome, RestartSettings,
    StartMode, StorageLocation,
};
use tidegate::clock::Clock;
use tidegate::connectors::Boundedness;
use tidegate::env::Env;
use tidegate::id::{Attempt, Owner};
use tidegate::random::Random;
use tidegate::task::TaskError;

use super::disk_check;
use super::executor::{Executor, Group, Handle};
use super::sink::Stage;
use super::storage::{Disk, SimOpener};
use super::surroundings::Surroundings;
use super::topology::{Plan, Style, Topology};
use super::transport::SimTransport;
use super::world::{Run, TellSeed, chain, committed};

/// What does not crash: the disks.
const DISKS: Group = Group(0);
/// Who plays the world.
const PLAYER: Group = Group(1);
/// From here on each process has two groups: what runs its subtasks, and what runs all else.
const FIRST_PROCESS: u32 = 2;
/// Far more steps than any of the jobs needs.
const STEP_LIMIT: u64 = 3_000_000;
/// The longest delay of a source or a sink, in microseconds.
const LONGEST_DELAY_US: u64 = 300;
/// The most records of a source.
const MOST_INPUT: u64 = 120;
/// The most things that happen to a job.
const MOST_TURNS: u64 = 12;
/// The longest time between two of them, in microseconds.
const LONGEST_QUIET_US: u64 = 15_000;
/// A process that has not finished so long after the world became calm is replaced by one with kinder settings.
const CALM: Duration = Duration::from_secs(2);
/// How many processes may fail in the calm, for what was under way.
const MOST_CALM_FAILURES: u32 = 8;

/// A seed and a job that lives on.
#[derive(Clone, Copy, Debug)]
pub struct Lives {
    seed: u64,
    topology: Topology,
    mode: CheckpointMode,
    /// Checkpoints are in the memory of the process, so that only its tasks may crash.
    in_memory: bool,
    ones: bool,
}

impl Lives {
    /// A job of this topology; all else follows from the seed.
    #[must_use]
    pub fn new(seed: u64, topology: Topology) -> Self {
        let mut random = Random::for_purpose(seed, "lives", &[]);
        let mode = if random.below(8) == 0 { CheckpointMode::AtLeastOnce } else { CheckpointMode::ExactlyOnce };
        Self { seed, topology, mode, in_memory: random.below(10) == 0, ones: random.below(4) == 0 }
    }

    /// A job of which everything follows from the seed.
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        let chosen = Random::for_purpose(seed, "lives", &[1]).below(Topology::ALL.len() as u64);
        Self::new(seed, Topology::ALL[usize::try_from(chosen).expect("an index")])
    }

    /// Plays it to the end.
    #[must_use]
    pub fn run(&self) -> Run {
        // Whatever panics on the way, the seed is told.
        let _seed = TellSeed(self.seed);
        let around = Surroundings::harsh(self.seed);
        let style = Style {
            delay_us: LONGEST_DELAY_US,
            boundedness: Boundedness::Bounded,
            ones: self.ones,
            most_input: MOST_INPUT,
        };
        let plan = Arc::new(Plan::new(self.seed, self.topology, style, &around));
        let mut executor = Executor::new(self.seed, STEP_LIMIT);
        let disk = Disk::new(executor.handle(DISKS), Arc::clone(&around));
        let player = Player {
            lives: *self,
            plan: Arc::clone(&plan),
            handle: executor.handle(PLAYER),
            disk,
            around: Arc::clone(&around),
            random: Random::for_purpose(self.seed, "player", &[]),
            processes: 0,
            calm_failures: None,
            stopped: Vec::new(),
            overtaken: Vec::new(),
            overtaken_numbers: Vec::new(),
            finisher: None,
        };
        let verdict = executor.run("player", player.play()).map_err(|stuck| stuck.to_string()).flatten();
        let verdict = verdict.and_then(|()| {
            executor.finish().map_err(|stuck| format!("the job left tasks behind: {stuck}"))?;
            around.journal.check()
        });
        let counters = Arc::clone(&around.counters);
        counters.steps.fetch_add(executor.steps(), Relaxed);
        let trace = || format!("{}\n{}", around.journal.text(), executor.trace_tail());
        Run {
            seed: self.seed,
            plan: format!("{:?}, {:?}, in memory: {}: {plan:?}", self.topology, self.mode, self.in_memory),
            committed: committed(&plan),
            trace_hash: executor.trace_hash(),
            trace: if verdict.is_err() { trace() } else { String::new() },
            counters,
            verdict,
        }
    }
}

/// One process with the job in it.
struct Process {
    number: u32,
    seed: u64,
    job: JobHandle,
    /// It was asked to end.
    cancelled: bool,
    /// Another process was started beside it.
    overtaken: bool,
}

impl Process {
    fn workers(&self) -> Group {
        Group(FIRST_PROCESS + 2 * self.number)
    }

    fn control(&self) -> Group {
        Group(FIRST_PROCESS + 2 * self.number + 1)
    }
}

/// What the player can do to a job.
#[derive(Clone, Copy, Debug)]
enum Turn {
    CrashTask,
    CrashProcess,
    Pause,
    /// Another process is started while this one stands still.
    Overtake,
    /// One that was overtaken goes on.
    GoOn,
    Cancel,
    Storm,
    Lull,
}

/// Each turn as often as it is here.
const TURNS: [Turn; 14] = [
    Turn::CrashTask,
    Turn::CrashTask,
    Turn::CrashTask,
    Turn::CrashTask,
    Turn::CrashProcess,
    Turn::CrashProcess,
    Turn::CrashProcess,
    Turn::Pause,
    Turn::Overtake,
    Turn::Overtake,
    Turn::GoOn,
    Turn::Cancel,
    Turn::Storm,
    Turn::Lull,
];

/// Plays the world.
struct Player {
    lives: Lives,
    plan: Arc<Plan>,
    handle: Handle,
    disk: Arc<Disk>,
    around: Arc<Surroundings>,
    random: Random,
    processes: u32,
    /// How many processes have failed since the world became calm, once it is.
    calm_failures: Option<u32>,
    /// Processes that were overtaken and stand still.
    stopped: Vec<Process>,
    /// Processes that were overtaken, going on again.
    overtaken: Vec<Process>,
    overtaken_numbers: Vec<u32>,
    /// The seed of the process that finished the job.
    finisher: Option<u64>,
}

impl Player {
    async fn play(mut self) -> Result<(), String> {
        let mut process = self.start();
        let turns = self.random.below(MOST_TURNS + 1);
        let mut finished = false;
        for _ in 0..turns {
            let quiet = self.micros(LONGEST_QUIET_US);
            match self.wait(&mut process, quiet).await {
                Some(end) => {
                    finished = self.judge(&process, end)?;
                    if finished {
                        break;
                    }
                    process = self.resume().await;
                }
                None => {
                    if let Some(next) = self.turn(&mut process).await? {
                        process = next;
                    }
                }
            }
            self.check_part()?;
            self.check_disk().await?;
        }
        self.note("calm");
        self.around.faults.calm();
        self.calm_failures = Some(0);
        self.wake_all().await?;
        while !finished {
            match self.wait(&mut process, CALM).await {
                Some(end) => {
                    finished = self.judge(&process, end)?;
                    if !finished {
                        process = self.resume().await;
                    }
                }
                None => {
                    self.note("not finished, is replaced");
                    self.crash(&process);
                    process = self.resume().await;
                    let end = process.job.wait().await;
                    finished = self.judge(&process, end)?;
                    if !finished {
                        process = self.resume().await;
                    }
                }
            }
        }
        if self.plan.fails { Ok(()) } else { self.after_the_end().await }
    }

    /// Starts the job in a process of its own.
    fn start(&mut self) -> Process {
        let number = self.processes;
        self.processes += 1;
        let graph = self.graph();
        let options = self.options();
        let seed = Random::for_purpose(self.lives.seed, "process", &[number.into()]).next_u64();
        let (workers, control) = (Group(FIRST_PROCESS + 2 * number), Group(FIRST_PROCESS + 2 * number + 1));
        let (workers, control) = (self.handle.for_group(workers), self.handle.for_group(control));
        let transport = SimTransport::new(workers.clone(), seed, Arc::clone(&self.around.counters));
        let env = Env {
            clock: Arc::new(control.clone()),
            workers: Arc::new(workers),
            compute: Arc::new(control.clone()),
            background: Arc::new(control.clone()),
            control: Arc::new(control),
            transport: Arc::new(transport),
            storage: Arc::new(SimOpener::new(Arc::clone(&self.disk), number)),
            seed,
        };
        self.note(&format!("process {number} starts, {:?}: {:?}", options.start, options.checkpoint));
        // Those who are awake beside each other may take the job from one another in any order.
        if !self.stopped.is_empty() || !self.overtaken.is_empty() {
            self.around.overtake(seed);
            self.overtaken_numbers.push(number);
        }
        let job = api::start(graph, env, options);
        Process { number, seed, job, cancelled: false, overtaken: false }
    }

    /// Starts the next process a while after the last one.
    async fn resume(&mut self) -> Process {
        let pause = self.micros(3_000);
        self.handle.sleep(pause).await;
        self.around.counters.resumes.fetch_add(1, Relaxed);
        self.start()
    }

    fn graph(&mut self) -> JobGraph {
        if self.processes == 1 || self.random.below(3) > 0 {
            return self.plan.graph.clone();
        }
        self.around.counters.rescales.fetch_add(1, Relaxed);
        self.plan.rescaled(&mut self.random)
    }

    fn options(&mut self) -> JobOptions {
        let storage = match self.lives.in_memory {
            true => StorageLocation::Memory,
            false => StorageLocation::Directory(PathBuf::from("/sim")),
        };
        let is_calm = self.calm_failures.is_some();
        let longest_us = [500, 2_000, 10_000][usize::try_from(self.random.below(3)).expect("an index")];
        let interval = Duration::from_micros(100) + self.micros(longest_us);
        let timeout = match self.random.below(4) {
            0 if !is_calm => Duration::from_micros(100) + self.micros(4_000),
            _ => Duration::from_secs(10),
        };
        let checkpoint = CheckpointSettings {
            min_pause: if self.random.below(2) == 0 { Duration::ZERO } else { self.micros(longest_us) },
            timeout,
            tolerable_failures: if is_calm || self.random.below(8) > 0 { 1_000 } else { self.small(3) },
            mode: self.lives.mode,
            keep: 1 + self.small(3),
            ..CheckpointSettings::new(interval, storage)
        };
        let attempts = if self.plan.fails { 4 } else { 1_000 };
        let owner = Owner { job: "sim".to_owned(), attempt: Attempt::first(1) };
        JobOptions {
            channel_bytes: self.plan.channel_bytes,
            max_record_bytes: 1 << 20,
            state_budget_bytes: 1 << 30,
            inline_state_bytes: if self.random.below(2) == 0 { 0 } else { 20 << 10 },
            checkpoint: Some(checkpoint),
            restart: RestartSettings::FixedDelay { attempts, delay: self.micros(2_000) },
            // Who starts anew beside a life that has finished means to, and gets everything once more.
            start: if self.lives.in_memory { StartMode::Default } else { StartMode::Resume },
            ..JobOptions::new(owner)
        }
    }

    fn micros(&mut self, below: u64) -> Duration {
        Duration::from_micros(self.random.below(below))
    }

    fn small(&mut self, below: u64) -> u32 {
        u32::try_from(self.random.below(below)).expect("small")
    }

    fn note(&self, text: &str) {
        self.around.journal.note(self.handle.now_ns(), text);
        self.handle.event(self.handle.label("player"), "played", u64::from(self.processes));
    }

    /// Waits for the end of the job, or for as long as there is patience.
    async fn wait(&self, process: &mut Process, patience: Duration) -> Option<Result<JobReport, TaskError>> {
        match select(pin!(process.job.wait()), self.handle.sleep(patience)).await {
            Either::Left((end, _)) => Some(end),
            Either::Right(_) => None,
        }
    }

    /// Does something to the job. Returns the process that is to go on with it, if it is another.
    async fn turn(&mut self, process: &mut Process) -> Result<Option<Process>, String> {
        let turn = TURNS[usize::try_from(self.random.below(TURNS.len() as u64)).expect("an index")];
        let counters = Arc::clone(&self.around.counters);
        match turn {
            Turn::CrashTask => {
                let number = self.random.next_u64();
                if let Some(task) = self.handle.crash_one(process.workers(), number) {
                    counters.task_crashes.fetch_add(1, Relaxed);
                    self.note(&format!("{task} crashed"));
                }
            }
            Turn::Storm => {
                counters.storms.fetch_add(1, Relaxed);
                self.around.faults.storm(true);
                self.note("storm");
            }
            Turn::Lull => self.around.faults.storm(false),
            Turn::Pause => {
                self.pause(process);
                let pause = self.micros(LONGEST_QUIET_US);
                self.handle.sleep(pause).await;
                self.go_on(process);
            }
            Turn::GoOn => {
                if !self.stopped.is_empty() {
                    let stopped = self.stopped.remove(0);
                    self.go_on(&stopped);
                    self.overtaken.push(stopped);
                }
            }
            // What is in memory is not there for another process.
            Turn::CrashProcess | Turn::Overtake | Turn::Cancel if self.lives.in_memory => {}
            Turn::CrashProcess => {
                counters.process_crashes.fetch_add(1, Relaxed);
                self.crash(process);
                return Ok(Some(self.resume().await));
            }
            Turn::Overtake => {
                self.pause(process);
                self.around.overtake(process.seed);
                self.overtaken_numbers.push(process.number);
                let next = self.resume().await;
                let mut old = std::mem::replace(process, next);
                old.overtaken = true;
                self.around.overtake(process.seed);
                self.overtaken_numbers.push(process.number);
                self.stopped.push(old);
            }
            Turn::Cancel => {
                process.job.cancel();
                process.cancelled = true;
                self.note("cancel");
                let end = process.job.wait().await;
                // Should it have finished, the next one finds out.
                self.judge(process, end)?;
                return Ok(Some(self.resume().await));
            }
        }
        Ok(None)
    }

    /// Adds up what became of the checkpoints of a process that has ended.
    fn count(&self, process: &Process) {
        let (counters, metrics) = (&self.around.counters, &process.job.metrics().checkpoints);
        for (counter, metric) in [
            (&counters.completed_checkpoints, &metrics.completed),
            (&counters.aborted_checkpoints, &metrics.aborted),
            (&counters.expired_checkpoints, &metrics.expired),
            (&counters.declined_checkpoints, &metrics.declined),
            (&counters.late_acknowledgements, &metrics.late_acknowledgements),
        ] {
            counter.fetch_add(metric.get(), Relaxed);
        }
    }

    fn pause(&self, process: &Process) {
        self.around.counters.pauses.fetch_add(1, Relaxed);
        self.note(&format!("process {} stands still", process.number));
        self.handle.pause(process.workers());
        self.handle.pause(process.control());
    }

    fn go_on(&self, process: &Process) {
        self.note(&format!("process {} goes on", process.number));
        self.handle.go_on(process.workers());
        self.handle.go_on(process.control());
    }

    fn crash(&mut self, process: &Process) {
        self.count(process);
        self.note(&format!("process {} crashes", process.number));
        self.handle.crash(process.workers());
        self.handle.crash(process.control());
        for (output, _) in self.plan.sinks.values() {
            output.crashed(process.seed, &mut self.random);
        }
    }

    /// Lets all that were overtaken come to their ends.
    async fn wake_all(&mut self) -> Result<(), String> {
        for stopped in std::mem::take(&mut self.stopped) {
            self.go_on(&stopped);
            self.overtaken.push(stopped);
        }
        for mut overtaken in std::mem::take(&mut self.overtaken) {
            let end = overtaken.job.wait().await;
            self.judge(&overtaken, end)?;
        }
        Ok(())
    }

    /// Whether a process's end is one that the job may have, and whether nothing is left to do.
    fn judge(&mut self, process: &Process, end: Result<JobReport, TaskError>) -> Result<bool, String> {
        let number = process.number;
        self.count(process);
        let report = end.map_err(|error| format!("process {number}: {error}"))?;
        self.around.journal.check()?;
        self.check_part()?;
        match report.outcome {
            Outcome::Finished if self.plan.fails => Err("the job finished although it must fail".to_owned()),
            Outcome::Finished => {
                self.note(&format!("process {number} finished"));
                self.around.counters.finished_jobs.fetch_add(1, Relaxed);
                let nodes = &process.job.metrics().nodes;
                let given_up = nodes.iter().map(|node| node.sum(|of| &of.skipped) + node.sum(|of| &of.dead_letters));
                self.around.counters.given_up_records.fetch_add(given_up.sum(), Relaxed);
                self.check_whole()?;
                self.finisher.get_or_insert(process.seed);
                Ok(true)
            }
            Outcome::Cancelled if process.cancelled => {
                self.note(&format!("process {number} was cancelled"));
                self.around.counters.cancelled_jobs.fetch_add(1, Relaxed);
                Ok(false)
            }
            Outcome::Cancelled => Err(format!("process {number} ended as cancelled, and nobody had asked")),
            Outcome::Failed(error) => {
                let error = chain(&error);
                self.note(&format!("process {number} failed: {error}"));
                self.around.counters.failed_jobs.fetch_add(1, Relaxed);
                if error.contains("panicked") {
                    return Err(format!("process {number}: {error}"));
                }
                if process.overtaken {
                    self.around.counters.fenced_zombies.fetch_add(1, Relaxed);
                    return Ok(false);
                }
                // With the process its checkpoints are gone, and nobody can go on.
                if self.lives.in_memory || (self.plan.fails && error.contains("poison")) {
                    return Ok(true);
                }
                match &mut self.calm_failures {
                    Some(failures) if *failures == MOST_CALM_FAILURES => {
                        Err(format!("nothing goes wrong any more, and still process {number} failed: {error}"))
                    }
                    Some(failures) => {
                        *failures += 1;
                        Ok(false)
                    }
                    None => Ok(false),
                }
            }
        }
    }

    /// Nothing is visible that must not be.
    fn check_part(&self) -> Result<(), String> {
        self.around.journal.check()?;
        if self.lives.mode == CheckpointMode::AtLeastOnce {
            return Ok(());
        }
        for (sink, (output, expectation)) in &self.plan.sinks {
            let committed = output.records(Stage::Committed);
            expectation.check_part(&committed).map_err(|problem| format!("{sink}, on the way: {problem}"))?;
        }
        Ok(())
    }

    /// Another process could go on from what is on the disk.
    async fn check_disk(&self) -> Result<(), String> {
        disk_check::check(&self.disk, Arc::new(self.handle.clone()), &self.plan.sinks).await
    }

    /// Everything is visible that must be, and nothing else.
    fn check_whole(&self) -> Result<(), String> {
        for (sink, (output, expectation)) in &self.plan.sinks {
            let committed = output.records(Stage::Committed);
            let checked = match self.lives.mode {
                CheckpointMode::AtLeastOnce => expectation.check_at_least_once(&committed),
                CheckpointMode::ExactlyOnce => expectation.check(&committed),
            };
            checked.map_err(|problem| format!("{sink}: {problem}"))?;
        }
        Ok(())
    }

    /// The job has finished: another process finds nothing to do, and nothing is left of it.
    async fn after_the_end(&mut self) -> Result<(), String> {
        if self.lives.in_memory {
            return Ok(());
        }
        let counters = Arc::clone(&self.around.counters);
        let (before, batches) = (committed(&self.plan), counters.source_batches.load(Relaxed));
        let mut process = self.resume().await;
        let end = process.job.wait().await;
        let failure = match &end {
            Ok(JobReport { outcome: Outcome::Failed(error), .. }) => chain(error),
            _ => String::new(),
        };
        if !self.judge(&process, end)? {
            return Err(format!("a job that had finished could not be resumed: {failure}"));
        }
        counters.resumes_after_the_end.fetch_add(1, Relaxed);
        if committed(&self.plan) != before || counters.source_batches.load(Relaxed) != batches {
            return Err("a job that had finished ran again".to_owned());
        }
        self.check_disk().await?;
        // Who recorded the end and died has left what others do not look for, and who could not read something left it.
        let read_all = counters.reads_failed.load(Relaxed) == 0;
        let whole = read_all && self.finisher == Some(self.around.last_writer());
        let is_garbage = |path: &str| path.contains("/chk-") || path.contains("/shared/");
        for (path, process) in self.disk.known_files() {
            if whole && is_garbage(&path) && !self.overtaken_numbers.contains(&process) {
                return Err(format!("the job has finished and left {path} of process {process}"));
            }
        }
        // What nobody could sweep, or who was overtaken wrote after the sweep, is for the next start to sweep.
        if counters.failed_sweeps.load(Relaxed) == 0 {
            for (sink, (output, _)) in &self.plan.sinks {
                let pending = output.pending(|seed| self.around.is_overtaken(seed));
                if !pending.is_empty() {
                    return Err(format!("{sink}: the job has finished and left {pending:?}"));
                }
            }
        }
        Ok(())
    }
}
