//! Sizes and durations as people write them: `"64MiB"`, `"500ms"`.
//!
//! A unit is always required: a bare number would leave the reader guessing, and the guess is wrong by a factor of a
//! thousand when it is wrong.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error, Visitor};

/// A number of bytes, written like `"64MiB"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

/// A duration, written like `"500ms"` or `"1m30s"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HumanDuration(pub Duration);

/// Why a text is not a size or a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// There is no number where one must be.
    #[error("it does not begin with a number")]
    NoNumber,
    /// There is a number without a unit.
    #[error("it has no unit")]
    NoUnit,
    /// The unit is none of those known.
    #[error("{unit:?} is not a unit")]
    UnknownUnit {
        /// What stands in its place.
        unit: String,
    },
    /// More than can be counted.
    #[error("it is too large")]
    TooLarge,
    /// Less than one of the smallest unit.
    #[error("it is not a whole number of {smallest}")]
    TooFine {
        /// "bytes" or "nanoseconds".
        smallest: &'static str,
    },
}

/// Units of size with their bytes, smallest first.
const SIZES: &[(&str, u128)] = &[
    ("B", 1),
    ("kB", 1_000),
    ("KB", 1_000),
    ("KiB", 1 << 10),
    ("MB", 1_000_000),
    ("MiB", 1 << 20),
    ("GB", 1_000_000_000),
    ("GiB", 1 << 30),
    ("TB", 1_000_000_000_000),
    ("TiB", 1 << 40),
];

/// Units of time with their nanoseconds, smallest first.
const TIMES: &[(&str, u128)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];

impl ByteSize {
    /// What a size looks like, for messages.
    pub const EXPECTED: &'static str = "a size with its unit, such as \"64KiB\", \"10MB\" or \"1GiB\"";
}

impl HumanDuration {
    /// What a duration looks like, for messages.
    pub const EXPECTED: &'static str = "a duration with its unit, such as \"500ms\", \"10s\" or \"1m30s\"";
}

impl FromStr for ByteSize {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let (bytes, rest) = quantity(text.trim(), SIZES, "bytes")?;
        if !rest.is_empty() {
            return Err(UnitError::UnknownUnit { unit: rest.to_owned() });
        }
        u64::try_from(bytes).map(Self).map_err(|_| UnitError::TooLarge)
    }
}

impl FromStr for HumanDuration {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let mut rest = text.trim();
        let mut sum = 0u128;
        loop {
            let (nanoseconds, behind) = quantity(rest, TIMES, "nanoseconds")?;
            sum = sum.checked_add(nanoseconds).ok_or(UnitError::TooLarge)?;
            rest = behind;
            if rest.is_empty() {
                let nanoseconds = u64::try_from(sum).map_err(|_| UnitError::TooLarge)?;
                return Ok(Self(Duration::from_nanos(nanoseconds)));
            }
        }
    }
}

/// Reads a number and its unit from the beginning of a text. Returns what is left behind them.
fn quantity<'a>(text: &'a str, units: &[(&str, u128)], smallest: &'static str) -> Result<(u128, &'a str), UnitError> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_').unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    let number = number.replace('_', "");
    let (whole, fraction) = number.split_once('.').unwrap_or((&number, ""));
    if whole.is_empty() || fraction.contains('.') || number.ends_with('.') {
        return Err(UnitError::NoNumber);
    }
    let rest = rest.trim_start();
    let end = rest.find(|c: char| c.is_ascii_digit() || c.is_whitespace()).unwrap_or(rest.len());
    let (unit, behind) = rest.split_at(end);
    if unit.is_empty() {
        return Err(UnitError::NoUnit);
    }
    let Some((_, worth)) = units.iter().find(|(name, _)| *name == unit) else {
        return Err(UnitError::UnknownUnit { unit: unit.to_owned() });
    };
    // In u128 a u64's worth of the largest unit cannot overflow; longer numbers do not parse as u64.
    let amount = |digits: &str| digits.parse::<u64>().map(u128::from).map_err(|_| UnitError::TooLarge);
    let mut sum = amount(whole)? * worth;
    if !fraction.is_empty() {
        let scale = u32::try_from(fraction.len()).ok().and_then(|digits| 10u128.checked_pow(digits));
        let scale = scale.ok_or(UnitError::TooFine { smallest })?;
        let part = amount(fraction)? * worth;
        if part % scale != 0 {
            return Err(UnitError::TooFine { smallest });
        }
        sum += part / scale;
    }
    Ok((sum, behind.trim_start()))
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let binary = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
        let unit = binary.into_iter().find(|(_, shift)| self.0 != 0 && self.0.is_multiple_of(1 << shift));
        match unit {
            Some((unit, shift)) => write!(f, "{}{unit}", self.0 >> shift),
            None => write!(f, "{}B", self.0),
        }
    }
}

