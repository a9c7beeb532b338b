//! The rules of a job's log: who runs the job, which checkpoints count, and from where a job goes on.
//!
//! The log is a sequence of records, each put once under the next number and never changed. A process *claims* the job
//! with a record before it changes anything, and its run is one more than any before. Whoever finds the number of its
//! next record taken by a later claim, or a later claim behind its own record, is fenced: it has lost the job.
//!
//! What always holds: runs never fall along the log, and only a claim begins one. So a record of a run that was fenced
//! cannot come behind the claim that fenced it, and the newest record alone says where to go on: each says all that is
//! needed. That is why old records may be deleted; `first` says from where on none may be missing.
//!
//! Reading and putting records is the business of `checkpoint::run_log`.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::Serialize;
use xxhash_rust::xxh3::xxh3_128;

use crate::id::CheckpointId;

/// A record in its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its number.
    pub sequence: u64,
    /// All records from this number on are there; what is below counts no more.
    pub first: u64,
    /// The run that wrote it.
    pub run: u64,
    /// A random number of the process that wrote it, since two that race for a claim go by the same run.
    pub nonce: u64,
    /// When, in ms since 1970. For people, and to choose among directories; no rule depends on it.
    pub at_ms: u64,
    /// What it says.
    pub record: Record,
}

/// What a record says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Record {
    /// A process takes the job.
    Claim(Claim),
    /// A checkpoint counts.
    Checkpoint(LoggedCheckpoint),
    /// The job was stopped with a savepoint.
    Stopped {
        /// Where the savepoint is.
        savepoint: String,
    },
    /// The job came to its end, and its output is committed.
    Finished {
        /// Its last checkpoint, if there was one.
        last: Option<LoggedCheckpoint>,
    },
    /// The job was given up, and its checkpoints with it.
    Discarded,
}

/// A process takes the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Where it goes on from; nothing for a fresh start.
    pub restored_from: Option<RestorePoint>,
    /// The job file.
    pub job_file: String,
    /// Tells graphs apart.
    pub graph: Digest,
}

/// A checkpoint that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoggedCheckpoint {
    /// The run that took it.
    pub run: u64,
    /// Its id.
    pub checkpoint: CheckpointId,
    /// The digest of its metadata.
    pub metadata: Digest,
}

/// What a job can go on from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RestorePoint {
    /// A checkpoint in the job's own directory, also when it was asked for by its path: as long as the job goes on from
    /// it, it is not deleted.
    Checkpoint(LoggedCheckpoint),
    /// A savepoint, or a checkpoint in another directory.
    Elsewhere {
        /// Its path.
        path: String,
    },
}

/// What a file is recognized by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digest(pub [u8; 16]);

impl Digest {
    /// The digest of some bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(xxh3_128(bytes).to_le_bytes())
    }
}

/// From where a job goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resume {
    /// From nothing: it was never claimed, began afresh and came to no checkpoint, or was given up.
    Fresh,
    /// From a checkpoint or savepoint.
    From(RestorePoint),
    /// From the savepoint with which it was stopped.
    Stopped {
        /// Where the savepoint is.
        savepoint: String,
    },
    /// Not at all: it came to its end. What its last checkpoint has to commit may be committed again.
    Finished {
        /// Its last checkpoint.
        last: Option<LoggedCheckpoint>,
    },
}

/// What a log cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// A record is missing.
    #[error("record {missing} is missing, though there is a record {newest}")]
    Hole {
        /// The number of the missing record.
        missing: u64,
        /// The number of the newest.
        newest: u64,
    },
    /// A record is not where it was put.
    #[error("record {found} says that it is record {says}")]
    Misplaced {
        /// Where it was found.
        found: u64,
        /// Where it was put.
        says: u64,
    },
    /// A record cannot come behind the one before it.
    #[error("record {sequence} of run {run} cannot come behind one of run {before}: {problem}")]
    Order {
        /// Its number.
        sequence: u64,
        /// Its run.
        run: u64,
        /// The run of the record before it.
        before: u64,
        /// Why not.
        problem: &'static str,
    },
}

/// What it means that another record is where one was to be put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// Another process has the job.
    Fenced {
        /// Its run.
        by: u64,
    },
    /// The log is longer than it was when it was read; nobody has claimed the job.
    Moved,
    /// No process that keeps the rules puts such a record there.
    Broken,
}

