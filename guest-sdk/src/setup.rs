//! What an operator declares when it opens.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use crate::bindings::tidegate::operator::types::{SideOutput, StateDescriptor, StateKind, Ttl, TtlRefresh};
use crate::codec::Codec;
use crate::context::Table;
use crate::metrics::{Counter, Gauge, Histogram, Meter};
use crate::output::Output;
use crate::state::{AggregatingState, ListState, MapState, ReducingState, ValueState};

/// Collects what an operator declares when it opens: states, side outputs, metrics.
///
/// Names of states and of side outputs are unique within the operator: 1 to 200 letters, digits, `-` and `_`.
#[derive(Default)]
pub struct Setup {
    pub(crate) states: Vec<StateDescriptor>,
    pub(crate) side_outputs: Vec<SideOutput>,
    pub(crate) tables: Vec<Rc<RefCell<dyn Table>>>,
    pub(crate) meters: Vec<Rc<dyn Meter>>,
}

impl std::fmt::Debug for Setup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { states, side_outputs, .. } = self;
        f.debug_struct("Setup").field("states", states).field("side_outputs", side_outputs).finish_non_exhaustive()
    }
}

impl Setup {
    /// Declares a state under the name by which snapshots keep it. The builder that this returns says what it is.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate_sdk::codec::{LittleEndian, Ordered};
    /// use tidegate_sdk::{MapState, Setup, ValueState};
    ///
    /// struct Visits {
    ///     last: ValueState<u64, LittleEndian>,
    ///     by_hour: MapState<u64, u32, Ordered>,
    /// }
    ///
    /// fn declare(setup: &mut Setup) -> Visits {
    ///     Visits {
    ///         last: setup.state("last").value(),
    ///         by_hour: setup.state("by-hour").expire_after(Duration::from_secs(86_400)).map(),
    ///     }
    /// }
    /// ```
    pub fn state<'a>(&'a mut self, name: &'a str) -> StateBuilder<'a> {
        StateBuilder { setup: self, name, ttl: None, schema_version: 1 }
    }

    /// Declares an output besides the main one: `input = "node.name"` in the job file.
    pub fn side_output(&mut self, name: &str) -> Output {
        let id = self.side_outputs.len() as u32 + 1;
        self.side_outputs.push(SideOutput { id, name: name.to_owned() });
        Output(id)
    }

    /// A number that only grows, summed over all subtasks.
    pub fn counter(&mut self, name: &str) -> Counter {
        let counter = Counter::new(name);
        self.meters.push(counter.meter());
        counter
    }

    /// A number that is set.
    pub fn gauge(&mut self, name: &str) -> Gauge {
        let gauge = Gauge::new(name);
        self.meters.push(gauge.meter());
        gauge
    }

    /// A distribution of observed numbers.
    pub fn histogram(&mut self, name: &str) -> Histogram {
        let histogram = Histogram::new(name);
        self.meters.push(histogram.meter());
        histogram
    }
}

/// Says what a state is. Made by [`Setup::state`].
#[must_use = "a state is declared by saying what it is: value, list, map, reducing or aggregating"]
#[derive(Debug)]
pub struct StateBuilder<'a> {
    setup: &'a mut Setup,
    name: &'a str,
    ttl: Option<Ttl>,
    schema_version: u32,
}

impl StateBuilder<'_> {
    /// Removes what has not been written for so long, in processing time. Items of a list and entries of a map expire
    /// one by one.
    pub fn expire_after(self, duration: Duration) -> Self {
        self.expire(duration, TtlRefresh::OnWrite)
    }

    /// Removes what has neither been written nor read for so long, in processing time.
    pub fn expire_after_last_use(self, duration: Duration) -> Self {
        self.expire(duration, TtlRefresh::OnReadAndWrite)
    }

    fn expire(self, duration: Duration, refresh: TtlRefresh) -> Self {
        let duration = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Self { ttl: Some(Ttl { duration, refresh }), ..self }
    }

    /// The version of the encoding: 1 unless said. Raise it when the encoding of the values changes.
    pub fn schema_version(self, version: u32) -> Self {
        Self { schema_version: version, ..self }
    }

    /// One value per key.
    pub fn value<T: 'static, C: Codec<T> + 'static>(self) -> ValueState<T, C> {
        self.declare(StateKind::KeyedValue, ValueState::new)
    }

    /// A list per key.
    pub fn list<T: 'static, C: Codec<T> + 'static>(self) -> ListState<T, C> {
        self.declare(StateKind::KeyedList, ListState::new)
    }

    /// A map per key.
    pub fn map<K: 'static, V: 'static, KC: Codec<K> + 'static, VC: Codec<V> + 'static>(self) -> MapState<K, V, KC, VC> {
        self.declare(StateKind::KeyedMap, MapState::new)
    }

    /// One value per key, into which `reduce` folds what is added.
    pub fn reducing<T: Clone + 'static, C: Codec<T> + 'static>(self, reduce: fn(T, T) -> T) -> ReducingState<T, C> {
        self.declare(StateKind::KeyedValue, |id, name| ReducingState::new(id, name, reduce))
    }

    /// One accumulator per key, which `add` changes and from which `result` is made.
    pub fn aggregating<In, Acc: Default + 'static, Out, C: Codec<Acc> + 'static>(
        self,
        add: fn(&mut Acc, In),
        result: fn(&Acc) -> Out,
    ) -> AggregatingState<In, Acc, Out, C> {
        self.declare(StateKind::KeyedValue, |id, name| AggregatingState::new(id, name, add, result))
    }

    fn declare<H>(self, kind: StateKind, handle: impl FnOnce(u32, &str) -> (H, Rc<RefCell<dyn Table>>)) -> H {
        let id = self.setup.states.len() as u32;
        let (handle, table) = handle(id, self.name);
        let (name, ttl, schema_version) = (self.name.to_owned(), self.ttl, self.schema_version);
        self.setup.states.push(StateDescriptor { id, name, kind, ttl, schema_version });
        self.setup.tables.push(table);
        handle
    }
}
