//! Jobs on the real runtime around one guest of `tests/guests`: records in memory, the guest, a sink in memory.
//!
//! All jobs of a process share one engine and its threads, as they do in a worker. Each is given what it runs with by
//! its test: the limits, what becomes of failed records, where output goes.

use std::path::PathBuf;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tidegate::api::{
    self, InputSpec, JobGraphBuilder, JobHandle, JobOptions, NodeKind, NodeSpec, OperatorNode, Outcome, Partition,
};
use tidegate::connectors::{
    Boundedness, ConnectorError, Extent, ReaderContext, RestoredSource, Sink, Source, SourceReader, Split,
    SplitEnumerator, StreamShape,
};
use tidegate::env::Env;
use tidegate::id::{Attempt, Owner};
use tidegate::operator::{Limits, OnError};
use tidegate::wasm::{EngineConfig, LoadError, OperatorSettings, WasmEngine, WasmOperatorFactory};
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;

use crate::sim::Record;
use crate::sim::sink::{Output, SimSink, Stage};
use crate::sim::source::{Pace, SimSource};
use crate::sim::surroundings::Surroundings;

/// The node that runs the guest.
const GUEST_NODE: &str = "subject";
/// Nothing waits but for the job itself.
const NO_DELAY: u64 = 0;

struct Process {
    workers: Runtime,
    control: Runtime,
    engine: WasmEngine,
}

static PROCESS: LazyLock<Process> = LazyLock::new(|| {
    let runtime =
        |threads| Builder::new_multi_thread().worker_threads(threads).enable_all().build().expect("tokio starts");
    let engine = WasmEngine::new(EngineConfig::default()).expect("this machine runs Wasm");
    Process { workers: runtime(2), control: runtime(1), engine }
});

/// Runs a future on the threads that the jobs' own control runs on.
pub fn block_on<F: Future>(future: F) -> F::Output {
    PROCESS.control.block_on(future)
}

/// The file of a guest, which another build makes.
///
/// # Panics
/// When it was not built.
#[must_use]
pub fn guest_path(name: &str) -> PathBuf {
    let fixed = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/test-guests");
    let folder = std::env::var_os("TIDEGATE_TEST_GUESTS").map_or_else(|| PathBuf::from(fixed), PathBuf::from);
    let path = folder.join(format!("{name}.wasm"));
    assert!(path.exists(), "{} is missing: run `make test-guests`", path.display());
    path
}

/// Limits that no well-behaved guest comes near, however busy the machine is.
#[must_use]
pub fn ample() -> Limits {
    Limits { call: Duration::from_secs(60), memory_bytes: 64 << 20, ..Limits::default() }
}

/// A job around one guest.
#[derive(Debug)]
pub struct GuestJob {
    /// The guest.
    pub guest: &'static str,
    /// What it may use.
    pub limits: Limits,
    /// What becomes of records on which it fails.
    pub on_error: OnError,
    /// What it is given: all with keys, or all without.
    pub records: Vec<Record>,
    /// The largest batch in which it is given them.
    pub most_records: u64,
    /// When it is given them a second time; never if none.
    pub encore: Option<CancellationToken>,
}

impl GuestJob {
    /// A job that fails when its guest does.
    #[must_use]
    pub fn new(guest: &'static str, records: Vec<Record>) -> Self {
        Self { guest, limits: ample(), on_error: OnError::Fail, records, most_records: 1000, encore: None }
    }

    /// With other limits.
    #[must_use]
    pub fn with_limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// With something else to become of records on which the guest fails.
    #[must_use]
    pub fn with_on_error(self, on_error: OnError) -> Self {
        Self { on_error, ..self }
    }

    /// With batches of one record.
    #[must_use]
    pub fn one_by_one(self) -> Self {
        Self { most_records: 1, ..self }
    }

    /// Gives the guest its records a second time once the token is cancelled. Until then the job goes on.
    #[must_use]
    pub fn with_encore(self, encore: CancellationToken) -> Self {
        Self { encore: Some(encore), ..self }
    }

    /// Loads the guest.
    ///
    /// # Errors
    /// When it cannot be loaded.
    pub async fn load(self) -> Result<LoadedJob, LoadError> {
        let env = Env::system(PROCESS.workers.handle(), PROCESS.control.handle(), 1);
        let settings = OperatorSettings {
            job: self.guest.into(),
            node: GUEST_NODE.into(),
            config: "{}".into(),
            limits: self.limits,
            max_record_bytes: 16 << 20,
        };
        let loaded = WasmOperatorFactory::load(&PROCESS.engine, &env, &guest_path(self.guest), settings).await?;
        Ok(LoadedJob { job: self, env, factory: Arc::new(loaded) })
    }
}

/// A job whose guest is loaded.
#[derive(Debug)]
pub struct LoadedJob {
    job: GuestJob,
    env: Env,
    factory: Arc<WasmOperatorFactory>,
}

