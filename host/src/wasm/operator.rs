//! Operators that are components.
//!
//! A factory holds a compiled and linked component; an operator is one instance of it in a store of its own, the call
//! context moved into the store for the length of a call. After a fault, or when the future of a call is dropped, the
//! store is dead and the instance must go; the context survives both.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use wasmtime::component::{Component, HasData, Linker};
use wasmtime::{Store, UpdateDeadline};

use super::bindings::exports::tidegate::operator::handler;
use super::bindings::tidegate::operator::types;
use super::bindings::{Operator as Instance, OperatorPre};
use super::engine::WasmEngine;
use super::guest::{self, Guest, Scope};
use super::host::trap;
use super::inspect::{self, LoadError, LoadFailure};
use super::log::{GuestLog, KnownLines};
use super::{fault, wasi};
use crate::env::Env;
use crate::id::SubtaskId;
use crate::operator::{
    Call, CallContext, Collector, Descriptor, Fault, GuestFault, KeyedState, LARGEST_RECORD_LIMIT, Limits, Operator,
    OperatorFactory, RuleViolation, SideOutput, StateDescriptor, StateKind, Ttl, TtlRefresh,
};
use crate::random::Random;
use crate::record::{Batch, Column};
use crate::state::MemoryBackend;

/// What may cross between host and guest at once, either way, beside one record: smaller ones that travel with it, and
/// the positions and times of all of them.
const TRANSFER_BESIDE_RECORD: u64 = 1 << 20;

/// The most bytes that cross between host and guest at once, either way: enough for a record whose key and value are as
/// large as they may be.
///
/// The host copies what a guest hands over before any of its code runs and without interrupts.
fn largest_transfer(max_record_bytes: u64) -> usize {
    let bytes = 2 * max_record_bytes.min(LARGEST_RECORD_LIMIT) + TRANSFER_BESIDE_RECORD;
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// An instance is worn once its memory is beyond half of its limit, and has grown since its first call by a quarter of
/// the limit or by this much. Linear memory never shrinks, and some languages leak with every batch.
const WORN_GROWTH: u64 = 64 << 20;

/// What the job says about an operator.
#[derive(Clone, Debug)]
pub struct OperatorSettings {
    /// The job's name, for the log.
    pub job: String,
    /// The node's name.
    pub node: String,
    /// The operator's table of the job file as JSON.
    pub config: String,
    /// What one instance may use.
    pub limits: Limits,
    /// The largest key or value of a record, in bytes; at most [`LARGEST_RECORD_LIMIT`].
    pub max_record_bytes: u64,
}

/// Makes instances of a component.
pub struct WasmOperatorFactory {
    engine: WasmEngine,
    env: Env,
    settings: OperatorSettings,
    job: Arc<str>,
    component: OperatorPre<Guest>,
    descriptor: Descriptor,
    /// How many instances were made, so that each has randomness of its own.
    instances: AtomicU64,
    /// By subtask, since a search for a record at fault goes through many instances.
    known_lines: Mutex<BTreeMap<u32, KnownLines>>,
}

impl fmt::Debug for WasmOperatorFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WasmOperatorFactory").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl WasmOperatorFactory {
    /// Loads the component of a file: checks what it imports and exports, compiles it, and calls `open` once for what it
    /// declares.
    ///
    /// # Errors
    /// When the file is not an operator that may run, or `open` fails.
    pub async fn load(
        engine: &WasmEngine,
        env: &Env,
        path: &Path,
        settings: OperatorSettings,
    ) -> Result<Self, LoadError> {
        let component = inspect::load(engine, env, path).await?;
        Self::link(engine, env, &component, settings).await.map_err(|failure| failure.at(path))
    }

    async fn link(
        engine: &WasmEngine,
        env: &Env,
        component: &Component,
        settings: OperatorSettings,
    ) -> Result<Self, LoadFailure> {
        let linked = linker(engine).and_then(|linker| OperatorPre::new(linker.instantiate_pre(component)?));
        let component = linked.map_err(|error| LoadFailure::Contract(format!("{error:#}")))?;
        let job = Arc::from(settings.job.as_str());
        let mut factory = Self {
            engine: engine.clone(),
            env: env.clone(),
            settings,
            job,
            component,
            descriptor: Descriptor::default(),
            instances: AtomicU64::new(0),
            known_lines: Mutex::default(),
        };
        let subtask = SubtaskId { node: factory.settings.node.clone(), index: 0 };
        let (_, descriptor) = factory.instantiate(&subtask).await.map_err(LoadFailure::Open)?;
        descriptor.validate().map_err(LoadFailure::Descriptor)?;
        factory.descriptor = descriptor;
        Ok(factory)
    }

    async fn instantiate(&self, subtask: &SubtaskId) -> Result<(WasmOperator, Descriptor), Fault> {
        let mut store = self.store(subtask);
        let run_time = store.data().run_time.clone();
        run_time.begin_call();
        let opened = run_time
            .count(async {
                let instance = self.component.instantiate_async(&mut store).await?;
                let opened = instance.tidegate_operator_handler().call_open(&mut store, &self.settings.config).await?;
                Ok((instance, opened))
            })
            .await;
        let stderr = store.data().log.end_call();
        let (instance, opened) = opened.map_err(|error| fault::classify(error, store.data(), &stderr))?;
        let descriptor = opened.map_err(returned)?;
        store.data_mut().scope = Scope::Call;
        Ok((WasmOperator { store, instance, first_size: None }, descriptor.into()))
    }

    fn store(&self, subtask: &SubtaskId) -> Store<Guest> {
        let clock = &self.env.clock;
        let mut known_lines = self.known_lines.lock().unwrap_or_else(PoisonError::into_inner);
        let known = Arc::clone(known_lines.entry(subtask.index).or_default());
        let log = GuestLog::new(Arc::clone(&self.job), subtask.clone(), Arc::clone(clock), known);
        let run_time = self.engine.run_time();
        let context = self.unreachable_context(subtask);
        let largest_transfer = largest_transfer(self.settings.max_record_bytes);
        let guest = Guest::new(context, log, Arc::clone(clock), run_time, self.settings.limits, largest_transfer);
        let mut store = Store::new(self.engine.engine(), guest);
        guest::limit(&mut store);
        store.set_hostcall_fuel(largest_transfer);
        store.set_epoch_deadline(1);
        store.epoch_deadline_callback(|store| {
            let guest = store.data();
            let limit = guest.limits.call;
            if guest.run_time.is_over(limit) {
                return Err(trap(GuestFault::CallTime { limit }));
            }
            Ok(UpdateDeadline::Yield(1))
        });
        store
    }

    /// What `open` runs with, and what is in the store between calls: no state, no outputs.
    fn unreachable_context(&self, subtask: &SubtaskId) -> CallContext {
        let backend = MemoryBackend::new(&subtask.node, Vec::new(), 0..1, 1, 0);
        let state = KeyedState::new(&[], Box::new(backend), 0);
        let collector = Collector::new(Arc::default(), &[], 0);
        let instance = self.instances.fetch_add(1, Ordering::Relaxed);
        let mut context =
            CallContext::new(subtask.clone(), state, collector, Arc::clone(&self.env.clock), self.env.seed);
        context.random = Random::for_purpose(self.env.seed, &subtask.node, &[u64::from(subtask.index), instance, OPEN]);
        context
    }
}

