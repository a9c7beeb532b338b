//! Hands the splits of a source from its enumerator to its readers, and begins its checkpoints.
//!
//! The enumerator belongs to one task on the control threads. Readers and the coordinator ask it by message; it answers
//! each reader in one ordered stream of orders. A checkpoint begins here: the enumerator is snapshotted and the barrier
//! ordered in one step, so that a split lies on the same side of the barrier for the enumerator and for its reader.

use std::collections::VecDeque;
use std::pin::pin;

use futures_util::future::{Either, select};
use tokio::sync::{mpsc, oneshot};

use crate::connectors::{ConnectorError, Split, SplitEnumerator};
use crate::id::CheckpointId;

/// What an enumerator's task is asked.
enum Request {
    /// A reader wants a split. Each has at most one such request open.
    NextSplit { subtask: u32 },
    /// A reader has read a split to its end.
    Finished { split: String },
    /// The coordinator begins a checkpoint.
    Begin { checkpoint: CheckpointId, reply: oneshot::Sender<Vec<u8>> },
}

/// What comes first for an enumerator's task: a request, or the split that it looks for.
enum Step {
    Asked(Option<Request>),
    Answer(Result<Option<Split>, ConnectorError>),
}

/// What a reader is told, in order.
#[derive(Debug)]
pub(super) enum SourceOrder {
    /// Read this, too.
    Split(Split),
    /// There will be no more splits.
    NoMoreSplits,
    /// The enumerator has failed.
    Failed(ConnectorError),
    /// The next record belongs to the epoch behind this checkpoint.
    Barrier(CheckpointId),
}

/// One reader's side.
pub(super) struct SplitClient {
    subtask: u32,
    requests: mpsc::UnboundedSender<Request>,
    orders: mpsc::UnboundedReceiver<SourceOrder>,
}

/// The coordinator's side.
#[derive(Clone)]
pub(super) struct EnumeratorClient {
    requests: mpsc::UnboundedSender<Request>,
}

/// The enumerator's side.
pub(super) struct SplitServer {
    requests: mpsc::UnboundedReceiver<Request>,
    readers: Vec<mpsc::UnboundedSender<SourceOrder>>,
}

/// The three sides, for so many readers.
///
/// Nothing here is bounded by its type, because the protocol bounds it: a reader has one request for a split open, tells
/// of each split once, and there is one checkpoint in progress at a time.
pub(super) fn split_exchange(readers: u32) -> (SplitServer, EnumeratorClient, Vec<SplitClient>) {
    let (requests, received) = mpsc::unbounded_channel();
    let (orders, clients) = (0..readers)
        .map(|subtask| {
            let (order, orders) = mpsc::unbounded_channel();
            (order, SplitClient { subtask, requests: requests.clone(), orders })
        })
        .unzip();
    (SplitServer { requests: received, readers: orders }, EnumeratorClient { requests }, clients)
}

impl SplitClient {
    /// Asks for the next split, which comes as an order.
    pub(super) fn request_split(&self) {
        // An enumerator that is gone is noticed by its orders having ended.
        let _ = self.requests.send(Request::NextSplit { subtask: self.subtask });
    }

    /// Tells that a split has been read to its end.
    pub(super) fn finished(&self, split: String) {
        let _ = self.requests.send(Request::Finished { split });
    }

    /// Waits for the next order; none when the enumerator is gone. Cancel-safe.
    pub(super) fn poll_order(&mut self, context: &mut std::task::Context<'_>) -> std::task::Poll<Option<SourceOrder>> {
        self.orders.poll_recv(context)
    }
}

impl EnumeratorClient {
    /// Begins a checkpoint: the enumerator's part of it comes back, and all readers are ordered to pass the barrier on.
    /// None when the enumerator is gone.
    pub(super) async fn begin(&self, checkpoint: CheckpointId) -> Option<Vec<u8>> {
        let (reply, answer) = oneshot::channel();
        self.requests.send(Request::Begin { checkpoint, reply }).ok()?;
        answer.await.ok()
    }
}

