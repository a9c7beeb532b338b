//! The classic demonstration of a consistent cut. A source counts from 1 to 7; even and odd numbers are added up apart. A
//! barrier follows the 5, so the checkpoint holds 5 read, 6 = 2 + 4 even and 9 = 1 + 3 + 5 odd. The odd sum dies on the 7;
//! from the checkpoint on everything happens once more, and the sums come to 12 and 16.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tempfile::TempDir;
use tidegate::api::{
    self, CheckpointSettings, InputSpec, JobGraph, JobGraphBuilder, JobOptions, NodeKind, NodeSpec, OperatorNode,
    Outcome, Partition, RestartSettings, StorageLocation,
};
use tidegate::checkpoint::metadata::{CheckpointMetadata, StateHandle};
use tidegate::clock::Clock;
use tidegate::connectors::{
    Boundedness, ConnectorError, Extent, ReaderContext, ReaderEvent, RestoredSource, Source, SourceReader, Split,
    SplitEnumerator, StreamShape,
};
use tidegate::env::Env;
use tidegate::id::{Attempt, Owner};
use tidegate::operator::{
    CallContext, Descriptor, Fault, Limits, NativeFactory, NativeOperator, OnError, SideOutput, StateDescriptor,
    StateKind,
};
use tidegate::record::{Batch, OptionalColumn};
use tidegate::state::Payload;
use tidegate::state::snapshot::SnapshotOpener;
use tidegate_tests::sim::sink::{Output, SimSink, Stage};
use tidegate_tests::sim::source::Pace;
use tidegate_tests::sim::surroundings::Surroundings;

const LAST: u64 = 7;
const BARRIER_AFTER: u64 = 5;

/// Counts to 7, and lets a checkpoint come to its end behind the 5. What is in it then is kept for the test.
#[derive(Clone)]
struct Counting {
    directory: PathBuf,
    seen: Arc<Mutex<Option<Vec<u8>>>>,
    read: Arc<AtomicU64>,
}

struct CountingEnumerator(Option<Split>);

struct CountingReader {
    source: Counting,
    clock: Arc<dyn Clock>,
    /// The last number that was read; none without a split.
    at: Option<u64>,
}

fn split(at: u64) -> Split {
    Split { id: "all".into(), position: at.to_string().into_bytes() }
}

impl Source for Counting {
    fn boundedness(&self) -> Boundedness {
        Boundedness::Bounded
    }

    fn shape(&self) -> StreamShape {
        StreamShape { keyed: false, timed: false }
    }

    fn cannot_replay(&self) -> Option<String> {
        None
    }

    fn enumerator(&self, _env: &Env, restored: Option<RestoredSource>) -> Box<dyn SplitEnumerator> {
        Box::new(CountingEnumerator(match restored {
            Some(restored) => restored.splits.into_iter().next(),
            None => Some(split(0)),
        }))
    }

    fn reader(&self, context: ReaderContext) -> Box<dyn SourceReader> {
        Box::new(CountingReader { source: self.clone(), clock: context.env.clock, at: None })
    }
}

impl SplitEnumerator for CountingEnumerator {
    fn start(&mut self) -> BoxFuture<'_, Result<(), ConnectorError>> {
        std::future::ready(Ok(())).boxed()
    }

    fn next_split(&mut self, _subtask: u32) -> BoxFuture<'_, Result<Option<Split>, ConnectorError>> {
        std::future::ready(Ok(self.0.take())).boxed()
    }

    fn snapshot(&self) -> Vec<u8> {
        Vec::new()
    }

    fn split_finished(&mut self, _split: &str) {}

    fn extent(&self) -> Option<Extent> {
        None
    }
}

impl SourceReader for CountingReader {
    fn add_split(&mut self, split: Split) -> Result<(), ConnectorError> {
        self.at = Some(String::from_utf8(split.position).expect("ours").parse().expect("ours"));
        Ok(())
    }

