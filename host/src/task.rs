//! Tasks: the one place that spawns, on the async threads and off them.
//!
//! A task has a name and is joined; a panic inside it is an outcome that its owner sees, never a silent end. Stopping
//! a task is the business of the cancel token that its owner gave it.

use std::any::Any;
use std::fmt;
use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;

/// Runs futures.
pub trait Spawner: Send + Sync {
    /// Starts a future under a name. The future never panics.
    fn spawn(&self, name: &str, future: BoxFuture<'static, ()>);
}

/// Runs what blocks or takes long, off the async threads.
pub trait Compute: Send + Sync {
    /// Starts a piece of work under a name. The work never panics.
    fn run(&self, name: &'static str, work: Box<dyn FnOnce() + Send>);
}

/// A task ended without a result.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// The task panicked: a bug in the host.
    #[error("task {name} panicked: {message}")]
    Panicked {
        /// The task's name.
        name: String,
        /// The panic's message.
        message: String,
    },
    /// Whatever ran the task is gone.
    #[error("task {name} was dropped before it ended")]
    Dropped {
        /// The task's name.
        name: String,
    },
}

/// A running task; a future of its result. Dropping it lets the task run on.
pub struct Task<T> {
    name: String,
    outcome: oneshot::Receiver<Result<T, Box<dyn Any + Send>>>,
}

impl<T> fmt::Debug for Task<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<T> Future for Task<T> {
    type Output = Result<T, TaskError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.outcome.poll_unpin(context).map(|outcome| {
            let name = || self.name.clone();
            match outcome {
                Ok(Ok(value)) => Ok(value),
                Ok(Err(panic)) => Err(TaskError::Panicked { name: name(), message: panic_message(&*panic) }),
                Err(_) => Err(TaskError::Dropped { name: name() }),
            }
        })
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

/// Starts a task.
pub fn spawn<T: Send + 'static>(
    spawner: &dyn Spawner,
    name: impl Into<String>,
    future: impl Future<Output = T> + Send + 'static,
) -> Task<T> {
    let (name, (sender, outcome)) = (name.into(), oneshot::channel());
    let future = async move {
        let result = AssertUnwindSafe(future).catch_unwind().await;
        // Nobody listens when the handle was dropped on purpose.
        let _ = sender.send(result);
    };
    spawner.spawn(&name, Box::pin(future));
    Task { name, outcome }
}

/// Runs a piece of work off the async threads.
pub fn compute<T: Send + 'static>(
    compute: &dyn Compute,
    name: &'static str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Task<T> {
    let (sender, outcome) = oneshot::channel();
    compute.run(
        name,
        Box::new(move || {
            let _ = sender.send(std::panic::catch_unwind(AssertUnwindSafe(work)));
        }),
    );
    Task { name: name.to_owned(), outcome }
}

/// Lets other tasks run before this one goes on.
pub async fn yield_now() {
    let mut yielded = false;
    poll_fn(|context| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// A tokio runtime as the place where tasks run.
#[derive(Clone, Debug)]
pub struct TokioTasks(pub tokio::runtime::Handle);

#[expect(clippy::disallowed_methods, reason = "this is the seam that the ban points to")]
impl Spawner for TokioTasks {
    fn spawn(&self, _name: &str, future: BoxFuture<'static, ()>) {
        drop(self.0.spawn(future));
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the seam that the ban points to")]
impl Compute for TokioTasks {
    fn run(&self, _name: &'static str, work: Box<dyn FnOnce() + Send>) {
        drop(self.0.spawn_blocking(work));
    }
}

/// How much a background thread stands back: at this niceness it gets about a fifth of a core that others want as well,
/// and all of one that nobody wants.
const BACKGROUND_NICENESS: i32 = 6;

/// One thread for what may take its time: writing snapshots, and giving back the memory they held.
///
/// Work waits in line without a bound of its own; whoever hands it in waits for each piece before the next.
#[derive(Clone, Debug)]
pub struct BackgroundThread(std::sync::mpsc::Sender<Box<dyn FnOnce() + Send>>);

impl BackgroundThread {
    /// Starts the thread. It ends when the last clone is gone.
    ///
    /// # Panics
    /// When the system has no more threads.
    #[must_use]
    pub fn start() -> Self {
        let (work, queue) = std::sync::mpsc::channel::<Box<dyn FnOnce() + Send>>();
        let run = move || {
            // A system that refuses makes the thread no less right, only less considerate.
            let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), BACKGROUND_NICENESS);
            queue.into_iter().for_each(|work| work());
        };
        let thread = std::thread::Builder::new().name("tidegate-background".into()).spawn(run);
        drop(thread.expect("the system has a thread left"));
        Self(work)
    }
}

impl Compute for BackgroundThread {
    fn run(&self, _name: &'static str, work: Box<dyn FnOnce() + Send>) {
        // The thread outlives its handles.
        let _ = self.0.send(work);
    }
}
