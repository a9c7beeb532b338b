//! Panics.

use tidegate_test_guests::*;

struct Hostile;

impl Operator for Hostile {
    fn process(_: u32, _: Batch) -> Result<(), Failure> {
        panic!("boom");
    }
}

guest!(Hostile);
