//! Counts by key the records that it takes, and emits each of those at once, as value, colon and count. A value that
//! starts with `x@` or `x` makes it return an error with or without the position, `p` makes it panic, `r` it rejects,
//! `l` makes it run for ever.

use tidegate_test_guests::*;

struct Picky;

const COUNT: u32 = 0;

impl Operator for Picky {
    fn open(_: String) -> Result<Descriptor, Failure> {
        Ok(Descriptor { states: vec![state(COUNT, "count", StateKind::KeyedValue)], side_outputs: Vec::new() })
    }

    fn process(_: u32, records: Batch) -> Result<(), Failure> {
        for (position, slot) in (0..).zip(keyed_state::slots()) {
            let value = string(&records.values, position);
            let at = position as u32;
            match value {
                [b'x', b'@', ..] => return Err(Failure { message: "not this one".to_owned(), position: Some(at) }),
                [b'x', ..] => return Err(Failure { message: "one of these".to_owned(), position: None }),
                [b'p', ..] => panic!("no"),
                [b'r', ..] => {
                    collector::reject(at, "not wanted");
                    continue;
                }
                [b'l', ..] => loop {
                    std::hint::black_box(0);
                },
                _ => {}
            }
            let before = keyed_state::get(COUNT, slot);
            let count = 1 + before.map_or(0, |bytes| bytes.try_into().map_or(0, u64::from_le_bytes));
            keyed_state::update(COUNT, &[slot], &single(&count.to_le_bytes()));
            let value = [value, format!(":{count}").as_bytes()].concat();
            let keys = single(string(&records.keys, position));
            collector::emit(0, &Batch { keys, values: single(&value), timestamps: Vec::new() });
        }
        Ok(())
    }
}

guest!(Picky);
