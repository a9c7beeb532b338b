//! One operator with the host in memory around it.

use super::host::{Emitted, Host, Logged, Rejected, Stored, run};
use crate::bindings::tidegate::operator::types::{self, BatchResult, ColumnResult, StateKind};
use crate::codec::{Codec, Postcard};
use crate::record::Column;
use crate::{Instance, Operator};

/// A record for the operator.
#[derive(Clone, Debug)]
pub struct Input {
    key: Option<Vec<u8>>,
    value: Vec<u8>,
    timestamp: Option<i64>,
}

impl Input {
    /// A record with a key.
    pub fn keyed(key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Self {
        Self { key: Some(key.as_ref().to_vec()), value: value.as_ref().to_vec(), timestamp: None }
    }

    /// A record without a key.
    pub fn unkeyed(value: impl AsRef<[u8]>) -> Self {
        Self { key: None, value: value.as_ref().to_vec(), timestamp: None }
    }

    /// With this event time, in milliseconds since 1970.
    #[must_use]
    pub fn at(self, timestamp: i64) -> Self {
        Self { timestamp: Some(timestamp), ..self }
    }
}

/// Why a call failed, as the host learns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What went wrong.
    pub message: String,
    /// The position in the batch of the record at fault; none when unknown.
    pub position: Option<u32>,
}

