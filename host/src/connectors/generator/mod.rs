//! The `generator` source: made-up records, the same for the same seed.
//!
//! The records are numbered from 0 and cut into splits of consecutive numbers, which the enumerator hands out in order
//! and without end, so that any number of readers share the work. With a rate, each record is due at a time that depends
//! on its number only: pacing never drifts, and after a delay everything that is due comes at once.
//!
//! What would have been due while a job was down is not caught up with when it goes on from a checkpoint: the pace starts
//! anew where the records do. The records are the same all the same, event times included, which stay behind by the outage.

mod records;
mod zipf;

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use serde::{Deserialize, Serialize};

use self::records::{Content, Recipe, Schedule};
use self::zipf::Zipf;
use super::settings::{SettingError, SourceSettings};
use super::{
    Boundedness, ConnectorError, Extent, ReaderContext, ReaderEvent, RestoredSource, Source, SourceReader, Split,
    SplitEnumerator, StreamShape, versioned,
};
use crate::env::Env;
use crate::record::Batch;

/// The most records of a batch.
const BATCH_RECORDS: u64 = 4096;

/// Records of a split, unless that takes too long at the rate at hand.
const SPLIT_RECORDS: u64 = 1 << 16;

/// How much time the records of a split take at most, in parts of a second, so that readers take turns often.
const SPLITS_PER_SECOND: u64 = 50;

/// The most keys of a Zipf distribution, whose table takes 12 bytes per key.
const MOST_ZIPF_KEYS: u64 = 1 << 24;

/// The most keys that 31 random bits can tell apart.
const MOST_UNIFORM_KEYS: u64 = 1 << 31;

/// The settings of a `generator` source.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct GeneratorSettings {
    /// What the records are.
    pub kind: Kind,
    /// How many there are. Without end by default.
    pub records: Option<u64>,
    /// How many come per second. As fast as they are taken by default.
    pub rate: Option<u64>,
    /// What keys and values derive from. Default 0.
    #[serde(default)]
    pub seed: u64,
    /// The number of keys of the keyed kinds. Default 1000.
    pub keys: Option<u64>,
    /// How uneven `keyed-zipf` is: the key of rank n is drawn in proportion to n to the power of minus this. Default 1.
    pub exponent: Option<f64>,
    /// The first number of `sequence`. Default 1.
    pub from: Option<u64>,
    /// What the records of the keyed kinds look like. Default `keyed`.
    pub format: Option<Format>,
    /// What the records' event times are. Default `none`.
    #[serde(default)]
    pub timestamps: Timestamps,
    /// How many records one reader takes on at a time. By default 65,536, or a fiftieth of a second's if that is less.
    pub split_records: Option<u64>,
}

/// What the records of a generator are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Without keys; the values are the numbers `from`, `from + 1`, and so on, in decimal.
    Sequence,
    /// Keys `k0` to `k<keys - 1>`, each as likely as the other; values from 1 to 1000 in decimal.
    KeyedUniform,
    /// The same with `k0` as the most frequent key, then `k1`, and so on.
    KeyedZipf,
}

/// What the records of the keyed kinds look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// A key and a value.
    Keyed,
    /// No key, and as the value a line `key,value`.
    Line,
}

/// What the event times of a generator's records are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Timestamps {
    /// There are none.
    #[default]
    None,
    /// When each record was due, by the wall clock, as if the job had run since its first start. Needs a rate.
    Due,
}

impl SourceSettings for GeneratorSettings {
    fn build(self, _base_dir: &Path) -> Result<Arc<dyn Source>, SettingError> {
        self.validate()?;
        Ok(Arc::new(Generator { settings: self, recipe: OnceLock::new() }))
    }
}

impl GeneratorSettings {
    /// Checks that the values make sense together.
    ///
    /// # Errors
    /// The first that does not.
    pub fn validate(&self) -> Result<(), SettingError> {
        let check =
            |good: bool, field, problem: &str| if good { Ok(()) } else { Err(SettingError::new(field, problem)) };
        let (sequence, zipf) = (self.kind == Kind::Sequence, self.kind == Kind::KeyedZipf);
        check(
            self.rate.is_none_or(|rate| (1..=1_000_000_000).contains(&rate)),
            "rate",
            "must be from 1 to 1000000000",
        )?;
        check(!sequence || self.keys.is_none(), "keys", "only the keyed kinds have keys")?;
        check(!sequence || self.format.is_none(), "format", "only the keyed kinds have a format")?;
        check(sequence || self.from.is_none(), "from", "only `kind = \"sequence\"` has a first number")?;
        check(zipf || self.exponent.is_none(), "exponent", "only `kind = \"keyed-zipf\"` has an exponent")?;
        let exponent = self.exponent.unwrap_or(1.0);
        check(exponent > 0.0 && exponent <= 10.0, "exponent", "must be above 0 and at most 10")?;
        let most = if zipf { MOST_ZIPF_KEYS } else { MOST_UNIFORM_KEYS };
        let keys = format!("must be from 1 to {most}");
        check(self.keys.is_none_or(|keys| (1..=most).contains(&keys)), "keys", &keys)?;
        check(self.split_records != Some(0), "split-records", "must not be 0")?;
        let due = self.timestamps == Timestamps::Due;
        check(!due || self.rate.is_some(), "timestamps", "`due` needs a `rate`: without one no record is due")
    }

