//! Whose state a snapshot is, and what states it has.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::id::CheckpointId;
use crate::operator::{StateDescriptor, StateKind, Ttl, TtlRefresh};
use crate::state::StateIndex;

/// What is at the front of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotHeader {
    /// The job's name.
    pub job: String,
    /// The node's name.
    pub node: String,
    /// The subtask's index.
    pub subtask: u32,
    /// The checkpoint that the snapshot is part of.
    pub checkpoint: CheckpointId,
    /// The number of key groups.
    pub max_parallelism: u32,
    /// The first key group of the subtask.
    pub first_group: u32,
    /// The key group behind the last one of the subtask.
    pub end_group: u32,
    /// The keyed states; blocks refer to them by position.
    pub states: Vec<SnapshotState>,
}

/// A state as a snapshot describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotState {
    /// Its name, unique within the operator.
    pub name: String,
    /// Its shape.
    pub kind: SnapshotKind,
    /// When its entries expire.
    pub ttl: Option<SnapshotTtl>,
    /// The version of the encoding of its values.
    pub schema_version: u32,
}

/// The shape of a state in a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SnapshotKind {
    /// One byte string per key.
    Value,
    /// A list of byte strings per key.
    List,
    /// A sorted map from byte strings to byte strings per key.
    Map,
}

/// When the state of a snapshot expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotTtl {
    /// Processing time that an entry outlives its last use.
    pub duration: Duration,
    /// Whether reading counts as use.
    pub refreshed_by_reads: bool,
}

impl SnapshotKind {
    /// The kind of a keyed state, nothing for another.
    #[must_use]
    pub fn of(kind: StateKind) -> Option<Self> {
        match kind {
            StateKind::KeyedValue => Some(Self::Value),
            StateKind::KeyedList => Some(Self::List),
            StateKind::KeyedMap => Some(Self::Map),
            StateKind::SplitList | StateKind::UnionList | StateKind::BroadcastMap => None,
        }
    }
}

impl From<Ttl> for SnapshotTtl {
    fn from(ttl: Ttl) -> Self {
        Self { duration: ttl.duration, refreshed_by_reads: ttl.refresh == TtlRefresh::OnReadAndWrite }
    }
}

impl SnapshotState {
    /// The descriptions of the keyed ones among states, in their order: that of the backend's.
    #[must_use]
    pub fn of(states: &[StateDescriptor]) -> Vec<Self> {
        let describe = |state: &StateDescriptor| {
            let kind = SnapshotKind::of(state.kind)?;
            let (name, ttl) = (state.name.clone(), state.ttl.map(SnapshotTtl::from));
            Some(Self { name, kind, ttl, schema_version: state.schema_version })
        };
        states.iter().filter_map(describe).collect()
    }
}

impl SnapshotHeader {
    /// Where each state of the snapshot goes in a backend with these states; nowhere if there is none of its name.
    #[must_use]
    pub fn destinations(&self, backend: &[StateDescriptor]) -> Vec<Option<StateIndex>> {
        let find = |name: &str| backend.iter().position(|state| state.name == name).map(StateIndex);
        self.states.iter().map(|state| find(&state.name)).collect()
    }
}
