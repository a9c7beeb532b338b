//! What an operator declares about itself when it opens.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use crate::id::OutputId;

/// The states and side outputs of an operator. A function of its config alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Descriptor {
    /// The states.
    pub states: Vec<StateDescriptor>,
    /// The outputs besides the main one.
    pub side_outputs: Vec<SideOutput>,
}

/// A state that an operator declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateDescriptor {
    /// The number that calls use for it, unique within the operator.
    pub id: u32,
    /// The name under which snapshots keep it, unique within the operator.
    pub name: String,
    /// Its shape.
    pub kind: StateKind,
    /// When its entries expire; only for keyed kinds.
    pub ttl: Option<Ttl>,
    /// The version of the encoding of its values.
    pub schema_version: u32,
}

/// What shape a state has and who shares it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateKind {
    /// One byte string per key.
    KeyedValue,
    /// A list of byte strings per key.
    KeyedList,
    /// A sorted map from byte strings to byte strings per key.
    KeyedMap,
    /// A list per subtask, dealt out by a rescale.
    SplitList,
    /// A list per subtask, seen whole by every subtask after a restart.
    UnionList,
    /// A map of which every subtask holds an equal copy.
    BroadcastMap,
}

impl StateKind {
    /// Whether the state belongs to keys.
    #[must_use]
    pub fn is_keyed(self) -> bool {
        matches!(self, Self::KeyedValue | Self::KeyedList | Self::KeyedMap)
    }
}

impl fmt::Display for StateKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::KeyedValue => "a value per key",
            Self::KeyedList => "a list per key",
            Self::KeyedMap => "a map per key",
            Self::SplitList => "a split list, which belongs to no key",
            Self::UnionList => "a union list, which belongs to no key",
            Self::BroadcastMap => "a broadcast map, which belongs to no key",
        })
    }
}

/// When keyed state expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ttl {
    /// Processing time that an entry outlives its last use.
    pub duration: Duration,
    /// What counts as use.
    pub refresh: TtlRefresh,
}

/// What counts as use of an entry that could expire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TtlRefresh {
    /// Only writing puts the expiry off.
    OnWrite,
    /// Reading puts it off as well.
    OnReadAndWrite,
}

/// An output besides the main one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SideOutput {
    /// The number that `emit` uses for it: 1 or more.
    pub id: u32,
    /// The name by which the job file refers to it.
    pub name: String,
}

/// What is wrong with a descriptor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DescriptorError {
    /// An id or name that must be unique is used twice.
    #[error("two {what} have the {part} {value}")]
    Duplicate {
        /// "states" or "side outputs".
        what: &'static str,
        /// "id" or "name".
        part: &'static str,
        /// What was used twice.
        value: String,
    },
    /// A name must have 1 to 200 bytes of letters, digits, `-` and `_`.
    #[error("{name:?} cannot name a {what}: use 1 to 200 letters, digits, '-' or '_'")]
    Name {
        /// "state" or "side output".
        what: &'static str,
        /// The name.
        name: String,
    },
    /// The main output and that for dead letters are the host's own.
    #[error("side output {name} with id {id}: ids 0 and {} and the name dead-letter are taken", u32::MAX)]
    Reserved {
        /// The side output's name.
        name: String,
        /// Its id.
        id: u32,
    },
    /// Only keyed state expires, and only after some time.
    #[error("state {name} cannot expire: {reason}")]
    Ttl {
        /// The state's name.
        name: String,
        /// Why not.
        reason: &'static str,
    },
}

impl Descriptor {
    /// Checks what the contract asks of a descriptor.
    ///
    /// # Errors
    /// When ids or names are used twice or cannot be used, or a TTL makes no sense.
    pub fn validate(&self) -> Result<(), DescriptorError> {
        unique("states", "id", self.states.iter().map(|state| state.id.to_string()))?;
        unique("states", "name", self.states.iter().map(|state| state.name.clone()))?;
        unique("side outputs", "id", self.side_outputs.iter().map(|output| output.id.to_string()))?;
        unique("side outputs", "name", self.side_outputs.iter().map(|output| output.name.clone()))?;
        for state in &self.states {
            check_name("state", &state.name)?;
            let ttl_error = |reason| Err(DescriptorError::Ttl { name: state.name.clone(), reason });
            match state.ttl {
                Some(_) if !state.kind.is_keyed() => return ttl_error("it belongs to no key"),
                Some(ttl) if ttl.duration.is_zero() => return ttl_error("its duration is 0"),
                _ => {}
            }
        }
        for output in &self.side_outputs {
            check_name("side output", &output.name)?;
            if [OutputId::MAIN, OutputId::DEAD_LETTER].contains(&OutputId(output.id)) || output.name == "dead-letter" {
                return Err(DescriptorError::Reserved { name: output.name.clone(), id: output.id });
            }
        }
        Ok(())
    }

    /// Whether any state belongs to keys, so that some input must be partitioned by key.
    #[must_use]
    pub fn has_keyed_state(&self) -> bool {
        self.states.iter().any(|state| state.kind.is_keyed())
    }
}

fn unique(what: &'static str, part: &'static str, values: impl Iterator<Item = String>) -> Result<(), DescriptorError> {
    let mut seen = BTreeSet::new();
    for value in values {
        if !seen.insert(value.clone()) {
            return Err(DescriptorError::Duplicate { what, part, value });
        }
    }
    Ok(())
}

fn check_name(what: &'static str, name: &str) -> Result<(), DescriptorError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if (1..=200).contains(&name.len()) && name.bytes().all(allowed) {
        return Ok(());
    }
    Err(DescriptorError::Name { what, name: name.chars().take(200).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(id: u32, name: &str) -> StateDescriptor {
        StateDescriptor { id, name: name.into(), kind: StateKind::KeyedValue, ttl: None, schema_version: 1 }
    }

    fn check(states: Vec<StateDescriptor>, side_outputs: Vec<SideOutput>) -> Option<String> {
        Descriptor { states, side_outputs }.validate().err().map(|error| error.to_string())
    }

    #[test]
    fn what_cannot_be_told_apart_is_refused() {
        assert_eq!(check(vec![state(0, "a"), state(1, "b")], vec![]), None);
        assert_eq!(check(vec![state(0, "a"), state(0, "b")], vec![]).unwrap(), "two states have the id 0");
        assert_eq!(check(vec![state(0, "a"), state(1, "a")], vec![]).unwrap(), "two states have the name a");
        assert!(check(vec![state(0, "a b")], vec![]).unwrap().contains("cannot name a state"));
        let main = SideOutput { id: 0, name: "late".into() };
        assert!(check(vec![], vec![main]).unwrap().contains("are taken"));
    }

    #[test]
    fn only_keyed_state_expires() {
        let ttl = Some(Ttl { duration: Duration::from_millis(1), refresh: TtlRefresh::OnWrite });
        assert_eq!(check(vec![StateDescriptor { ttl, ..state(0, "a") }], vec![]), None);
        let split = StateDescriptor { ttl, kind: StateKind::SplitList, ..state(0, "a") };
        assert_eq!(check(vec![split], vec![]).unwrap(), "state a cannot expire: it belongs to no key");
    }
}