    fn next(&mut self) -> BoxFuture<'_, Result<ReaderEvent, ConnectorError>> {
        async move {
            let at = self.at.expect("a split");
            if at == LAST {
                self.at = None;
                return Ok(ReaderEvent::SplitFinished("all".into()));
            }
            while at == BARRIER_AFTER && self.source.seen.lock().expect("no panic").is_none() {
                if let Some(metadata) = complete_checkpoint(&self.source.directory) {
                    *self.source.seen.lock().expect("no panic") = Some(metadata);
                }
                self.clock.sleep(Duration::from_millis(1)).await;
            }
            let mut batch = Batch::new();
            batch.push(None, (at + 1).to_string().as_bytes(), None);
            self.at = Some(at + 1);
            self.source.read.fetch_add(1, Ordering::Relaxed);
            Ok(ReaderEvent::Batch(batch))
        }
        .boxed()
    }

    fn snapshot(&self) -> Vec<Split> {
        self.at.map(split).into_iter().collect()
    }

    fn progress(&self) -> u64 {
        self.at.unwrap_or(0)
    }
}

/// The metadata of a checkpoint whose record is in the log, behind that of the claim; none if there is none yet.
fn complete_checkpoint(storage: &Path) -> Option<Vec<u8>> {
    let mut folders = std::fs::read_dir(storage).ok()?.filter_map(Result::ok);
    let job = folders.find(|entry| entry.path().join("log").is_dir())?.path();
    if std::fs::read_dir(job.join("log")).ok()?.count() < 2 {
        return None;
    }
    let entries = std::fs::read_dir(job).ok()?.filter_map(Result::ok);
    let newest = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("chk-")).last()?;
    std::fs::read(newest.path().join("_metadata")).ok()
}

struct Route;

impl NativeOperator for Route {
    async fn process(&mut self, _input: u32, batch: &Batch, context: &mut CallContext) -> Result<(), Fault> {
        for value in batch.values().iter() {
            let mut one = Batch::new();
            one.push(Some(b"sum"), value, None);
            context.emit(1 + u32::from(number(value) % 2 == 1), one).await?;
        }
        Ok(())
    }
}

/// Adds up. Dies on a number, once.
struct Sum {
    dies_on: Option<u64>,
    died: Arc<AtomicBool>,
}

impl NativeOperator for Sum {
    async fn process(&mut self, _input: u32, batch: &Batch, context: &mut CallContext) -> Result<(), Fault> {
        let mut sum = context.state.get(0, 0)?.map_or(0, |sum| number(&sum));
        let mut sums = Batch::new();
        for value in batch.values().iter().map(number) {
            assert!(self.dies_on != Some(value) || self.died.swap(true, Ordering::Relaxed), "failpoint: {value}");
            sum += value;
            sums.push(Some(b"sum"), sum.to_string().as_bytes(), None);
        }
        let mut state = OptionalColumn::default();
        state.push(Some(sum.to_string().as_bytes()));
        context.state.store(0, state)?;
        context.emit(0, sums).await
    }
}

fn number(text: &[u8]) -> u64 {
    std::str::from_utf8(text).expect("digits").parse().expect("digits")
}

fn node(name: &str, kind: NodeKind, from: Option<(&str, Partition)>) -> NodeSpec {
    let input = |(from, partition): (&str, Partition)| InputSpec { from: from.into(), partition: Some(partition) };
    NodeSpec { name: name.into(), parallelism: 1, kind, inputs: from.map(input).into_iter().collect(), chain: true }
}

fn operator<O: NativeOperator + 'static>(
    descriptor: Descriptor,
    make: impl Fn() -> O + Send + Sync + 'static,
) -> NodeKind {
    let factory = Arc::new(NativeFactory::new(descriptor, move |_| make()));
    NodeKind::Operator(OperatorNode { factory, limits: Limits::default(), on_error: OnError::Fail })
}

