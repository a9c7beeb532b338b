//! Recurses without end, with all it keeps in registers and on the stack of the machine.

use tidegate_test_guests::*;

#[inline(never)]
fn down(depth: u64) -> u64 {
    if depth == u64::MAX { depth } else { std::hint::black_box(down(std::hint::black_box(depth + 1))) + 1 }
}

struct Hostile;

impl Operator for Hostile {
    fn process(_: u32, _: Batch) -> Result<(), Failure> {
        std::hint::black_box(down(0));
        Ok(())
    }
}

guest!(Hostile);