impl From<types::Failure> for Failure {
    fn from(failure: types::Failure) -> Self {
        Self { message: failure.message, position: failure.position }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.position {
            Some(position) => write!(f, "record {position}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for Failure {}

/// One operator with a host in memory around it. See the [module](super).
pub struct Harness<O> {
    config: String,
    instance: Instance<O>,
    host: Host,
}

impl<O> std::fmt::Debug for Harness<O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Harness").field("config", &self.config).finish_non_exhaustive()
    }
}

impl<O: Operator> Harness<O> {
    /// Opens the operator. The config is JSON: the operator's table of a job file.
    ///
    /// # Errors
    /// When the config does not fit or the operator does not want it.
    pub fn open(config: &str) -> Result<Self, Failure> {
        let mut host = Host::default();
        let (instance, descriptor) = run(&mut host, || Instance::open(config))?;
        host.descriptor = Some(descriptor);
        Ok(Self { config: config.to_owned(), instance, host })
    }

    /// Has the operator process records of its first input in one call.
    ///
    /// # Errors
    /// When the operator returns an error. What the call did is undone then.
    ///
    /// # Panics
    /// When some records have keys or timestamps and others have not: a stream is one or the other.
    pub fn process(&mut self, records: impl IntoIterator<Item = Input>) -> Result<(), Failure> {
        self.process_input(0, records)
    }

    /// Has the operator process records of an input in one call. Inputs count from 0.
    ///
    /// # Errors
    /// As for [`process`](Self::process).
    ///
    /// # Panics
    /// As for [`process`](Self::process).
    pub fn process_input(&mut self, input: u32, records: impl IntoIterator<Item = Input>) -> Result<(), Failure> {
        let (mut keys, mut values, mut timestamps) = (Column::default(), Column::default(), Vec::new());
        for record in records {
            if let Some(key) = &record.key {
                keys.push(key);
            }
            values.push(&record.value);
            timestamps.extend(record.timestamp);
        }
        let all_or_none = |count: usize| count == 0 || count == values.len();
        assert!(all_or_none(keys.len()), "either all records have keys or none has");
        assert!(all_or_none(timestamps.len()), "either all records have timestamps or none has");
        self.host.begin(values.len(), &keys);
        let column = |column: Column| ColumnResult { data: column.data, offsets: column.offsets };
        let batch = BatchResult { keys: column(keys), values: column(values), timestamps };
        self.call(|instance| instance.process(input, batch))
    }

    /// Tells the operator that the watermark has come this far.
    ///
    /// # Errors
    /// When the operator returns an error. What the call did is undone then.
    pub fn set_watermark(&mut self, watermark: i64) -> Result<(), Failure> {
        self.host.watermark = Some(watermark);
        self.host.begin(0, &Column::default());
        self.call(Instance::on_watermark)
    }

    /// Tells the operator that an input has ended and `remaining` have not.
    ///
    /// # Errors
    /// When the operator returns an error. What the call did is undone then.
    pub fn end_input(&mut self, input: u32, remaining: u32) -> Result<(), Failure> {
        self.host.begin(0, &Column::default());
        self.call(|instance| instance.on_end_of_input(input, remaining))
    }

    fn call(&mut self, call: impl FnOnce(&mut Instance<O>) -> Result<(), types::Failure>) -> Result<(), Failure> {
        let Self { config, instance, host } = self;
        let result = run(host, || call(instance));
        host.end(result.is_ok());
        if result.is_err() {
            // An instance that has failed knows of things that have been undone.
            (*instance, _) = run(host, || Instance::open(config))?;
        }
        Ok(result?)
    }

    /// Sets the processing time, in milliseconds since 1970. It is 0 at first.
    pub fn set_processing_time(&mut self, milliseconds: u64) {
        self.host.processing_time = milliseconds;
    }

    /// What the operator has sent since the last time, output by output within a call.
    pub fn take_emitted(&mut self) -> Vec<Emitted> {
        std::mem::take(&mut self.host.emitted)
    }

    /// The values that the operator has sent to its main output since the last time, as text. What went to side outputs
    /// stays.
    pub fn take_values(&mut self) -> Vec<String> {
        let (main, rest) = self.take_emitted().into_iter().partition(|emitted| emitted.output == "main");
        self.host.emitted = rest;
        let main: Vec<Emitted> = main;
        main.into_iter().map(|emitted| String::from_utf8_lossy(&emitted.value).into_owned()).collect()
    }

    /// The records that the operator has given up since the last time.
    pub fn take_rejected(&mut self) -> Vec<Rejected> {
        std::mem::take(&mut self.host.rejected)
    }

    /// What the operator has logged since the last time, also in calls that failed.
    pub fn take_logged(&mut self) -> Vec<Logged> {
        std::mem::take(&mut self.host.logged)
    }

    /// What a counter has come to.
    #[must_use]
    pub fn counter(&self, name: &str) -> u64 {
        self.host.counters.get(name).copied().unwrap_or(0)
    }

    /// What a gauge was set to last.
    #[must_use]
    pub fn gauge(&self, name: &str) -> Option<f64> {
        self.host.gauges.get(name).copied()
    }

    /// What a histogram has observed.
    #[must_use]
    pub fn observations(&self, name: &str) -> &[f64] {
        self.host.observations.get(name).map_or(&[], Vec::as_slice)
    }

    /// What a key has in a state with one value per key.
    ///
    /// # Panics
    /// When there is no such state, or its bytes are of another encoding.
    #[must_use]
    pub fn value<T>(&self, state: &str, key: impl AsRef<[u8]>) -> Option<T>
    where
        Postcard: Codec<T>,
    {
        self.value_with::<T, Postcard>(state, key)
    }

    /// What a key has in a state with one value per key, in another encoding than the default one.
    ///
    /// # Panics
    /// When there is no such state, or its bytes are of another encoding.
    #[must_use]
    pub fn value_with<T, C: Codec<T>>(&self, state: &str, key: impl AsRef<[u8]>) -> Option<T> {
        match self.stored(state, StateKind::KeyedValue, key.as_ref())? {
            Stored::Value(bytes) => Some(decode::<T, C>(bytes)),
            Stored::List(_) | Stored::Map(_) => unreachable!("the kind of the state was checked"),
        }
    }

    /// What a key has in a state with a list per key.
    ///
    /// # Panics
    /// When there is no such state, or its bytes are of another encoding.
    #[must_use]
    pub fn list<T>(&self, state: &str, key: impl AsRef<[u8]>) -> Vec<T>
    where
        Postcard: Codec<T>,
    {
        self.list_with::<T, Postcard>(state, key)
    }

    /// What a key has in a state with a list per key, in another encoding than the default one.
    ///
    /// # Panics
    /// When there is no such state, or its bytes are of another encoding.
    #[must_use]
    pub fn list_with<T, C: Codec<T>>(&self, state: &str, key: impl AsRef<[u8]>) -> Vec<T> {
        match self.stored(state, StateKind::KeyedList, key.as_ref()) {
            Some(Stored::List(items)) => items.iter().map(|item| decode::<T, C>(item)).collect(),
            _ => Vec::new(),
        }
    }

    /// What a key has in a state with a map per key, in the order of the encoded keys.
    ///
    /// # Panics
    /// When there is no such state, or its bytes are of another encoding.
    #[must_use]
    pub fn map<K, V>(&self, state: &str, key: impl AsRef<[u8]>) -> Vec<(K, V)>
    where
        Postcard: Codec<K> + Codec<V>,
    {
        self.map_with::<K, V, Postcard, Postcard>(state, key)
    }

    /// What a key has in a state with a map per key, in other encodings than the default one.
    ///
    /// # Panics
    /// When there is no such state, or its bytes are of another encoding.
    #[must_use]
    pub fn map_with<K, V, KC: Codec<K>, VC: Codec<V>>(&self, state: &str, key: impl AsRef<[u8]>) -> Vec<(K, V)> {
        match self.stored(state, StateKind::KeyedMap, key.as_ref()) {
            Some(Stored::Map(entries)) => {
                entries.iter().map(|(key, value)| (decode::<K, KC>(key), decode::<V, VC>(value))).collect()
            }
            _ => Vec::new(),
        }
    }

    fn stored(&self, state: &str, kind: StateKind, key: &[u8]) -> Option<&Stored> {
        self.host.state.get(&(self.host.state_id(state, kind), key.to_vec()))
    }
}

/// For the SDK's own tests.
#[cfg(test)]
impl<O> Harness<O> {
    /// How often the operator has called the host for state or to send records.
    pub(super) fn host_calls(&self) -> u64 {
        self.host.host_calls
    }

    /// All state, without maps that hold nothing.
    pub(super) fn state(&self) -> super::host::States {
        let mut state = self.host.state.clone();
        state.retain(|_, stored| !matches!(stored, Stored::Map(entries) if entries.is_empty()));
        state
    }

    /// Takes over the state of another operator.
    pub(super) fn adopt_state<P>(&mut self, other: &Harness<P>) {
        self.host.state = other.host.state.clone();
    }
}

fn decode<T, C: Codec<T>>(bytes: &[u8]) -> T {
    C::decode(bytes).unwrap_or_else(|error| panic!("the state is of another encoding: {error}"))
}
