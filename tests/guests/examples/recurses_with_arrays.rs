//! Recurses without end, with an array in every frame.

use tidegate_test_guests::*;

#[inline(never)]
fn down(depth: u64) -> u64 {
    let frame = std::hint::black_box([depth; 512]);
    if depth == u64::MAX { depth } else { std::hint::black_box(down(frame[7] + 1)) + frame[8] }
}

struct Hostile;

impl Operator for Hostile {
    fn process(_: u32, _: Batch) -> Result<(), Failure> {
        std::hint::black_box(down(0));
        Ok(())
    }
}

guest!(Hostile);
