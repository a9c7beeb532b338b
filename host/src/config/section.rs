//! Reading a table field by field, so that all its mistakes are found and not only the first.

use std::str::FromStr;
use std::time::Duration;

use super::error::Problem;
use super::units::{ByteSize, HumanDuration, UnitError};
use super::value::{Located, Origin, Table, Value, join};
use crate::closest::closest;
use crate::protocol::key_group::LARGEST_MAX_PARALLELISM;

/// A table that is being read. Fields that nobody asked for are unknown.
pub(super) struct Section<'a> {
    path: String,
    table: &'a Table,
    /// Where the table was written, to blame for what it lacks.
    origin: Origin,
    known: Vec<&'static str>,
    problems: Vec<Problem>,
}

/// What a field can be read as.
pub(super) trait Field: Sized {
    /// Reads it, or says what is wrong and what was expected.
    fn read(value: &Value) -> Result<Self, Wrong>;
}

/// Why a value is not what a field needs.
pub(super) struct Wrong {
    message: String,
    expected: String,
}

impl Wrong {
    /// A value of a wrong type or outside its range.
    pub(super) fn found(value: &Value, expected: impl Into<String>) -> Self {
        Self { message: format!("found {}", value.describe()), expected: expected.into() }
    }

    /// A value that would be right in another version of the program.
    pub(super) fn refused(message: impl Into<String>, expected: impl Into<String>) -> Self {
        Self { message: message.into(), expected: expected.into() }
    }

    /// The mistake, about a field.
    pub(super) fn problem(self, path: &str) -> Problem {
        Problem::new(path, self.message).expected(self.expected)
    }
}

impl<'a> Section<'a> {
    /// Begins to read a table.
    pub(super) fn new(path: impl Into<String>, table: &'a Table, origin: Origin) -> Self {
        Self { path: path.into(), table, origin, known: Vec::new(), problems: Vec::new() }
    }

    /// The dotted path of a field.
    pub(super) fn path_of(&self, name: &str) -> String {
        join(&self.path, name)
    }

    /// The dotted path of the table.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// Where the table was written.
    pub(super) fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The fields that were asked for.
    pub(super) fn known(&self) -> &[&'static str] {
        &self.known
    }

    /// Where the value of a field was written, if it was.
    pub(super) fn origin_of(&self, name: &str) -> Option<Origin> {
        self.table.entry(name).map(|entry| entry.value.origin.clone())
    }

