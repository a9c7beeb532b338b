//! tidegate: stateful stream processing with WebAssembly operators.
//!
//! The program `tidegate` runs jobs from files; see [`cli`]. A program that embeds tidegate builds an
//! [`api::JobGraph`], of components ([`wasm::WasmOperatorFactory`]), operators of its own ([`operator::NativeFactory`])
//! and connectors ([`connectors`]), and starts it with [`api::start`] in an [`env::Env`].
//!
//! `ARCHITECTURE.md` in the repository is the map of the modules and of what holds in each.

pub mod api;
pub mod checkpoint;
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
