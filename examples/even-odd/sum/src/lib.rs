//! Sums up the numbers of each key and says each time what they come to.

use tidegate_sdk::codec::LittleEndian;
use tidegate_sdk::{Context, Error, NoConfig, Operator, Record, ReducingState, Setup};

struct Sum {
    sum: ReducingState<u64, LittleEndian>,
}

impl Operator for Sum {
    type Config = NoConfig;

    fn open(_: NoConfig, setup: &mut Setup) -> Result<Self, Error> {
        Ok(Self { sum: setup.state("sum").reducing(|a, b| a + b) })
    }

    fn process(&mut self, record: Record<'_>, context: &mut Context) -> Result<(), Error> {
        let number = u64::from_le_bytes(record.value().try_into()?);
        let sum = self.sum.add(context, number)?;
        context.emit(sum.to_string());
        Ok(())
    }
}

tidegate_sdk::export!(Sum);

#[cfg(test)]
mod tests {
    use tidegate_sdk::testing::{Harness, Input};

    use super::*;

    #[test]
    fn numbers_add_up() {
        let mut sum: Harness<Sum> = Harness::open("{}").unwrap();
        sum.process([2u64, 4, 6].map(|number| Input::keyed("even", number.to_le_bytes()))).unwrap();
        assert_eq!(sum.take_values(), ["2", "6", "12"]);
    }
}
