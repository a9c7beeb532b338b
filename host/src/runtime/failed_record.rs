//! Records on which an operator failed, as people and dead-letter outputs get to see them.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::Serialize;

use crate::id::SubtaskId;
use crate::operator::GuestFault;
use crate::record::Batch;

/// How many bytes of a key or value an error message shows.
const SHOWN_BYTES: usize = 80;

/// Describes a record for an error message.
pub(super) fn describe(batch: &Batch, record: usize) -> String {
    let value = show(batch.values().get(record));
    match batch.key(record) {
        Some(key) => format!("record with key {} and value {value}", show(key)),
        None => format!("record {value}"),
    }
}

/// The text of bytes, in quotes and cut short.
fn show(bytes: &[u8]) -> String {
    let shown = &bytes[..bytes.len().min(SHOWN_BYTES)];
    let more = if bytes.len() > shown.len() { format!("... ({} bytes)", bytes.len()) } else { String::new() };
    format!("\"{}\"{more}", shown.escape_ascii())
}

/// What the dead-letter output holds: one JSON object per record.
#[derive(Debug, Serialize)]
pub(super) struct DeadLetter {
    /// What happened.
    error: String,
    /// The node that failed.
    node: String,
    /// Its subtask.
    subtask: u32,
    /// The record's event time in milliseconds since 1970, if the stream has event time.
    timestamp: Option<i64>,
    /// The record's key in base64, if the stream is keyed.
    key: Option<String>,
    /// The record's value in base64.
    value: String,
}

impl DeadLetter {
    pub(super) fn new(subtask: &SubtaskId, fault: &GuestFault, batch: &Batch, record: usize) -> Self {
        Self {
            error: fault.to_string(),
            node: subtask.node.clone(),
            subtask: subtask.index,
            timestamp: batch.timestamps().get(record).copied(),
            key: batch.key(record).map(|key| BASE64_STANDARD.encode(key)),
            value: BASE64_STANDARD.encode(batch.values().get(record)),
        }
    }

    pub(super) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("strings and numbers always encode")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_described() {
        let mut keyed = Batch::new();
        keyed.push(Some(b"a\xff"), b"one \"two\"", None);
        assert_eq!(describe(&keyed, 0), r#"record with key "a\xff" and value "one \"two\"""#);
        let mut long = Batch::new();
        long.push(None, &[b'x'; 100], None);
        assert_eq!(describe(&long, 0), format!("record \"{}\"... (100 bytes)", "x".repeat(80)));
    }

    #[test]
    fn a_dead_letter_is_json() {
        let mut batch = Batch::new();
        batch.push(Some(b"k"), b"v\x00", Some(7));
        let subtask = SubtaskId { node: "parse".into(), index: 1 };
        let letter = DeadLetter::new(&subtask, &GuestFault::StackOverflow, &batch, 0).to_json();
        let expected = r#"{"error":"the operator overflowed its stack","node":"parse","subtask":1,"timestamp":7,"key":"aw==","value":"dgA="}"#;
        assert_eq!(letter, expected);
    }
}
