//! What the bytes between two record ends become.

use super::csv::CsvFormat;
use super::json::JsonFormat;
use super::settings::{FileSourceSettings, Format};
use crate::record::Batch;

/// The format of one file, with what its header said.
#[derive(Clone, Debug)]
pub(super) enum RecordFormat {
    Lines,
    Csv(CsvFormat),
    Json(JsonFormat),
}

impl RecordFormat {
    pub(super) fn new(settings: &FileSourceSettings) -> Self {
        match settings.format {
            Format::Lines => Self::Lines,
            Format::Csv => Self::Csv(CsvFormat::new(settings)),
            Format::Json => Self::Json(JsonFormat::new(settings.key.clone(), settings.timestamp.clone())),
        }
    }

    /// Whether the first record of a file is a header that has not been read.
    pub(super) fn needs_header(&self) -> bool {
        matches!(self, Self::Csv(csv) if csv.needs_header())
    }

    /// Reads the header.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn read_header(&mut self, record: &[u8]) -> Result<(), String> {
        match self {
            Self::Csv(csv) => csv.read_header(without_mark(record)),
            Self::Lines | Self::Json(_) => unreachable!("only CSV needs a header"),
        }
    }

    /// Appends a record, without its newline but with the carriage return that may stand before it. Empty lines of CSV
    /// and JSON are no records.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn append(&mut self, record: &[u8], first_in_file: bool, batch: &mut Batch) -> Result<(), String> {
        let record = if first_in_file && !matches!(self, Self::Lines) { without_mark(record) } else { record };
        let record = without_return(record);
        match self {
            Self::Lines => batch.push(None, record, None),
            Self::Csv(_) | Self::Json(_) if record.trim_ascii().is_empty() => {}
            Self::Csv(csv) => csv.append(record, batch)?,
            Self::Json(json) => json.append(record, batch)?,
        }
        Ok(())
    }
}

/// A line without the carriage return at its end.
pub(super) fn without_return(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// The start of a file without its byte order mark.
fn without_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes)
}

/// The event time that a field holds.
pub(super) fn event_time(field: &str, text: &str) -> Result<i64, String> {
    text.trim()
        .parse()
        .map_err(|_| format!("field {field:?} must be a time in whole milliseconds since 1970, but is {text:?}"))
}
