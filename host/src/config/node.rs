//! The tables of nodes: sources, operators and sinks.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::deserializer::{TableDeserializer, TableError};
use super::error::Problem;
use super::section::{Field, Parallelism, Positive, PositiveDuration, Section, Wrong, word};
use super::value::{Located, Origin, Table, Value, join};
use crate::api::graph_check::{NodeShape, ShapeKind};
use crate::api::{InputSpec, Partition};
use crate::closest::closest;
use crate::connectors::registry::{self, BuildError};
use crate::connectors::{Sink, Source};
use crate::operator::{Limits, OnError};

/// A node of the job file.
pub(super) struct NodeTable {
    pub(super) section: &'static str,
    pub(super) name: String,
    pub(super) parallelism: u32,
    pub(super) chain: bool,
    pub(super) inputs: Vec<InputSpec>,
    /// The connector of a source or sink.
    pub(super) connector: Option<String>,
    pub(super) kind: NodeTableKind,
    pub(super) places: Places,
}

/// Where the parts of a node were written.
pub(super) struct Places {
    pub(super) name: Origin,
    /// None if the node has the job's parallelism.
    pub(super) parallelism: Option<Origin>,
    /// The field as a whole.
    pub(super) input: Option<Origin>,
    pub(super) inputs: Vec<InputPlace>,
}

/// Where an input was written.
pub(super) struct InputPlace {
    /// The dotted path of the input.
    pub(super) path: String,
    /// The path of what it reads from.
    pub(super) from_path: String,
    pub(super) from: Origin,
    /// None if it was not written.
    pub(super) partition: Option<Origin>,
}

/// What a node of the job file does.
pub(super) enum NodeTableKind {
    /// None if its table is wrong.
    Source(Option<Arc<dyn Source>>),
    Operator(OperatorTable),
    /// None if its table is wrong.
    Sink(Option<Arc<dyn Sink>>),
}

/// An operator of the job file.
pub(super) struct OperatorTable {
    pub(super) component: PathBuf,
    pub(super) component_origin: Origin,
    pub(super) config: serde_json::Value,
    pub(super) limits: Limits,
    pub(super) on_error: OnError,
}

impl std::fmt::Debug for NodeTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeTable").field("section", &self.section).field("name", &self.name).finish_non_exhaustive()
    }
}

impl NodeTable {
    /// The dotted path of the node.
    pub(super) fn path(&self) -> String {
        join(self.section, &self.name)
    }

    /// What can be checked before components are compiled.
    pub(super) fn shape(&self) -> NodeShape<'_> {
        let kind = match &self.kind {
            NodeTableKind::Source(source) => {
                ShapeKind::Source { keyed: source.as_ref().map(|source| source.shape().keyed) }
            }
            NodeTableKind::Operator(operator) => ShapeKind::Operator { descriptor: None, on_error: operator.on_error },
            NodeTableKind::Sink(_) => ShapeKind::Sink,
        };
        NodeShape { name: &self.name, parallelism: self.parallelism, kind, inputs: &self.inputs }
    }
}

/// The reading of all nodes.
pub(super) struct Reading<'a> {
    base_dir: &'a Path,
    parallelism: u32,
    pub(super) nodes: Vec<NodeTable>,
    /// Whether a node, an input or a parallelism could not be read, so that the graph is not what its author meant.
    pub(super) gaps: bool,
}

impl<'a> Reading<'a> {
    /// Nothing has been read yet. Paths begin at `base_dir`; a node has `parallelism` unless it says otherwise.
    pub(super) fn new(base_dir: &'a Path, parallelism: u32) -> Self {
        Self { base_dir, parallelism, nodes: Vec::new(), gaps: false }
    }

    /// Reads the nodes of one section.
    pub(super) fn read_section(&mut self, section: &'static str, nodes: Section<'_>, problems: &mut Vec<Problem>) {
        for entry in &nodes.finish_leaving_rest(problems).0 {
            let path = join(section, &entry.key);
            let Value::Table(table) = &entry.value.value else {
                self.gaps = true;
                let wrong = Wrong::found(&entry.value.value, "a table").problem(&path);
                problems.push(wrong.help(format!("write [{path}]")).at(entry.value.origin.clone()));
                continue;
            };
            let fields = Section::new(path, table, entry.key_origin.clone());
            self.read_node(section, &entry.key, &entry.key_origin, fields, problems);
        }
    }

