//! Whether the states of a snapshot are still those of the operator.

use std::fmt;

use super::header::{SnapshotKind, SnapshotState};
use crate::operator::{StateDescriptor, StateKind};

/// How a state of an operator is not what a snapshot has under its name. A changed time to live is none of these: it
/// may change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateChange {
    /// The operator does not declare it any more.
    Removed {
        /// The name of the state.
        name: String,
    },
    /// The snapshot does not have it. It starts empty.
    Added {
        /// The name of the state.
        name: String,
    },
    /// It has another shape, or belongs to no key any more.
    Kind {
        /// The name of the state.
        name: String,
        /// Its kind in the snapshot.
        was: SnapshotKind,
        /// Its kind now.
        is: StateKind,
    },
    /// Its values are encoded in another way.
    SchemaVersion {
        /// The name of the state.
        name: String,
        /// The version in the snapshot.
        was: u32,
        /// The version now.
        is: u32,
    },
}

impl StateChange {
    /// Whether the snapshot can be restored all the same, with nothing lost.
    #[must_use]
    pub fn is_harmless(&self) -> bool {
        matches!(self, Self::Added { .. })
    }
}

impl fmt::Display for StateChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Removed { name } => {
                write!(f, "state {name:?} is in the snapshot, but the operator does not declare it")
            }
            Self::Added { name } => write!(f, "state {name:?} is new: the snapshot does not have it"),
            Self::Kind { name, was, is } => {
                let was = match was {
                    SnapshotKind::Value => "a value per key",
                    SnapshotKind::List => "a list per key",
                    SnapshotKind::Map => "a map per key",
                };
                write!(f, "state {name:?} is {was} in the snapshot, but the operator declares {is}")
            }
            Self::SchemaVersion { name, was, is } => {
                write!(f, "state {name:?} has schema version {was} in the snapshot, but the operator declares {is}")
            }
        }
    }
}

/// How the states of an operator differ from those of a snapshot.
#[must_use]
pub fn compare_states(before: &[SnapshotState], now: &[StateDescriptor]) -> Vec<StateChange> {
    let mut changes = Vec::new();
    for state in before {
        let name = state.name.clone();
        match now.iter().find(|declared| declared.name == name) {
            None => changes.push(StateChange::Removed { name }),
            Some(declared) if SnapshotKind::of(declared.kind) != Some(state.kind) => {
                changes.push(StateChange::Kind { name, was: state.kind, is: declared.kind });
            }
            Some(declared) if declared.schema_version != state.schema_version => {
                let (was, is) = (state.schema_version, declared.schema_version);
                changes.push(StateChange::SchemaVersion { name, was, is });
            }
            Some(_) => {}
        }
    }
    let is_new = |state: &&StateDescriptor| state.kind.is_keyed() && before.iter().all(|old| old.name != state.name);
    changes.extend(now.iter().filter(is_new).map(|state| StateChange::Added { name: state.name.clone() }));
    changes
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::operator::{Ttl, TtlRefresh};

    fn state(name: &str, kind: StateKind, schema_version: u32) -> StateDescriptor {
        StateDescriptor { id: 0, name: name.into(), kind, ttl: None, schema_version }
    }

    #[test]
    fn changes_are_told() {
        let before = SnapshotState::of(&[
            state("same", StateKind::KeyedValue, 1),
            state("gone", StateKind::KeyedList, 1),
            state("reshaped", StateKind::KeyedList, 1),
            state("recoded", StateKind::KeyedMap, 1),
            state("unkeyed", StateKind::KeyedValue, 1),
        ]);
        let ttl = Some(Ttl { duration: Duration::from_secs(1), refresh: TtlRefresh::OnWrite });
        let now = [
            state("new", StateKind::KeyedMap, 1),
            state("unkeyed", StateKind::UnionList, 1),
            state("recoded", StateKind::KeyedMap, 2),
            state("reshaped", StateKind::KeyedMap, 1),
            StateDescriptor { ttl, ..state("same", StateKind::KeyedValue, 1) },
            state("other", StateKind::SplitList, 1),
        ];
        let told: Vec<String> = compare_states(&before, &now).iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "state \"gone\" is in the snapshot, but the operator does not declare it",
                "state \"reshaped\" is a list per key in the snapshot, but the operator declares a map per key",
                "state \"recoded\" has schema version 1 in the snapshot, but the operator declares 2",
                "state \"unkeyed\" is a value per key in the snapshot, but the operator declares a union list, which \
                 belongs to no key",
                "state \"new\" is new: the snapshot does not have it",
            ]
        );
        assert_eq!(compare_states(&before, &[now[4].clone()]).iter().filter(|change| change.is_harmless()).count(), 0);
        assert!(compare_states(&[], &now[..1]).iter().all(StateChange::is_harmless));
    }
}