/// A log, as far as it was read. Keeps the rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    entries: Vec<Entry>,
}

impl Log {
    /// The log that consists of these records, found under these numbers. Those below the `first` of the newest are left
    /// out: what is there was not deleted yet, or was put by a process that had lost the job long ago.
    ///
    /// # Errors
    /// When it breaks the rules.
    pub fn new(mut found: BTreeMap<u64, Entry>) -> Result<Self, LogError> {
        let Some((&newest, last)) = found.last_key_value() else { return Ok(Self::default()) };
        let first = last.first;
        if first > newest {
            return Err(LogError::Hole { missing: first, newest });
        }
        let mut log = Self::default();
        for sequence in first..=newest {
            let entry = found.remove(&sequence).ok_or(LogError::Hole { missing: sequence, newest })?;
            if entry.sequence != sequence {
                return Err(LogError::Misplaced { found: sequence, says: entry.sequence });
            }
            log.check(&entry)?;
            log.entries.push(entry);
        }
        Ok(log)
    }

    /// The records, in order.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The newest record.
    #[must_use]
    pub fn newest(&self) -> Option<&Entry> {
        self.entries.last()
    }

    /// The number of the next record.
    #[must_use]
    pub fn next_sequence(&self) -> u64 {
        self.newest().map_or(0, |newest| newest.sequence + 1)
    }

    /// From where the job goes on.
    #[must_use]
    pub fn resume(&self) -> Resume {
        match self.newest().map(|newest| &newest.record) {
            None | Some(Record::Discarded) => Resume::Fresh,
            Some(Record::Claim(claim)) => claim.restored_from.clone().map_or(Resume::Fresh, Resume::From),
            Some(Record::Checkpoint(checkpoint)) => Resume::From(RestorePoint::Checkpoint(*checkpoint)),
            Some(Record::Stopped { savepoint }) => Resume::Stopped { savepoint: savepoint.clone() },
            Some(Record::Finished { last }) => Resume::Finished { last: *last },
        }
    }

    /// All checkpoints that the log speaks of, the newest first. What a job goes on from is the first of them, unless it
    /// is elsewhere.
    #[must_use]
    pub fn checkpoints(&self) -> Vec<LoggedCheckpoint> {
        let mut checkpoints: Vec<LoggedCheckpoint> = Vec::new();
        for entry in self.entries.iter().rev() {
            let checkpoint = match &entry.record {
                Record::Checkpoint(checkpoint) => Some(checkpoint),
                Record::Claim(Claim { restored_from: Some(RestorePoint::Checkpoint(checkpoint)), .. }) => {
                    Some(checkpoint)
                }
                Record::Finished { last } => last.as_ref(),
                Record::Claim(_) | Record::Stopped { .. } | Record::Discarded => None,
            };
            checkpoints.extend(checkpoint.filter(|checkpoint| !checkpoints.contains(checkpoint)));
        }
        checkpoints
    }

    /// The record with which a process takes the job.
    #[must_use]
    pub fn claim(&self, nonce: u64, at_ms: u64, claim: Claim) -> Entry {
        let run = self.newest().map_or(1, |newest| newest.run + 1);
        let record = Record::Claim(claim);
        Entry { sequence: self.next_sequence(), first: self.first(), run, nonce, at_ms, record }
    }

    /// The next record of the run that wrote the newest one. Those before the last `kept` count no more then.
    ///
    /// # Panics
    /// When there is no such run, it has ended, or the record is about a checkpoint that is not newer than all others.
    #[must_use]
    pub fn next(&self, at_ms: u64, record: Record, kept: u64) -> Entry {
        let newest = self.newest().expect("a run begins with a claim");
        if let Record::Checkpoint(taken) = &record {
            let newer = self.checkpoints().iter().all(|earlier| earlier.checkpoint < taken.checkpoint);
            assert!(newer && taken.run == newest.run, "{} is not the newest of run {}", taken.checkpoint, newest.run);
        }
        let sequence = newest.sequence + 1;
        let first = self.first().max(sequence.saturating_sub(kept));
        let entry = Entry { sequence, first, run: newest.run, nonce: newest.nonce, at_ms, record };
        self.check(&entry).expect("a run writes nothing behind its end, and claims by `claim`");
        entry
    }

