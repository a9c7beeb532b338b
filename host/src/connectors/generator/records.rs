//! The records of a generator: record `i` is a function of the settings and of `i`, whoever makes it.

use super::zipf::Zipf;
use crate::random::Random;
use crate::record::{Batch, Timestamp};

/// Random numbers that each keyed record takes: one for its key, one for its value.
const DRAWS: u64 = 2;

/// What records are made of.
#[derive(Debug)]
pub(super) struct Recipe {
    pub(super) content: Content,
    /// What the random numbers derive from.
    pub(super) seed: u64,
    /// Whether key and value become one value `key,value`.
    pub(super) as_line: bool,
    /// When records are due, for those that say so in their timestamp.
    pub(super) due: Option<Schedule>,
}

/// The kinds of records.
#[derive(Debug)]
pub(super) enum Content {
    /// Numbers from this one up.
    Sequence(u64),
    /// So many keys, each as likely as the other.
    Uniform(u64),
    /// Keys by rank.
    Zipf(Zipf),
}

/// When records are due: record `i` at `i / rate` seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schedule {
    /// Records per second.
    pub(super) rate: u64,
}

impl Schedule {
    /// When a record is due, in nanoseconds after the start.
    pub(super) fn due_ns(self, index: u64) -> u128 {
        u128::from(index) * 1_000_000_000 / u128::from(self.rate)
    }

    /// How many records are due after so many nanoseconds: a record is due from its time on.
    pub(super) fn due_records(self, elapsed_ns: u128) -> u64 {
        // The smallest count whose record is not due: i * 1e9 / rate > elapsed, rounded down as above.
        let count = ((elapsed_ns + 1) * u128::from(self.rate)).div_ceil(1_000_000_000);
        u64::try_from(count).unwrap_or(u64::MAX)
    }
}

impl Recipe {
    /// Appends records `from..to`. `started_ns` is when record 0 was due, in nanoseconds since 1970.
    pub(super) fn make(&self, from: u64, to: u64, started_ns: u128, batch: &mut Batch) {
        let mut random = Random::new(self.seed);
        random.skip(from.wrapping_mul(DRAWS));
        let mut text = Vec::with_capacity(48);
        for index in from..to {
            let timestamp = self.due.map(|schedule| timestamp(started_ns + schedule.due_ns(index)));
            text.clear();
            let key = match &self.content {
                Content::Sequence(first) => {
                    push_decimal(&mut text, first.wrapping_add(index));
                    batch.push(None, &text, timestamp);
                    continue;
                }
                // The upper 31 bits: enough for every key and cheap to divide.
                Content::Uniform(keys) => (random.next_u64() >> 33) % keys,
                Content::Zipf(zipf) => u64::from(zipf.draw(random.next_u64())),
            };
            text.push(b'k');
            push_decimal(&mut text, key);
            let value = 1 + (random.next_u64() >> 33) % 1000;
            if self.as_line {
                text.push(b',');
                push_decimal(&mut text, value);
                batch.push(None, &text, timestamp);
            } else {
                let key_len = text.len();
                push_decimal(&mut text, value);
                let (key, value) = text.split_at(key_len);
                batch.push(Some(key), value, timestamp);
            }
        }
    }
}

fn timestamp(ns: u128) -> Timestamp {
    Timestamp::try_from(ns / 1_000_000).unwrap_or(Timestamp::MAX)
}

/// Appends a number in decimal. `write!` takes several times as long, and this is the hot path.
fn push_decimal(text: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + u8::try_from(number % 10).expect("a digit");
        number /= 10;
        if number == 0 {
            break;
        }
    }
    text.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Decimals are those of the standard library.
        #[test]
        fn decimals(number: u64, bits in 0u32..64) {
            let mut text = Vec::new();
            push_decimal(&mut text, number >> bits);
            prop_assert_eq!(String::from_utf8(text).unwrap(), (number >> bits).to_string());
        }

        /// Exactly the records whose time has come are due.
        #[test]
        fn due_records_are_those_whose_time_has_come(rate in 1u64..=1_000_000_000, elapsed in 0u128..10_000_000_000) {
            let schedule = Schedule { rate };
            let due = schedule.due_records(elapsed);
            prop_assert!(due >= 1 && schedule.due_ns(due - 1) <= elapsed);
            prop_assert!(schedule.due_ns(due) > elapsed);
        }

        /// A record is the same however the records are cut.
        #[test]
        fn records_do_not_depend_on_cuts(seed: u64, first in 0u64..1000, cut in 0u64..20, zipf: bool) {
            let content = if zipf { Content::Zipf(Zipf::new(50, 1.0)) } else { Content::Uniform(50) };
            let recipe = Recipe { content, seed, as_line: false, due: Some(Schedule { rate: 7 }) };
            let (mut whole, mut parts) = (Batch::new(), Batch::new());
            recipe.make(first, first + 20, 5, &mut whole);
            recipe.make(first, first + cut, 5, &mut parts);
            recipe.make(first + cut, first + 20, 5, &mut parts);
            prop_assert_eq!(whole, parts);
        }
    }

    #[test]
    fn the_records_of_a_seed_are_pinned() {
        let recipe = Recipe { content: Content::Uniform(1000), seed: 42, as_line: true, due: None };
        let mut batch = Batch::new();
        recipe.make(0, 3, 0, &mut batch);
        let lines: Vec<_> = batch.values().iter().map(|line| String::from_utf8_lossy(line).into_owned()).collect();
        assert_eq!(lines, ["k451,954", "k371,936", "k165,598"]);
    }
}
