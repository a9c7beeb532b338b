//! Declares a state whose name is random.

use tidegate_test_guests::*;

struct Hostile;

impl Operator for Hostile {
    fn open(_: String) -> Result<Descriptor, Failure> {
        let states = vec![state(1, &format!("s{}", random::get_u64()), StateKind::KeyedValue)];
        Ok(Descriptor { states, side_outputs: Vec::new() })
    }
}

guest!(Hostile);
