//! What an operator can call: the host's functions in a component, the in-memory host of `testing` elsewhere.
//!
//! Both have the same modules and signatures, so nothing above this module knows which of them it talks to.

#[cfg(target_arch = "wasm32")]
pub(crate) use crate::bindings::tidegate::operator::{clock, collector, keyed_state, log, metrics, random};
#[cfg(not(target_arch = "wasm32"))]
pub(crate) use crate::testing::imports::{clock, collector, keyed_state, log, metrics, random};
