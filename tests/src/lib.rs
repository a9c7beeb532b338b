//! What tests of whole jobs share: the seeded simulation, jobs around a guest on the real runtime, and jobs that the real
//! binary runs. The suites themselves are in `tests/tests`.

pub mod binary;
pub mod guest_job;
pub mod sim;
