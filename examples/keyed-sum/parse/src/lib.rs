//! Reads lines `key,number` and sends the number on under its key.

use tidegate_sdk::{Context, Error, NoConfig, Operator, Record, Setup};

struct Parse;

impl Operator for Parse {
    type Config = NoConfig;

    fn open(_: NoConfig, _: &mut Setup) -> Result<Self, Error> {
        Ok(Self)
    }

    fn process(&mut self, record: Record<'_>, context: &mut Context) -> Result<(), Error> {
        let line = record.value();
        let (key, number) = parse(line)
            .ok_or_else(|| Error::new(format_args!("expected \"key,number\", found \"{}\"", line.escape_ascii())))?;
        context.emit_keyed(key, number.to_le_bytes());
        Ok(())
    }
}

/// The key, which may hold commas itself, and the number behind the last comma.
fn parse(line: &[u8]) -> Option<(&[u8], i64)> {
    let comma = line.iter().rposition(|&byte| byte == b',')?;
    let number = str::from_utf8(&line[comma + 1..]).ok()?;
    Some((&line[..comma], number.parse().ok()?))
}

tidegate_sdk::export!(Parse);

#[cfg(test)]
mod tests {
    use tidegate_sdk::testing::{Harness, Input};

    use super::*;

    #[test]
    fn lines_become_keyed_numbers() {
        let mut operator: Harness<Parse> = Harness::open("{}").unwrap();
        operator.process([Input::unkeyed("a,1"), Input::unkeyed("b,c,-2")]).unwrap();
        let emitted = operator.take_emitted();
        assert_eq!(emitted[0].key.as_deref(), Some(&b"a"[..]));
        assert_eq!(emitted[1].key.as_deref(), Some(&b"b,c"[..]));
        assert_eq!(emitted[1].value, (-2i64).to_le_bytes());
    }

    #[test]
    fn a_line_that_is_none_is_named() {
        let mut operator: Harness<Parse> = Harness::open("{}").unwrap();
        for line in ["a", "a,", "a,b", "a,9223372036854775808"] {
            let failure = operator.process([Input::unkeyed("a,1"), Input::unkeyed(line)]).unwrap_err();
            assert_eq!(failure.position, Some(1));
            assert_eq!(failure.message, format!("expected \"key,number\", found \"{line}\""));
        }
    }
}