impl LoadedJob {
    /// Starts the job, with what the guest emits going to a sink in memory.
    #[must_use]
    pub fn start(self) -> StartedJob {
        let output = Arc::default();
        let sink = sim_sink("out", &output);
        self.start_into(Arc::new(sink), output)
    }

    /// Starts the job, with what the guest emits going to this sink.
    #[must_use]
    pub fn start_with_sink(self, sink: Arc<dyn Sink>) -> StartedJob {
        self.start_into(sink, Arc::default())
    }

    fn start_into(self, sink: Arc<dyn Sink>, output: Arc<Output>) -> StartedJob {
        let Self { job, env, factory } = self;
        let operator = OperatorNode { factory, limits: job.limits, on_error: job.on_error };
        let keyed = job.records.iter().any(|record| record.key.is_some());
        let records = Arc::new(job.records);
        let source = SimSource {
            name: "records",
            splits: vec![records; if job.encore.is_some() { 2 } else { 1 }],
            shape: StreamShape { keyed, timed: false },
            pace: Pace { most_records: job.most_records, delay_us: NO_DELAY },
            boundedness: Boundedness::Bounded,
            around: Surroundings::kind(),
        };
        let source: Arc<dyn Source> = match job.encore {
            Some(encore) => Arc::new(EncoreSource { source, encore }),
            None => Arc::new(source),
        };
        let dead = Arc::default();
        let mut graph = JobGraphBuilder::new(job.guest)
            .node(node("records", NodeKind::Source(source), None))
            .node(node(GUEST_NODE, NodeKind::Operator(operator), Some(("records", keyed.then_some(Partition::Hash)))))
            .node(node("out", NodeKind::Sink(sink), Some((GUEST_NODE, None))));
        if job.on_error == OnError::DeadLetter {
            let letters = format!("{GUEST_NODE}.{}", api::DEAD_LETTER);
            let sink = NodeKind::Sink(Arc::new(sim_sink("dead", &dead)));
            graph = graph.node(node("dead", sink, Some((&letters, None))));
        }
        let graph = graph.build().expect("the nodes make a job");
        StartedJob {
            handle: api::start(
                graph,
                env,
                JobOptions::new(Owner { job: "job".to_owned(), attempt: Attempt::first(1) }),
            ),
            output,
            dead,
        }
    }
}

/// A source that hands out its second split only when it is told to.
struct EncoreSource {
    source: SimSource,
    encore: CancellationToken,
}

impl Source for EncoreSource {
    fn boundedness(&self) -> Boundedness {
        self.source.boundedness()
    }

    fn shape(&self) -> StreamShape {
        self.source.shape()
    }

    fn cannot_replay(&self) -> Option<String> {
        self.source.cannot_replay()
    }

    fn enumerator(&self, env: &Env, restored: Option<RestoredSource>) -> Box<dyn SplitEnumerator> {
        let inner = self.source.enumerator(env, restored);
        Box::new(EncoreEnumerator { inner, encore: self.encore.clone(), handed_out: false })
    }

    fn reader(&self, context: ReaderContext) -> Box<dyn SourceReader> {
        self.source.reader(context)
    }
}

struct EncoreEnumerator {
    inner: Box<dyn SplitEnumerator>,
    encore: CancellationToken,
    handed_out: bool,
}

impl SplitEnumerator for EncoreEnumerator {
    fn start(&mut self) -> BoxFuture<'_, Result<(), ConnectorError>> {
        self.inner.start()
    }

    fn next_split(&mut self, subtask: u32) -> BoxFuture<'_, Result<Option<Split>, ConnectorError>> {
        Box::pin(async move {
            if self.handed_out {
                self.encore.cancelled().await;
            }
            self.handed_out = true;
            self.inner.next_split(subtask).await
        })
    }

    fn snapshot(&self) -> Vec<u8> {
        self.inner.snapshot()
    }

    fn split_finished(&mut self, split: &str) {
        self.inner.split_finished(split);
    }

    fn extent(&self) -> Option<Extent> {
        self.inner.extent()
    }
}

fn sim_sink(name: &'static str, output: &Arc<Output>) -> SimSink {
    let pace = Pace { most_records: 1, delay_us: NO_DELAY };
    SimSink { name, output: Arc::clone(output), pace, around: Surroundings::kind() }
}

fn node(name: &str, kind: NodeKind, input: Option<(&str, Option<Partition>)>) -> NodeSpec {
    let inputs = input.map(|(from, partition)| InputSpec { from: from.to_owned(), partition });
    NodeSpec { name: name.to_owned(), parallelism: 1, kind, inputs: inputs.into_iter().collect(), chain: true }
}

/// A job that runs.
#[derive(Debug)]
pub struct StartedJob {
    handle: JobHandle,
    output: Arc<Output>,
    dead: Arc<Output>,
}

