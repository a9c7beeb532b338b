//! Emits, in one batch, one record of as many bytes as its one record says.

use tidegate_test_guests::*;

struct Hostile;

impl Operator for Hostile {
    fn process(_: u32, records: Batch) -> Result<(), Failure> {
        let bytes: usize = String::from_utf8_lossy(string(&records.values, 0)).parse().unwrap();
        collector::emit(0, &record(&vec![7; bytes]));
        Ok(())
    }
}

guest!(Hostile);