fn graph(source: Counting, died: &Arc<AtomicBool>) -> (JobGraph, [Arc<Output>; 2]) {
    let side = |id, name: &str| SideOutput { id, name: name.into() };
    let route = Descriptor { states: vec![], side_outputs: vec![side(1, "even"), side(2, "odd")] };
    let state =
        StateDescriptor { id: 0, name: "sum".into(), kind: StateKind::KeyedValue, ttl: None, schema_version: 1 };
    let sum = |dies_on| {
        let (died, states) = (Arc::clone(died), vec![state.clone()]);
        operator(Descriptor { states, side_outputs: vec![] }, move || Sum { dies_on, died: Arc::clone(&died) })
    };
    let outputs = [Arc::<Output>::default(), Arc::default()];
    let sink = |name, output: &Arc<Output>| {
        let pace = Pace { most_records: 1, delay_us: 0 };
        NodeKind::Sink(Arc::new(SimSink { name, output: Arc::clone(output), pace, around: Surroundings::kind() }))
    };
    let graph = JobGraphBuilder::new("even-and-odd")
        .node(node("numbers", NodeKind::Source(Arc::new(source)), None))
        .node(node("route", operator(route, || Route), Some(("numbers", Partition::Forward))))
        .node(node("even", sum(None), Some(("route.even", Partition::Hash))))
        .node(node("odd", sum(Some(LAST)), Some(("route.odd", Partition::Hash))))
        .node(node("evens", sink("evens", &outputs[0]), Some(("even", Partition::Forward))))
        .node(node("odds", sink("odds", &outputs[1]), Some(("odd", Partition::Forward))))
        .build();
    (graph.expect("a job"), outputs)
}

/// The single value in the state of a node.
fn saved_sum(metadata: &CheckpointMetadata, node: &str) -> u64 {
    let node = metadata.nodes.iter().find(|saved| saved.name == node).expect("a node of the job");
    let Some(StateHandle::Inline(bytes)) = &node.subtasks[0].keyed_state else { panic!("small state is inline") };
    let mut opener = SnapshotOpener::new(bytes.len() as u64).expect("a snapshot");
    while let Some(range) = opener.wants() {
        opener.give(&bytes[range.start as usize..range.end as usize]).expect("a snapshot");
    }
    let index = opener.finish();
    let block = index.blocks()[0];
    let decoded = index.decode_block(&block, &bytes[block.bytes().start as usize..block.bytes().end as usize]);
    let decoded = decoded.expect("a block");
    let (_, payload) = decoded.entries().next().expect("one key");
    let Payload::Value(value) = payload else { panic!("a value") };
    number(value)
}

fn committed(output: &Output) -> Vec<u64> {
    output.records(Stage::Committed).into_values().flatten().map(|record| number(&record.value)).collect()
}

#[test]
fn the_sums_go_on_from_the_cut_behind_the_five() {
    let storage = TempDir::new().expect("a directory");
    let (died, seen) = (Arc::<AtomicBool>::default(), Arc::default());
    let source = Counting { directory: storage.path().to_owned(), seen: Arc::clone(&seen), read: Arc::default() };
    let read = Arc::clone(&source.read);
    let (graph, [evens, odds]) = graph(source, &died);
    let location = StorageLocation::Directory(storage.path().to_owned());
    let options = JobOptions {
        checkpoint: Some(CheckpointSettings::new(Duration::from_millis(20), location)),
        restart: RestartSettings::FixedDelay { attempts: 1, delay: Duration::from_millis(1) },
        ..JobOptions::new(Owner { job: "test".into(), attempt: Attempt::first(1) })
    };
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(1).enable_all().build().expect("tokio starts")
    };
    let (workers, control) = (runtime(), runtime());
    let env = Env::system(workers.handle(), control.handle(), 1);
    let report = control.block_on(async { api::start(graph, env, options).wait().await.expect("the job's own task") });
    assert!(matches!(report.outcome, Outcome::Finished), "{report:?}");

    let metadata = seen.lock().expect("no panic").take().expect("a checkpoint was complete");
    let metadata = CheckpointMetadata::decode(&metadata).expect("metadata");
    let numbers = &metadata.nodes[0].subtasks[0].splits[0];
    assert_eq!(number(&numbers.position), BARRIER_AFTER);
    assert_eq!((saved_sum(&metadata, "even"), saved_sum(&metadata, "odd")), (6, 9));

    assert!(died.load(Ordering::Relaxed), "the failpoint was met");
    assert_eq!(committed(&evens), [2, 6, 12]);
    assert_eq!(committed(&odds), [1, 4, 9, 16]);
    // The 6 and the 7 were read twice, and counted once.
    assert_eq!(read.load(Ordering::Relaxed), LAST + 2);
}