    /// Adds a record that was put, and drops those that count no more.
    ///
    /// # Panics
    /// When it is not the next one.
    pub fn push(&mut self, entry: Entry) {
        assert_eq!(entry.sequence, self.next_sequence(), "records are put one after the other");
        self.check(&entry).expect("a record that was put keeps the rules");
        self.entries.retain(|old| old.sequence >= entry.first);
        self.entries.push(entry);
    }

    /// The number of the first record that counts.
    #[must_use]
    pub fn first(&self) -> u64 {
        self.entries.first().map_or(0, |first| first.sequence)
    }

    /// Whether a record may come next.
    fn check(&self, entry: &Entry) -> Result<(), LogError> {
        let error =
            |before, problem| Err(LogError::Order { sequence: entry.sequence, run: entry.run, before, problem });
        let is_claim = matches!(entry.record, Record::Claim(_));
        match self.newest() {
            None if entry.sequence == 0 && !is_claim => error(0, "a log begins with a claim"),
            None => Ok(()),
            Some(newest) if entry.run < newest.run => error(newest.run, "runs never fall"),
            Some(newest) if is_claim && entry.run == newest.run => error(newest.run, "a claim begins a new run"),
            Some(_) if is_claim => Ok(()),
            Some(newest) if (entry.run, entry.nonce) != (newest.run, newest.nonce) => {
                error(newest.run, "only a claim begins a run")
            }
            Some(newest) => match newest.record {
                Record::Stopped { .. } | Record::Finished { .. } | Record::Discarded => {
                    error(newest.run, "the run had ended")
                }
                Record::Claim(_) | Record::Checkpoint(_) => Ok(()),
            },
        }
    }
}

