//! Records of comma-separated values.

use csv_core::{ReadRecordResult, Reader, ReaderBuilder, Terminator};
use memchr::memchr;

use super::format::{event_time, without_return};
use super::framer::Framer;
use super::settings::FileSourceSettings;
use crate::record::Batch;

/// How a CSV record becomes a record.
#[derive(Clone, Debug)]
pub(super) struct CsvFormat {
    delimiter: u8,
    /// Whether the first record names the columns.
    has_header: bool,
    key: Option<String>,
    timestamp: Option<String>,
    /// What each column's name looks like in the value: `"name":`. Empty without a header.
    labels: Vec<String>,
    key_column: Option<usize>,
    timestamp_column: Option<usize>,
    /// The number of columns, once known: every record has as many.
    columns: Option<usize>,
    fields: Fields,
    value: String,
}

/// The fields of one record, end to end.
#[derive(Debug)]
struct Fields {
    delimiter: u8,
    /// Made once: its tables take longer to make than many records to read.
    reader: Box<Reader>,
    bytes: Vec<u8>,
    ends: Vec<usize>,
    len: usize,
}

impl CsvFormat {
    pub(super) fn new(settings: &FileSourceSettings) -> Self {
        let has_header = settings.header.unwrap_or(false);
        // Without a header, columns go by number; the settings have been checked.
        let number =
            |name: &Option<String>| name.as_ref().filter(|_| !has_header)?.parse().ok().map(|at: usize| at - 1);
        Self {
            delimiter: settings.delimiter(),
            has_header,
            key_column: number(&settings.key),
            timestamp_column: number(&settings.timestamp),
            key: settings.key.clone(),
            timestamp: settings.timestamp.clone(),
            labels: Vec::new(),
            columns: None,
            fields: Fields::new(settings.delimiter()),
            value: String::new(),
        }
    }

    pub(super) fn needs_header(&self) -> bool {
        self.has_header && self.labels.is_empty()
    }

    pub(super) fn read_header(&mut self, record: &[u8]) -> Result<(), String> {
        let record = without_return(record);
        check_quotes(self.delimiter, record)?;
        self.fields.read(record);
        let names = self.fields.texts()?;
        if names.is_empty() {
            return Err("the header is empty; it must name the columns".to_owned());
        }
        let find = |field: &str, name: &Option<String>| match name {
            None => Ok(None),
            Some(name) => names.iter().position(|column| column == name).map(Some).ok_or_else(|| {
                format!("the header has no column {name:?}, which is to be the {field}; it has {}", names.join(", "))
            }),
        };
        let (key, timestamp) = (find("key", &self.key)?, find("timestamp", &self.timestamp)?);
        if let Some(twice) = names.iter().enumerate().find(|(at, name)| names[..*at].contains(name)) {
            return Err(format!("the header has two columns {:?}", twice.1));
        }
        self.labels = names.iter().map(|name| quoted(name) + ":").collect();
        (self.key_column, self.timestamp_column) = (key, timestamp);
        self.columns = Some(names.len());
        Ok(())
    }

    pub(super) fn append(&mut self, record: &[u8], batch: &mut Batch) -> Result<(), String> {
        check_quotes(self.delimiter, record)?;
        self.fields.read(record);
        let fields = self.fields.texts()?;
        if let Some(columns) = self.columns.filter(|columns| *columns != fields.len()) {
            let where_from = if self.has_header { "the header" } else { "the first record read" };
            return Err(format!("the record has {}, but {where_from} has {columns}", count(fields.len())));
        }
        let column = |at: usize| {
            fields
                .get(at)
                .copied()
                .ok_or_else(|| format!("there is no column {}; the record has {}", at + 1, count(fields.len())))
        };
        let key = self.key_column.map(column).transpose()?;
        let timestamp = match self.timestamp_column {
            Some(at) => Some(event_time(self.timestamp.as_deref().unwrap_or_default(), column(at)?)?),
            None => None,
        };
        let (open, close) = if self.has_header { ('{', '}') } else { ('[', ']') };
        self.value.clear();
        self.value.push(open);
        for (at, field) in fields.iter().enumerate() {
            if at > 0 {
                self.value.push(',');
            }
            if let Some(label) = self.labels.get(at) {
                self.value.push_str(label);
            }
            push_quoted(&mut self.value, field);
        }
        self.value.push(close);
        batch.push(key.map(str::as_bytes), self.value.as_bytes(), timestamp);
        self.columns = Some(fields.len());
        Ok(())
    }
}

impl Clone for Fields {
    fn clone(&self) -> Self {
        // A copy of a reader lacks some of its tables (csv-core 0.1.13).
        Self::new(self.delimiter)
    }
}

impl Fields {
    fn new(delimiter: u8) -> Self {
        // The record ends where it ends: newlines left in it are within quotes, and returns are bytes like others.
        let reader = ReaderBuilder::new().delimiter(delimiter).terminator(Terminator::Any(b'\n')).build();
        Self { delimiter, reader: Box::new(reader), bytes: Vec::new(), ends: Vec::new(), len: 0 }
    }

