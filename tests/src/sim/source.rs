//! A source in memory: splits are lists of records, and a position is how many were read.
//!
//! Batch sizes, the order in which splits are handed out and read, and how long everything takes follow from the seed of
//! the job's `Env`. With a pace of no delay it runs on any clock without waiting.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tidegate::clock::Clock;
use tidegate::connectors::{
    Boundedness, ConnectorError, Extent, ReaderContext, ReaderEvent, RestoredSource, Source, SourceReader, Split,
    SplitEnumerator, StreamShape,
};
use tidegate::env::Env;
use tidegate::random::Random;
use tidegate::record::Batch;

use super::faults::Fault;
use super::record::Record;
use super::surroundings::Surroundings;

/// How fast a source or sink is.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// The largest batch, in records.
    pub most_records: u64,
    /// A step takes less than this, in microseconds; nothing waits when 0.
    pub delay_us: u64,
}

impl Pace {
    /// Draws whether and how long a step takes.
    pub(super) fn delay(self, random: &mut Random) -> Option<Duration> {
        (self.delay_us > 0 && random.below(2) == 0).then(|| Duration::from_micros(random.below(self.delay_us)))
    }
}

/// A source in memory.
#[derive(Clone)]
pub struct SimSource {
    /// Tells the source's random numbers from those of others.
    pub name: &'static str,
    /// The records of each split.
    pub splits: Vec<Arc<Vec<Record>>>,
    /// What the records carry.
    pub shape: StreamShape,
    /// How fast it is.
    pub pace: Pace,
    /// Whether its splits end, or are waited at for more that never comes.
    pub boundedness: Boundedness,
    /// What is around it.
    pub around: Arc<Surroundings>,
}

impl fmt::Debug for SimSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimSource")
            .field("name", &self.name)
            .field("splits", &self.splits.len())
            .finish_non_exhaustive()
    }
}

impl Source for SimSource {
    fn boundedness(&self) -> Boundedness {
        self.boundedness
    }

    fn shape(&self) -> StreamShape {
        self.shape
    }

    fn cannot_replay(&self) -> Option<String> {
        None
    }

    fn enumerator(&self, env: &Env, restored: Option<RestoredSource>) -> Box<dyn SplitEnumerator> {
        let mut random = Random::for_purpose(env.seed, self.name, &[1]);
        let splits = match restored {
            None => {
                let split = |split: usize| Split { id: split.to_string(), position: 0u64.to_le_bytes().to_vec() };
                let mut splits: Vec<Split> = (0..self.splits.len()).map(split).collect();
                for left in (1..splits.len()).rev() {
                    let other = usize::try_from(random.below(left as u64 + 1)).expect("an index");
                    splits.swap(left, other);
                }
                Ok(splits)
            }
            Some(RestoredSource { enumerator, splits: begun }) => decode(&enumerator).map(|mut splits| {
                splits.extend(begun);
                let ids: BTreeSet<&str> = splits.iter().map(|split| split.id.as_str()).collect();
                if ids.len() < splits.len() {
                    self.around.journal.broken(format!("{}: a split is twice in a checkpoint: {splits:?}", self.name));
                }
                splits
            }),
        };
        Box::new(SimEnumerator {
            restored: splits,
            splits: Vec::new(),
            source: self.clone(),
            started: false,
            pace: self.pace,
            random,
            clock: Arc::clone(&env.clock),
        })
    }

    fn reader(&self, context: ReaderContext) -> Box<dyn SourceReader> {
        let mut random = Random::for_purpose(context.env.seed, self.name, &[2, u64::from(context.subtask.index)]);
        Box::new(SimReader {
            source: self.clone(),
            // Without a pace, splits are read one after the other, for those who compare the order.
            greedy: random.below(3) == 0 && self.pace.delay_us > 0,
            random,
            clock: context.env.clock,
            reading: Vec::new(),
            due: None,
            records: 0,
        })
    }
}

struct SimEnumerator {
    /// What to start with.
    restored: Result<Vec<Split>, ConnectorError>,
    /// Those that were not handed out, the next one last.
    splits: Vec<Split>,
    source: SimSource,
    started: bool,
    pace: Pace,
    random: Random,
    clock: Arc<dyn Clock>,
}

impl SplitEnumerator for SimEnumerator {
    fn start(&mut self) -> BoxFuture<'_, Result<(), ConnectorError>> {
        async move {
            assert!(!std::mem::replace(&mut self.started, true), "an enumerator starts once");
            if let Some(delay) = self.pace.delay(&mut self.random) {
                self.clock.sleep(delay).await;
            }
            if self.source.around.faults.strikes(Fault::EnumeratorFails) {
                return Err(self.source.failed());
            }
            self.splits = std::mem::replace(&mut self.restored, Ok(Vec::new()))?;
            Ok(())
        }
        .boxed()
    }

    fn next_split(&mut self, _subtask: u32) -> BoxFuture<'_, Result<Option<Split>, ConnectorError>> {
        async move {
            assert!(self.started, "a split was asked for before the start");
            if let Some(delay) = self.pace.delay(&mut self.random) {
                self.clock.sleep(delay).await;
            }
            if self.source.around.faults.strikes(Fault::EnumeratorFails) {
                return Err(self.source.failed());
            }
            Ok(self.splits.pop())
        }
        .boxed()
    }

    fn snapshot(&self) -> Vec<u8> {
        assert!(self.started, "a snapshot was taken before the start");
        encode(&self.splits)
    }

    fn split_finished(&mut self, split: &str) {
        assert!(self.splits.iter().all(|left| left.id != split), "split {split} was read before it was handed out");
    }

    fn extent(&self) -> Option<Extent> {
        let left =
            |split: &Split| self.source.at(split).map_or(0, |(index, read)| self.source.splits[index].len() - read);
        Some(Extent::Records(self.splits.iter().map(|split| left(split) as u64).sum()))
    }
}

