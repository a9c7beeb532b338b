//! Values of a job file, each with the place it came from.
//!
//! The one tree into which the job file, the host-wide file and `--set` are merged. Decoding reads it and blames places
//! in it; nothing behind this module knows TOML.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use toml::de::{DeTable, DeValue};

use super::error::Problem;

/// A file of configuration.
#[derive(Debug)]
pub(super) struct SourceText {
    /// How the user named it.
    pub(super) path: PathBuf,
    /// What is in it.
    pub(super) text: String,
}

/// Where a value was written.
#[derive(Clone, Debug)]
pub(super) enum Origin {
    /// In a file.
    File {
        /// The file.
        file: Arc<SourceText>,
        /// The bytes of it.
        span: Range<usize>,
    },
    /// On the command line, behind `--set`.
    Set {
        /// The argument.
        argument: Arc<str>,
    },
}

/// Who says something. A later one wins over an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Layer {
    /// The host-wide file.
    Host,
    /// The job file.
    Job,
    /// The command line.
    Set,
}

impl Origin {
    /// The text of the file, if it is one.
    pub(super) fn text(&self) -> &str {
        match self {
            Self::File { file, .. } => &file.text,
            Self::Set { .. } => "",
        }
    }

    /// Who says it, given the job file.
    pub(super) fn layer(&self, job: &Arc<SourceText>) -> Layer {
        match self {
            Self::File { file, .. } if Arc::ptr_eq(file, job) => Layer::Job,
            Self::File { .. } => Layer::Host,
            Self::Set { .. } => Layer::Set,
        }
    }
}

/// A value and where it was written.
#[derive(Clone, Debug)]
pub(super) struct Located {
    /// The value.
    pub(super) value: Value,
    /// Where it was written.
    pub(super) origin: Origin,
}

/// A value.
#[derive(Clone, Debug)]
pub(super) enum Value {
    /// Text.
    String(String),
    /// A whole number.
    Integer(i64),
    /// A number with a point.
    Float(f64),
    /// Yes or no.
    Boolean(bool),
    /// A date or time, as it was written.
    Datetime(String),
    /// Several values.
    Array(Vec<Located>),
    /// Named values.
    Table(Table),
}

/// Named values, in the order in which they were written.
#[derive(Clone, Debug, Default)]
pub(super) struct Table(pub(super) Vec<Entry>);

/// A named value of a table.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// The name.
    pub(super) key: String,
    /// Where the name was written.
    pub(super) key_origin: Origin,
    /// The value.
    pub(super) value: Located,
}

impl Table {
    /// The entry of a name.
    pub(super) fn entry(&self, key: &str) -> Option<&Entry> {
        self.0.iter().find(|entry| entry.key == key)
    }

    /// The entry of a name, to change it.
    pub(super) fn entry_mut(&mut self, key: &str) -> Option<&mut Entry> {
        self.0.iter_mut().find(|entry| entry.key == key)
    }

    /// Adds what `defaults` has and this table has not; tables in both are treated likewise.
    pub(super) fn add_defaults(&mut self, defaults: Self) {
        for default in defaults.0 {
            match self.entry_mut(&default.key) {
                None => self.0.push(default),
                Some(Entry { value: Located { value: Value::Table(own), .. }, .. }) => {
                    if let Value::Table(default) = default.value.value {
                        own.add_defaults(default);
                    }
                }
                Some(_) => {}
            }
        }
    }
}

impl Value {
    /// What kind of value it is, and for short ones which, as in "the string \"x\"".
    pub(super) fn describe(&self) -> String {
        const LONGEST: usize = 60;
        match self {
            Self::String(text) if text.chars().count() > LONGEST => {
                format!("the string {:?}...", text.chars().take(LONGEST).collect::<String>())
            }
            Self::String(text) => format!("the string {text:?}"),
            Self::Integer(number) => format!("the number {number}"),
            Self::Float(number) => format!("the number {number:?}"),
            Self::Boolean(value) => format!("the boolean {value}"),
            Self::Datetime(text) => format!("the date or time {text}"),
            Self::Array(_) => "an array".to_owned(),
            Self::Table(_) => "a table".to_owned(),
        }
    }
}

