//! Runs for ever.

use tidegate_test_guests::*;

struct Hostile;

impl Operator for Hostile {
    fn process(_: u32, _: Batch) -> Result<(), Failure> {
        loop {
            std::hint::black_box(0);
        }
    }
}

guest!(Hostile);
