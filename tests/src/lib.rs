//! What tests of whole jobs share: the seeded simulation. The suites themselves are in `tests/tests`.

pub mod sim;
