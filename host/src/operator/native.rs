//! Operators written in Rust and linked into the host: for programs that embed tidegate, and for built-in operators.
//!
//! A native operator is trusted: no memory cap and no time limit hold it, and a panic in it fails the job. In all else it
//! is an operator like any other: it acts through its context, what it writes counts once its call returned, and the
//! instance may be dropped between two calls.

use std::fmt;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::{Call, CallContext, Descriptor, Fault, Operator, OperatorFactory};
use crate::id::SubtaskId;
use crate::record::Batch;

/// An operator in Rust. Its methods are written as `async fn`; all but `process` may be left out.
///
/// ```
/// use tidegate::operator::{CallContext, Descriptor, Fault, NativeFactory, NativeOperator};
/// use tidegate::record::Batch;
///
/// struct Upper;
///
/// impl NativeOperator for Upper {
///     async fn process(&mut self, _input: u32, batch: &Batch, context: &mut CallContext) -> Result<(), Fault> {
///         let mut upper = Batch::new();
///         for (record, value) in batch.values().iter().enumerate() {
///             let timestamp = batch.timestamps().get(record).copied();
///             upper.push(batch.key(record), &value.to_ascii_uppercase(), timestamp);
///         }
///         context.emit(0, upper).await
///     }
/// }
///
/// let factory = NativeFactory::new(Descriptor::default(), |_subtask| Upper);
/// # let _ = factory;
/// ```
pub trait NativeOperator: Send {
    /// Processes records of one input.
    ///
    /// # Errors
    /// A [`GuestFault`](super::GuestFault) is treated as the node's `on-error` says, any other fault fails the job.
    fn process(
        &mut self,
        input: u32,
        batch: &Batch,
        context: &mut CallContext,
    ) -> impl Future<Output = Result<(), Fault>> + Send;

    /// The watermark has come further; the context tells where it is.
    ///
    /// # Errors
    /// As for `process`.
    fn on_watermark(&mut self, context: &mut CallContext) -> impl Future<Output = Result<(), Fault>> + Send {
        let _ = context;
        std::future::ready(Ok(()))
    }

    /// An input has ended, and so many others have not.
    ///
    /// # Errors
    /// As for `process`.
    fn on_end_of_input(
        &mut self,
        input: u32,
        remaining: u32,
        context: &mut CallContext,
    ) -> impl Future<Output = Result<(), Fault>> + Send {
        let _ = (input, remaining, context);
        std::future::ready(Ok(()))
    }

    /// The instance ends in good order.
    ///
    /// # Errors
    /// As for `process`.
    fn close(&mut self, context: &mut CallContext) -> impl Future<Output = Result<(), Fault>> + Send {
        let _ = context;
        std::future::ready(Ok(()))
    }
}

/// Makes instances of a native operator.
pub struct NativeFactory<F> {
    descriptor: Descriptor,
    make: F,
}

impl<O, F> NativeFactory<F>
where
    O: NativeOperator + 'static,
    F: Fn(&SubtaskId) -> O + Send + Sync,
{
    /// A factory of instances made by `make`, which declare `descriptor`.
    ///
    /// # Panics
    /// When the descriptor is not valid.
    #[must_use]
    pub fn new(descriptor: Descriptor, make: F) -> Self {
        if let Err(error) = descriptor.validate() {
            panic!("a native operator's descriptor is not valid: {error}");
        }
        Self { descriptor, make }
    }
}

impl<F> fmt::Debug for NativeFactory<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NativeFactory").field("descriptor", &self.descriptor).finish_non_exhaustive()
    }
}

impl<O, F> OperatorFactory for NativeFactory<F>
where
    O: NativeOperator + 'static,
    F: Fn(&SubtaskId) -> O + Send + Sync,
{
    fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    fn create<'a>(&'a self, subtask: &'a SubtaskId) -> BoxFuture<'a, Result<Box<dyn Operator>, Fault>> {
        let instance: Box<dyn Operator> = Box::new(Native((self.make)(subtask)));
        std::future::ready(Ok(instance)).boxed()
    }
}

struct Native<O>(O);

impl<O: NativeOperator> Operator for Native<O> {
    fn call<'a>(&'a mut self, call: Call, context: &'a mut CallContext) -> BoxFuture<'a, Result<(), Fault>> {
        let operator = &mut self.0;
        async move {
            match call {
                Call::Process { input, batch } => operator.process(input, &batch, context).await,
                Call::Watermark => operator.on_watermark(context).await,
                Call::EndOfInput { input, remaining } => operator.on_end_of_input(input, remaining, context).await,
                Call::Close => operator.close(context).await,
            }
        }
        .boxed()
    }
}
