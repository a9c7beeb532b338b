//! Operators that are WebAssembly components: the one place that knows wasmtime.
//!
//! Owns the engine, the compile cache, what a guest can call, and the limits that keep a guest from harming anyone but
//! its own job. What an operator is, and what its calls are worth, belongs to `operator`.
//!
//! What always holds: one store per operator instance, and nothing a guest does or hands over is trusted.

mod bindings;
mod cache;
mod engine;
mod fault;
mod guest;
mod host;
mod inspect;
mod log;
mod operator;
mod precompiled;
mod services;
mod ticks;
mod wasi;

pub use engine::{EngineConfig, EngineError, WasmEngine};
pub use inspect::{Access, ComponentReport, Import, LoadError, LoadFailure};
pub use operator::{OperatorSettings, WasmOperatorFactory};