/// What came of a job.
#[derive(Debug, PartialEq, Eq)]
pub struct Ended {
    /// Nothing, or what a user is told: the error and each of its causes.
    pub error: Vec<String>,
    /// What the sink committed, in the order of writing.
    pub output: Vec<Record>,
    /// The dead letters that were committed, in the order of writing.
    pub dead_letters: Vec<String>,
    /// How many records the guest was given.
    pub records_in: u64,
    /// How many records it emitted, dead letters among them.
    pub records_out: u64,
    /// How many records were dropped.
    pub skipped: u64,
}

impl StartedJob {
    /// Waits for the end.
    ///
    /// # Panics
    /// When the job's own task died, or the job says that it was cancelled.
    pub async fn wait(mut self) -> Ended {
        let report = self.handle.wait().await.expect("the job's task lives");
        let error = match &report.outcome {
            Outcome::Finished => Vec::new(),
            Outcome::Failed(error) => chain(error),
            Outcome::Cancelled => panic!("nobody cancelled the job"),
        };
        let committed =
            |output: &Output| output.records(Stage::Committed).into_values().flatten().collect::<Vec<Record>>();
        let letter = |letter: Record| String::from_utf8(letter.value).expect("dead letters are text");
        let nodes = &self.handle.metrics().nodes;
        let subject = nodes.iter().find(|node| node.name == GUEST_NODE).expect("every job has it");
        Ended {
            error,
            output: committed(&self.output),
            dead_letters: committed(&self.dead).into_iter().map(letter).collect(),
            records_in: subject.sum(|subtask| &subtask.records_in),
            records_out: subject.sum(|subtask| &subtask.records_out),
            skipped: subject.sum(|subtask| &subtask.skipped),
        }
    }
}

/// An error and each of its causes.
#[must_use]
pub fn chain(error: &dyn std::error::Error) -> Vec<String> {
    std::iter::successors(Some(error), |error| error.source()).map(ToString::to_string).collect()
}

/// Records without keys.
#[must_use]
pub fn unkeyed(values: &[&str]) -> Vec<Record> {
    values.iter().map(|value| Record { key: None, value: value.as_bytes().to_vec(), timestamp: None }).collect()
}

/// Records with keys.
#[must_use]
pub fn keyed(records: &[(&str, &str)]) -> Vec<Record> {
    let record = |(key, value): &(&str, &str)| Record {
        key: Some(key.as_bytes().to_vec()),
        value: value.as_bytes().to_vec(),
        timestamp: None,
    };
    records.iter().map(record).collect()
}

/// Starts a job beside a well-behaved one with limits of its own, and waits for both. The other job has work before
/// this one starts, while it runs, and after it has ended.
///
/// # Errors
/// When the guest cannot be loaded.
///
/// # Panics
/// When anything but the full and right result comes of the other job.
pub async fn run_beside_another(
    job: GuestJob,
    start: impl FnOnce(LoadedJob) -> StartedJob,
) -> Result<Ended, LoadError> {
    let encore = CancellationToken::new();
    let (other, expected) = neighbour(encore.clone());
    let (job, other) = (job.load().await, other.load().await?.start());
    let ended = match job {
        Ok(job) => Ok(start(job).wait().await),
        Err(error) => Err(error),
    };
    encore.cancel();
    let other = other.wait().await;
    let differs = other.output.iter().zip(&expected.output).position(|(left, right)| left != right);
    assert!(
        other == expected,
        "the job beside went wrong: {:?}, {} records, the first wrong one at {differs:?}, {} in, {} out",
        other.error,
        other.output.len(),
        other.records_in,
        other.records_out,
    );
    ended
}

/// A well-behaved job that ends after its encore, with what must come of it.
fn neighbour(encore: CancellationToken) -> (GuestJob, Ended) {
    const KEYS: u64 = 61;
    const ROUNDS: u64 = 160;
    let record = |number: u64, value: Vec<u8>| Record {
        key: Some(format!("k{}", number % KEYS).into_bytes()),
        value,
        timestamp: None,
    };
    let records = (0..KEYS * ROUNDS).map(|number| record(number, b"v".to_vec())).collect();
    let count = |number: u64| (number / KEYS + 1).to_le_bytes().to_vec();
    let output: Vec<Record> = (0..2 * KEYS * ROUNDS).map(|number| record(number, count(number))).collect();
    let ended = Ended {
        error: Vec::new(),
        output,
        dead_letters: Vec::new(),
        records_in: 2 * KEYS * ROUNDS,
        records_out: 2 * KEYS * ROUNDS,
        skipped: 0,
    };
    let limits = Limits { memory_bytes: 16 << 20, ..ample() };
    (GuestJob::new("counts", records).with_limits(limits).with_encore(encore), ended)
}
