//! Operators, as the runtime sees them: something that is called with a batch and acts through a call context.
//!
//! A leaf between the runtime and what implements operators (Wasm components, native built-ins, the simulation): the
//! `Operator` trait, the scope of a call (slots, staged writes, the collector), descriptors, faults. No wasmtime here.
//!
//! What always holds: an operator acts only through its [`CallContext`], and what it wrote there counts only once the
//! call returned without a fault.

mod collector;
mod context;
mod descriptor;
mod fault;
mod keyed_state;
mod metrics;
mod native;
mod policy;

use std::sync::Arc;

use futures_util::future::BoxFuture;

pub use collector::{Collector, EmitMode, EmitSlot};
pub use context::{CallContext, Rejection};
pub use descriptor::{Descriptor, DescriptorError, SideOutput, StateDescriptor, StateKind, Ttl, TtlRefresh};
pub use fault::{Fault, GuestFault, RuleViolation};
pub use keyed_state::{EntryCursor, EntryPage, EntryScan, KeyedState};
pub use metrics::{Metric, Summary, UserMetrics};
pub use native::{NativeFactory, NativeOperator};
pub use policy::{LARGEST_RECORD_LIMIT, Limits, OnError};

use crate::id::SubtaskId;
use crate::record::Batch;

/// One call of an operator.
#[derive(Clone, Debug)]
pub enum Call {
    /// Process records of one input.
    Process {
        /// The input, counting from 0 in the order of the job file.
        input: u32,
        /// The records; the context knows them as well.
        batch: Arc<Batch>,
    },
    /// The watermark has come further; the context tells where it is.
    Watermark,
    /// An input has ended.
    EndOfInput {
        /// The input.
        input: u32,
        /// How many inputs have not ended.
        remaining: u32,
    },
    /// The instance ends in good order.
    Close,
}

/// An operator instance. Disposable: what it keeps outside its context is a cache that may vanish between two calls.
pub trait Operator: Send {
    /// Makes one call. After a fault the instance is not called again. The future may be dropped at any await, and the
    /// instance with it; the context is lost then as well, unless the future returned.
    fn call<'a>(&'a mut self, call: Call, context: &'a mut CallContext) -> BoxFuture<'a, Result<(), Fault>>;

    /// Whether the instance is better replaced by a fresh one before its next call, as when its memory has grown.
    fn is_worn(&self) -> bool {
        false
    }
}

/// Makes instances of one operator.
pub trait OperatorFactory: Send + Sync {
    /// What the operator declares. The same for every instance.
    fn descriptor(&self) -> &Descriptor;

    /// Makes an instance for a subtask.
    fn create<'a>(&'a self, subtask: &'a SubtaskId) -> BoxFuture<'a, Result<Box<dyn Operator>, Fault>>;
}
