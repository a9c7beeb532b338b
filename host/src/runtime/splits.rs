//! Hands the splits of a source from its enumerator to its readers.
//!
//! The enumerator belongs to one task on the control threads; readers ask it for splits by message.

use std::pin::pin;

use futures_util::future::{BoxFuture, Either, select};
use tokio::sync::{mpsc, oneshot};

use crate::connectors::{ConnectorError, Split, SplitEnumerator};

struct Request {
    subtask: u32,
    reply: oneshot::Sender<Result<Option<Split>, ConnectorError>>,
}

/// Asks for splits on behalf of one reader.
#[derive(Clone, Debug)]
pub(super) struct SplitClient {
    requests: mpsc::Sender<Request>,
}

/// Receives what the clients ask.
pub(super) struct SplitServer {
    requests: mpsc::Receiver<Request>,
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Request").field("subtask", &self.subtask).finish_non_exhaustive()
    }
}

/// A server and a client that can be cloned, for so many readers.
pub(super) fn split_exchange(readers: u32) -> (SplitServer, SplitClient) {
    // A reader asks for one split at a time.
    let (requests, received) = mpsc::channel(readers as usize);
    (SplitServer { requests: received }, SplitClient { requests })
}

impl SplitClient {
    /// Asks for the next split; none when there will be no more.
    pub(super) fn next_split(&self, subtask: u32) -> BoxFuture<'static, Option<Result<Option<Split>, ConnectorError>>> {
        let requests = self.requests.clone();
        Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            requests.send(Request { subtask, reply }).await.ok()?;
            answer.await.ok()
        })
    }
}

impl SplitServer {
    /// Answers until all clients are gone.
    pub(super) async fn serve(mut self, mut enumerator: Box<dyn SplitEnumerator>) {
        while let Some(Request { subtask, mut reply }) = self.requests.recv().await {
            let answer = {
                let split = enumerator.next_split(subtask);
                match select(split, pin!(reply.closed())).await {
                    Either::Left((answer, _)) => answer,
                    // Nobody waits any more, and an enumerator that waits keeps its splits.
                    Either::Right(_) => continue,
                }
            };
            // A reader that left meanwhile has stopped with its job.
            let _ = reply.send(answer);
        }
    }
}
