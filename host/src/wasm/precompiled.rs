//! The one unsafe step: code that was compiled before is run again.
#![expect(unsafe_code, reason = "wasmtime cannot check that bytes are code that it made")]

use wasmtime::component::Component;
use wasmtime::{Engine, Result};

/// Loads a component that `Component::serialize` wrote.
///
/// Sound only for such bytes. The cache, its one caller, takes them from a file that only the owner of this process
/// could write, and whose digest it has verified.
pub(super) fn load(engine: &Engine, code: &[u8]) -> Result<Component> {
    // SAFETY: `deserialize` needs bytes that `serialize` made and nobody changed since. The cache has verified the sha256
    // that stands beside them, which rules out damage, and that only this process's owner can write there, which rules
    // out malice by anyone who could not run code as that owner anyway. Code of another version or configuration of
    // wasmtime has another file name, and wasmtime refuses it besides.
    unsafe { Component::deserialize(engine, code) }
}
