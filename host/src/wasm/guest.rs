//! What the host keeps for one guest: the data of its store.

use std::sync::Arc;

use wasmtime::component::ResourceTable;
use wasmtime::{ResourceLimiter, Store};
use wasmtime_wasi::WasiCtx;

use super::log::GuestLog;
use super::ticks::RunTime;
use crate::clock::Clock;
use crate::operator::{CallContext, Limits};

/// How many host objects (streams, pollables) a guest may hold at once. None of them outlives a call for long.
const MOST_RESOURCES: usize = 1024;

/// How many elements the tables of a guest may have; each takes a pointer.
const MOST_TABLE_ELEMENTS: usize = 1 << 20;

/// How many core instances, memories and tables a component may be made of. Large ones have about ten.
const MOST_PARTS: usize = 256;

/// Which call is being made, as far as it decides what the guest may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// `open`.
    Open,
    /// Any call about data or time.
    Call,
    /// `close`.
    Close,
}

/// The data of a store.
pub(super) struct Guest {
    /// What the call at hand can reach. Between calls, a context that reaches nothing.
    pub(super) context: CallContext,
    pub(super) scope: Scope,
    pub(super) log: GuestLog,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) run_time: RunTime,
    pub(super) limits: Limits,
    /// The most bytes that cross at once.
    pub(super) largest_transfer: usize,
    pub(super) memory: Memory,
    pub(super) wasi: WasiCtx,
    pub(super) resources: ResourceTable,
}

impl Guest {
    pub(super) fn new(
        context: CallContext,
        log: GuestLog,
        clock: Arc<dyn Clock>,
        run_time: RunTime,
        limits: Limits,
        largest_transfer: usize,
    ) -> Self {
        let mut resources = ResourceTable::new();
        resources.set_max_capacity(MOST_RESOURCES);
        Self {
            context,
            scope: Scope::Open,
            wasi: super::wasi::context(&log),
            log,
            clock,
            run_time,
            memory: Memory::new(limits.memory_bytes),
            limits,
            largest_transfer,
            resources,
        }
    }

    /// Time since an unspecified moment.
    pub(super) fn monotonic_nanoseconds(&self) -> u64 {
        u64::try_from(self.context.monotonic_time().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Installs the limits of a guest in its store.
pub(super) fn limit(store: &mut Store<Guest>) {
    store.limiter(|guest| &mut guest.memory);
}

/// How much memory a guest has, and how much it may have.
///
/// A refused growth is not a trap of its own: a guest may have another way. If the call traps after all, the refusal
/// was why.
#[derive(Debug)]
pub(super) struct Memory {
    limit: u64,
    /// Of all linear memories together.
    bytes: u64,
    /// What was granted last, for the case that the machine has no memory left.
    granted: u64,
    refused: bool,
}

impl Memory {
    fn new(limit: u64) -> Self {
        Self { limit, bytes: 0, granted: 0, refused: false }
    }

    /// A call begins.
    pub(super) fn begin_call(&mut self) {
        self.refused = false;
    }

    /// Whether growth was refused in the call at hand.
    pub(super) fn was_refused(&self) -> bool {
        self.refused
    }

    /// What the linear memories take.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl ResourceLimiter for Memory {
    fn memory_growing(&mut self, current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        self.granted = (desired as u64).saturating_sub(current as u64);
        if self.bytes + self.granted > self.limit {
            self.granted = 0;
            self.refused = true;
            return Ok(false);
        }
        self.bytes += self.granted;
        Ok(true)
    }

    fn memory_grow_failed(&mut self, _error: wasmtime::Error) -> wasmtime::Result<()> {
        self.bytes -= std::mem::take(&mut self.granted);
        Ok(())
    }

    fn table_growing(&mut self, _current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        Ok(desired <= MOST_TABLE_ELEMENTS)
    }

    fn instances(&self) -> usize {
        MOST_PARTS
    }

    fn tables(&self) -> usize {
        MOST_PARTS
    }

    fn memories(&self) -> usize {
        MOST_PARTS
    }
}
