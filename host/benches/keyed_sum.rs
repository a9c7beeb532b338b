//! The whole `keyed-sum` job, from records to results: how many records per second of CPU, and where the time goes.
//!
//! A generator makes lines, the two operators of the example parse and sum them, and a blackhole takes the sums. Time is
//! that of all threads of the process, so that a busy machine does not count; the share of each node is the time in
//! which its calls ran, and the rest is exchange, scheduling and the engine's own threads. The fastest of several runs is printed.
//!
//! Then the same job runs with and without a checkpoint each second, in turns, and what that costs is printed: of the time
//! of all threads, and of the time on the clock, which a busy machine spoils.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use rustix::time::{ClockId, clock_gettime};
use tidegate::api::{
    CheckpointSettings, InputSpec, JobGraph, JobGraphBuilder, JobOptions, NodeKind, NodeSpec, OperatorNode, Outcome,
    Partition, StorageLocation,
};
use tidegate::connectors::registry;
use tidegate::env::Env;
use tidegate::id::{Attempt, Owner};
use tidegate::operator::{Limits, OnError};
use tidegate::wasm::{EngineConfig, OperatorSettings, WasmEngine, WasmOperatorFactory};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const RECORDS: u64 = 5_000_000;
const RUNS: u64 = 3;

/// The job with and without checkpoints: long enough for several of them.
const CHECKPOINTED_RECORDS: u64 = 40_000_000;
const CHECKPOINTED_KEYS: u64 = 100_000;
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(1);

fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

async fn operator(engine: &WasmEngine, env: &Env, name: &str) -> anyhow::Result<NodeKind> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../examples/keyed-sum/{name}.wasm"));
    let settings = OperatorSettings {
        job: "bench".into(),
        node: name.into(),
        config: "{}".into(),
        limits: Limits::default(),
        max_record_bytes: 16 << 20,
    };
    let factory = WasmOperatorFactory::load(engine, env, &path, settings).await;
    let factory = Arc::new(factory.context("run `make build` first")?);
    Ok(NodeKind::Operator(OperatorNode { factory, limits: Limits::default(), on_error: OnError::Fail }))
}

async fn graph(engine: &WasmEngine, env: &Env, keys: u64, records: u64) -> anyhow::Result<JobGraph> {
    let settings = format!("kind = \"keyed-uniform\"\nformat = \"line\"\nkeys = {keys}\nrecords = {records}");
    let source = registry::source("generator", settings.parse::<toml::Table>()?, Path::new("."))?;
    let sink = registry::sink("blackhole", toml::Table::new(), Path::new("."))?;
    let node = |name: &str, kind, input: Option<(&str, Partition)>| NodeSpec {
        name: name.into(),
        parallelism: 1,
        kind,
        inputs: input
            .map(|(from, partition)| InputSpec { from: from.into(), partition: Some(partition) })
            .into_iter()
            .collect(),
        chain: true,
    };
    let graph = JobGraphBuilder::new("bench")
        .node(node("lines", NodeKind::Source(source), None))
        .node(node("parse", operator(engine, env, "parse").await?, Some(("lines", Partition::Forward))))
        .node(node("sum", operator(engine, env, "sum").await?, Some(("parse", Partition::Hash))))
        .node(node("out", NodeKind::Sink(sink), Some(("sum", Partition::Forward))));
    Ok(graph.build()?)
}

