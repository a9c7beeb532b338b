//! A well-behaved one: counts the records of each key and emits key and count, 8 bytes little-endian.

use tidegate_test_guests::*;

struct Counts;

const COUNT: u32 = 0;

impl Operator for Counts {
    fn open(_: String) -> Result<Descriptor, Failure> {
        Ok(Descriptor { states: vec![state(COUNT, "count", StateKind::KeyedValue)], side_outputs: Vec::new() })
    }

    fn process(_: u32, records: Batch) -> Result<(), Failure> {
        let slots = keyed_state::slots();
        let loaded = keyed_state::load(COUNT);
        let values = &loaded.values;
        let count = |slot| <[u8; 8]>::try_from(string(values, slot)).map_or(0, u64::from_le_bytes);
        let mut counts: Vec<u64> = (0..values.offsets.len().saturating_sub(1)).map(count).collect();
        let fixed = |counts: &[u64]| Column {
            data: counts.iter().flat_map(|count| count.to_le_bytes()).collect(),
            offsets: (0..=counts.len() as u32).map(|record| record * 8).collect(),
        };
        let mut running = Vec::with_capacity(slots.len());
        for slot in slots {
            counts[slot as usize] += 1;
            running.push(counts[slot as usize]);
        }
        keyed_state::store(COUNT, &OptionalColumn { values: fixed(&counts), missing: Vec::new() });
        let emitted = Batch { keys: records.keys, values: fixed(&running), timestamps: records.timestamps };
        collector::emit(0, &emitted);
        Ok(())
    }
}

guest!(Counts);
