//! The rules that make results right, as plain data and functions.
//!
//! Pure: no async, clock, randomness or I/O, and no `use` of a module that has them. The runtime and the simulation
//! drive the same code; `tests/protocol_is_pure.rs` keeps it so.

pub mod alignment;
pub mod bisection;
pub mod coordinator;
pub mod key_group;
pub mod restart;
pub mod retention;
pub mod run_log;
pub mod watermark;
