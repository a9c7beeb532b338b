//! The layout of a job's directory and the names in it.
//!
//! ```text
//! <name>.starts/<16 hex>                  which directory a new life of the job begins in, agreed on
//! <name>-<8 hex>/
//!   chk-<n>/_metadata                     a checkpoint
//!   chk-<n>/<snapshot>                    what belongs to it alone
//!   shared/<snapshot>                     what several checkpoints may refer to
//!   taskowned/<snapshot>                  what tasks delete themselves
//!   log/<20 digits>                       which checkpoints count, and who runs the job
//!   lock                                  on local files: who runs the job, as a courtesy
//! ```
//!
//! A snapshot is named `<run>-<attempt>-<subtask>-<16 hex>-<node>`: whoever wrote it, no one else writes it. Names that
//! are none of these belong to somebody else and are left alone.

use std::fmt;

use xxhash_rust::xxh3::xxh3_64;

use super::storage::{Storage, StorageError};
use crate::id::{Attempt, CheckpointId};

/// The longest that a job's name gets in the name of its directory.
const LONGEST_NAME: usize = 160;

const SHARED: &str = "shared";
const TASK_OWNED: &str = "taskowned";
const LOCK: &str = "lock";

/// A job's directory in a storage.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct JobDirectory {
    folder: String,
}

/// What a file in a job's directory is, by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobFile {
    /// What a checkpoint consists of.
    Metadata(CheckpointId),
    /// A snapshot of one checkpoint.
    Snapshot(CheckpointId, SnapshotName),
    /// A snapshot that several checkpoints may refer to.
    Shared(SnapshotName),
    /// A snapshot that tasks delete themselves.
    TaskOwned(SnapshotName),
    /// A record of the log.
    LogRecord(u64),
    /// Who runs the job.
    Lock,
    /// Nothing of ours.
    Other,
}

/// The name of a snapshot's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotName {
    /// The attempt that wrote it.
    pub attempt: Attempt,
    /// The node.
    pub node: String,
    /// The subtask of the node.
    pub subtask: u32,
    /// Tells the files of one subtask apart, and writers that go by the same attempt: a random number.
    pub nonce: u64,
}

impl JobDirectory {
    /// The directory of a job. The key, a random number, tells it from others of jobs with the same name.
    #[must_use]
    pub fn new(job: &str, key: u32) -> Self {
        Self { folder: format!("{}-{key:08x}", encode(job)) }
    }

    /// The directory that is this folder, if its name is one that a job's directory can have.
    #[must_use]
    pub fn from_folder(folder: &str) -> Option<Self> {
        let (name, key) = folder.rsplit_once('-')?;
        (!name.is_empty() && !name.contains('/') && is_key(key)).then(|| Self { folder: folder.to_owned() })
    }

    /// The directories of all jobs, in order of their folders.
    ///
    /// # Errors
    /// When the storage cannot be listed.
    pub async fn all(storage: &dyn Storage) -> Result<Vec<Self>, StorageError> {
        Ok(storage.folders("").await?.iter().filter_map(|folder| Self::from_folder(folder)).collect())
    }

    /// The directories of all jobs with this name, in order of their folders.
    ///
    /// # Errors
    /// When the storage cannot be listed.
    pub async fn find(storage: &dyn Storage, job: &str) -> Result<Vec<Self>, StorageError> {
        let name = encode(job);
        let folders = storage.folders("").await?.into_iter().filter(|folder| {
            let key = folder.strip_prefix(&name).and_then(|rest| rest.strip_prefix('-'));
            key.is_some_and(is_key)
        });
        Ok(folders.map(|folder| Self { folder }).collect())
    }

    /// Where those agree on a new directory who want one for the same job and see the same ones before it.
    #[must_use]
    pub fn agreement(job: &str, seen: &[Self]) -> String {
        let seen: String = seen.iter().map(|directory| format!("{}/", directory.folder)).collect();
        format!("{}.starts/{:016x}", encode(job), xxh3_64(seen.as_bytes()))
    }

