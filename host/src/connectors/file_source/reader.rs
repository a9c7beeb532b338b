//! The reader of a subtask: bounded splits one after the other, followed files in turns.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::follow_enumerator::POLL;
use super::position::FilePosition;
use super::split_reader::{Reading, SplitReader, Step};
use crate::connectors::{ConnectorError, ReaderEvent, SourceReader, Split};

/// The reader of a file source.
pub(super) struct FileReader {
    reading: Reading,
    splits: Vec<SplitReader>,
    /// The split whose turn it is.
    turn: usize,
    /// How many splits in a row had nothing new.
    idle: usize,
    /// Until followed files are looked at again.
    pause: Option<BoxFuture<'static, ()>>,
    /// Of the splits that are done.
    finished_bytes: u64,
}

impl FileReader {
    pub(super) fn new(reading: Reading) -> Self {
        Self { reading, splits: Vec::new(), turn: 0, idle: 0, pause: None, finished_bytes: 0 }
    }

    async fn advance(&mut self) -> Result<ReaderEvent, ConnectorError> {
        loop {
            if let Some(pause) = &mut self.pause {
                pause.await;
                self.pause = None;
                self.idle = 0;
            }
            self.turn %= self.splits.len();
            match self.splits[self.turn].step(&self.reading).await? {
                Step::Records(batch) => {
                    self.idle = 0;
                    // One followed file that is always full must not keep the others waiting.
                    self.turn += usize::from(self.reading.follow);
                    return Ok(ReaderEvent::Batch(batch));
                }
                Step::Finished => {
                    let split = self.splits.remove(self.turn);
                    self.finished_bytes += split.read_bytes();
                    self.idle = 0;
                    return Ok(ReaderEvent::SplitFinished(split.id().to_owned()));
                }
                Step::Idle => {
                    self.turn += 1;
                    self.idle += 1;
                    if self.idle >= self.splits.len() {
                        self.pause = Some(self.reading.env.clock.sleep(POLL));
                    }
                }
            }
        }
    }
}

impl SourceReader for FileReader {
    fn add_split(&mut self, split: Split) -> Result<(), ConnectorError> {
        let position = FilePosition::decode(&split)?;
        self.splits.push(SplitReader::new(split.id, position));
        Ok(())
    }

    fn takes_more_splits(&self) -> bool {
        self.reading.follow
    }

    fn next(&mut self) -> BoxFuture<'_, Result<ReaderEvent, ConnectorError>> {
        self.advance().boxed()
    }

    fn snapshot(&self) -> Vec<Split> {
        self.splits.iter().map(SplitReader::snapshot).collect()
    }

    fn progress(&self) -> u64 {
        self.finished_bytes + self.splits.iter().map(SplitReader::read_bytes).sum::<u64>()
    }
}
