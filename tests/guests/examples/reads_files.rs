//! Reads a file, its arguments and its environment, and returns what it found.

use tidegate_test_guests::*;

struct Hostile;

impl Operator for Hostile {
    fn process(_: u32, _: Batch) -> Result<(), Failure> {
        let file = std::fs::read("/etc/passwd").map(|bytes| bytes.len());
        let (arguments, variables) = (std::env::args().count(), std::env::vars().count());
        let message = format!("file: {file:?}, arguments: {arguments}, variables: {variables}");
        Err(Failure { message, position: None })
    }
}

guest!(Hostile);