    fn read_node(
        &mut self,
        section: &'static str,
        name: &str,
        origin: &Origin,
        mut fields: Section<'_>,
        problems: &mut Vec<Problem>,
    ) {
        let parallelism_origin = fields.origin_of("parallelism");
        let parallelism = fields.optional::<Parallelism>("parallelism").map(|parallelism| parallelism.0);
        self.gaps |= parallelism_origin.is_some() && parallelism.is_none();
        let (mut inputs, mut places, mut input, mut chain) = (Vec::new(), Vec::new(), None, None);
        if section != "sources" {
            input = fields.origin_of("input");
            (inputs, places) = self.read_inputs(&mut fields);
            chain = fields.optional("chain");
        }
        let connector = match fields.peek("connector") {
            Some(Located { value: Value::String(connector), .. }) if section != "operators" => Some(connector.clone()),
            _ => None,
        };
        let kind = match section {
            "sources" => {
                NodeTableKind::Source(read_connector(fields, origin, self.base_dir, problems, |name, table, base| {
                    registry::source(name, table, base)
                }))
            }
            "sinks" => {
                NodeTableKind::Sink(read_connector(fields, origin, self.base_dir, problems, |name, table, base| {
                    registry::sink(name, table, base)
                }))
            }
            _ => NodeTableKind::Operator(self.read_operator(fields, origin, problems)),
        };
        self.nodes.push(NodeTable {
            section,
            name: name.to_owned(),
            parallelism: parallelism.unwrap_or(self.parallelism),
            chain: chain.unwrap_or(true),
            inputs,
            connector,
            kind,
            places: Places { name: origin.clone(), parallelism: parallelism_origin, input, inputs: places },
        });
    }

    fn read_inputs(&mut self, fields: &mut Section<'_>) -> (Vec<InputSpec>, Vec<InputPlace>) {
        let path = fields.path_of("input");
        let Some(located) = fields.raw("input") else { return (Vec::new(), Vec::new()) };
        let written: Vec<(String, &Located)> = match &located.value {
            Value::Array(values) => {
                (0..).zip(values).map(|(index, value)| (format!("{path}[{index}]"), value)).collect()
            }
            _ => vec![(path, located)],
        };
        let mut problems = Vec::new();
        let read = written.into_iter().filter_map(|(path, located)| read_input(path, located, &mut problems)).unzip();
        self.gaps |= !problems.is_empty();
        problems.into_iter().for_each(|problem| fields.report(problem));
        read
    }

    fn read_operator(&self, mut fields: Section<'_>, origin: &Origin, problems: &mut Vec<Problem>) -> OperatorTable {
        let component_origin = fields.origin_of("component").unwrap_or_else(|| origin.clone());
        let component = fields.required::<String>("component", "component = \"the path of a .wasm file\"");
        let component = component.map(|path| self.base_dir.join(path)).unwrap_or_default();
        if !component.as_os_str().is_empty() && !component.is_file() {
            let what = if component.is_dir() { "is a directory" } else { "does not exist" };
            let problem = Problem::new(fields.path_of("component"), format!("{} {what}", component.display()))
                .expected("the component of an operator, a .wasm file")
                .help("build it first, or correct the path: it is relative to the directory of the job file");
            fields.report(problem.at(component_origin.clone()));
        }
        let on_error = fields.optional("on-error").unwrap_or_default();
        let limits = fields.table("limits").map(|limits| read_limits(limits, problems)).unwrap_or_default();
        let mut config = serde_json::Value::Object(serde_json::Map::new());
        if let Some(located) = fields.raw("config") {
            let path = fields.path_of("config");
            if !matches!(located.value, Value::Table(_)) {
                fields.report(Wrong::found(&located.value, "a table").problem(&path).at(located.origin.clone()));
            }
            let mut wrong = Vec::new();
            config = to_json(located, &path, &mut wrong);
            wrong.into_iter().for_each(|problem| fields.report(problem));
        }
        fields.finish(problems);
        OperatorTable { component, component_origin, config, limits, on_error }
    }
}

