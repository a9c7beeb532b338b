//! A job in a world made of a seed, run to its end and checked.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tidegate::api::{self, JobOptions, JobReport, Outcome};
use tidegate::checkpoint::MemoryOnly;
use tidegate::clock::Clock;
use tidegate::connectors::Boundedness;
use tidegate::env::Env;
use tidegate::id::{Attempt, Owner};
use tidegate::random::Random;
use tidegate::runtime::metrics::JobMetrics;
use tidegate::task::TaskError;

use super::checker::Parts;
use super::counters::Counters;
use super::executor::{Executor, Group, Stuck};
use super::sink::Stage;
use super::surroundings::Surroundings;
use super::topology::{Plan, Style, Topology};
use super::transport::SimTransport;

/// The job's own tasks.
const JOB: Group = Group(1);
/// Whoever started the job and waits for it.
const CLIENT: Group = Group(2);
/// Far more steps than any of the jobs needs.
const STEP_LIMIT: u64 = 1_000_000;
/// The longest delay of a source or a sink, in microseconds.
const LONGEST_DELAY_US: u64 = 300;
/// A job that is cancelled is so within this time.
const LONGEST_LIFE_US: u64 = 30_000;

/// A world: a seed and a job.
#[derive(Clone, Copy, Debug)]
pub struct World {
    seed: u64,
    /// Decides the order of events. The seed, unless the same job is to be seen in several orders.
    schedule: u64,
    topology: Topology,
    style: Style,
    cancel_after: Option<Duration>,
}

/// How a run went.
#[derive(Debug)]
pub struct Run {
    /// The seed.
    pub seed: u64,
    /// What was run, in words.
    pub plan: String,
    /// What each sink committed.
    pub committed: BTreeMap<&'static str, Parts>,
    /// A number that two runs share if they did the same; 0 on the real runtime.
    pub trace_hash: u64,
    /// The last lines of what happened.
    pub trace: String,
    /// What the run came across.
    pub counters: Arc<Counters>,
    /// What was wrong, if anything was.
    pub verdict: Result<(), String>,
}

impl Run {
    /// Passes if nothing was wrong.
    ///
    /// # Panics
    /// When something was wrong, with all there is to know about it.
    pub fn assert_right(&self) {
        if let Err(problem) = &self.verdict {
            panic!(
                "seed {}: {problem}\n{}\n{}\nrun it alone with TIDEGATE_SEED={}",
                self.seed, self.plan, self.trace, self.seed
            );
        }
    }
}

impl World {
    /// A world in which a job of this topology runs to its end.
    #[must_use]
    pub fn new(seed: u64, topology: Topology) -> Self {
        let ones = Random::for_purpose(seed, "world", &[1]).below(4) == 0;
        let boundedness = Boundedness::Bounded;
        let style = Style { delay_us: LONGEST_DELAY_US, boundedness, ones, most_input: u64::MAX };
        Self { seed, schedule: seed, topology, style, cancel_after: None }
    }

