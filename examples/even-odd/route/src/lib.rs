//! Sends even numbers one way and odd numbers another: two side outputs, `even` and `odd`.

use tidegate_sdk::{Context, Emit, Error, NoConfig, Operator, Output, Record, Setup};

struct Route {
    even: Output,
    odd: Output,
}

impl Operator for Route {
    type Config = NoConfig;

    fn open(_: NoConfig, setup: &mut Setup) -> Result<Self, Error> {
        Ok(Self { even: setup.side_output("even"), odd: setup.side_output("odd") })
    }

    fn process(&mut self, record: Record<'_>, context: &mut Context) -> Result<(), Error> {
        let number: u64 = record.text()?.parse()?;
        let (key, output) = if number.is_multiple_of(2) { ("even", self.even) } else { ("odd", self.odd) };
        context.send(Emit::new(&number.to_le_bytes()).key(key).to(output));
        Ok(())
    }
}

tidegate_sdk::export!(Route);

#[cfg(test)]
mod tests {
    use tidegate_sdk::testing::{Harness, Input};

    use super::*;

    #[test]
    fn numbers_go_their_ways() {
        let mut route: Harness<Route> = Harness::open("{}").unwrap();
        route.process(["1", "2", "4"].map(Input::unkeyed)).unwrap();
        let ways: Vec<_> = route.take_emitted().into_iter().map(|number| (number.output, number.value[0])).collect();
        assert_eq!(ways, [("even".into(), 2), ("even".into(), 4), ("odd".into(), 1)]);
    }
}