impl Taken {
    /// What it means for whoever wants to put a record, or just has put it, that there is another one in its place or
    /// behind it.
    #[must_use]
    pub fn by(found: &Entry, own: &Entry) -> Self {
        let claiming = matches!(own.record, Record::Claim(_));
        if found.run > own.run || claiming && found.run == own.run {
            Self::Fenced { by: found.run }
        } else if claiming {
            Self::Moved
        } else {
            Self::Broken
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KEPT: u64 = 3;

    fn claim(restored_from: Option<RestorePoint>) -> Claim {
        Claim { restored_from, job_file: "job.toml".to_owned(), graph: Digest([0; 16]) }
    }

    fn checkpoint(run: u64, id: u64) -> LoggedCheckpoint {
        LoggedCheckpoint { run, checkpoint: CheckpointId(id), metadata: Digest::of(&id.to_le_bytes()) }
    }

    fn found(log: &Log) -> BTreeMap<u64, Entry> {
        log.entries.iter().map(|entry| (entry.sequence, entry.clone())).collect()
    }

    /// What a process may do to a log.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        Claim,
        Checkpoint,
        Stop,
        Finish,
        Discard,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![3 => Just(Step::Claim), 6 => Just(Step::Checkpoint), 1 => Just(Step::Stop), 1 => Just(Step::Finish), 1 => Just(Step::Discard)]
    }

    /// Does what can be done, and says what the job has to go on from afterwards.
    fn apply(log: &mut Log, step: Step, id: u64, expected: Resume) -> Resume {
        let ended =
            !matches!(log.newest().map(|newest| &newest.record), Some(Record::Claim(_) | Record::Checkpoint(_)));
        let run = log.newest().map_or(0, |newest| newest.run);
        let (record, expected) = match step {
            Step::Claim => {
                let from = match log.resume() {
                    Resume::Fresh => None,
                    Resume::From(point) => Some(point),
                    Resume::Stopped { savepoint } => Some(RestorePoint::Elsewhere { path: savepoint }),
                    Resume::Finished { last } => last.map(RestorePoint::Checkpoint),
                };
                log.push(log.claim(id, 0, claim(from.clone())));
                return from.map_or(Resume::Fresh, Resume::From);
            }
            _ if ended => return expected,
            Step::Checkpoint => {
                let checkpoint = checkpoint(run, id);
                (Record::Checkpoint(checkpoint), Resume::From(RestorePoint::Checkpoint(checkpoint)))
            }
            Step::Stop => {
                let savepoint = format!("savepoint-{id}");
                (Record::Stopped { savepoint: savepoint.clone() }, Resume::Stopped { savepoint })
            }
            Step::Discard => (Record::Discarded, Resume::Fresh),
            Step::Finish => {
                let last = log.checkpoints().first().copied();
                (Record::Finished { last }, Resume::Finished { last })
            }
        };
        log.push(log.next(0, record, KEPT));
        expected
    }

    proptest! {
        /// A log that was written by the rules reads back, and a job goes on from what happened last, however many
        /// records and runs there were and whatever of the old ones is still there.
        #[test]
        fn the_last_thing_that_happened_is_gone_on_from(steps in prop::collection::vec(step(), 0..40), left: u64) {
            let (mut log, mut all, mut expected) = (Log::default(), BTreeMap::new(), Resume::Fresh);
            for (id, step) in (1..).zip(steps) {
                expected = apply(&mut log, step, id, expected);
                all.extend(found(&log));
            }
            prop_assert_eq!(log.resume(), expected);
            all.retain(|sequence, _| *sequence >= log.first() || left >> (sequence % 64) & 1 == 1);
            prop_assert_eq!(Log::new(all).unwrap(), log);
        }

        /// No record can be missing or be that of another place, except that the newest may not be there yet.
        #[test]
        fn a_hole_is_seen(steps in prop::collection::vec(step(), 2..40), at: prop::sample::Index) {
            let mut log = Log::default();
            for (id, step) in (0..).zip([Step::Claim].into_iter().chain(steps)) {
                apply(&mut log, step, id, Resume::Fresh);
            }
            prop_assume!(log.entries.len() > 1);
            let missing = log.first() + at.index(log.entries.len() - 1) as u64;
            let mut holed = found(&log);
            let misplaced = holed.remove(&missing).unwrap();
            let newest = log.next_sequence() - 1;
            prop_assert_eq!(Log::new(holed.clone()), Err(LogError::Hole { missing, newest }));
            holed.insert(missing, Entry { sequence: missing + 1, ..misplaced });
            prop_assert_eq!(Log::new(holed), Err(LogError::Misplaced { found: missing, says: missing + 1 }));
        }
    }

    fn entry(sequence: u64, run: u64, record: Record) -> Entry {
        Entry { sequence, first: 0, run, nonce: run, at_ms: 0, record }
    }

    #[test]
    fn what_cannot_come_next_is_an_error() {
        let claimed = |run| entry(0, run, Record::Claim(claim(None)));
        let took = |sequence, run| entry(sequence, run, Record::Checkpoint(checkpoint(run, 1)));
        let stopped = entry(1, 2, Record::Stopped { savepoint: String::new() });
        let check = |entries: Vec<Entry>| {
            let found = (0..).zip(entries).collect();
            Log::new(found).map(drop).map_err(|error| error.to_string())
        };
        assert_eq!(check(vec![claimed(2), took(1, 2), took(2, 2)]), Ok(()));
        for (entries, problem) in [
            (vec![took(0, 2)], "a log begins with a claim"),
            (vec![claimed(2), took(1, 1)], "runs never fall"),
            (vec![claimed(2), took(1, 3)], "only a claim begins a run"),
            (vec![claimed(2), Entry { nonce: 7, ..took(1, 2) }], "only a claim begins a run"),
            (vec![claimed(2), Entry { sequence: 1, ..claimed(2) }], "a claim begins a new run"),
            (vec![claimed(2), stopped, took(2, 2)], "the run had ended"),
        ] {
            let error = check(entries).unwrap_err();
            assert!(error.ends_with(problem), "{error} does not say {problem}");
        }
        assert!(check(vec![Entry { first: 1, ..claimed(1) }]).is_err(), "an empty log would be a fresh start");
    }

    #[test]
    fn a_record_in_the_way_says_who_has_the_job() {
        let claimed = |run| entry(5, run, Record::Claim(claim(None)));
        let took = |run| entry(5, run, Record::Checkpoint(checkpoint(run, 1)));
        assert_eq!(Taken::by(&claimed(3), &took(2)), Taken::Fenced { by: 3 });
        assert_eq!(Taken::by(&took(3), &took(2)), Taken::Fenced { by: 3 });
        assert_eq!(Taken::by(&claimed(3), &claimed(3)), Taken::Fenced { by: 3 });
        assert_eq!(Taken::by(&took(2), &claimed(3)), Taken::Moved);
        assert_eq!(Taken::by(&took(2), &took(2)), Taken::Broken);
        assert_eq!(Taken::by(&took(1), &took(2)), Taken::Broken);
    }
}