    fn read(&mut self, record: &[u8]) {
        self.reader.reset();
        self.bytes.resize(self.bytes.len().max(record.len()), 0);
        self.ends.resize(self.ends.len().max(16), 0);
        let (mut from, mut bytes, mut ends) = (0, 0, 0);
        loop {
            let (outcome, read, wrote, ended) =
                self.reader.read_record(&record[from..], &mut self.bytes[bytes..], &mut self.ends[ends..]);
            from += read;
            bytes += wrote;
            ends += ended;
            match outcome {
                // Nothing left to read is how the reader is told that the record ends.
                ReadRecordResult::InputEmpty => {}
                // Unquoting only shortens, but the reader asks for room before it knows.
                ReadRecordResult::OutputFull => self.bytes.resize(self.bytes.len() + 16, 0),
                ReadRecordResult::OutputEndsFull => self.ends.resize(self.ends.len() * 2, 0),
                ReadRecordResult::Record | ReadRecordResult::End => break,
            }
        }
        self.len = ends;
    }

    fn texts(&self) -> Result<Vec<&str>, String> {
        let mut start = 0;
        let field = |(at, end): (usize, &usize)| {
            let bytes = &self.bytes[start..*end];
            start = *end;
            std::str::from_utf8(bytes).map_err(|_| {
                format!("field {} is not valid UTF-8; convert the file, or use `format = \"lines\"`", at + 1)
            })
        };
        self.ends[..self.len].iter().enumerate().map(field).collect()
    }
}

/// Refuses a record that ends within quotes: what should have been the records behind it would be a part of its last field.
fn check_quotes(delimiter: u8, record: &[u8]) -> Result<(), String> {
    if memchr(b'"', record).is_none() || Framer::csv(delimiter).is_closed_behind(record) {
        return Ok(());
    }
    Err("a quote is opened in this record and never closed; close it, or double it if it is meant".to_owned())
}

fn count(fields: usize) -> String {
    if fields == 1 { "1 field".to_owned() } else { format!("{fields} fields") }
}

/// A text as a JSON string.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    push_quoted(&mut quoted, text);
    quoted
}

fn push_quoted(json: &mut String, text: &str) {
    let plain = text.bytes().all(|byte| byte >= 0x20 && byte != b'"' && byte != b'\\');
    if plain {
        json.push('"');
        json.push_str(text);
        json.push('"');
    } else {
        json.push_str(&serde_json::Value::from(text).to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    fn format(table: &str) -> CsvFormat {
        let table: toml::Table = format!("path = \"x\"\nformat = \"csv\"\n{table}").parse().unwrap();
        CsvFormat::new(&FileSourceSettings::deserialize(table).unwrap())
    }

    fn read(format: &mut CsvFormat, record: &str) -> Result<(Option<String>, String), String> {
        let mut batch = Batch::new();
        format.append(record.as_bytes(), &mut batch)?;
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        Ok((batch.key(0).map(text), text(batch.values().get(0))))
    }

    #[test]
    fn without_a_header_the_value_is_an_array() {
        let mut format = format("key = \"2\"");
        let (key, value) = read(&mut format, "a,\"b \"\"c\"\"\nd\",").unwrap();
        assert_eq!(key.unwrap(), "b \"c\"\nd");
        assert_eq!(value, r#"["a","b \"c\"\nd",""]"#);
        let error = read(&mut format, "a,b").unwrap_err();
        assert_eq!(error, "the record has 2 fields, but the first record read has 3");
        let error = read(&mut self::format("key = \"2\""), "a").unwrap_err();
        assert_eq!(error, "there is no column 2; the record has 1 field");
    }

    #[test]
    fn with_a_header_the_value_is_an_object() {
        let mut format = format("header = true\nkey = \"id\"\ndelimiter = \";\"");
        format.read_header(b"id;na\\me\r").unwrap();
        let (key, value) = read(&mut format, "7;x,y").unwrap();
        assert_eq!((key.as_deref(), value.as_str()), (Some("7"), r#"{"id":"7","na\\me":"x,y"}"#));
        assert_eq!(read(&mut format, "7").unwrap_err(), "the record has 1 field, but the header has 2");
    }

    #[test]
    fn headers_must_name_what_is_needed_once() {
        let problem = |header: &str| format("header = true\nkey = \"id\"").read_header(header.as_bytes()).unwrap_err();
        assert_eq!(problem("a,b"), "the header has no column \"id\", which is to be the key; it has a, b");
        assert_eq!(problem("id,id"), "the header has two columns \"id\"");
        assert!(problem("").contains("empty"));
    }

    #[test]
    fn wide_records_and_bytes_that_are_no_text() {
        let wide = vec!["x"; 100].join(",");
        let (_, value) = read(&mut format(""), &wide).unwrap();
        assert_eq!(serde_json::from_str::<Vec<String>>(&value).unwrap(), vec!["x"; 100]);
        let mut batch = Batch::new();
        assert!(format("").append(b"a,\xff", &mut batch).unwrap_err().starts_with("field 2 is not valid UTF-8"));
        assert!(format("timestamp = \"1\"").append(b"soon", &mut batch).unwrap_err().contains("whole milliseconds"));
    }

    #[test]
    fn quotes_must_be_closed() {
        for open in ["\"", "a,\"b", "a,\"b\nc", "\"a\"\"", "\"a\",\""] {
            let error = read(&mut format(""), open).unwrap_err();
            assert!(error.starts_with("a quote is opened in this record and never closed"), "{open}: {error}");
            assert!(format("header = true").read_header(open.as_bytes()).unwrap_err().starts_with("a quote is opened"));
        }
        for closed in ["\"\"", "a\"b", "\"a\"\"b\"", "\"a\"b", "a,b\""] {
            read(&mut format(""), closed).expect(closed);
        }
    }
}