    /// A world in which everything follows from the seed. Some of their jobs are cancelled.
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        let mut random = Random::for_purpose(seed, "world", &[2]);
        let chosen = usize::try_from(random.below(Topology::ALL.len() as u64)).expect("an index");
        let mut world = Self::new(seed, Topology::ALL[chosen]);
        if random.below(6) == 0 {
            world.cancel_after = Some(Duration::from_micros(random.below(LONGEST_LIFE_US)));
            if random.below(2) == 0 {
                world.style.boundedness = Boundedness::Unbounded;
            }
        }
        world
    }

    /// The same world with all values 1, so that its output is the same in every order of events.
    #[must_use]
    pub fn with_ones(mut self) -> Self {
        self.style.ones = true;
        self
    }

    /// The same job in another order of events.
    #[must_use]
    pub fn with_schedule(mut self, schedule: u64) -> Self {
        self.schedule = schedule;
        self
    }

    fn options(&self, plan: &Plan) -> JobOptions {
        JobOptions {
            channel_bytes: plan.channel_bytes,
            max_record_bytes: 1 << 20,
            state_budget_bytes: 1 << 30,
            ..JobOptions::new(Owner { job: format!("job{}", self.seed), attempt: Attempt::first(1) })
        }
    }

    /// Runs the job in the simulated world.
    #[must_use]
    pub fn run(&self) -> Run {
        // Whatever panics on the way, the seed is told.
        let _seed = TellSeed(self.seed);
        let around = Surroundings::kind();
        let counters = Arc::clone(&around.counters);
        let plan = Plan::new(self.seed, self.topology, self.style, &around);
        let mut executor = Executor::new(self.schedule, STEP_LIMIT);
        let (job, client) = (executor.handle(JOB), executor.handle(CLIENT));
        let env = Env {
            clock: Arc::new(job.clone()),
            workers: Arc::new(job.clone()),
            control: Arc::new(job.clone()),
            compute: Arc::new(job.clone()),
            background: Arc::new(job.clone()),
            transport: Arc::new(SimTransport::new(job, self.schedule, Arc::clone(&counters))),
            storage: Arc::new(MemoryOnly),
            seed: self.schedule,
        };
        let (graph, options, cancel_after) = (plan.graph.clone(), self.options(&plan), self.cancel_after);
        let ended = executor.run("client", async move {
            let mut handle = api::start(graph, env, options);
            if let Some(cancel_after) = cancel_after {
                client.sleep(cancel_after).await;
                handle.cancel();
            }
            (handle.wait().await, Arc::clone(handle.metrics()))
        });
        let verdict = ended.map_err(|stuck| stuck.to_string()).and_then(|(report, metrics)| {
            self.judge(&plan, report, &metrics, &counters)?;
            around.journal.check()?;
            executor.finish().map_err(|stuck: Stuck| format!("the job left tasks behind: {stuck}"))
        });
        counters.steps.fetch_add(executor.steps(), Relaxed);
        Run {
            seed: self.seed,
            plan: format!("{:?}: {plan:?}, cancelled after {:?}", self.topology, self.cancel_after),
            committed: committed(&plan),
            trace_hash: executor.trace_hash(),
            trace: if verdict.is_err() { executor.trace_tail() } else { String::new() },
            counters,
            verdict,
        }
    }

    /// Runs the same job on tokio's threads and the machine's clocks, without the delays.
    ///
    /// # Panics
    /// When tokio cannot start.
    #[must_use]
    pub fn run_on_tokio(&self) -> Run {
        let around = Surroundings::kind();
        let counters = Arc::clone(&around.counters);
        let style = Style { delay_us: 0, ..self.style };
        let plan = Plan::new(self.seed, self.topology, style, &around);
        let runtime = |threads| {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            builder.worker_threads(threads).enable_all().build().expect("tokio starts")
        };
        let (workers, control) = (runtime(2), runtime(1));
        let env = Env::system(workers.handle(), control.handle(), self.seed);
        let (graph, options) = (plan.graph.clone(), self.options(&plan));
        let (report, metrics) = control.block_on(async move {
            let mut handle = api::start(graph, env, options);
            (handle.wait().await, Arc::clone(handle.metrics()))
        });
        let verdict = self.judge(&plan, report, &metrics, &counters);
        Run {
            seed: self.seed,
            plan: format!("{:?} on tokio: {plan:?}", self.topology),
            committed: committed(&plan),
            trace_hash: 0,
            trace: String::new(),
            counters,
            verdict,
        }
    }

    /// Compares what came of the job with what had to.
    fn judge(
        &self,
        plan: &Plan,
        report: Result<JobReport, TaskError>,
        metrics: &JobMetrics,
        counters: &Counters,
    ) -> Result<(), String> {
        let report = report.map_err(|error| error.to_string())?;
        let may_be_cancelled = self.cancel_after.is_some();
        match report.outcome {
            Outcome::Finished if !plan.fails && self.style.boundedness == Boundedness::Bounded => {
                counters.finished_jobs.fetch_add(1, Relaxed);
                for (sink, (output, expectation)) in &plan.sinks {
                    expectation
                        .check(&output.records(Stage::Committed))
                        .map_err(|problem| format!("{sink}: {problem}"))?;
                }
                let given_up = metrics.nodes.iter().map(|node| node.sum(|subtask| &subtask.skipped)).sum::<u64>()
                    + metrics.nodes.iter().map(|node| node.sum(|subtask| &subtask.dead_letters)).sum::<u64>();
                counters.given_up_records.fetch_add(given_up, Relaxed);
                if given_up != plan.given_up {
                    return Err(format!("{given_up} records were given up, not {}", plan.given_up));
                }
            }
            Outcome::Cancelled if may_be_cancelled => {
                counters.cancelled_jobs.fetch_add(1, Relaxed);
                for (sink, (output, expectation)) in &plan.sinks {
                    let committed = output.records(Stage::Committed);
                    expectation.check_part(&committed).map_err(|problem| format!("{sink}: {problem}"))?;
                }
            }
            Outcome::Failed(error) if plan.fails => {
                counters.failed_jobs.fetch_add(1, Relaxed);
                let told = chain(&error);
                if !told.contains("poison") || !told.contains("operator sum[") {
                    return Err(format!("the error does not name what is wrong: {told}"));
                }
                for (sink, (output, _)) in &plan.sinks {
                    if !output.records(Stage::Committed).is_empty() {
                        return Err(format!("{sink}: a job that failed committed output"));
                    }
                }
            }
            Outcome::Failed(error) => return Err(format!("the job failed: {}", chain(&error))),
            outcome => return Err(format!("the job must not end as {outcome:?}")),
        }
        for (sink, (output, _)) in &plan.sinks {
            for stage in [Stage::Written, Stage::Prepared] {
                if !output.records(stage).is_empty() {
                    return Err(format!("{sink}: what was only {stage:?} was neither committed nor discarded"));
                }
            }
        }
        Ok(())
    }
}

pub(super) fn committed(plan: &Plan) -> BTreeMap<&'static str, Parts> {
    plan.sinks.iter().map(|(name, (output, _))| (*name, output.records(Stage::Committed))).collect()
}

/// An error with its causes.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// Names the seed when a panic passes by.
pub(super) struct TellSeed(pub(super) u64);

impl Drop for TellSeed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("this happened with TIDEGATE_SEED={}", self.0);
        }
    }
}