async fn measure(engine: &WasmEngine, env: &Env, keys: u64) -> anyhow::Result<()> {
    let mut best: Option<(Duration, Vec<(String, Duration)>)> = None;
    for run in 0..RUNS {
        let graph = graph(engine, env, keys, RECORDS).await?;
        let start = cpu();
        let mut job = tidegate::api::start(
            graph,
            env.clone(),
            JobOptions::new(Owner { job: "bench".to_owned(), attempt: Attempt::first(run) }),
        );
        if let Outcome::Failed(error) = job.wait().await?.outcome {
            return Err(error.into());
        }
        let took = cpu() - start;
        let nodes = job.metrics().nodes.iter();
        let nodes = nodes.map(|node| (node.name.clone(), Duration::from_nanos(node.sum(|subtask| &subtask.busy_ns))));
        if best.as_ref().is_none_or(|(before, _)| took < *before) {
            best = Some((took, nodes.collect()));
        }
    }
    let Some((took, nodes)) = best else { return Ok(()) };
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    let (records, each) = (RECORDS as f64, |time: Duration| time.as_secs_f64() * 1e9 / RECORDS as f64);
    print!(
        "{keys:>9} keys: {:>5.2} M records/s/core, {:>5.0} ns a record:",
        records / took.as_secs_f64() / 1e6,
        each(took)
    );
    for (name, busy) in &nodes {
        print!(" {name} {:.0}", each(*busy));
    }
    let rest = took.saturating_sub(nodes.iter().map(|(_, busy)| *busy).sum());
    println!(", exchange and the rest {:.0}", each(rest));
    Ok(())
}

/// Runs the job once; the time of all threads and that on the clock, and how many checkpoints there were.
async fn run_once(engine: &WasmEngine, env: &Env, storage: Option<&Path>) -> anyhow::Result<(Duration, Duration, u64)> {
    let graph = graph(engine, env, CHECKPOINTED_KEYS, CHECKPOINTED_RECORDS).await?;
    let checkpoint = storage
        .map(|storage| CheckpointSettings::new(CHECKPOINT_INTERVAL, StorageLocation::Directory(storage.to_owned())));
    let owner = Owner { job: "bench".to_owned(), attempt: Attempt::first(1) };
    let options = JobOptions { checkpoint, ..JobOptions::new(owner) };
    let (start, clock) = (cpu(), env.clock.monotonic());
    let mut job = tidegate::api::start(graph, env.clone(), options);
    if let Outcome::Failed(error) = job.wait().await?.outcome {
        return Err(error.into());
    }
    let times = (cpu() - start, env.clock.monotonic() - clock);
    // A record for the claim, one for the end, and one for each checkpoint, the last of which is made behind the end.
    let records = storage.map_or(Ok(0), count_records)?;
    Ok((times.0, times.1, records.saturating_sub(3)))
}

fn count_records(storage: &Path) -> anyhow::Result<u64> {
    let job = std::fs::read_dir(storage)?.next().context("a job's directory")??.path();
    Ok(std::fs::read_dir(job.join("log"))?.count() as u64)
}

async fn measure_checkpoints(engine: &WasmEngine, env: &Env) -> anyhow::Result<()> {
    let mut best = [(Duration::MAX, Duration::MAX); 2];
    let mut checkpoints = 0;
    for _ in 0..RUNS {
        for (with, best) in best.iter_mut().enumerate() {
            let storage = tempfile::TempDir::new()?;
            let (cpu, clock, count) = run_once(engine, env, (with == 1).then(|| storage.path())).await?;
            *best = (best.0.min(cpu), best.1.min(clock));
            checkpoints = checkpoints.max(count);
        }
    }
    let percent = |without: Duration, with: Duration| 100.0 * without.as_secs_f64() / with.as_secs_f64();
    let [without, with] = best;
    println!(
        "{CHECKPOINTED_KEYS:>9} keys, {checkpoints} checkpoints in {:.1} s: {:.1} % of the throughput without by the clock, {:.1} % by processor time",
        with.1.as_secs_f64(),
        percent(without.1, with.1),
        percent(without.0, with.0),
    );
    Ok(())
}

fn main() -> ExitCode {
    let build = || tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let run = || -> anyhow::Result<()> {
        let (workers, control) = (build()?, build()?);
        let env = Env::system(workers.handle(), control.handle(), 1);
        let engine = WasmEngine::new(EngineConfig::default())?;
        for keys in [1_000, 100_000, 1_000_000] {
            control.block_on(measure(&engine, &env, keys))?;
        }
        control.block_on(measure_checkpoints(&engine, &env))?;
        Ok(())
    };
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
