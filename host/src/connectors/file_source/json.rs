//! Records of JSON lines.

use std::fmt;

use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::format::event_time;
use crate::record::Batch;

/// How a JSON text becomes a record: checked, and with a look at the fields that matter.
#[derive(Clone, Debug)]
pub(super) struct JsonFormat {
    key: Option<String>,
    timestamp: Option<String>,
}

impl JsonFormat {
    pub(super) fn new(key: Option<String>, timestamp: Option<String>) -> Self {
        Self { key, timestamp }
    }

    pub(super) fn append(&self, line: &[u8], batch: &mut Batch) -> Result<(), String> {
        // As text, because JSON is UTF-8 also where nobody looks at a string.
        let text = std::str::from_utf8(line).map_err(|error| format!("not valid JSON: {error}"))?;
        let invalid = |error: serde_json::Error| {
            if error.is_data() {
                let field = self.key.as_ref().or(self.timestamp.as_ref()).map(String::as_str).unwrap_or_default();
                return format!("must be an object with a field {field:?}, but is {}", kind(text));
            }
            // The line that the error names would be that within the record, always 1.
            let text = error.to_string();
            let problem = text.split(" at line ").next().unwrap_or(&text);
            format!("not valid JSON: {problem} at column {}", error.column())
        };
        if self.key.is_none() && self.timestamp.is_none() {
            serde_json::from_str::<IgnoredAny>(text).map_err(invalid)?;
            batch.push(None, line, None);
            return Ok(());
        }
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let fields = Fields(self).deserialize(&mut deserializer).map_err(invalid)?;
        deserializer.end().map_err(invalid)?;
        let missing = |name: &String| format!("field {name:?} is missing; every record needs it");
        let key = match (&self.key, fields.key) {
            (Some(name), None) => return Err(missing(name)),
            (Some(name), Some(key)) if key.is_null() || key.is_array() || key.is_object() => {
                let kind = kind(&key.to_string());
                return Err(format!("field {name:?} is {kind}; a key must be a string, a number or a boolean"));
            }
            (_, key) => key.map(as_text),
        };
        let timestamp = match (&self.timestamp, fields.timestamp) {
            (Some(name), None) => return Err(missing(name)),
            (Some(name), Some(time)) => Some(event_time(name, &as_text(time))?),
            (None, _) => None,
        };
        batch.push(key.as_deref().map(str::as_bytes), line, timestamp);
        Ok(())
    }
}

/// What a JSON text is, by its first character.
fn kind(text: &str) -> &'static str {
    match text.trim_start().bytes().next() {
        Some(b'{') => "an object",
        Some(b'[') => "an array",
        Some(b'"') => "a string",
        Some(b'n') => "null",
        Some(b't' | b'f') => "a boolean",
        _ => "a number",
    }
}

/// A string as it is, anything else as JSON.
fn as_text(value: Value) -> String {
    match value {
        Value::String(text) => text,
        other => other.to_string(),
    }
}

/// The fields that were looked for.
#[derive(Default)]
struct Found {
    key: Option<Value>,
    timestamp: Option<Value>,
}

/// Reads an object and keeps the fields that the format needs.
struct Fields<'a>(&'a JsonFormat);

impl<'de> DeserializeSeed<'de> for Fields<'_> {
    type Value = Found;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Found, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Fields<'_> {
    type Value = Found;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Found, A::Error> {
        let mut found = Found::default();
        while let Some(Name(name)) = map.next_key()? {
            let name = Some(&*name);
            let (is_key, is_timestamp) = (name == self.0.key.as_deref(), name == self.0.timestamp.as_deref());
            if is_key || is_timestamp {
                let value: Value = map.next_value()?;
                if is_key && is_timestamp {
                    found.key = Some(value.clone());
                    found.timestamp = Some(value);
                } else if is_key {
                    found.key = Some(value);
                } else {
                    found.timestamp = Some(value);
                }
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

/// A field's name, borrowed where it has no escapes.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] std::borrow::Cow<'a, str>);

#[cfg(test)]
mod tests {
    use super::*;

    fn read(key: Option<&str>, timestamp: Option<&str>, line: &str) -> Result<Batch, String> {
        let mut batch = Batch::new();
        let format = JsonFormat::new(key.map(str::to_owned), timestamp.map(str::to_owned));
        format.append(line.as_bytes(), &mut batch).map(|()| batch)
    }

    #[test]
    fn the_value_is_the_line() {
        for line in ["1", " {\"a\": [1, 2]} ", "null", "\"x\""] {
            assert_eq!(read(None, None, line).unwrap().values().get(0), line.as_bytes());
        }
    }

    #[test]
    fn fields_become_key_and_time() {
        let line = r#"{"\u0061": {"x": 1}, "user": "li", "n": 7, "at": -5}"#;
        let batch = read(Some("user"), Some("at"), line).unwrap();
        assert_eq!((batch.key(0), batch.timestamps()), (Some(&b"li"[..]), &[-5][..]));
        assert_eq!(read(Some("n"), None, line).unwrap().key(0), Some(&b"7"[..]));
        let batch = read(Some("at"), Some("at"), line).unwrap();
        assert_eq!((batch.key(0), batch.timestamps()), (Some(&b"-5"[..]), &[-5][..]));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let problem = |key, timestamp, line| read(key, timestamp, line).unwrap_err();
        assert_eq!(problem(None, None, "{\"a\": 1"), "not valid JSON: EOF while parsing an object at column 7");
        assert!(problem(None, None, "1 2").contains("trailing characters"));
        assert!(problem(Some("a"), None, "{\"a\": 1} x").contains("trailing characters"));
        assert_eq!(problem(Some("a"), None, "[1]"), "must be an object with a field \"a\", but is an array");
        assert_eq!(problem(None, Some("at"), "1"), "must be an object with a field \"at\", but is a number");
        for (key, kind) in [("null", "null"), ("{\"x\": 1}", "an object"), ("[]", "an array")] {
            let expected = format!("field \"a\" is {kind}; a key must be a string, a number or a boolean");
            assert_eq!(read(Some("a"), None, &format!("{{\"a\": {key}}}")).unwrap_err(), expected);
        }
        assert_eq!(problem(Some("a"), None, "{}"), "field \"a\" is missing; every record needs it");
        assert!(problem(None, Some("at"), "{\"at\": 1.5}").contains("whole milliseconds"));
        let mut batch = Batch::new();
        assert!(JsonFormat::new(None, None).append(b"\"\xff\"", &mut batch).unwrap_err().contains("utf-8"));
    }
}
