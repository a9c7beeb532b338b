//! Splits lines into words and sends each word on as a key, so that equal words meet in one place.

use serde::Deserialize;
use tidegate_sdk::{Context, Error, Operator, Record, Setup};

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Config {
    /// Whether `The` and `the` are one word; false unless said. Only letters of ASCII change.
    lowercase: bool,
}

struct Split {
    lowercase: bool,
    /// The word at hand in lower case, kept for its capacity.
    word: Vec<u8>,
}

impl Operator for Split {
    type Config = Config;

    fn open(config: Config, _: &mut Setup) -> Result<Self, Error> {
        Ok(Self { lowercase: config.lowercase, word: Vec::new() })
    }

    fn process(&mut self, line: Record<'_>, context: &mut Context) -> Result<(), Error> {
        // A line is bytes; it need not be text. Words are what white space leaves.
        for word in line.value().split(|&byte| is_white(byte)).filter(|word| !word.is_empty()) {
            if self.lowercase {
                self.word.clear();
                self.word.extend_from_slice(word);
                self.word.make_ascii_lowercase();
                context.emit_keyed(&self.word, b"");
            } else {
                context.emit_keyed(word, b"");
            }
        }
        Ok(())
    }
}

/// What C, and so `tr`, calls white space: the vertical tab is among it.
fn is_white(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == b'\x0b'
}

tidegate_sdk::export!(Split);

#[cfg(test)]
mod tests {
    use tidegate_sdk::testing::{Harness, Input};

    use super::*;

    fn words(config: &str, line: &[u8]) -> Vec<String> {
        let mut split: Harness<Split> = Harness::open(config).unwrap();
        split.process([Input::unkeyed(line)]).unwrap();
        split.take_emitted().iter().map(|word| word.key.as_ref().unwrap().escape_ascii().to_string()).collect()
    }

    #[test]
    fn white_space_parts_words() {
        assert_eq!(words("{}", b"  The tide\tturns,\x0b\r the  "), ["The", "tide", "turns,", "the"]);
        assert_eq!(words("{}", b""), [""; 0]);
    }

    #[test]
    fn bytes_that_are_not_text_pass() {
        assert_eq!(words("{}", b"\xff\xfe a\x00b"), ["\\xff\\xfe", "a\\x00b"]);
    }

    #[test]
    fn lowercase_is_asked_for() {
        assert_eq!(words(r#"{"lowercase": true}"#, b"The TIDE"), ["the", "tide"]);
        let error = Harness::<Split>::open(r#"{"lower": true}"#).unwrap_err();
        assert_eq!(error.message, "config.lower: unknown field `lower`, expected `lowercase`");
    }
}
