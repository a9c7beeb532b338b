//! Aborts, without a word.

use tidegate_test_guests::*;

#[inline(never)]
fn give_up() {
    std::arch::wasm32::unreachable()
}

struct Hostile;

impl Operator for Hostile {
    fn process(_: u32, _: Batch) -> Result<(), Failure> {
        give_up();
        Ok(())
    }
}

guest!(Hostile);
