//! Returns an error from `open`, with the config in it.

use tidegate_test_guests::*;

struct Hostile;

impl Operator for Hostile {
    fn open(config: String) -> Result<Descriptor, Failure> {
        Err(Failure { message: format!("no column in {config}"), position: None })
    }
}

guest!(Hostile);
