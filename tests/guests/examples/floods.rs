//! Emits as many records as its one record says, in decimal, 1000 at a time.

use tidegate_test_guests::*;

struct Hostile;

impl Operator for Hostile {
    fn process(_: u32, records: Batch) -> Result<(), Failure> {
        let count: u32 = String::from_utf8_lossy(string(&records.values, 0)).parse().unwrap();
        let mut sent = 0;
        while sent < count {
            let end = count.min(sent + 1000);
            let data: Vec<u8> = (sent..end).flat_map(u32::to_le_bytes).collect();
            let offsets = (0..=end - sent).map(|record| record * 4).collect();
            collector::emit(0, &Batch { keys: empty(), values: Column { data, offsets }, timestamps: Vec::new() });
            sent = end;
        }
        Ok(())
    }
}

guest!(Hostile);
