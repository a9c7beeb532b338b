//! Calls exit.

use tidegate_test_guests::*;

struct Hostile;

impl Operator for Hostile {
    fn process(_: u32, _: Batch) -> Result<(), Failure> {
        std::process::exit(3);
    }
}

guest!(Hostile);
