//! Reads lines `station degrees`, and fails where there is no temperature or none that can be.

use serde::Deserialize;
use tidegate_sdk::{Context, Error, Operator, Record, Setup};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    /// The lowest temperature to believe, in degrees Celsius.
    lowest: f64,
    /// The highest temperature to believe.
    highest: f64,
}

struct Parse {
    config: Config,
}

impl Operator for Parse {
    type Config = Config;

    fn open(config: Config, _: &mut Setup) -> Result<Self, Error> {
        if config.lowest > config.highest {
            return Err(Error::new("config.lowest is above config.highest"));
        }
        Ok(Self { config })
    }

    fn process(&mut self, record: Record<'_>, context: &mut Context) -> Result<(), Error> {
        let line = record.text()?;
        let (station, degrees) = line
            .split_once(' ')
            .ok_or_else(|| Error::new(format_args!("expected \"station degrees\", found {line:?}")))?;
        let degrees: f64 =
            degrees.parse().map_err(|error| Error::from(error).context(format_args!("the temperature {degrees:?}")))?;
        let Config { lowest, highest } = self.config;
        if !(lowest..=highest).contains(&degrees) {
            // No bug and no trouble: this one record is of no use.
            context.reject(format_args!("{degrees} degrees is not between {lowest} and {highest}"));
            return Ok(());
        }
        context.emit_keyed(station, format!("{station} {degrees:.1}"));
        Ok(())
    }
}

tidegate_sdk::export!(Parse);

#[cfg(test)]
mod tests {
    use tidegate_sdk::testing::{Harness, Input};

    use super::*;

    fn open() -> Harness<Parse> {
        Harness::open(r#"{"lowest": -90, "highest": 60}"#).unwrap()
    }

    #[test]
    fn a_line_that_is_none_is_an_error_and_an_odd_one_is_rejected() {
        let mut parse = open();
        let failure = parse.process([Input::unkeyed("north 3"), Input::unkeyed("north cold")]).unwrap_err();
        assert_eq!(failure.position, Some(1));
        assert_eq!(failure.message, "the temperature \"cold\": invalid float literal");

        parse.process(["north 3", "south 300", "south 4.25"].map(Input::unkeyed)).unwrap();
        assert_eq!(parse.take_values(), ["north 3.0", "south 4.2"]);
        let rejected = parse.take_rejected();
        assert_eq!(rejected[0].position, 1);
        assert_eq!(rejected[0].reason, "300 degrees is not between -90 and 60");
    }

    #[test]
    fn limits_are_asked_for() {
        let error = Harness::<Parse>::open("{}").unwrap_err();
        assert_eq!(error.message, "config: missing field `lowest`");
    }
}
