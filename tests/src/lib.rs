//! What tests of whole jobs share: the seeded simulation, and jobs around a guest on the real runtime. The suites
//! themselves are in `tests/tests`.

pub mod guest_job;
pub mod sim;
