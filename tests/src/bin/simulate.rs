//! Runs many seeds of the simulation on all cores: `simulate --seeds N [--from S]`.
//!
//! Prints each seed that went wrong, with what is needed to find out why, and what all runs together came across.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use anyhow::{Context, bail};
use tidegate::clock::{Clock, SystemClock};
use tidegate_tests::sim::{Counters, World};

/// How many failures are shown in full.
const SHOWN_FAILURES: usize = 3;
/// How often progress is told, in seeds.
const PROGRESS_SEEDS: u64 = 5_000;

struct Arguments {
    seeds: u64,
    from: u64,
}

fn arguments() -> anyhow::Result<Arguments> {
    let mut arguments = Arguments { seeds: 10_000, from: 0 };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let target = match word.as_str() {
            "--seeds" => &mut arguments.seeds,
            "--from" => &mut arguments.from,
            _ => bail!("unknown argument {word}; usage: simulate --seeds N [--from S]"),
        };
        let value = words.next().with_context(|| format!("{word} needs a number"))?;
        *target = value.parse().with_context(|| format!("{word} needs a number, not {value}"))?;
    }
    Ok(arguments)
}

fn main() -> anyhow::Result<ExitCode> {
    let Arguments { seeds, from } = arguments()?;
    let (counters, next, failures) = (Counters::default(), AtomicU64::new(0), Mutex::new(Vec::new()));
    let clock = SystemClock::new();
    let threads = std::thread::available_parallelism()?.get();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let done = next.fetch_add(1, Relaxed);
                    if done >= seeds {
                        break;
                    }
                    if done > 0 && done.is_multiple_of(PROGRESS_SEEDS) {
                        eprintln!("{done} of {seeds} seeds, {:.0?}: {counters}", clock.monotonic());
                    }
                    let seed = from + done;
                    let problem = match catch_unwind(AssertUnwindSafe(|| World::from_seed(seed).run())) {
                        Ok(run) => {
                            counters.add(&run.counters);
                            run.verdict.err().map(|problem| format!("{problem}\n{}\n{}", run.plan, run.trace))
                        }
                        Err(_) => Some("the simulation itself panicked".to_owned()),
                    };
                    if let Some(problem) = problem {
                        failures.lock().expect("no panic under this lock").push((seed, problem));
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
    let failed: Vec<String> = failures.iter().map(|(seed, _)| seed.to_string()).collect();
    println!("{seeds} seeds from {from} in {:.1?}, {} failed {}", clock.monotonic(), failed.len(), failed.join(" "));
    println!("{counters}");
    Ok(if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
