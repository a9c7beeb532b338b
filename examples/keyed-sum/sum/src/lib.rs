//! Sums up the numbers of each key and says each time what they come to: `key,sum`.

use tidegate_sdk::codec::LittleEndian;
use tidegate_sdk::{Context, Error, NoConfig, Operator, Output, Record, Setup, ValueState};

struct Sum {
    sum: ValueState<i64, LittleEndian>,
}

impl Operator for Sum {
    type Config = NoConfig;

    fn open(_: NoConfig, setup: &mut Setup) -> Result<Self, Error> {
        Ok(Self { sum: setup.state("sum").value() })
    }

    fn process(&mut self, record: Record<'_>, context: &mut Context) -> Result<(), Error> {
        let number = i64::from_le_bytes(record.value().try_into()?);
        let before = self.sum.get(context)?.unwrap_or(0);
        let sum = before
            .checked_add(number)
            .ok_or_else(|| Error::new(format_args!("the sum {before} + {number} does not fit into 64 bits")))?;
        self.sum.set(context, sum)?;
        context.emit_with(Output::MAIN, |value| {
            value.extend_from_slice(record.key().unwrap_or_default());
            value.push(b',');
            value.extend_from_slice(itoa::Buffer::new().format(sum).as_bytes());
        });
        Ok(())
    }
}

tidegate_sdk::export!(Sum);

#[cfg(test)]
mod tests {
    use tidegate_sdk::testing::{Harness, Input};

    use super::*;

    fn number(key: &str, number: i64) -> Input {
        Input::keyed(key, number.to_le_bytes())
    }

    #[test]
    fn each_key_has_a_sum_of_its_own() {
        let mut sum: Harness<Sum> = Harness::open("{}").unwrap();
        sum.process([number("a", 1), number("b", 10), number("a", -3)]).unwrap();
        sum.process([number("a", 5)]).unwrap();
        assert_eq!(sum.take_values(), ["a,1", "b,10", "a,-2", "a,3"]);
        assert_eq!(sum.value_with::<i64, LittleEndian>("sum", "a"), Some(3));
    }

    #[test]
    fn a_sum_too_large_is_an_error_and_changes_nothing() {
        let mut sum: Harness<Sum> = Harness::open("{}").unwrap();
        sum.process([number("a", i64::MAX)]).unwrap();
        let failure = sum.process([number("b", 1), number("a", 1)]).unwrap_err();
        assert_eq!(failure.position, Some(1));
        assert_eq!(failure.message, "the sum 9223372036854775807 + 1 does not fit into 64 bits");
        assert_eq!(sum.value_with::<i64, LittleEndian>("sum", "b"), None);
    }
}
