//! Emits in `open`.

use tidegate_test_guests::*;

struct Hostile;

impl Operator for Hostile {
    fn open(_: String) -> Result<Descriptor, Failure> {
        collector::emit(0, &record(b"too early"));
        Ok(nothing())
    }
}

guest!(Hostile);