/// Reads a table with a connector's own fields.
fn read_connector<T: ?Sized>(
    mut fields: Section<'_>,
    origin: &Origin,
    base_dir: &Path,
    problems: &mut Vec<Problem>,
    build: impl Fn(&str, TableDeserializer<'_>, &Path) -> Result<Arc<T>, BuildError<TableError>>,
) -> Option<Arc<T>> {
    let connector_origin = fields.origin_of("connector").unwrap_or_else(|| origin.clone());
    let connector = fields.required::<String>("connector", "connector = \"file\" or the name of another connector");
    let (path, common) = (fields.path().to_owned(), fields.known().to_vec());
    let mut settings = fields.finish_leaving_rest(problems);
    let connector = connector?;
    let place_of = |settings: &Table, field: &str| settings.entry(field).map(|entry| entry.value.origin.clone());
    // A field that does not exist is taken out and the rest tried again, so that all of them are found.
    loop {
        match build(&connector, TableDeserializer(&settings), base_dir) {
            Ok(built) => return Some(built),
            Err(BuildError::Unknown { name, known }) => {
                let known_names = known.join(", ");
                let help = closest(&name, known.iter().copied()).map(|guess| format!("did you mean {guess:?}?"));
                let problem = Problem::new(join(&path, "connector"), format!("there is no connector {name:?} here"))
                    .expected(format!("one of {known_names}"))
                    .help(help.unwrap_or_else(|| "use one of them".to_owned()));
                problems.push(problem.at(connector_origin));
                return None;
            }
            Err(BuildError::Malformed(error)) => {
                let unknown = error.unknown_field().map(str::to_owned);
                problems.push(error.problem(&path, origin, &common));
                let before = settings.0.len();
                settings.0.retain(|entry| Some(&entry.key) != unknown.as_ref());
                if settings.0.len() == before {
                    return None;
                }
            }
            Err(BuildError::Setting(error)) => {
                let place = place_of(&settings, error.field).unwrap_or_else(|| origin.clone());
                problems.push(Problem::new(join(&path, error.field), error.problem).at(place));
                return None;
            }
        }
    }
}

fn read_input(path: String, located: &Located, problems: &mut Vec<Problem>) -> Option<(InputSpec, InputPlace)> {
    match &located.value {
        Value::String(from) => {
            let place = InputPlace { from_path: path.clone(), path, from: located.origin.clone(), partition: None };
            Some((InputSpec { from: from.clone(), partition: None }, place))
        }
        Value::Table(table) => {
            let mut fields = Section::new(path.clone(), table, located.origin.clone());
            let before = problems.len();
            let from_origin = fields.origin_of("from").unwrap_or_else(|| located.origin.clone());
            let from = fields.required::<String>("from", "from = \"the name of a node\"");
            let partition_origin = fields.origin_of("partition");
            let partition = fields.optional("partition");
            let from_path = fields.path_of("from");
            fields.finish(problems);
            let place = InputPlace { from_path, path, from: from_origin, partition: partition_origin };
            let from = from.filter(|_| problems.len() == before)?;
            Some((InputSpec { from, partition }, place))
        }
        other => {
            let expected =
                "the name of a node, a table such as { from = \"lines\", partition = \"hash\" }, or an array of them";
            problems.push(Wrong::found(other, expected).problem(&path).at(located.origin.clone()));
            None
        }
    }
}

fn read_limits(mut fields: Section<'_>, problems: &mut Vec<Problem>) -> Limits {
    let default = Limits::default();
    let bytes = |size: Option<Positive>, default| size.map_or(default, |size| size.0.0);
    let limits = Limits {
        memory_bytes: bytes(fields.optional("memory"), default.memory_bytes),
        call: fields.optional::<PositiveDuration>("call").map_or(default.call, |call| call.0),
        output_bytes: bytes(fields.optional("output"), default.output_bytes),
        skipped_per_minute: fields
            .optional::<PositiveCount>("skipped-per-minute")
            .map_or(default.skipped_per_minute, |count| count.0),
    };
    fields.finish(problems);
    limits
}

fn to_json(located: &Located, path: &str, problems: &mut Vec<Problem>) -> serde_json::Value {
    match &located.value {
        Value::String(text) | Value::Datetime(text) => text.as_str().into(),
        Value::Integer(number) => (*number).into(),
        Value::Float(number) => {
            if !number.is_finite() {
                let problem = Problem::new(path, format!("{number} cannot be handed to the operator"));
                problems.push(problem.expected("a number that JSON knows").at(located.origin.clone()));
            }
            (*number).into()
        }
        Value::Boolean(value) => (*value).into(),
        Value::Array(values) => {
            let values = (0..).zip(values).map(|(index, value)| to_json(value, &format!("{path}[{index}]"), problems));
            serde_json::Value::Array(values.collect())
        }
        Value::Table(table) => {
            let field = |(key, value): (&String, &Located)| (key.clone(), to_json(value, &join(path, key), problems));
            serde_json::Value::Object(table.0.iter().map(|entry| (&entry.key, &entry.value)).map(field).collect())
        }
    }
}

/// A count that is not 0.
struct PositiveCount(u64);

impl Field for PositiveCount {
    fn read(value: &Value) -> Result<Self, Wrong> {
        match value {
            Value::Integer(count) if *count > 0 => Ok(Self(count.unsigned_abs())),
            other => Err(Wrong::found(other, "a whole number above 0")),
        }
    }
}

impl Field for OnError {
    fn read(value: &Value) -> Result<Self, Wrong> {
        word(value, &[("fail", Self::Fail), ("skip", Self::Skip), ("dead-letter", Self::DeadLetter)])
    }
}

impl Field for Partition {
    fn read(value: &Value) -> Result<Self, Wrong> {
        let all = [
            ("hash", Self::Hash),
            ("forward", Self::Forward),
            ("rebalance", Self::Rebalance),
            ("broadcast", Self::Broadcast),
        ];
        word(value, &all)
    }
}
