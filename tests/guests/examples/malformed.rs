//! Emits a batch that is malformed in the way that its one record names.

use tidegate_test_guests::*;

struct Hostile;

impl Operator for Hostile {
    fn process(_: u32, records: Batch) -> Result<(), Failure> {
        let column = |offsets: &[u32]| Column { data: b"abcd".to_vec(), offsets: offsets.to_vec() };
        let values = |offsets| Batch { keys: empty(), values: column(offsets), timestamps: Vec::new() };
        collector::emit(
            0,
            &match string(&records.values, 0) {
                b"start" => values(&[1, 4]),
                b"falling" => values(&[0, 3, 2, 4]),
                b"end" => values(&[0, 2, 5]),
                b"short" => values(&[0, 2]),
                b"none" => values(&[]),
                b"huge" => values(&[0, u32::MAX]),
                b"keys" => Batch { keys: column(&[0, 4]), values: column(&[0, 2, 4]), timestamps: Vec::new() },
                b"malformed keys" => Batch { keys: column(&[4]), values: column(&[0, 4]), timestamps: Vec::new() },
                b"timestamps" => Batch { timestamps: vec![1, 2], ..values(&[0, 4]) },
                other => panic!("no such way: {other:?}"),
            },
        );
        Ok(())
    }
}

guest!(Hostile);
