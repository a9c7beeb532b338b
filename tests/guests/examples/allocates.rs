//! Allocates without end.

use tidegate_test_guests::*;

struct Hostile;

impl Operator for Hostile {
    fn process(_: u32, _: Batch) -> Result<(), Failure> {
        let mut hoard = Vec::new();
        loop {
            hoard.push(std::hint::black_box(vec![1u8; 1 << 20]));
        }
    }
}

guest!(Hostile);