impl SplitServer {
    /// Answers until all clients are gone.
    pub(super) async fn serve(mut self, mut enumerator: Box<dyn SplitEnumerator>) {
        let mut waiting: VecDeque<u32> = VecDeque::new();
        loop {
            let step = match waiting.front() {
                None => Step::Asked(self.requests.recv().await),
                // The split first: one that is there already must not be dropped with its future. An enumerator that waits
                // for input, perhaps for ever, loses nothing by being dropped.
                Some(&subtask) => match select(enumerator.next_split(subtask), pin!(self.requests.recv())).await {
                    Either::Left((answer, _)) => Step::Answer(answer),
                    Either::Right((request, _)) => Step::Asked(request),
                },
            };
            let request = match step {
                Step::Asked(request) => request,
                Step::Answer(answer) => {
                    let subtask = waiting.pop_front().expect("somebody had asked");
                    self.order(
                        subtask,
                        match answer {
                            Ok(Some(split)) => SourceOrder::Split(split),
                            Ok(None) => SourceOrder::NoMoreSplits,
                            Err(error) => SourceOrder::Failed(error),
                        },
                    );
                    continue;
                }
            };
            match request {
                None => return,
                Some(Request::NextSplit { subtask }) => waiting.push_back(subtask),
                Some(Request::Finished { split }) => enumerator.split_finished(&split),
                Some(Request::Begin { checkpoint, reply }) => {
                    // Who asked may have given up meanwhile; the barrier is then one of a checkpoint that was aborted.
                    let _ = reply.send(enumerator.snapshot());
                    (0..self.readers.len()).for_each(|subtask| {
                        self.order(
                            u32::try_from(subtask).expect("readers are counted in u32"),
                            SourceOrder::Barrier(checkpoint),
                        );
                    });
                }
            }
        }
    }

    /// Tells a reader. One that is gone has finished or stopped, and needs no orders.
    fn order(&self, subtask: u32, order: SourceOrder) {
        let _ = self.readers[subtask as usize].send(order);
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll};

    use futures_util::FutureExt;
    use futures_util::future::{BoxFuture, ready};
    use futures_util::task::noop_waker_ref;

    use super::*;
    use crate::connectors::Extent;

    /// Takes a split as soon as it is asked, not when its answer is awaited.
    struct Eager(Vec<Split>);

    impl SplitEnumerator for Eager {
        fn start(&mut self) -> BoxFuture<'_, Result<(), ConnectorError>> {
            ready(Ok(())).boxed()
        }

        fn next_split(&mut self, _subtask: u32) -> BoxFuture<'_, Result<Option<Split>, ConnectorError>> {
            ready(Ok(self.0.pop())).boxed()
        }

        fn snapshot(&self) -> Vec<u8> {
            vec![u8::try_from(self.0.len()).expect("few")]
        }

        fn split_finished(&mut self, _split: &str) {}

        fn extent(&self) -> Option<Extent> {
            None
        }
    }

    #[test]
    fn a_split_is_on_one_side_of_a_barrier_only() {
        let mut context = Context::from_waker(noop_waker_ref());
        let (server, enumerator, mut readers) = split_exchange(1);
        let split = Split { id: "the only one".into(), position: Vec::new() };
        let mut serving = std::pin::pin!(server.serve(Box::new(Eager(vec![split.clone()]))));
        readers[0].request_split();
        let mut begun = std::pin::pin!(enumerator.begin(CheckpointId(1)));
        assert!(begun.as_mut().poll(&mut context).is_pending());
        assert!(serving.as_mut().poll(&mut context).is_pending());
        // Handed out before the barrier, so it is its reader's to snapshot.
        assert_eq!(begun.poll(&mut context), Poll::Ready(Some(vec![0])));
        let mut order = || readers[0].poll_order(&mut context);
        assert!(matches!(order(), Poll::Ready(Some(SourceOrder::Split(given))) if given == split));
        assert!(matches!(order(), Poll::Ready(Some(SourceOrder::Barrier(CheckpointId(1))))));
    }
}