    /// The folder, right in the storage.
    #[must_use]
    pub fn folder(&self) -> &str {
        &self.folder
    }

    /// What tells it from others of jobs with the same name.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.folder[self.folder.len() - 8..]
    }

    /// The path in the storage of a path in the directory.
    #[must_use]
    pub fn path(&self, relative: impl fmt::Display) -> String {
        format!("{}/{relative}", self.folder)
    }

    /// The path in the directory of a path in the storage, if that is in it.
    #[must_use]
    pub fn relative<'a>(&self, path: &'a str) -> Option<&'a str> {
        path.strip_prefix(&self.folder)?.strip_prefix('/')
    }
}

impl fmt::Display for JobDirectory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.folder)
    }
}

impl JobFile {
    /// The folder of the log.
    pub const LOG_FOLDER: &str = "log";

    /// The name of the file that says what a checkpoint or savepoint consists of.
    pub const METADATA: &str = "_metadata";

    /// The folder of a checkpoint.
    #[must_use]
    pub fn checkpoint_folder(checkpoint: CheckpointId) -> String {
        format!("chk-{}", checkpoint.0)
    }

    /// The checkpoint whose folder this is.
    #[must_use]
    pub fn parse_checkpoint_folder(name: &str) -> Option<CheckpointId> {
        number(name.strip_prefix("chk-")?).map(CheckpointId)
    }

    /// What a path in a job's directory is.
    #[must_use]
    pub fn parse(relative: &str) -> Self {
        let Some((folder, name)) = relative.split_once('/') else {
            return if relative == LOCK { Self::Lock } else { Self::Other };
        };
        let parsed = match folder {
            Self::LOG_FOLDER => {
                (name.len() == 20 && is_digits(name)).then(|| name.parse().ok().map(Self::LogRecord)).flatten()
            }
            SHARED => SnapshotName::parse(name).map(Self::Shared),
            TASK_OWNED => SnapshotName::parse(name).map(Self::TaskOwned),
            _ => Self::parse_checkpoint_folder(folder).and_then(|checkpoint| match name {
                Self::METADATA => Some(Self::Metadata(checkpoint)),
                _ => SnapshotName::parse(name).map(|name| Self::Snapshot(checkpoint, name)),
            }),
        };
        parsed.unwrap_or(Self::Other)
    }
}

/// The path in a job's directory.
impl fmt::Display for JobFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Metadata(CheckpointId(id)) => write!(f, "chk-{id}/{}", Self::METADATA),
            Self::Snapshot(CheckpointId(id), name) => write!(f, "chk-{id}/{name}"),
            Self::Shared(name) => write!(f, "{SHARED}/{name}"),
            Self::TaskOwned(name) => write!(f, "{TASK_OWNED}/{name}"),
            Self::LogRecord(sequence) => write!(f, "{}/{sequence:020}", Self::LOG_FOLDER),
            Self::Lock => f.write_str(LOCK),
            Self::Other => unreachable!("what is not ours has no path"),
        }
    }
}

impl SnapshotName {
    fn parse(name: &str) -> Option<Self> {
        let mut parts = name.splitn(5, '-');
        let (run, attempt) = (number(parts.next()?)?, number(parts.next()?)?);
        let attempt = Attempt { run, number: u32::try_from(attempt).ok()? };
        let subtask = u32::try_from(number(parts.next()?)?).ok()?;
        let nonce = parts.next().filter(|nonce| nonce.len() == 16 && is_hex(nonce))?;
        let nonce = u64::from_str_radix(nonce, 16).ok()?;
        let node = parts.next().filter(|node| !node.is_empty() && !node.contains('/'))?.to_owned();
        Some(Self { attempt, node, subtask, nonce })
    }
}

impl fmt::Display for SnapshotName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Names of nodes are letters, digits, - and _, so they are last.
        write!(f, "{}-{}-{:016x}-{}", self.attempt, self.subtask, self.nonce, self.node)
    }
}

