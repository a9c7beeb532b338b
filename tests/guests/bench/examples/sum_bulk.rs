//! The running sum of each key, batch by batch on the bare bindings. Numbers are 8 bytes little-endian, in and out.

wit_bindgen::generate!({
    path: "../../../wit",
    world: "operator",
    generate_all,
});

use exports::tidegate::operator::handler::Guest;
use tidegate::operator::types::{
    Batch, Column, Descriptor, Failure, OptionalColumn, StateDescriptor, StateKind, TimeDomain,
};
use tidegate::operator::{collector, keyed_state};

const SUM: u32 = 0;
const BYTES: usize = 8;

struct Sum;

/// The numbers of a column of which each string is one; 0 for those that are missing.
fn numbers(column: &Column) -> impl Iterator<Item = i64> {
    column.offsets.windows(2).map(|bounds| {
        let string = &column.data[bounds[0] as usize..bounds[1] as usize];
        string.try_into().map_or(0, i64::from_le_bytes)
    })
}

fn column(numbers: &[i64]) -> Column {
    let mut data = Vec::with_capacity(numbers.len() * BYTES);
    numbers.iter().for_each(|number| data.extend_from_slice(&number.to_le_bytes()));
    Column { data, offsets: (0..=numbers.len() as u32).map(|string| string * BYTES as u32).collect() }
}

impl Guest for Sum {
    fn open(_: String) -> Result<Descriptor, Failure> {
        let kind = StateKind::KeyedValue;
        let sum = StateDescriptor { id: SUM, name: "sum".to_owned(), kind, ttl: None, schema_version: 1 };
        Ok(Descriptor { states: vec![sum], side_outputs: Vec::new() })
    }

    fn process(_: u32, records: Batch) -> Result<(), Failure> {
        let slots = keyed_state::slots();
        let mut sums: Vec<i64> = numbers(&keyed_state::load(SUM).values).collect();
        let mut running = Vec::with_capacity(slots.len());
        for (&slot, number) in slots.iter().zip(numbers(&records.values)) {
            let sum = &mut sums[slot as usize];
            *sum = sum.wrapping_add(number);
            running.push(*sum);
        }
        keyed_state::store(SUM, &OptionalColumn { values: column(&sums), missing: Vec::new() });
        collector::emit(0, &Batch { keys: records.keys, values: column(&running), timestamps: records.timestamps });
        Ok(())
    }

    fn on_timers(_: TimeDomain, _: Column, _: Vec<u32>, _: Vec<i64>) -> Result<(), Failure> {
        Ok(())
    }

    fn on_watermark() -> Result<(), Failure> {
        Ok(())
    }

    fn on_end_of_input(_: u32, _: u32) -> Result<(), Failure> {
        Ok(())
    }

    fn close() -> Result<(), Failure> {
        Ok(())
    }
}

export!(Sum);
