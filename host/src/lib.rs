//! tidegate: stateful stream processing with WebAssembly operators.

pub mod api;

pub mod cli;
pub mod clock;
mod closest;
pub mod config;
pub mod connectors;
pub mod env;
mod error_chain;
pub mod id;
pub mod operator;
pub mod protocol;
pub mod random;
pub mod record;
pub mod runtime;
pub mod state;
pub mod task;
pub mod wasm;