/// Splits as bytes: a version, and each split's index and position.
fn encode(splits: &[Split]) -> Vec<u8> {
    let mut bytes = vec![VERSION];
    for split in splits {
        bytes.extend_from_slice(&split.id.parse::<u64>().expect("an index").to_le_bytes());
        bytes.extend_from_slice(&split.position);
    }
    bytes
}

/// The version of what [`encode`] makes.
const VERSION: u8 = 1;

fn decode(bytes: &[u8]) -> Result<Vec<Split>, ConnectorError> {
    let malformed = || ConnectorError::Other(format!("{bytes:?} is not the state of an enumerator"));
    let splits = bytes.strip_prefix(&[VERSION]).ok_or_else(malformed)?;
    let (splits, rest) = splits.as_chunks::<16>();
    let split = |split: &[u8; 16]| {
        let (index, position) = split.split_at(8);
        Split { id: u64::from_le_bytes(index.try_into().expect("8 bytes")).to_string(), position: position.to_vec() }
    };
    if rest.is_empty() { Ok(splits.iter().map(split).collect()) } else { Err(malformed()) }
}

impl SimSource {
    fn failed(&self) -> ConnectorError {
        self.around.counters.connector_errors.fetch_add(1, Relaxed);
        ConnectorError::Other(format!("simulated: {} cannot be read just now", self.name))
    }

    /// The split's index and how many of its records were read; none if it is no split of this source.
    fn at(&self, split: &Split) -> Option<(usize, usize)> {
        let index: usize = split.id.parse().ok()?;
        let position = u64::from_le_bytes(split.position.as_slice().try_into().ok()?);
        let position = usize::try_from(position).ok()?;
        (position <= self.splits.get(index)?.len()).then_some((index, position))
    }
}

struct SimReader {
    source: SimSource,
    /// It reads several splits at a time.
    greedy: bool,
    random: Random,
    clock: Arc<dyn Clock>,
    /// The splits at hand, each by its index and how many records were read.
    reading: Vec<(usize, usize)>,
    /// When the next event comes, once that is drawn. Kept here, so that dropping the future does not draw again.
    due: Option<Duration>,
    records: u64,
}

impl SourceReader for SimReader {
    fn add_split(&mut self, split: Split) -> Result<(), ConnectorError> {
        let malformed =
            || ConnectorError::Other(format!("split {} at {:?} is none of these", split.id, split.position));
        self.reading.push(self.source.at(&split).ok_or_else(malformed)?);
        Ok(())
    }

    fn takes_more_splits(&self) -> bool {
        self.greedy
    }

    fn next(&mut self) -> BoxFuture<'_, Result<ReaderEvent, ConnectorError>> {
        async move {
            assert!(!self.reading.is_empty(), "a reader without splits was asked for records");
            if self.due.is_none() {
                let delay = self.source.pace.delay(&mut self.random).unwrap_or_default();
                self.due = Some(self.clock.monotonic() + delay);
            }
            let left = self.due.unwrap_or_default().saturating_sub(self.clock.monotonic());
            if !left.is_zero() {
                self.clock.sleep(left).await;
            }
            let open = |&(index, read): &(usize, usize)| read < self.source.splits[index].len();
            let endless = self.source.boundedness == Boundedness::Unbounded;
            if endless && !self.reading.iter().any(open) {
                std::future::pending::<()>().await;
            }
            // From here on nothing waits: what is taken is returned.
            self.due = None;
            if self.source.around.faults.strikes(Fault::SourceFails) {
                return Err(self.source.failed());
            }
            let candidates: Vec<usize> =
                (0..self.reading.len()).filter(|&at| !endless || open(&self.reading[at])).collect();
            let chosen = usize::try_from(self.random.below(candidates.len() as u64)).expect("an index");
            let (index, read) = self.reading[candidates[chosen]];
            let records = &self.source.splits[index];
            if read == records.len() {
                self.reading.remove(candidates[chosen]);
                return Ok(ReaderEvent::SplitFinished(index.to_string()));
            }
            let size = usize::try_from(1 + self.random.below(self.source.pace.most_records)).expect("a small number");
            let end = records.len().min(read + size);
            let mut batch = Batch::new();
            records[read..end].iter().for_each(|record| record.push_to(&mut batch));
            self.reading[candidates[chosen]].1 = end;
            self.records += batch.len() as u64;
            self.source.around.counters.source_batches.fetch_add(1, Relaxed);
            Ok(ReaderEvent::Batch(batch))
        }
        .boxed()
    }

    fn snapshot(&self) -> Vec<Split> {
        let split = |&(index, read): &(usize, usize)| Split {
            id: index.to_string(),
            position: (read as u64).to_le_bytes().to_vec(),
        };
        self.reading.iter().map(split).collect()
    }

    fn progress(&self) -> u64 {
        self.records
    }
}

#[cfg(test)]
mod tests;
