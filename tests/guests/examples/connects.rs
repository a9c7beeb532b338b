//! Opens a network connection.

use tidegate_test_guests::*;

use std::net::TcpStream;

struct Hostile;

impl Operator for Hostile {
    fn process(_: u32, _: Batch) -> Result<(), Failure> {
        match TcpStream::connect(("127.0.0.1", 1)) {
            Ok(_) => Ok(()),
            Err(error) => Err(Failure { message: error.to_string(), position: None }),
        }
    }
}

guest!(Hostile);
