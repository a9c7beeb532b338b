//! Keyed state and output, as a guest calls them.
//!
//! Whatever a guest hands over is checked before use: the shape of columns here, slots, states and outputs by what
//! stands behind the call context. A broken rule is an error, which traps the guest and comes out of the call as the
//! fault that it is.

use super::bindings::tidegate::operator::types::{self, BatchResult, ColumnResult};
use super::bindings::tidegate::operator::{collector, keyed_state, operator_state, timers};
use super::guest::{Guest, Scope};
use crate::operator::{EntryCursor, EntryPage, EntryScan, Fault, RuleViolation};
use crate::record::{Batch, Column, Lists, MalformedBatch, OptionalColumn};

type Result<T> = wasmtime::Result<T>;

/// Makes a fault the error that traps the guest.
pub(super) fn trap(fault: impl Into<Fault>) -> wasmtime::Error {
    wasmtime::Error::new(fault.into())
}

fn column(parts: ColumnResult) -> Result<Column> {
    Column::from_parts(parts.data, parts.offsets).map_err(|error| trap(RuleViolation::Column(error)))
}

fn optional_column(parts: types::OptionalColumn) -> Result<OptionalColumn> {
    let values = column(parts.values)?;
    OptionalColumn::from_parts(values, parts.missing).map_err(|error| trap(RuleViolation::Column(error)))
}

fn lists(parts: types::Lists) -> Result<Lists> {
    let items = column(parts.items)?;
    Lists::from_parts(parts.bounds, items).map_err(|error| trap(RuleViolation::Column(error)))
}

fn batch(parts: BatchResult) -> Result<Batch> {
    let column = |name, parts: ColumnResult| {
        Column::from_parts(parts.data, parts.offsets)
            .map_err(|source| trap(RuleViolation::Batch(MalformedBatch::Column { column: name, source })))
    };
    let keys = column("keys", parts.keys)?;
    let values = column("values", parts.values)?;
    Batch::from_columns(keys, values, parts.timestamps).map_err(|error| trap(RuleViolation::Batch(error)))
}

impl From<Column> for ColumnResult {
    fn from(column: Column) -> Self {
        let (data, offsets) = column.into_parts();
        Self { data, offsets }
    }
}

impl From<OptionalColumn> for types::OptionalColumn {
    fn from(column: OptionalColumn) -> Self {
        let (values, missing) = column.into_parts();
        Self { values: values.into(), missing }
    }
}

impl From<Lists> for types::Lists {
    fn from(lists: Lists) -> Self {
        let (bounds, items) = lists.into_parts();
        Self { bounds, items: items.into() }
    }
}

impl From<EntryPage> for keyed_state::Page {
    fn from(page: EntryPage) -> Self {
        Self {
            positions: page.positions,
            keys: page.keys.into(),
            values: page.values.into(),
            next: page.next.map(|next| keyed_state::Cursor { position: next.position, key: next.key }),
        }
    }
}

impl types::Host for Guest {}

impl keyed_state::Host for Guest {
    fn slots(&mut self) -> Result<Vec<u32>> {
        self.context.state.slots().map(<[u32]>::to_vec).map_err(trap)
    }

    fn get(&mut self, state: u32, slot: u32) -> Result<Option<Vec<u8>>> {
        self.context.state.get(state, slot).map_err(trap)
    }

    fn put(&mut self, state: u32, slot: u32, value: Vec<u8>) -> Result<()> {
        self.context.state.put(state, slot, &value).map_err(trap)
    }

    fn load(&mut self, state: u32) -> Result<types::OptionalColumn> {
        self.context.state.load(state).map(Into::into).map_err(trap)
    }

    fn load_some(&mut self, state: u32, slots: Vec<u32>) -> Result<types::OptionalColumn> {
        self.context.state.load_some(state, &slots).map(Into::into).map_err(trap)
    }

    fn store(&mut self, state: u32, values: types::OptionalColumn) -> Result<()> {
        self.context.state.store(state, optional_column(values)?).map_err(trap)
    }

    fn update(&mut self, state: u32, slots: Vec<u32>, values: ColumnResult) -> Result<()> {
        self.context.state.update(state, &slots, &column(values)?).map_err(trap)
    }

    fn clear(&mut self, state: u32, slots: Vec<u32>) -> Result<()> {
        self.context.state.clear(state, &slots).map_err(trap)
    }