/// A job's name as a part of a path: bytes that are not safe there become `=` and two hex digits, and the end of a long
/// name its hash. Different names stay different.
fn encode(job: &str) -> String {
    let mut encoded = String::with_capacity(job.len());
    for byte in job.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => encoded.push(char::from(byte)),
            // Not first, where it would hide the directory or mean its parent.
            b'.' if !encoded.is_empty() => encoded.push('.'),
            _ => encoded.push_str(&format!("={byte:02x}")),
        }
    }
    if encoded.len() > LONGEST_NAME {
        encoded.truncate(LONGEST_NAME - 18);
        encoded.push_str(&format!("=={:016x}", xxh3_64(job.as_bytes())));
    }
    encoded
}

fn is_key(text: &str) -> bool {
    text.len() == 8 && is_hex(text)
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// A number, if it is written as we write it.
fn number(text: &str) -> Option<u64> {
    let padded = text.len() > 1 && text.starts_with('0');
    (!padded && is_digits(text)).then(|| text.parse().ok())?
}

fn is_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures_util::FutureExt;
    use proptest::prelude::*;

    use super::*;
    use crate::checkpoint::memory;

    proptest! {
        /// What a file is can be told from its path, so that nobody deletes what is not theirs.
        #[test]
        fn paths_read_back(run: u64, number: u32, subtask: u32, nonce: u64, id: u64, node in "[a-zA-Z0-9_-]{1,20}") {
            let name = SnapshotName { attempt: Attempt { run, number }, node, subtask, nonce };
            let checkpoint = CheckpointId(id);
            for file in [
                JobFile::Metadata(checkpoint),
                JobFile::Snapshot(checkpoint, name.clone()),
                JobFile::Shared(name.clone()),
                JobFile::TaskOwned(name),
                JobFile::LogRecord(id),
                JobFile::Lock,
            ] {
                prop_assert_eq!(JobFile::parse(&file.to_string()), file);
            }
        }

        /// Every name makes one part of a path that needs no further encoding, and no other name makes the same.
        #[test]
        fn names_of_jobs_stay_apart(a in "\\PC{1,90}|[a=.]{1,200}", b in "\\PC{1,90}|[a=.]{1,200}") {
            for job in [&a, &b] {
                let folder = JobDirectory::new(job, 0xab).folder;
                prop_assert!(folder.len() < 255 && !folder.starts_with('.'));
                prop_assert!(folder.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_=.".contains(&byte)));
                prop_assert_eq!(JobDirectory::from_folder(&folder), Some(JobDirectory::new(job, 0xab)));
            }
            prop_assert_eq!(encode(&a) == encode(&b), a == b);
        }
    }

    #[test]
    fn what_is_not_ours_is_told_apart() {
        for path in [
            "notes",
            "log/7",
            "log/x",
            "chk-1/x",
            "chk-x/_metadata",
            "chk-1/a/_metadata",
            "shared/1-2-3-4-n",
            "chk-1",
            "chk-01/_metadata",
        ] {
            assert_eq!(JobFile::parse(path), JobFile::Other, "{path}");
        }
        for folder in ["a", "a-1234567", "a-1234567G", "-12345678", "a/b-12345678"] {
            assert_eq!(JobDirectory::from_folder(folder), None, "{folder}");
        }
    }

    #[test]
    fn a_job_finds_its_directories_and_no_others() {
        let storage = memory();
        let mine = [JobDirectory::new("a b", 1), JobDirectory::new("a b", 2)];
        let others = [JobDirectory::new("a", 3), JobDirectory::new("a b-00000001", 4), JobDirectory::new("a=20b", 5)];
        for directory in mine.iter().chain(&others) {
            let path = directory.path(JobFile::LogRecord(0));
            storage.put_new(&path, Bytes::new()).now_or_never().unwrap().unwrap();
            assert_eq!(directory.relative(&path), Some("log/00000000000000000000"));
        }
        assert_eq!(JobDirectory::find(&*storage, "a b").now_or_never().unwrap().unwrap(), mine);
    }
}
