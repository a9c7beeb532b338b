//! Bytes of operators and connectors as text for people and scripts.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

/// What stands before bytes in base64 where there is nothing but text.
const MARKER: &str = "base64:";

/// As JSON: a string, or `{"base64": "..."}` if they are not UTF-8.
pub(super) fn json(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.into(),
        Err(_) => json!({ "base64": BASE64_STANDARD.encode(bytes) }),
    }
}

/// As a field of CSV: the text in quotes where it needs them, or `base64:...` if they are not UTF-8. Text that begins
/// like that itself is in base64 as well, so that what a field means is always certain.
pub(super) fn csv(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.starts_with(MARKER) => {
            let quoted = text.is_empty() || text.contains(['"', ',', '\n', '\r']);
            if quoted { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
        }
        _ => format!("{MARKER}{}", BASE64_STANDARD.encode(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_text_where_they_can_be() {
        assert_eq!(json("grün".as_bytes()), "grün");
        assert_eq!(json(b"\xff\x00"), json!({ "base64": "/wA=" }));
        let fields = [&b"plain"[..], b"", b"a,b", b"say \"no\"", b"\xff\x00", b"base64:x"].map(csv);
        let expected = ["plain", "\"\"", "\"a,b\"", "\"say \"\"no\"\"\"", "base64:/wA=", "base64:YmFzZTY0Ong="];
        assert_eq!(fields, expected);
    }
}