/// Sets the randomness of `open` apart from that of calls.
const OPEN: u64 = 0x6f70_656e;

impl OperatorFactory for WasmOperatorFactory {
    fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    fn create<'a>(&'a self, subtask: &'a SubtaskId) -> BoxFuture<'a, Result<Box<dyn Operator>, Fault>> {
        Box::pin(async move {
            let (operator, descriptor) = self.instantiate(subtask).await?;
            if descriptor != self.descriptor {
                return Err(RuleViolation::Other(
                    "open declared other states or outputs than when the job started; it must depend on its config alone"
                        .to_owned(),
                )
                .into());
            }
            Ok(Box::new(operator) as Box<dyn Operator>)
        })
    }
}

fn linker(engine: &WasmEngine) -> wasmtime::Result<Linker<Guest>> {
    let mut linker = Linker::new(engine.engine());
    wasi::add_to_linker(&mut linker)?;
    Instance::add_to_linker::<Guest, Contract>(&mut linker, |guest| guest)?;
    Ok(linker)
}

/// The operator contract's imports.
struct Contract;

impl HasData for Contract {
    type Data<'a> = &'a mut Guest;
}

/// One instance of a component.
struct WasmOperator {
    store: Store<Guest>,
    instance: Instance,
    /// What its memories took after its first call.
    first_size: Option<u64>,
}

