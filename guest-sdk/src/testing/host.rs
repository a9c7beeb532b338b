//! The host in memory: what it keeps, and the scope of a call.
//!
//! Invariant: outside of a call, `staged` is empty and `state` is what counts.

use std::cell::RefCell;
use std::collections::BTreeMap;

use crate::bindings::tidegate::operator::types::{Descriptor, StateKind};
use crate::log::Level;
use crate::record::Column;

/// A record that an operator sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Emitted {
    /// The name of the side output; `main` for the main one.
    pub output: String,
    /// The key, unless the record has none.
    pub key: Option<Vec<u8>>,
    /// The value.
    pub value: Vec<u8>,
    /// Event time in milliseconds since 1970, unless the record has none.
    pub timestamp: Option<i64>,
}

/// A record that an operator gave up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// Its position in the batch.
    pub position: u32,
    /// What the operator said.
    pub reason: String,
}

/// A message that an operator logged.
#[derive(Clone, Debug)]
pub struct Logged {
    /// How much it matters.
    pub level: Level,
    /// The message.
    pub message: String,
}

/// What one key has in one state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    Value(Vec<u8>),
    List(Vec<Vec<u8>>),
    Map(BTreeMap<Vec<u8>, Vec<u8>>),
}

/// States by id and key. What holds nothing is not in here.
pub(crate) type States = BTreeMap<(u32, Vec<u8>), Stored>;

#[derive(Default)]
pub(crate) struct Host {
    pub(crate) descriptor: Option<Descriptor>,
    /// What the calls that succeeded have made of the state.
    pub(crate) state: States,
    /// The same with what the running call has written.
    pub(crate) staged: States,
    /// The keys of the running call in the order of their slots, and the slot of each record.
    pub(crate) keys: Vec<Vec<u8>>,
    pub(crate) slots: Vec<u32>,
    pub(crate) records: usize,
    /// What the running call has done, then what the calls that succeeded have.
    pub(crate) emitting: Vec<Emitted>,
    pub(crate) rejecting: Vec<Rejected>,
    pub(crate) emitted: Vec<Emitted>,
    pub(crate) rejected: Vec<Rejected>,
    pub(crate) logged: Vec<Logged>,
    pub(crate) counters: BTreeMap<String, u64>,
    pub(crate) gauges: BTreeMap<String, f64>,
    pub(crate) observations: BTreeMap<String, Vec<f64>>,
    pub(crate) processing_time: u64,
    pub(crate) watermark: Option<i64>,
    pub(crate) random: u64,
    /// How many calls to keyed state and to the collector there have been.
    pub(crate) host_calls: u64,
}

thread_local! {
    /// The host of the call that runs on this thread.
    static RUNNING: RefCell<Option<Host>> = const { RefCell::new(None) };
}

/// Makes a host the one that imports reach, while `call` runs.
pub(crate) fn run<R>(host: &mut Host, call: impl FnOnce() -> R) -> R {
    let before = RUNNING.replace(Some(std::mem::take(host)));
    assert!(before.is_none(), "an operator is called from within another one");
    let result = call();
    *host = RUNNING.take().expect("the host stays for the length of the call");
    result
}

/// The host of the running call.
///
/// # Panics
/// When no harness is running.
pub(crate) fn with<R>(access: impl FnOnce(&mut Host) -> R) -> R {
    RUNNING.with_borrow_mut(|host| {
        access(host.as_mut().expect("outside of Wasm an operator can only be called by a testing::Harness"))
    })
}

impl Host {
    /// Opens the scope of a call about records with these keys, if they have any.
    pub(crate) fn begin(&mut self, records: usize, keys: &Column) {
        self.staged = self.state.clone();
        self.records = records;
        self.keys.clear();
        self.slots.clear();
        for index in 0..keys.len() {
            let key = keys.get(index);
            let known = self.keys.iter().position(|known| known == key);
            let slot = known.unwrap_or_else(|| {
                self.keys.push(key.to_vec());
                self.keys.len() - 1
            });
            self.slots.push(slot as u32);
        }
    }

    /// Closes the scope of a call; what it did counts or does not.
    pub(crate) fn end(&mut self, succeeded: bool) {
        let staged = std::mem::take(&mut self.staged);
        let (emitted, rejected) = (std::mem::take(&mut self.emitting), std::mem::take(&mut self.rejecting));
        if succeeded {
            self.state = staged;
            self.emitted.extend(emitted);
            self.rejected.extend(rejected);
        }
        self.records = 0;
        self.keys.clear();
        self.slots.clear();
    }

    /// The id of a declared state.
    pub(crate) fn state_id(&self, name: &str, kind: StateKind) -> u32 {
        let states = self.descriptor.iter().flat_map(|descriptor| &descriptor.states);
        let state = states.clone().find(|state| state.name == name).unwrap_or_else(|| {
            let names: Vec<&str> = states.map(|state| state.name.as_str()).collect();
            panic!("the operator has no state {name:?}, but {names:?}")
        });
        assert_eq!(state.kind, kind, "state {name:?} is of another kind");
        state.id
    }

    /// Checks that a call may use a state.
    pub(crate) fn check_state(&self, id: u32, kinds: &[StateKind]) {
        let states = self.descriptor.iter().flat_map(|descriptor| &descriptor.states);
        let kind = states.clone().find(|state| state.id == id).map(|state| state.kind);
        let kind = kind.unwrap_or_else(|| panic!("state {id} was not declared"));
        assert!(kinds.contains(&kind), "state {id} is of the kind {kind:?}, which the call cannot use");
    }

    /// The key that a slot stands for.
    pub(crate) fn key(&self, slot: u32) -> Vec<u8> {
        self.keys.get(slot as usize).unwrap_or_else(|| panic!("slot {slot} is out of range")).clone()
    }

    /// The name of an output.
    pub(crate) fn output_name(&self, id: u32) -> String {
        if id == 0 {
            return "main".to_owned();
        }
        let mut outputs = self.descriptor.iter().flat_map(|descriptor| &descriptor.side_outputs);
        let output = outputs.find(|output| output.id == id);
        output.unwrap_or_else(|| panic!("output {id} was not declared")).name.clone()
    }
}
