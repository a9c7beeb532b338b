//! The running sum of each key, record by record on the SDK. Numbers are 8 bytes little-endian, in and out.

use tidegate_sdk::codec::LittleEndian;
use tidegate_sdk::{Context, Error, NoConfig, Operator, Record, Setup, ValueState};

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
        let sum = self.sum.get(context)?.unwrap_or(0).wrapping_add(number);
        self.sum.set(context, sum)?;
        context.emit(sum.to_le_bytes());
        Ok(())
    }
}

tidegate_sdk::export!(Sum);
