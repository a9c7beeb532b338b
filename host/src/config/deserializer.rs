//! Located values as a source for serde, for tables that belong to others: an error knows the value it is about.

use serde::de::value::StringDeserializer;
use serde::de::{DeserializeSeed, Deserializer, Error, IntoDeserializer, MapAccess, SeqAccess, Unexpected, Visitor};
use serde::forward_to_deserialize_any;

use super::error::Problem;
use super::section::unknown_field;
use super::value::{Entry, Located, Origin, Table, Value};

/// Why a table could not be read. What is not known where the error arises is filled in on its way up.
#[derive(Clone, Debug)]
pub(super) struct TableError {
    message: Box<str>,
    expected: Box<str>,
    kind: Kind,
    /// The names of fields, innermost first.
    path: Vec<String>,
    origin: Option<Box<Origin>>,
}

#[derive(Clone, Debug)]
enum Kind {
    Value,
    UnknownField { name: Box<str>, known: &'static [&'static str] },
    MissingField { name: &'static str },
}

impl TableError {
    /// The mistake, in a table with this path and place, which has fields besides those that were deserialized.
    pub(super) fn problem(self, path: &str, origin: &Origin, others: &[&str]) -> Problem {
        let others = if self.path.len() == 1 { others } else { &[] };
        let path = self.path.iter().rev().fold(path.to_owned(), |path, name| super::value::join(&path, name));
        let problem = match self.kind {
            Kind::Value => Problem::new(path, self.message).expected(self.expected),
            Kind::UnknownField { name, known } => unknown_field(&path, &name, &[known, others].concat()),
            Kind::MissingField { name } => {
                let path = super::value::join(&path, name);
                Problem::new(path, "this field is missing").help(format!("add {name} = ..."))
            }
        };
        problem.at(self.origin.map_or_else(|| origin.clone(), |origin| *origin))
    }

    /// The name of the field of the table itself, if the mistake is that there is no such field.
    pub(super) fn unknown_field(&self) -> Option<&str> {
        match &self.kind {
            Kind::UnknownField { name, .. } if self.path.len() == 1 => Some(name),
            _ => None,
        }
    }

    fn within(mut self, name: &str, origin: &Origin) -> Self {
        self.path.push(name.to_owned());
        self.origin.get_or_insert_with(|| Box::new(origin.clone()));
        self
    }

    fn of_kind(kind: Kind) -> Self {
        Self { message: Box::default(), expected: Box::default(), kind, path: Vec::new(), origin: None }
    }
}

impl std::error::Error for TableError {}

impl std::fmt::Display for TableError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.kind {
            Kind::Value if self.expected.is_empty() => f.write_str(&self.message),
            Kind::Value => write!(f, "{}, expected {}", self.message, self.expected),
            Kind::UnknownField { name, .. } => write!(f, "unknown field {name}"),
            Kind::MissingField { name } => write!(f, "missing field {name}"),
        }
    }
}

impl Error for TableError {
    fn custom<T: std::fmt::Display>(message: T) -> Self {
        // Messages of values with units name what was expected behind "; expected".
        let message = message.to_string();
        let (message, expected) = message.split_once("; expected ").unwrap_or((&message, ""));
        Self { message: message.into(), expected: expected.into(), ..Self::of_kind(Kind::Value) }
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn serde::de::Expected) -> Self {
        // `path string` is what the standard library's paths call themselves.
        let expected = expected.to_string().replace("path string", "a path, as a string");
        let message = format!("found {}", describe(found));
        Self { message: message.into(), expected: expected.into(), ..Self::of_kind(Kind::Value) }
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn serde::de::Expected) -> Self {
        Self::invalid_type(found, expected)
    }

    fn unknown_variant(variant: &str, known: &'static [&'static str]) -> Self {
        let known: Vec<String> = known.iter().map(|name| format!("{name:?}")).collect();
        let (message, expected) = (format!("found the string {variant:?}"), format!("one of {}", known.join(", ")));
        Self { message: message.into(), expected: expected.into(), ..Self::of_kind(Kind::Value) }
    }

    fn unknown_field(name: &str, known: &'static [&'static str]) -> Self {
        Self::of_kind(Kind::UnknownField { name: name.into(), known })
    }

    fn missing_field(name: &'static str) -> Self {
        Self::of_kind(Kind::MissingField { name })
    }
}

fn describe(found: Unexpected<'_>) -> String {
    match found {
        Unexpected::Bool(value) => Value::Boolean(value).describe(),
        Unexpected::Unsigned(number) => format!("the number {number}"),
        Unexpected::Signed(number) => Value::Integer(number).describe(),
        Unexpected::Float(number) => Value::Float(number).describe(),
        Unexpected::Str(text) => Value::String(text.to_owned()).describe(),
        Unexpected::Map => "a table".to_owned(),
        Unexpected::Seq => "an array".to_owned(),
        other => other.to_string(),
    }
}

/// Reads a located value.
pub(super) struct ValueDeserializer<'a>(pub(super) &'a Value);

/// Reads a table.
pub(super) struct TableDeserializer<'a>(pub(super) &'a Table);

impl<'de> Deserializer<'de> for ValueDeserializer<'de> {
    type Error = TableError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TableError> {
        match self.0 {
            Value::String(text) | Value::Datetime(text) => visitor.visit_borrowed_str(text),
            Value::Integer(number) => visitor.visit_i64(*number),
            Value::Float(number) => visitor.visit_f64(*number),
            Value::Boolean(value) => visitor.visit_bool(*value),
            Value::Array(values) => visitor.visit_seq(Items(values.iter())),
            Value::Table(table) => TableDeserializer(table).deserialize_any(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TableError> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, TableError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, TableError> {
        match self.0 {
            Value::String(text) => visitor.visit_enum(text.as_str().into_deserializer()),
            Value::Table(table) => TableDeserializer(table).deserialize_enum(name, variants, visitor),
            other => Err(Error::custom(format!("found {}; expected a string", other.describe()))),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

impl<'de> Deserializer<'de> for TableDeserializer<'de> {
    type Error = TableError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TableError> {
        visitor.visit_map(Fields { entries: self.0.0.iter(), at: None })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, TableError> {
        serde::de::value::MapAccessDeserializer::new(Fields { entries: self.0.0.iter(), at: None })
            .deserialize_enum(name, variants, visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

struct Items<'a>(std::slice::Iter<'a, Located>);

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = TableError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, TableError> {
        let Some(item) = self.0.next() else { return Ok(None) };
        let located = |mut error: TableError| {
            error.origin.get_or_insert_with(|| Box::new(item.origin.clone()));
            error
        };
        seed.deserialize(ValueDeserializer(&item.value)).map(Some).map_err(located)
    }
}

struct Fields<'a> {
    entries: std::slice::Iter<'a, Entry>,
    /// The entry whose name was read.
    at: Option<&'a Entry>,
}

impl<'de> MapAccess<'de> for Fields<'de> {
    type Error = TableError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, TableError> {
        self.at = self.entries.next();
        let Some(entry) = self.at else { return Ok(None) };
        let key: StringDeserializer<TableError> = entry.key.clone().into_deserializer();
        seed.deserialize(key).map(Some).map_err(|error| error.within(&entry.key, &entry.key_origin))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, TableError> {
        let entry = self.at.take().expect("serde asks for a name before its value");
        let located = |error: TableError| error.within(&entry.key, &entry.value.origin);
        seed.deserialize(ValueDeserializer(&entry.value.value)).map_err(located)
    }
}
