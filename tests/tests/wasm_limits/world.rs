//! What the tests drive guests with: a world without tokio, whose clock stands still until somebody sleeps.

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tidegate::checkpoint::MemoryOnly;
use tidegate::clock::Clock;
use tidegate::env::Env;
use tidegate::id::{OutputId, SubtaskId};
use tidegate::operator::{
    Call, CallContext, Collector, EmitMode, EmitSlot, Fault, KeyedState, Limits, Operator, OperatorFactory,
};
use tidegate::protocol::key_group;
use tidegate::record::Batch;
use tidegate::runtime::channel::InProcess;
use tidegate::state::MemoryBackend;
use tidegate::task::{Compute, Spawner};
use tidegate::wasm::{EngineConfig, LoadError, OperatorSettings, WasmEngine, WasmOperatorFactory};
pub(crate) use tidegate_tests::guest_job::guest_path as guest;

/// A clock on which time passes only when somebody sleeps.
#[derive(Default)]
pub(crate) struct StillClock(Mutex<Duration>);

impl Clock for StillClock {
    fn wall(&self) -> Duration {
        Duration::from_secs(1_700_000_000) + self.monotonic()
    }

    fn monotonic(&self) -> Duration {
        *self.0.lock().unwrap()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        *self.0.lock().unwrap() += duration;
        Box::pin(async {})
    }
}

/// Runs work at once, where it is asked for.
struct AtOnce;

impl Compute for AtOnce {
    fn run(&self, _name: &'static str, work: Box<dyn FnOnce() + Send>) {
        work();
    }
}

impl Spawner for AtOnce {
    fn spawn(&self, name: &str, _future: BoxFuture<'static, ()>) {
        panic!("nothing here spawns, and {name} did");
    }
}

pub(crate) fn env() -> Env {
    Env {
        clock: Arc::new(StillClock::default()),
        workers: Arc::new(AtOnce),
        control: Arc::new(AtOnce),
        compute: Arc::new(AtOnce),
        background: Arc::new(tidegate::task::BackgroundThread::start()),
        transport: Arc::new(InProcess),
        storage: Arc::new(MemoryOnly),
        seed: 7,
    }
}

/// Polls a future until it is done. Nothing that guests wait for needs waking.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = Box::pin(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
    }
}

pub(crate) fn engine() -> WasmEngine {
    WasmEngine::new(EngineConfig::default()).unwrap()
}

pub(crate) fn limits() -> Limits {
    // Far more time than any guest needs that does end, since the machine may be busy.
    Limits { call: Duration::from_secs(60), memory_bytes: 64 << 20, ..Limits::default() }
}

/// The largest record: small enough that a guest can make one that is too large to hand over.
pub(crate) const RECORD_LIMIT: u64 = 8 << 20;

pub(crate) fn settings(config: &str, limits: Limits) -> OperatorSettings {
    OperatorSettings {
        job: "test".into(),
        node: "subject".into(),
        config: config.into(),
        limits,
        max_record_bytes: RECORD_LIMIT,
    }
}

pub(crate) fn subtask() -> SubtaskId {
    SubtaskId { node: "subject".into(), index: 0 }
}

pub(crate) fn load(name: &str) -> Result<WasmOperatorFactory, LoadError> {
    load_with(&engine(), name, "{}", limits())
}

pub(crate) fn load_with(
    engine: &WasmEngine,
    name: &str,
    config: &str,
    limits: Limits,
) -> Result<WasmOperatorFactory, LoadError> {
    load_in(&env(), engine, name, config, limits)
}

fn load_in(
    env: &Env,
    engine: &WasmEngine,
    name: &str,
    config: &str,
    limits: Limits,
) -> Result<WasmOperatorFactory, LoadError> {
    block_on(WasmOperatorFactory::load(engine, env, &guest(name), settings(config, limits)))
}

/// Why a guest could not be loaded, from the file's name on, with all causes.
pub(crate) fn load_error(name: &str) -> String {
    let error = load(name).expect_err("it must not load");
    let text = error.to_string();
    let at = text.find(&format!("{name}.wasm")).expect("the file is named");
    text[at..].to_owned()
}

/// An operator and the context of its subtask.
pub(crate) struct Subject {
    factory: Arc<WasmOperatorFactory>,
    operator: Option<Box<dyn Operator>>,
    pub(crate) context: CallContext,
    slot: Arc<EmitSlot>,
}