impl Operator for WasmOperator {
    fn call<'a>(&'a mut self, call: Call, context: &'a mut CallContext) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async move {
            let Self { store, instance, first_size } = self;
            let lent = LentContext::new(store, context);
            lent.store.set_epoch_deadline(1);
            let guest = lent.store.data_mut();
            guest.scope = if matches!(call, Call::Close) { Scope::Close } else { Scope::Call };
            guest.memory.begin_call();
            guest.log.begin_call(guest.context.repeats);
            let run_time = guest.run_time.clone();
            run_time.begin_call();
            let outcome = run_time.count(make(call, instance, lent.store)).await;
            let guest = lent.store.data();
            first_size.get_or_insert(guest.memory.bytes());
            let stderr = guest.log.end_call();
            match outcome {
                // It may have returned before the next tick.
                Ok(_) if run_time.overslept() => Err(GuestFault::CallTime { limit: guest.limits.call }.into()),
                Ok(Ok(())) => Ok(()),
                Ok(Err(failure)) => Err(returned(failure)),
                Err(error) => Err(fault::classify(error, guest, &stderr)),
            }
        })
    }

    fn is_worn(&self) -> bool {
        let (bytes, limit) = (self.store.data().memory.bytes(), self.store.data().limits.memory_bytes);
        let grown = bytes.saturating_sub(self.first_size.unwrap_or(bytes));
        bytes > limit / 2 && grown >= WORN_GROWTH.min(limit / 4)
    }
}

async fn make(
    call: Call,
    instance: &Instance,
    store: &mut Store<Guest>,
) -> wasmtime::Result<Result<(), types::Failure>> {
    let handler = instance.tidegate_operator_handler();
    match call {
        Call::Process { input, batch } => {
            let (bytes, limit) = (batch.byte_size(), store.data().largest_transfer);
            if bytes > limit {
                return Err(trap(GuestFault::BatchSize { bytes, limit }));
            }
            handler.call_process(store, input, lower(&batch)).await
        }
        Call::Watermark => handler.call_on_watermark(store).await,
        Call::EndOfInput { input, remaining } => handler.call_on_end_of_input(store, input, remaining).await,
        Call::Close => handler.call_close(store).await,
    }
}

fn lower(batch: &Batch) -> handler::Batch<'_> {
    fn column(column: &Column) -> handler::Column<'_> {
        handler::Column { data: column.data(), offsets: column.offsets() }
    }
    handler::Batch { keys: column(batch.keys()), values: column(batch.values()), timestamps: batch.timestamps() }
}

fn returned(failure: types::Failure) -> Fault {
    GuestFault::Returned { message: failure.message, position: failure.position }.into()
}

/// A call context while it is in the store. Goes back to its owner however the call ends.
struct LentContext<'a> {
    store: &'a mut Store<Guest>,
    owner: &'a mut CallContext,
}

impl<'a> LentContext<'a> {
    fn new(store: &'a mut Store<Guest>, owner: &'a mut CallContext) -> Self {
        std::mem::swap(&mut store.data_mut().context, owner);
        Self { store, owner }
    }
}

impl Drop for LentContext<'_> {
    fn drop(&mut self) {
        std::mem::swap(&mut self.store.data_mut().context, self.owner);
    }
}

impl From<types::Descriptor> for Descriptor {
    fn from(descriptor: types::Descriptor) -> Self {
        Self {
            states: descriptor.states.into_iter().map(Into::into).collect(),
            side_outputs: descriptor
                .side_outputs
                .into_iter()
                .map(|output| SideOutput { id: output.id, name: output.name })
                .collect(),
        }
    }
}

impl From<types::StateDescriptor> for StateDescriptor {
    fn from(state: types::StateDescriptor) -> Self {
        let kind = match state.kind {
            types::StateKind::KeyedValue => StateKind::KeyedValue,
            types::StateKind::KeyedList => StateKind::KeyedList,
            types::StateKind::KeyedMap => StateKind::KeyedMap,
            types::StateKind::SplitList => StateKind::SplitList,
            types::StateKind::UnionList => StateKind::UnionList,
            types::StateKind::BroadcastMap => StateKind::BroadcastMap,
        };
        let ttl = state.ttl.map(|ttl| Ttl {
            duration: std::time::Duration::from_millis(ttl.duration),
            refresh: match ttl.refresh {
                types::TtlRefresh::OnWrite => TtlRefresh::OnWrite,
                types::TtlRefresh::OnReadAndWrite => TtlRefresh::OnReadAndWrite,
            },
        });
        Self { id: state.id, name: state.name, kind, ttl, schema_version: state.schema_version }
    }
}
