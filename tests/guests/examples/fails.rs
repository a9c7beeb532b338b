//! Returns an error for records that start with `x`, which names the position of the record if it goes on with `@`.

use tidegate_test_guests::*;

struct Hostile;

impl Operator for Hostile {
    fn process(_: u32, records: Batch) -> Result<(), Failure> {
        for position in 0..records.values.offsets.len().saturating_sub(1) {
            match string(&records.values, position) {
                [b'x', b'@', ..] => {
                    return Err(Failure { message: "cannot read this".to_owned(), position: Some(position as u32) });
                }
                [b'x', ..] => return Err(Failure { message: "cannot read this".to_owned(), position: None }),
                _ => {}
            }
        }
        Ok(())
    }
}

guest!(Hostile);
