//! Lets a job end although somebody does not take what is written to them, such as a pipe that nobody reads.
//!
//! Only for sinks whose records are out as they are written: what an abandoned write leaves behind is not worse than what
//! any failure leaves. Others are awaited, because a commit is to come.

use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Either, ready, select};

use super::signals::Signals;
use crate::clock::Clock;
use crate::connectors::{Commit, ConnectorError, Prepared, Sink, SinkWriter, WriterContext};
use crate::record::Batch;

/// How long a write may take once the job is to end.
const GRACE: Duration = Duration::from_secs(1);

/// Makes a sink's writer, one that gives up if that does no harm.
pub(super) fn writer(sink: &dyn Sink, context: WriterContext, signals: &Signals) -> Box<dyn SinkWriter> {
    let (place, clock) = (context.subtask.to_string(), Arc::clone(&context.env.clock));
    let writer = sink.writer(context);
    match sink.commit() {
        Commit::OnCommit => writer,
        Commit::AtOnce => Box::new(ImpatientWriter {
            writer,
            patience: Patience { place, signals: signals.clone(), clock, lost: false },
        }),
    }
}

struct ImpatientWriter {
    writer: Box<dyn SinkWriter>,
    patience: Patience,
}

struct Patience {
    place: String,
    signals: Signals,
    clock: Arc<dyn Clock>,
    /// Whether a write was given up, so that nothing more is written.
    lost: bool,
}

impl Patience {
    /// Waits for a step of the writer; none when it is given up.
    async fn wait<T>(&mut self, step: BoxFuture<'_, T>) -> Option<T> {
        if self.lost {
            return None;
        }
        let over = async {
            // Only a stop ends this.
            let _ = self.signals.unless_stopped(pending::<()>()).await;
            self.clock.sleep(GRACE).await;
        };
        if let Either::Left((outcome, _)) = select(step, pin!(over)).await {
            return Some(outcome);
        }
        self.lost = true;
        tracing::warn!(sink = self.place, "nobody takes what is written; the job ends without the rest");
        None
    }
}

impl SinkWriter for ImpatientWriter {
    fn write<'a>(&'a mut self, batch: &'a Batch) -> BoxFuture<'a, Result<(), ConnectorError>> {
        self.patience.wait(self.writer.write(batch)).map(|outcome| outcome.unwrap_or(Ok(()))).boxed()
    }

    fn flush(&mut self) -> BoxFuture<'_, Result<(), ConnectorError>> {
        self.patience.wait(self.writer.flush()).map(|outcome| outcome.unwrap_or(Ok(()))).boxed()
    }

    fn prepare(&mut self) -> BoxFuture<'_, Result<Prepared, ConnectorError>> {
        let nothing = || Ok(ready(Ok(Vec::new())).boxed());
        self.patience.wait(self.writer.prepare()).map(move |outcome| outcome.unwrap_or_else(nothing)).boxed()
    }

    fn summary(&self) -> Option<String> {
        self.writer.summary()
    }
}
