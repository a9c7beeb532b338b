//! Runs many seeds of the simulation on all cores: `simulate [--seeds N] [--from S] [--only jobs|lives]`.
//!
//! `jobs` are jobs without faults, `lives` those with crashes and failing storage; a seed runs both unless told
//! otherwise. Prints each seed that went wrong, with what is needed to find out why, and what all came across.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, bail};
use tidegate::clock::{Clock, SystemClock};
use tidegate_tests::sim::{Counters, Lives, Run, World};

/// How many failures are shown in full.
const SHOWN_FAILURES: usize = 3;
/// How many failures are remembered in full; of more only the seeds are.
const REMEMBERED_FAILURES: usize = 100;
/// How often progress is told.
const PROGRESS: Duration = Duration::from_secs(10);

struct Arguments {
    seeds: u64,
    from: u64,
    jobs: bool,
    lives: bool,
}

fn arguments() -> anyhow::Result<Arguments> {
    let mut arguments = Arguments { seeds: 10_000, from: 0, jobs: true, lives: true };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().with_context(|| format!("{word} needs a value"));
        let number = || -> anyhow::Result<u64> {
            let value = value.as_ref().map_err(|error| anyhow::anyhow!("{error}"))?;
            value.parse().with_context(|| format!("{word} needs a number, not {value}"))
        };
        match word.as_str() {
            "--seeds" => arguments.seeds = number()?,
            "--from" => arguments.from = number()?,
            "--only" => match value?.as_str() {
                "jobs" => arguments.lives = false,
                "lives" => arguments.jobs = false,
                other => bail!("--only takes jobs or lives, not {other}"),
            },
            _ => bail!("unknown argument {word}; usage: simulate [--seeds N] [--from S] [--only jobs|lives]"),
        }
    }
    Ok(arguments)
}

/// Runs one world; what was wrong with it, if anything was.
fn problem(run: impl FnOnce() -> Run, counters: &Counters) -> Option<String> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(run) => {
            counters.add(&run.counters);
            run.verdict.err().map(|problem| format!("{problem}\n{}\n{}", run.plan, run.trace))
        }
        Err(_) => Some("the simulation itself panicked".to_owned()),
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate to look at")]
fn main() -> anyhow::Result<ExitCode> {
    let Arguments { seeds, from, jobs, lives } = arguments()?;
    // Panics of tasks are outcomes, told with the seed if they are wrong.
    std::panic::set_hook(Box::new(|_| {}));
    let (counters, next, failures) = (Counters::default(), AtomicU64::new(0), Mutex::new(Vec::new()));
    let (clock, told) = (SystemClock::new(), AtomicU64::new(0));
    let threads = std::thread::available_parallelism()?.get();
    let run = |seed: u64| {
        let job = jobs.then(|| problem(|| World::from_seed(seed).run(), &counters)).flatten();
        job.or_else(|| lives.then(|| problem(|| Lives::from_seed(seed).run(), &counters)).flatten())
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let done = next.fetch_add(1, Relaxed);
                    if done >= seeds {
                        break;
                    }
                    let periods = clock.monotonic().as_secs() / PROGRESS.as_secs();
                    if told.fetch_max(periods, Relaxed) < periods {
                        let failed = failures.lock().expect("no panic under this lock").len();
                        let rate = done as f64 / clock.monotonic().as_secs_f64();
                        eprintln!("{done} of {seeds} seeds, {rate:.0} a second, {failed} failed: {counters}");
                    }
                    let seed = from + done;
                    if let Some(mut problem) = run(seed) {
                        let mut failures = failures.lock().expect("no panic under this lock");
                        if failures.len() >= REMEMBERED_FAILURES {
                            problem = String::new();
                        }
                        failures.push((seed, problem));
                    }
                }
            });
        }
    });
    let mut failures = failures.into_inner()?;
    failures.sort();
    for (seed, problem) in failures.iter().take(SHOWN_FAILURES) {
        println!("seed {seed}: {problem}\n");
    }
    for (seed, problem) in failures.iter().skip(SHOWN_FAILURES) {
        println!("seed {seed}: {}", problem.lines().next().unwrap_or_default());
    }
    let (elapsed, failed) = (clock.monotonic(), failures.len());
    let rate = seeds as f64 / elapsed.as_secs_f64();
    println!("{seeds} seeds from {from} in {elapsed:.1?}, {rate:.0} a second, {failed} failed");
    println!("{counters}");
    Ok(if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
