//! What a checkpoint consists of: the file `_metadata`.
//!
//! Format types of their own, apart from what the runtime works with: changing them changes the format, and then its
//! version has to grow and the old one still be read. Equal metadata gives equal bytes, whose digest the log keeps.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::envelope::{EnvelopeError, Format};
use crate::connectors::Split;
use crate::id::{Attempt, CheckpointId};
use crate::operator::{StateDescriptor, StateKind, Ttl, TtlRefresh};

const FORMAT: Format = Format { name: "checkpoint metadata", magic: *b"tg-chkpt", version: 1 };

/// A checkpoint or savepoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointMetadata {
    /// The job's name.
    pub job: String,
    /// Tells the job's directory from others of jobs with its name: 8 hex digits.
    pub job_key: String,
    /// The id.
    pub checkpoint: CheckpointId,
    /// The attempt that took it.
    pub attempt: Attempt,
    /// A random number of the process that took it.
    pub nonce: u64,
    /// When it was complete, in ms since 1970.
    pub completed_at_ms: u64,
    /// The number of key groups.
    pub max_parallelism: u32,
    /// The nodes, in the order of the job's graph.
    pub nodes: Vec<NodeMetadata>,
}

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SavedNodeKind {
    /// A source.
    Source,
    /// An operator.
    Operator,
    /// A sink.
    Sink,
}

/// A node in a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeMetadata {
    /// Its name in the job file.
    pub name: String,
    /// What it is.
    pub kind: SavedNodeKind,
    /// Its inputs, as the job file writes them.
    pub inputs: Vec<String>,
    /// How many subtasks it had.
    pub parallelism: u32,
    /// The states that its operator declared.
    pub states: Vec<SavedState>,
    /// A source's enumerator, in its own encoding.
    pub enumerator: Option<Vec<u8>>,
    /// What a sink is to commit and no subtask answers for.
    pub committables: Vec<Vec<u8>>,
    /// Its subtasks, by index.
    pub subtasks: Vec<SubtaskMetadata>,
}

/// A subtask in a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubtaskMetadata {
    /// Its index.
    pub index: u32,
    /// Whether it had come to its end.
    pub finished: bool,
    /// How far event time had come, in ms since 1970.
    pub watermark: Option<i64>,
    /// What a reader had at hand.
    pub splits: Vec<SavedSplit>,
    /// What a writer had prepared.
    pub committables: Vec<Vec<u8>>,
    /// The state of its keys.
    pub keyed_state: Option<StateHandle>,
}

/// A split and how far it had been read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedSplit {
    /// Names it among those of its source.
    pub id: String,
    /// How far it had been read, in the source's encoding.
    pub position: Vec<u8>,
}

/// Where a snapshot is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StateHandle {
    /// Here, because it is small.
    Inline(Vec<u8>),
    /// In a file of its own.
    File {
        /// Its path, relative to the directory that holds the checkpoint's, so that the whole can be moved.
        path: String,
        /// Its length.
        bytes: u64,
        /// The xxh3 of its content.
        digest: u64,
    },
}

/// A state that an operator declared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedState {
    /// The number by which snapshots refer to it.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// Its shape.
    pub kind: SavedStateKind,
    /// When its entries expire.
    pub ttl: Option<SavedTtl>,
    /// The version of the encoding of its values.
    pub schema_version: u32,
}

/// The shape of a state, see [`StateKind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "named and documented as in StateKind")]
pub enum SavedStateKind {
    KeyedValue,
    KeyedList,
    KeyedMap,
    SplitList,
    UnionList,
    BroadcastMap,
}

/// When entries of a state expire, see [`Ttl`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedTtl {
    /// Processing time that an entry outlives its last use.
    pub duration: Duration,
    /// Whether reading counts as use.
    pub refreshed_by_reading: bool,
}

impl CheckpointMetadata {
    /// The bytes of the file.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        FORMAT.seal(self)
    }

    /// Reads the bytes of a file.
    ///
    /// # Errors
    /// When they are not what was once written.
    pub fn decode(file: &[u8]) -> Result<Self, EnvelopeError> {
        FORMAT.open(file)
    }

    /// All snapshots of the checkpoint.
    pub fn state_handles(&self) -> impl Iterator<Item = &StateHandle> {
        self.nodes.iter().flat_map(|node| &node.subtasks).filter_map(|subtask| subtask.keyed_state.as_ref())
    }

    /// The paths of its files, as [`StateHandle::File`] has them.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        self.state_handles().filter_map(|handle| match handle {
            StateHandle::Inline(_) => None,
            StateHandle::File { path, .. } => Some(path.as_str()),
        })
    }

    /// How many bytes of state it has.
    #[must_use]
    pub fn state_bytes(&self) -> u64 {
        let bytes = |handle: &StateHandle| match handle {
            StateHandle::Inline(state) => state.len() as u64,
            StateHandle::File { bytes, .. } => *bytes,
        };
        self.state_handles().map(bytes).sum()
    }
}

impl From<Split> for SavedSplit {
    fn from(Split { id, position }: Split) -> Self {
        Self { id, position }
    }
}

impl From<SavedSplit> for Split {
    fn from(SavedSplit { id, position }: SavedSplit) -> Self {
        Self { id, position }
    }
}