impl Subject {
    pub(crate) fn new(name: &str) -> Self {
        Self::with_limits(name, limits())
    }

    pub(crate) fn with_limits(name: &str, limits: Limits) -> Self {
        Self::in_engine(&engine(), name, limits)
    }

    pub(crate) fn in_engine(engine: &WasmEngine, name: &str, limits: Limits) -> Self {
        let env = env();
        let factory = load_in(&env, engine, name, "{}", limits).unwrap();
        let slot = Arc::new(EmitSlot::default());
        let descriptor = factory.descriptor();
        let keyed = descriptor.states.iter().filter(|state| state.kind.is_keyed()).cloned().collect();
        let backend = MemoryBackend::new("subject", keyed, 0..1, 1, 1 << 30);
        let state = KeyedState::new(&descriptor.states, Box::new(backend), 16 << 20);
        let collector = Collector::new(Arc::clone(&slot), &descriptor.side_outputs, 16 << 20);
        let context = CallContext::new(subtask(), state, collector, env.clock, env.seed);
        Self { factory: Arc::new(factory), operator: None, context, slot }
    }

    /// The instance; a fresh one after a fault.
    pub(crate) fn operator(&mut self) -> &mut Box<dyn Operator> {
        let factory = &self.factory;
        self.operator.get_or_insert_with(|| block_on(factory.create(&subtask())).unwrap())
    }

    /// Begins to process records, polls that once, and drops the call and the instance as a cancelled task does.
    pub(crate) fn cancel(&mut self, batch: Batch) {
        self.operator();
        let call = Call::Process { input: 0, batch: Arc::new(batch) };
        self.context.begin(&call);
        let mut operator = self.operator.take().unwrap();
        let mut running = operator.call(call, &mut self.context);
        let polled = running.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending(), "there is something to cancel");
        drop(running);
        drop(operator);
        self.slot.take();
        self.context.abandon();
    }

    /// Makes a call as the driver of a subtask does, and hands on what is emitted.
    pub(crate) fn call(&mut self, call: Call, mut receive: impl FnMut(OutputId, Batch)) -> Result<(), Fault> {
        self.operator();
        let operator = self.operator.as_mut().unwrap();
        self.context.begin(&call);
        let mut context = Context::from_waker(Waker::noop());
        let mut running = operator.call(call, &mut self.context);
        let outcome = loop {
            let polled = running.as_mut().poll(&mut context);
            if let Some((output, batch)) = self.slot.take() {
                receive(output, batch);
            }
            if let Poll::Ready(outcome) = polled {
                break outcome;
            }
        };
        drop(running);
        match &outcome {
            Ok(()) => self.context.commit().unwrap(),
            Err(_) => {
                self.context.abandon();
                self.operator = None;
            }
        }
        outcome
    }

    /// Processes records and returns what came out at output 0.
    pub(crate) fn process(&mut self, batch: Batch) -> Result<Vec<Batch>, Fault> {
        let mut emitted = Vec::new();
        let call = Call::Process { input: 0, batch: Arc::new(batch) };
        self.call(call, |output, batch| {
            assert_eq!(output, OutputId::MAIN);
            emitted.push(batch);
        })?;
        Ok(emitted)
    }

    /// The error with which processing one unkeyed record ends.
    pub(crate) fn error(&mut self, value: &str) -> String {
        self.process(unkeyed(&[value])).expect_err("it must fail").to_string()
    }

    /// The error with which processing one record with the key "k" ends.
    pub(crate) fn keyed_error(&mut self, value: &str) -> String {
        self.process(keyed(&[("k", value)])).expect_err("it must fail").to_string()
    }

    pub(crate) fn hold(&mut self, limit_bytes: u64) {
        self.context.collector.set_mode(EmitMode::Hold { limit_bytes });
    }
}

pub(crate) fn unkeyed(values: &[&str]) -> Batch {
    let mut batch = Batch::new();
    values.iter().for_each(|value| batch.push(None, value.as_bytes(), None));
    batch
}

pub(crate) fn keyed(records: &[(&str, &str)]) -> Batch {
    let mut batch = Batch::new();
    records.iter().for_each(|(key, value)| batch.push(Some(key.as_bytes()), value.as_bytes(), None));
    batch.set_hashes(key_group::hash);
    batch
}