    fn split_records(&self) -> u64 {
        let by_rate = self.rate.map_or(SPLIT_RECORDS, |rate| (rate / SPLITS_PER_SECOND).max(1));
        self.split_records.unwrap_or(by_rate.min(SPLIT_RECORDS))
    }

    fn is_line(&self) -> bool {
        self.format == Some(Format::Line)
    }

    fn recipe(&self) -> Recipe {
        let keys = self.keys.unwrap_or(1000);
        let content = match self.kind {
            Kind::Sequence => Content::Sequence(self.from.unwrap_or(1)),
            Kind::KeyedUniform => Content::Uniform(keys),
            Kind::KeyedZipf => {
                let keys = u32::try_from(keys).expect("validated");
                Content::Zipf(Zipf::new(keys, self.exponent.unwrap_or(1.0)))
            }
        };
        let rate = self.rate.filter(|_| self.timestamps == Timestamps::Due);
        Recipe { content, seed: self.seed, as_line: self.is_line(), due: rate.map(|rate| Schedule { rate }) }
    }
}

struct Generator {
    settings: GeneratorSettings,
    /// Made by the first reader, because a large table takes a while.
    recipe: OnceLock<Arc<Recipe>>,
}

impl Source for Generator {
    fn boundedness(&self) -> Boundedness {
        if self.settings.records.is_some() { Boundedness::Bounded } else { Boundedness::Unbounded }
    }

    fn shape(&self) -> StreamShape {
        let keyed = self.settings.kind != Kind::Sequence && !self.settings.is_line();
        StreamShape { keyed, timed: self.settings.timestamps == Timestamps::Due }
    }

    fn cannot_replay(&self) -> Option<String> {
        None
    }

    fn enumerator(&self, env: &Env, restored: Option<RestoredSource>) -> Box<dyn SplitEnumerator> {
        Box::new(GeneratorEnumerator {
            env: env.clone(),
            records: self.settings.records,
            split_records: self.settings.split_records(),
            restored,
            state: State { version: VERSION, begun: VecDeque::new(), next: 0, started_ms: 0 },
            pace: Pace { record: 0, ms: 0 },
            left: None,
        })
    }

    fn reader(&self, context: ReaderContext) -> Box<dyn SourceReader> {
        let recipe = self.recipe.get_or_init(|| Arc::new(self.settings.recipe()));
        let clock = &context.env.clock;
        Box::new(GeneratorReader {
            recipe: Arc::clone(recipe),
            schedule: self.settings.rate.map(|rate| Schedule { rate }),
            // Wall time, but never jumping once the reader is made.
            clock_base_ns: clock.wall().as_nanos().saturating_sub(clock.monotonic().as_nanos()),
            env: context.env,
            ranges: Vec::new(),
            pause: None,
            made: 0,
        })
    }
}

/// How far a split has been read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Range {
    version: u32,
    /// The next record.
    next: u64,
    /// The first record that is not in the split.
    end: u64,
    /// When record 0 was due at the job's first start, in milliseconds since 1970: event times count from here.
    started_ms: u64,
    /// When records are to be made since the job last started.
    pace: Pace,
}

/// When records are to be made: this one at this time, in milliseconds since 1970, and the others at the rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Pace {
    record: u64,
    ms: u64,
}

/// The version of [`Range`] and [`State`].
const VERSION: u32 = 1;

/// What a checkpoint keeps of the enumerator.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct State {
    version: u32,
    /// Splits that readers had begun before a restore, each by its first record.
    begun: VecDeque<(u64, Range)>,
    /// The first record of the next split.
    next: u64,
    started_ms: u64,
}

struct GeneratorEnumerator {
    env: Env,
    records: Option<u64>,
    split_records: u64,
    restored: Option<RestoredSource>,
    state: State,
    pace: Pace,
    /// How many records there were to make at the start; none when there is no end to them.
    left: Option<u64>,
}

impl GeneratorEnumerator {
    fn begin(&mut self) -> Result<(), ConnectorError> {
        let now_ms = u64::try_from(self.env.clock.wall().as_millis()).expect("a date before the year 500 million");
        self.state.started_ms = now_ms;
        if let Some(restored) = self.restored.take() {
            self.state = versioned::decode("the state of a generator", VERSION, &restored.enumerator)?;
            for split in &restored.splits {
                self.state.begun.push_back(Range::of(split)?);
            }
        }
        // The earliest record is due now, and none was before.
        let earliest = self.state.begun.iter().map(|(_, range)| range.next).fold(self.state.next, u64::min);
        self.pace = Pace { record: earliest, ms: now_ms };
        let begun: u64 = self.state.begun.iter().map(|(_, range)| range.end - range.next).sum();
        self.left = self.records.map(|records| begun + records.saturating_sub(self.state.next));
        Ok(())
    }

