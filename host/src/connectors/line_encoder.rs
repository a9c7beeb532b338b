//! Records as lines of text: `value`, or `key`, a separator and `value`, and a newline.
//!
//! Keys and values are written as they are; one that holds a newline makes more than one line.

use super::ConnectorError;
use crate::record::Batch;

/// Turns records into lines.
#[derive(Clone, Debug)]
pub(super) struct LineEncoder {
    /// Stands between key and value; none when keys are not written.
    separator: Option<Vec<u8>>,
}

impl LineEncoder {
    /// An encoder of values, or of keys and values with a separator between them.
    pub(super) fn new(key: bool, separator: &str) -> Self {
        Self { separator: key.then(|| separator.as_bytes().to_vec()) }
    }

    /// Appends the lines of records.
    ///
    /// # Errors
    /// When keys are to be written and the records have none.
    pub(super) fn encode(&self, batch: &Batch, lines: &mut Vec<u8>) -> Result<(), ConnectorError> {
        let Some(separator) = &self.separator else {
            lines.reserve(batch.values().data().len() + batch.len());
            for value in batch.values().iter() {
                lines.extend_from_slice(value);
                lines.push(b'\n');
            }
            return Ok(());
        };
        if !batch.is_empty() && !batch.is_keyed() {
            let problem = "`key = true`, but the records have no keys; remove it, or key the stream".to_owned();
            return Err(ConnectorError::Other(problem));
        }
        for (key, value) in batch.keys().iter().zip(batch.values().iter()) {
            lines.extend_from_slice(key);
            lines.extend_from_slice(separator);
            lines.extend_from_slice(value);
            lines.push(b'\n');
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_written_on_demand() {
        let mut batch = Batch::new();
        batch.push(Some(b"k"), b"\xff", None);
        batch.push(Some(b""), b"", None);
        let lines = |key| {
            let mut lines = Vec::new();
            LineEncoder::new(key, "\t").encode(&batch, &mut lines).map(|()| lines)
        };
        assert_eq!(lines(false).unwrap(), b"\xff\n\n");
        assert_eq!(lines(true).unwrap(), b"k\t\xff\n\t\n");
    }

    #[test]
    fn missing_keys_are_an_error() {
        let mut batch = Batch::new();
        let mut lines = Vec::new();
        LineEncoder::new(true, "\t").encode(&batch, &mut lines).unwrap();
        batch.push(None, b"v", None);
        let error = LineEncoder::new(true, "\t").encode(&batch, &mut lines).unwrap_err();
        assert!(error.to_string().contains("no keys"));
    }
}
