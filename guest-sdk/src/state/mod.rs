//! State per key: typed handles over what the host keeps.
//!
//! A handle reads on first use, remembers within the call and writes back at its end, so that a batch of records costs a
//! few calls to the host. What it remembers never outlives the call: the host owns the state.

mod aggregating;
mod list;
mod map;
mod reducing;
mod value;

pub use aggregating::AggregatingState;
pub use list::ListState;
pub use map::MapState;
pub use reducing::ReducingState;
pub use value::ValueState;

use crate::Error;

/// So many bytes go to the host, or come from it, at once as far as that can be told: well below what it refuses.
const TRANSFER_BYTES: usize = 4 << 20;

/// Which state a table is about, for calls and messages.
struct Identity {
    id: u32,
    name: String,
}

impl Identity {
    #[cold]
    fn undecodable(&self, error: Error) -> Error {
        error.context(format_args!("what state {} holds for this key cannot be decoded", self.name))
    }

    #[cold]
    fn unencodable(&self, error: Error) -> Error {
        error.context(format_args!("a value of state {} cannot be encoded", self.name))
    }
}