    fn take(&mut self) -> Option<Split> {
        let pace = self.pace;
        if let Some((id, range)) = self.state.begun.pop_front() {
            return Some(Range { pace, ..range }.split(id));
        }
        let next = self.state.next;
        let end = next.saturating_add(self.split_records).min(self.records.unwrap_or(u64::MAX));
        if next >= end {
            return None;
        }
        self.state.next = end;
        Some(Range { version: VERSION, next, end, started_ms: self.state.started_ms, pace }.split(next))
    }
}

impl SplitEnumerator for GeneratorEnumerator {
    fn start(&mut self) -> BoxFuture<'_, Result<(), ConnectorError>> {
        ready(self.begin()).boxed()
    }

    fn next_split(&mut self, _subtask: u32) -> BoxFuture<'_, Result<Option<Split>, ConnectorError>> {
        ready(Ok(self.take())).boxed()
    }

    fn snapshot(&self) -> Vec<u8> {
        versioned::encode(&self.state)
    }

    fn split_finished(&mut self, _split: &str) {}

    fn extent(&self) -> Option<Extent> {
        self.left.map(Extent::Records)
    }
}

impl Range {
    fn split(&self, id: u64) -> Split {
        Split { id: id.to_string(), position: versioned::encode(self) }
    }

    /// The split's first record, which names it, and its range.
    fn of(split: &Split) -> Result<(u64, Self), ConnectorError> {
        let what = format!("the position of generator split {}", split.id);
        let malformed = |problem: &str| ConnectorError::Other(format!("{what} is not readable: {problem}"));
        let id = split.id.parse().map_err(|_| malformed("its name is not a number"))?;
        let range: Self = versioned::decode(&what, VERSION, &split.position)?;
        if range.next > range.end {
            return Err(malformed("it lies behind its end"));
        }
        if range.pace.record > range.next {
            return Err(malformed("its pace begins behind it"));
        }
        Ok((id, range))
    }
}

struct GeneratorReader {
    env: Env,
    recipe: Arc<Recipe>,
    schedule: Option<Schedule>,
    /// What the monotonic clock must be moved by to tell wall time.
    clock_base_ns: u128,
    /// The splits at hand, by their first record. Few: the runtime asks for one at a time.
    ranges: Vec<(u64, Range)>,
    /// Until the next record is due.
    pause: Option<BoxFuture<'static, ()>>,
    made: u64,
}

impl GeneratorReader {
    /// The split whose turn it is: the one with the earliest record, because that one is due first.
    fn first(&self) -> usize {
        let ranges = self.ranges.iter().enumerate();
        ranges.min_by_key(|(_, (_, range))| range.next).expect("never called without a split").0
    }

    /// How long until the record is due, if that is not now; and how many records are due in all.
    fn due(&self, range: &Range) -> Result<u64, Duration> {
        let Some(schedule) = self.schedule else { return Ok(u64::MAX) };
        let now_ns = self.clock_base_ns + self.env.clock.monotonic().as_nanos();
        let Pace { record: first, ms } = range.pace;
        let paced_ns = u128::from(ms) * 1_000_000;
        let elapsed = now_ns.checked_sub(paced_ns);
        let due = elapsed.map_or(0, |elapsed| first.saturating_add(schedule.due_records(elapsed)));
        if range.next < due {
            return Ok(due);
        }
        let wait_ns = (paced_ns + schedule.due_ns(range.next - first)).saturating_sub(now_ns);
        Err(Duration::from_nanos(u64::try_from(wait_ns).unwrap_or(u64::MAX)))
    }

    async fn advance(&mut self) -> ReaderEvent {
        loop {
            if let Some(pause) = &mut self.pause {
                pause.await;
                self.pause = None;
            }
            let at = self.first();
            let range = &self.ranges[at].1;
            if range.next == range.end {
                let (id, _) = self.ranges.swap_remove(at);
                return ReaderEvent::SplitFinished(id.to_string());
            }
            match self.due(range) {
                Err(wait) => self.pause = Some(self.env.clock.sleep(wait)),
                Ok(due) => {
                    let range = &mut self.ranges[at].1;
                    let to = due.min(range.end).min(range.next.saturating_add(BATCH_RECORDS));
                    let mut batch = Batch::new();
                    self.recipe.make(range.next, to, u128::from(range.started_ms) * 1_000_000, &mut batch);
                    self.made += to - range.next;
                    range.next = to;
                    return ReaderEvent::Batch(batch);
                }
            }
        }
    }
}

impl SourceReader for GeneratorReader {
    fn add_split(&mut self, split: Split) -> Result<(), ConnectorError> {
        self.ranges.push(Range::of(&split)?);
        Ok(())
    }

    fn next(&mut self) -> BoxFuture<'_, Result<ReaderEvent, ConnectorError>> {
        self.advance().map(Ok).boxed()
    }

    fn snapshot(&self) -> Vec<Split> {
        self.ranges.iter().map(|(id, range)| range.split(*id)).collect()
    }

    fn progress(&self) -> u64 {
        self.made
    }
}

#[cfg(test)]
mod tests;
