//! What travels between operators: columns of byte strings, batches of records, the messages of a channel.
//!
//! A leaf: plain data without async or I/O, and without knowledge of who sends or receives it.

mod batch;
mod column;
mod message;

pub use batch::{Batch, MalformedBatch, StreamShape};
pub use column::{Column, Lists, MalformedColumn, OptionalColumn};
pub use message::{Message, Timestamp, Watermark};