impl fmt::Display for HumanDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanoseconds = self.0.as_nanos();
        let fits = |(_, worth): &&(&str, u128)| nanoseconds != 0 && nanoseconds.is_multiple_of(*worth);
        match TIMES.iter().rev().filter(|(unit, _)| *unit != "min").find(fits) {
            Some((unit, worth)) => write!(f, "{}{unit}", nanoseconds / worth),
            None => f.write_str("0s"),
        }
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Quantity { what: "size", expected: Self::EXPECTED, quantity: PhantomData })
    }
}

impl<'de> Deserialize<'de> for HumanDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Quantity { what: "duration", expected: Self::EXPECTED, quantity: PhantomData })
    }
}

/// Reads a size or a duration; says what it looks like when something else stands in its place.
struct Quantity<T> {
    what: &'static str,
    expected: &'static str,
    quantity: PhantomData<T>,
}

impl<T: FromStr<Err = UnitError>> Visitor<'_> for Quantity<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        let Self { what, expected, .. } = self;
        text.parse().map_err(|error| E::custom(format!("{text:?} is not a {what}: {error}; expected {expected}")))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("0B", 0),
            ("1KiB", 1024),
            ("64MiB", 64 << 20),
            ("64 MiB", 64 << 20),
            ("1.5KiB", 1536),
            ("10MB", 10_000_000),
            ("1_000B", 1000),
            (" 2GiB ", 2 << 30),
        ] {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
        for (text, error) in [
            ("", UnitError::NoNumber),
            ("MiB", UnitError::NoNumber),
            ("-1MiB", UnitError::NoNumber),
            ("1.2.3MiB", UnitError::NoNumber),
            ("1.MiB", UnitError::NoNumber),
            ("64", UnitError::NoUnit),
            ("64 Mib", UnitError::UnknownUnit { unit: "Mib".into() }),
            ("1MiB2KiB", UnitError::UnknownUnit { unit: "2KiB".into() }),
            ("1.5B", UnitError::TooFine { smallest: "bytes" }),
            ("99999999TiB", UnitError::TooLarge),
            ("999999999999999999999999B", UnitError::TooLarge),
        ] {
            assert_eq!(text.parse::<ByteSize>(), Err(error), "{text}");
        }
    }

    #[test]
    fn durations() {
        for (text, milliseconds) in [
            ("0s", 0),
            ("500ms", 500),
            ("1s", 1000),
            ("1.5s", 1500),
            ("10m", 600_000),
            ("10min", 600_000),
            ("1m30s", 90_000),
            ("1h 30m", 5_400_000),
            ("1d", 86_400_000),
        ] {
            assert_eq!(text.parse(), Ok(HumanDuration(Duration::from_millis(milliseconds))), "{text}");
        }
        for (text, error) in [
            ("", UnitError::NoNumber),
            ("fast", UnitError::NoNumber),
            ("10", UnitError::NoUnit),
            ("1m30", UnitError::NoUnit),
            ("1 sec", UnitError::UnknownUnit { unit: "sec".into() }),
            ("300000d", UnitError::TooLarge),
        ] {
            assert_eq!(text.parse::<HumanDuration>(), Err(error), "{text}");
        }
    }

    proptest! {
        /// What is displayed can be read back, so that messages show values as the job file would have them.
        #[test]
        fn displayed_values_parse(value: u64) {
            prop_assert_eq!(ByteSize(value).to_string().parse(), Ok(ByteSize(value)));
            let duration = HumanDuration(Duration::from_nanos(value));
            prop_assert_eq!(duration.to_string().parse(), Ok(duration));
        }

        /// No text makes the parsers panic.
        #[test]
        fn any_text_is_parsed_or_refused(text in "[0-9._ a-zA-Z-]{0,40}") {
            let _ = text.parse::<ByteSize>();
            let _ = text.parse::<HumanDuration>();
        }
    }
}