    fn load_lists(&mut self, state: u32, slots: Vec<u32>) -> Result<types::Lists> {
        self.context.state.load_lists(state, &slots).map(Into::into).map_err(trap)
    }

    fn append(&mut self, state: u32, slots: Vec<u32>, items: ColumnResult) -> Result<()> {
        self.context.state.append(state, &slots, &column(items)?).map_err(trap)
    }

    fn replace_lists(&mut self, state: u32, slots: Vec<u32>, items: types::Lists) -> Result<()> {
        self.context.state.replace_lists(state, &slots, &lists(items)?).map_err(trap)
    }

    fn get_entries(&mut self, state: u32, slots: Vec<u32>, keys: ColumnResult) -> Result<types::OptionalColumn> {
        self.context.state.get_entries(state, &slots, &column(keys)?).map(Into::into).map_err(trap)
    }

    fn put_entries(&mut self, state: u32, slots: Vec<u32>, keys: ColumnResult, values: ColumnResult) -> Result<()> {
        self.context.state.put_entries(state, &slots, &column(keys)?, &column(values)?).map_err(trap)
    }

    fn remove_entries(&mut self, state: u32, slots: Vec<u32>, keys: ColumnResult) -> Result<()> {
        self.context.state.remove_entries(state, &slots, &column(keys)?).map_err(trap)
    }

    fn scan_entries(
        &mut self,
        state: u32,
        what: keyed_state::Scan,
        resume: Option<keyed_state::Cursor>,
        limit: u32,
    ) -> Result<keyed_state::Page> {
        let scan = EntryScan { slots: what.slots, start: what.start, end: what.end };
        let resume = resume.map(|cursor| EntryCursor { position: cursor.position, key: cursor.key });
        self.context.state.scan_entries(state, &scan, resume.as_ref(), limit).map(Into::into).map_err(trap)
    }
}

impl collector::Host for Guest {
    async fn emit(&mut self, output: u32, records: BatchResult) -> Result<()> {
        self.forbid_outside_calls("emit")?;
        let records = batch(records)?;
        self.context.emit(output, records).await.map_err(trap)
    }

    fn reject(&mut self, position: u32, reason: String) -> Result<()> {
        self.context.reject(position, &reason).map_err(trap)
    }
}

impl Guest {
    /// Traps in `open` and `close`, where an operator has no output.
    fn forbid_outside_calls(&self, function: &'static str) -> Result<()> {
        let place = match self.scope {
            Scope::Open => "in open",
            Scope::Close => "in close",
            Scope::Call => return Ok(()),
        };
        Err(trap(RuleViolation::Scope { function, place }))
    }
}

/// What a guest is told that calls what this version lacks.
fn unavailable(what: &str) -> wasmtime::Error {
    trap(RuleViolation::Other(format!("{what} not available in this version of tidegate")))
}

impl timers::Host for Guest {
    fn schedule(&mut self, _: types::TimeDomain, _: Vec<u32>, _: Vec<u32>, _: Vec<i64>) -> Result<()> {
        Err(unavailable("timers are"))
    }

    fn cancel(&mut self, _: types::TimeDomain, _: Vec<u32>, _: Vec<u32>, _: Vec<i64>) -> Result<()> {
        Err(unavailable("timers are"))
    }
}

impl operator_state::Host for Guest {
    fn load_list(&mut self, _: u32) -> Result<ColumnResult> {
        Err(unavailable("operator state is"))
    }

    fn append(&mut self, _: u32, _: ColumnResult) -> Result<()> {
        Err(unavailable("operator state is"))
    }

    fn replace_list(&mut self, _: u32, _: ColumnResult) -> Result<()> {
        Err(unavailable("operator state is"))
    }

    fn get_entries(&mut self, _: u32, _: ColumnResult) -> Result<types::OptionalColumn> {
        Err(unavailable("operator state is"))
    }

    fn put_entries(&mut self, _: u32, _: ColumnResult, _: ColumnResult) -> Result<()> {
        Err(unavailable("operator state is"))
    }

    fn remove_entries(&mut self, _: u32, _: ColumnResult) -> Result<()> {
        Err(unavailable("operator state is"))
    }

    fn scan_entries(&mut self, _: u32, _: Vec<u8>, _: u32) -> Result<operator_state::Page> {
        Err(unavailable("operator state is"))
    }
}