impl From<&StateDescriptor> for SavedState {
    fn from(state: &StateDescriptor) -> Self {
        let kind = match state.kind {
            StateKind::KeyedValue => SavedStateKind::KeyedValue,
            StateKind::KeyedList => SavedStateKind::KeyedList,
            StateKind::KeyedMap => SavedStateKind::KeyedMap,
            StateKind::SplitList => SavedStateKind::SplitList,
            StateKind::UnionList => SavedStateKind::UnionList,
            StateKind::BroadcastMap => SavedStateKind::BroadcastMap,
        };
        let ttl = state.ttl.map(|ttl| SavedTtl {
            duration: ttl.duration,
            refreshed_by_reading: ttl.refresh == TtlRefresh::OnReadAndWrite,
        });
        Self { id: state.id, name: state.name.clone(), kind, ttl, schema_version: state.schema_version }
    }
}

impl From<&SavedState> for StateDescriptor {
    fn from(state: &SavedState) -> Self {
        let kind = match state.kind {
            SavedStateKind::KeyedValue => StateKind::KeyedValue,
            SavedStateKind::KeyedList => StateKind::KeyedList,
            SavedStateKind::KeyedMap => StateKind::KeyedMap,
            SavedStateKind::SplitList => StateKind::SplitList,
            SavedStateKind::UnionList => StateKind::UnionList,
            SavedStateKind::BroadcastMap => StateKind::BroadcastMap,
        };
        let ttl = state.ttl.map(|ttl| Ttl {
            duration: ttl.duration,
            refresh: if ttl.refreshed_by_reading { TtlRefresh::OnReadAndWrite } else { TtlRefresh::OnWrite },
        });
        Self { id: state.id, name: state.name.clone(), kind, ttl, schema_version: state.schema_version }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Metadata in which everything is that there can be.
    pub(crate) fn example() -> CheckpointMetadata {
        let ttl = SavedTtl { duration: Duration::from_millis(1500), refreshed_by_reading: true };
        let kinds = [
            SavedStateKind::KeyedValue,
            SavedStateKind::KeyedList,
            SavedStateKind::KeyedMap,
            SavedStateKind::SplitList,
            SavedStateKind::UnionList,
            SavedStateKind::BroadcastMap,
        ];
        let state = |(id, kind)| SavedState {
            id,
            name: format!("state-{id}"),
            kind,
            ttl: (id < 3).then_some(ttl),
            schema_version: id + 1,
        };
        let node = |name: &str, kind, inputs: &[&str]| NodeMetadata {
            name: name.to_owned(),
            kind,
            inputs: inputs.iter().map(|input| (*input).to_owned()).collect(),
            parallelism: 1,
            states: Vec::new(),
            enumerator: None,
            committables: Vec::new(),
            subtasks: Vec::new(),
        };
        let subtask = |index| SubtaskMetadata {
            index,
            finished: false,
            watermark: None,
            splits: Vec::new(),
            committables: Vec::new(),
            keyed_state: None,
        };
        let split = SavedSplit { id: "in.txt:0".to_owned(), position: vec![0, 200, 3] };
        let file = StateHandle::File {
            path: "chk-7/state-3-2-count-1-00000000000000ff".to_owned(),
            bytes: 1 << 33,
            digest: 5,
        };
        CheckpointMetadata {
            job: "word count".to_owned(),
            job_key: "00c0ffee".to_owned(),
            checkpoint: CheckpointId(7),
            attempt: Attempt { run: 3, number: 2 },
            nonce: u64::MAX,
            completed_at_ms: 1_796_000_000_000,
            max_parallelism: 128,
            nodes: vec![
                NodeMetadata {
                    enumerator: Some(vec![1, 2]),
                    subtasks: vec![SubtaskMetadata { splits: vec![split], ..subtask(0) }],
                    ..node("lines", SavedNodeKind::Source, &[])
                },
                NodeMetadata {
                    parallelism: 2,
                    states: (0..).zip(kinds).map(state).collect(),
                    subtasks: vec![
                        SubtaskMetadata {
                            watermark: Some(-5),
                            keyed_state: Some(StateHandle::Inline(vec![9; 3])),
                            ..subtask(0)
                        },
                        SubtaskMetadata { finished: true, keyed_state: Some(file), ..subtask(1) },
                    ],
                    ..node("count", SavedNodeKind::Operator, &["lines"])
                },
                NodeMetadata {
                    committables: vec![vec![4]],
                    subtasks: vec![SubtaskMetadata { committables: vec![b"part-0".to_vec(), vec![]], ..subtask(0) }],
                    ..node("out", SavedNodeKind::Sink, &["count", "count.late"])
                },
            ],
        }
    }

    /// A file that was written by version 1 of the format.
    const VERSION_1: &[u8] = include_bytes!("fixtures/metadata-1");

    #[test]
    fn version_1_is_read_and_written() {
        assert_eq!(CheckpointMetadata::decode(VERSION_1).unwrap(), example());
        assert!(example().encode() == VERSION_1, "the bytes are not those of version 1: the format changed");
    }

    #[test]
    fn descriptors_come_back() {
        for saved in example().nodes.iter().flat_map(|node| &node.states) {
            assert_eq!(SavedState::from(&StateDescriptor::from(saved)), *saved);
        }
    }

    #[test]
    fn state_is_counted_and_listed() {
        assert_eq!(example().state_bytes(), (1 << 33) + 3);
        assert_eq!(example().files().collect::<Vec<_>>(), ["chk-7/state-3-2-count-1-00000000000000ff"]);
    }
}
