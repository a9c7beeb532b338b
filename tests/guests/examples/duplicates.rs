//! Declares two states with one id.

use tidegate_test_guests::*;

struct Hostile;

impl Operator for Hostile {
    fn open(_: String) -> Result<Descriptor, Failure> {
        let states = vec![state(1, "a", StateKind::KeyedValue), state(1, "b", StateKind::KeyedValue)];
        Ok(Descriptor { states, side_outputs: Vec::new() })
    }
}

guest!(Hostile);