/// Reads TOML. What is wrong with the text as such is added to `problems`.
pub(super) fn parse(file: &Arc<SourceText>, problems: &mut Vec<Problem>) -> Table {
    let origin = |span| Origin::File { file: Arc::clone(file), span };
    let (table, errors) = DeTable::parse_recoverable(&file.text);
    let mut table_twice = None;
    for error in errors {
        let end = file.text.len();
        let span = error.span().unwrap_or(end..end);
        let message = error.message().lines().next().unwrap_or_default();
        let problem = if message.contains("duplicate key") {
            // All that stands in a table that appears twice may appear twice as well; once is enough to say it.
            if table_twice.is_some_and(|table| !file.text[table..span.start].contains("\n[")) {
                continue;
            }
            if file.text[..span.start].lines().last().is_some_and(|line| line.trim_start().starts_with('[')) {
                table_twice = Some(span.start);
            }
            let message = format!("{} appears twice", &file.text[span.clone()]);
            Problem::new("", message).help("keep one of the two; within a table each name appears once")
        } else if message.contains("must be quoted") || message.contains("invalid boolean") {
            Problem::new("", format!("{} is not a value", file.text[span.clone()].trim()))
                .help("put text in double quotes")
        } else {
            Problem::new("", format!("this is not TOML: {message}"))
        };
        problems.push(problem.at(origin(span)));
    }
    from_table(table.get_ref(), &origin, "", problems)
}

/// Reads one TOML value, as `--set` has it; none if it is not one.
pub(super) fn parse_value(text: &str, origin: &Origin) -> Option<Located> {
    let value = DeValue::parse(text).ok()?;
    let mut problems = Vec::new();
    let value = from_value(value.get_ref(), origin.clone(), &|_| origin.clone(), "", &mut problems);
    problems.is_empty().then_some(value)
}

fn from_table(
    table: &DeTable<'_>,
    origin: &dyn Fn(Range<usize>) -> Origin,
    path: &str,
    problems: &mut Vec<Problem>,
) -> Table {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    let entries = entries.into_iter().map(|(key, value)| {
        let path = join(path, key.get_ref());
        Entry {
            key: key.get_ref().to_string(),
            key_origin: origin(key.span()),
            value: from_value(value.get_ref(), origin(value.span()), origin, &path, problems),
        }
    });
    Table(entries.collect())
}

fn from_value(
    value: &DeValue<'_>,
    at: Origin,
    origin: &dyn Fn(Range<usize>) -> Origin,
    path: &str,
    problems: &mut Vec<Problem>,
) -> Located {
    let value = match value {
        DeValue::String(text) => Value::String(text.to_string()),
        DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => Value::Integer(number),
            Err(_) => {
                let problem = Problem::new(path, format!("{number} is too large a number"));
                problems.push(problem.expected("a number from -2^63 to 2^63-1").at(at.clone()));
                Value::Integer(0)
            }
        },
        DeValue::Float(number) => Value::Float(number.as_str().parse().unwrap_or(f64::NAN)),
        DeValue::Boolean(value) => Value::Boolean(*value),
        DeValue::Datetime(value) => Value::Datetime(value.to_string()),
        DeValue::Array(values) => Value::Array(
            values
                .iter()
                .map(|value| from_value(value.get_ref(), origin(value.span()), origin, path, problems))
                .collect(),
        ),
        DeValue::Table(table) => Value::Table(from_table(table, origin, path, problems)),
    };
    Located { value, origin: at }
}

/// A dotted path with one more name.
pub(super) fn join(path: &str, name: &str) -> String {
    let bare = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let name = if !name.is_empty() && name.bytes().all(bare) { name.to_owned() } else { format!("{name:?}") };
    if path.is_empty() { name } else { format!("{path}.{name}") }
}
