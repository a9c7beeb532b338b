//! What the guests share: the bindings, an operator that does nothing, and the macro that makes a guest of one.
//!
//! Every guest is one file in `examples/` and becomes one component. They use the bindings as they are generated,
//! because they do what no SDK would let them do.

wit_bindgen::generate!({
    path: "../../wit",
    world: "operator",
    pub_export_macro: true,
    export_macro_name: "export_operator",
    default_bindings_module: "tidegate_test_guests",
    generate_all,
});

pub use exports::tidegate::operator::handler::Guest;
pub use tidegate::operator::types::{
    Batch, Column, Descriptor, Failure, OptionalColumn, SideOutput, StateDescriptor, StateKind, TimeDomain,
};
pub use tidegate::operator::{clock, collector, keyed_state, log, metrics, operator_state, random, timers};

/// An operator of which a guest overrides what it misbehaves in.
pub trait Operator {
    /// Declares what the operator has.
    fn open(_config: String) -> Result<Descriptor, Failure> {
        Ok(nothing())
    }

    /// Processes records.
    fn process(_input: u32, _records: Batch) -> Result<(), Failure> {
        Ok(())
    }

    /// The watermark has moved.
    fn on_watermark() -> Result<(), Failure> {
        Ok(())
    }

    /// The instance ends.
    fn close() -> Result<(), Failure> {
        Ok(())
    }
}

/// Neither states nor side outputs.
pub fn nothing() -> Descriptor {
    Descriptor { states: Vec::new(), side_outputs: Vec::new() }
}

/// A state without more ado.
pub fn state(id: u32, name: &str, kind: StateKind) -> StateDescriptor {
    StateDescriptor { id, name: name.to_owned(), kind, ttl: None, schema_version: 1 }
}

/// One string, as a column.
pub fn single(string: &[u8]) -> Column {
    Column { data: string.to_vec(), offsets: vec![0, string.len() as u32] }
}

/// One record without a key.
pub fn record(value: &[u8]) -> Batch {
    Batch { keys: empty(), values: single(value), timestamps: Vec::new() }
}

/// A column without strings.
pub fn empty() -> Column {
    Column { data: Vec::new(), offsets: Vec::new() }
}

/// The string at a position.
pub fn string(column: &Column, position: usize) -> &[u8] {
    &column.data[column.offsets[position] as usize..column.offsets[position + 1] as usize]
}

/// Makes a guest of an operator.
#[macro_export]
macro_rules! guest {
    ($operator:ident) => {
        struct Exported;

        impl $crate::Guest for Exported {
            fn open(config: String) -> Result<$crate::Descriptor, $crate::Failure> {
                <$operator as $crate::Operator>::open(config)
            }

            fn process(input: u32, records: $crate::Batch) -> Result<(), $crate::Failure> {
                <$operator as $crate::Operator>::process(input, records)
            }

            fn on_timers(
                _domain: $crate::TimeDomain,
                _keys: $crate::Column,
                _tags: Vec<u32>,
                _times: Vec<i64>,
            ) -> Result<(), $crate::Failure> {
                Ok(())
            }

            fn on_watermark() -> Result<(), $crate::Failure> {
                <$operator as $crate::Operator>::on_watermark()
            }

            fn on_end_of_input(_input: u32, _remaining: u32) -> Result<(), $crate::Failure> {
                Ok(())
            }

            fn close() -> Result<(), $crate::Failure> {
                <$operator as $crate::Operator>::close()
            }
        }

        $crate::export_operator!(Exported with_types_in $crate);
    };
}