    /// A field as it was written, for those who do not read it themselves.
    pub(super) fn peek(&self, name: &str) -> Option<&'a Located> {
        self.table.entry(name).map(|entry| &entry.value)
    }

    /// A field as it was written.
    pub(super) fn raw(&mut self, name: &'static str) -> Option<&'a Located> {
        self.known.push(name);
        self.table.entry(name).map(|entry| &entry.value)
    }

    /// A field that may be left out.
    pub(super) fn optional<T: Field>(&mut self, name: &'static str) -> Option<T> {
        let located = self.raw(name)?;
        match T::read(&located.value) {
            Ok(value) => Some(value),
            Err(wrong) => {
                let problem = wrong.problem(&self.path_of(name)).at(located.origin.clone());
                self.problems.push(problem);
                None
            }
        }
    }

    /// A field that must be there, with an example of it.
    pub(super) fn required<T: Field>(&mut self, name: &'static str, example: &str) -> Option<T> {
        self.require(name, example);
        self.optional(name)
    }

    /// Blames the table if it lacks a field, which is yet to be read, with an example of it.
    pub(super) fn require(&mut self, name: &'static str, example: &str) {
        if self.table.entry(name).is_none() {
            self.missing(name, example);
        }
    }

    /// Blames the table for a field that it lacks.
    pub(super) fn missing(&mut self, name: &'static str, example: &str) {
        self.known.push(name);
        let problem = Problem::new(self.path_of(name), "this field is missing").help(format!("add {example}"));
        self.problems.push(problem.at(self.origin.clone()));
    }

    /// A table that may be left out.
    pub(super) fn table(&mut self, name: &'static str) -> Option<Section<'a>> {
        let located = self.raw(name)?;
        let path = self.path_of(name);
        match &located.value {
            Value::Table(table) => Some(Section::new(path, table, located.origin.clone())),
            other => {
                let wrong = Wrong::found(other, "a table").problem(&path);
                self.problems.push(wrong.at(located.origin.clone()));
                None
            }
        }
    }

    /// Adds a problem.
    pub(super) fn report(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    /// Ends reading: every field that nobody asked for is unknown.
    pub(super) fn finish(self, problems: &mut Vec<Problem>) {
        self.finish_hiding(&[], problems);
    }

    /// Ends reading; `hidden` fields were asked for only to refuse them and are not suggested.
    pub(super) fn finish_hiding(mut self, hidden: &[&str], problems: &mut Vec<Problem>) {
        let shown: Vec<&str> = self.known.iter().copied().filter(|name| !hidden.contains(name)).collect();
        for entry in &self.table.0 {
            let key = entry.key.as_str();
            if self.known.contains(&key) {
                continue;
            }
            let problem = unknown_field(&self.path_of(key), key, &shown);
            self.problems.push(problem.at(entry.key_origin.clone()));
        }
        problems.append(&mut self.problems);
    }

    /// Ends reading where unknown fields are somebody else's.
    pub(super) fn finish_leaving_rest(mut self, problems: &mut Vec<Problem>) -> Table {
        problems.append(&mut self.problems);
        let rest = self.table.0.iter().filter(|entry| !self.known.contains(&entry.key.as_str()));
        Table(rest.cloned().collect())
    }
}

/// The mistake of a field that does not exist.
pub(super) fn unknown_field(path: &str, name: &str, known: &[&str]) -> Problem {
    let problem = Problem::new(path, "unknown field");
    match closest(name, known.iter().copied()) {
        Some(guess) => problem.help(format!("did you mean {guess}?")),
        None if known.is_empty() => problem.help("no fields are expected here"),
        None => problem.help(format!("the fields are {}", known.join(", "))),
    }
}

impl Field for String {
    fn read(value: &Value) -> Result<Self, Wrong> {
        match value {
            Value::String(text) => Ok(text.clone()),
            other => Err(Wrong::found(other, "a string")),
        }
    }
}

impl Field for bool {
    fn read(value: &Value) -> Result<Self, Wrong> {
        match value {
            Value::Boolean(value) => Ok(*value),
            other => Err(Wrong::found(other, "true or false")),
        }
    }
}

impl Field for u32 {
    fn read(value: &Value) -> Result<Self, Wrong> {
        let number = match value {
            Value::Integer(number) => Self::try_from(*number).ok(),
            _ => None,
        };
        let expected = || format!("a whole number from 1 to {}", Self::MAX);
        number.filter(|number| *number > 0).ok_or_else(|| Wrong::found(value, expected()))
    }
}

impl Field for ByteSize {
    fn read(value: &Value) -> Result<Self, Wrong> {
        unit(value, "size", Self::EXPECTED)
    }
}

impl Field for HumanDuration {
    fn read(value: &Value) -> Result<Self, Wrong> {
        unit(value, "duration", Self::EXPECTED)
    }
}

/// A size that is not 0.
pub(super) struct Positive(pub(super) ByteSize);

impl Field for Positive {
    fn read(value: &Value) -> Result<Self, Wrong> {
        let size = ByteSize::read(value)?;
        if size.0 == 0 { Err(Wrong::found(value, "more than 0 bytes")) } else { Ok(Self(size)) }
    }
}

/// A duration that is not 0.
pub(super) struct PositiveDuration(pub(super) Duration);

impl Field for PositiveDuration {
    fn read(value: &Value) -> Result<Self, Wrong> {
        let duration = HumanDuration::read(value)?.0;
        if duration.is_zero() { Err(Wrong::found(value, "more than 0")) } else { Ok(Self(duration)) }
    }
}

/// A number of key groups or of subtasks, which are never more.
pub(super) struct Parallelism(pub(super) u32);

impl Field for Parallelism {
    fn read(value: &Value) -> Result<Self, Wrong> {
        let number = u32::read(value).ok().filter(|number| *number <= LARGEST_MAX_PARALLELISM);
        let expected = || format!("a whole number from 1 to {LARGEST_MAX_PARALLELISM}");
        number.map(Self).ok_or_else(|| Wrong::found(value, expected()))
    }
}

fn unit<T: FromStr<Err = UnitError>>(value: &Value, what: &str, expected: &str) -> Result<T, Wrong> {
    let Value::String(text) = value else {
        return Err(Wrong::found(value, expected));
    };
    let wrong = |error| Wrong { message: format!("{text:?} is not a {what}: {error}"), expected: expected.to_owned() };
    text.parse().map_err(wrong)
}

/// One of a few words.
pub(super) fn word<T: Copy>(value: &Value, words: &[(&str, T)]) -> Result<T, Wrong> {
    let known = || {
        let quoted: Vec<String> = words.iter().map(|(name, _)| format!("{name:?}")).collect();
        format!("one of {}", quoted.join(", "))
    };
    match value {
        Value::String(text) => words.iter().find(|(name, _)| name == text).map(|(_, word)| *word),
        _ => None,
    }
    .ok_or_else(|| Wrong::found(value, known()))
}
