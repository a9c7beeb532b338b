//! Writes to stdout and stderr, as many lines as its one record says.

use tidegate_test_guests::*;

struct Hostile;

impl Operator for Hostile {
    fn process(_: u32, records: Batch) -> Result<(), Failure> {
        let lines: u32 = String::from_utf8_lossy(string(&records.values, 0)).parse().unwrap();
        for line in 0..lines {
            println!("out {line}");
            eprintln!("err {line}");
        }
        print!("no end");
        log::write(log::Level::Info, "logged");
        Ok(())
    }
}

guest!(Hostile);
