//! Runs an operator without Wasm, against a host in memory: for the tests of those who write one.
//!
//! The host in memory treats an operator as the real one does. What a call writes counts only when the call returns
//! without an error; after an error there is a new instance. It checks each call against the contract and panics where
//! the real host would trap. Nothing expires in it.
//!
//! ```
//! use tidegate_sdk::testing::{Harness, Input};
//! use tidegate_sdk::{Context, Error, NoConfig, Operator, Record, Setup, ValueState};
//!
//! struct Longest {
//!     longest: ValueState<u32>,
//! }
//!
//! impl Operator for Longest {
//!     type Config = NoConfig;
//!
//!     fn open(_: NoConfig, setup: &mut Setup) -> Result<Self, Error> {
//!         Ok(Self { longest: setup.state("longest").value() })
//!     }
//!
//!     fn process(&mut self, record: Record<'_>, context: &mut Context) -> Result<(), Error> {
//!         let length = record.text()?.len() as u32;
//!         if self.longest.get(context)?.is_none_or(|longest| length > longest) {
//!             self.longest.set(context, length)?;
//!             context.emit(record.value());
//!         }
//!         Ok(())
//!     }
//! }
//!
//! let mut operator: Harness<Longest> = Harness::open("{}").unwrap();
//! operator.process(["ab", "a", "abc"].map(|text| Input::keyed("k", text))).unwrap();
//! assert_eq!(operator.take_values(), ["ab", "abc"]);
//! assert_eq!(operator.value::<u32>("longest", "k"), Some(3));
//!
//! let failure = operator.process([Input::keyed("k", "abcd"), Input::keyed("k", [0xff])]).unwrap_err();
//! assert_eq!(failure.position, Some(1));
//! assert_eq!(operator.value::<u32>("longest", "k"), Some(3), "a failed call leaves state as it was");
//! ```

mod harness;
mod host;
pub(crate) mod imports;

pub use harness::{Failure, Harness, Input};
pub use host::{Emitted, Logged, Rejected};

#[cfg(test)]
mod tests;
