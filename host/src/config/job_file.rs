//! The job file: what a job is, read and checked as a whole.
//!
//! Owns the sections and their fields. Tables of sources and sinks are the connectors' own apart from a few fields that
//! every node has. Nothing is started or compiled here; what is left to do is in `plan`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::{ConfigError, Problem};
use super::graph_problem::graph_problem;
use super::host_file;
use super::node::{NodeTable, Reading};
use super::overrides;
use super::section::{Field, Section, Wrong};
use super::units::ByteSize;
use super::value::{self, Origin, SourceText, Table, Value};
use crate::api::JobOptions;
use crate::api::graph_check::check;
use crate::id::Owner;
use crate::protocol::key_group::{DEFAULT_MAX_PARALLELISM, LARGEST_MAX_PARALLELISM};

/// Sections that later versions have, with what they are about. A job that asks for them must not run without them.
pub(super) const UNAVAILABLE: [(&str, &str); 3] =
    [("checkpoint", "checkpoints"), ("restart", "restarts"), ("time", "event-time settings")];

/// The bound of a channel unless the job file says otherwise.
const DEFAULT_CHANNEL: ByteSize = ByteSize(1 << 20);

/// The largest record unless the job file says otherwise.
const DEFAULT_RECORD_LIMIT: ByteSize = ByteSize(16 << 20);

/// What the keyed state of a subtask may take unless the job file says otherwise.
const DEFAULT_STATE_BUDGET: ByteSize = ByteSize(1 << 30);

/// Where the description of a job comes from.
#[derive(Clone, Debug, Default)]
pub struct JobSources {
    /// The job file.
    pub job: PathBuf,
    /// The host-wide file, if there is one.
    pub host: Option<PathBuf>,
    /// The arguments of `--set`, in order.
    pub set: Vec<String>,
}

/// A job file without mistakes, as far as they can be seen without compiling components.
#[derive(Debug)]
pub struct JobFile {
    /// The job's name.
    pub name: String,
    /// The number of key groups.
    pub max_parallelism: u32,
    /// The bound of each channel.
    pub channel: ByteSize,
    /// The largest record.
    pub record_limit: ByteSize,
    /// What the keyed state of a subtask may take.
    pub state_budget: ByteSize,
    pub(super) nodes: Vec<NodeTable>,
    /// The beginning of the file, to blame for what it lacks.
    pub(super) whole: Origin,
    pub(super) parallelism_origin: Option<Origin>,
}

impl JobFile {
    /// Reads and checks a job.
    ///
    /// # Errors
    /// With every mistake that was found.
    pub fn load(sources: &JobSources) -> Result<Self, ConfigError> {
        let job = read(&sources.job)?;
        let host = sources.host.as_deref().map(read).transpose()?;
        let mut problems = Vec::new();
        let mut table = value::parse(&job, &mut problems);
        let defaults = host.map(|host| host_file::defaults(value::parse(&host, &mut problems), &mut problems));
        if !problems.is_empty() {
            // What follows a mistake in notation is guesswork.
            return Err(ConfigError::new(problems));
        }
        overrides::apply(&mut table, &sources.set, &mut problems);
        if let Some(defaults) = defaults {
            table.add_defaults(defaults);
        }
        let base_dir = sources.job.parent().unwrap_or(Path::new(""));
        let file = Self::from_table(&table, &job, base_dir, &mut problems);
        match file {
            Some(file) if problems.is_empty() => Ok(file),
            _ => Err(ConfigError::new(problems)),
        }
    }

    /// How the job is run, besides what its graph says. `owner` tells what it writes from what others do.
    #[must_use]
    pub fn options(&self, owner: Owner) -> JobOptions {
        let bytes = |size: ByteSize| usize::try_from(size.0).unwrap_or(usize::MAX);
        JobOptions {
            channel_bytes: bytes(self.channel),
            max_record_bytes: bytes(self.record_limit),
            state_budget_bytes: self.state_budget.0,
            ..JobOptions::new(owner)
        }
    }

    /// The sink that writes to the process's stdout, if there is one.
    #[must_use]
    pub fn stdout_sink(&self) -> Option<&str> {
        let mut nodes = self.nodes.iter();
        nodes
            .find(|node| node.section == "sinks" && node.connector.as_deref() == Some("stdout"))
            .map(|node| node.name.as_str())
    }

    fn from_table(table: &Table, file: &Arc<SourceText>, base_dir: &Path, problems: &mut Vec<Problem>) -> Option<Self> {
        // What the file as a whole lacks is blamed on its first line.
        let whole = Origin::File { file: Arc::clone(file), span: 0..0 };
        let mut top = Section::new("", table, whole.clone());
        let name = top.required::<String>("name", "name = \"the name of the job\"");
        let parallelism_origin = top.origin_of("parallelism");
        let parallelism = top.optional("parallelism").unwrap_or(1);
        let max_parallelism =
            top.optional::<MaxParallelism>("max-parallelism").map_or(DEFAULT_MAX_PARALLELISM, |max| max.0);
        let record_limit = top.optional::<Positive>("record-limit").map_or(DEFAULT_RECORD_LIMIT, |size| size.0);
        let channel = top.table("channel").and_then(|mut channel| {
            let bytes = channel.optional::<Positive>("bytes");
            channel.finish(problems);
            bytes
        });
        let state_budget = top.table("state").and_then(|state| read_state(state, problems));
        for (section, what) in UNAVAILABLE {
            let Some(entry) = table.entry(section) else { continue };
            top.raw(section);
            let problem = Problem::new(section, format!("{what} are not available in this version of tidegate"));
            top.report(
                problem
                    .help(format!("remove the section [{section}] to run the job without"))
                    .at(entry.key_origin.clone()),
            );
        }
        let mut reading = Reading::new(base_dir, parallelism);
        for section in ["sources", "operators", "sinks"] {
            let Some(nodes) = top.table(section) else {
                reading.gaps |= table.entry(section).is_some();
                continue;
            };
            reading.read_section(section, nodes, problems);
        }
        let hidden = UNAVAILABLE.map(|(section, _)| section);
        top.finish_hiding(&hidden, problems);
        let Reading { nodes, gaps, .. } = reading;
        let file = Self {
            name: name.unwrap_or_default(),
            max_parallelism,
            channel: channel.map_or(DEFAULT_CHANNEL, |size| size.0),
            record_limit,
            state_budget: state_budget.unwrap_or(DEFAULT_STATE_BUDGET),
            nodes,
            whole,
            parallelism_origin,
        };
        // A node or input that could not be read would be missed by those around it.
        if !gaps {
            let shapes: Vec<_> = file.nodes.iter().map(NodeTable::shape).collect();
            if let Err(errors) = check(max_parallelism, &shapes) {
                problems.extend(errors.into_iter().map(|error| graph_problem(&file, error)));
            }
        }
        Some(file)
    }
}

fn read(path: &Path) -> Result<Arc<SourceText>, ConfigError> {
    let refuse = |message: String, help: &str| {
        let problem = Problem::new("", format!("cannot read {}: {message}", path.display()));
        ConfigError::new(vec![problem.help(help)])
    };
    let bytes = fs::read(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => refuse("there is no such file".to_owned(), "check the path"),
        _ => refuse(error.to_string(), "a job file is a TOML file that you may read"),
    })?;
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Arc::new(SourceText { path: path.to_owned(), text })),
        Err(error) => {
            let line =
                error.as_bytes()[..error.utf8_error().valid_up_to()].iter().filter(|byte| **byte == b'\n').count() + 1;
            Err(refuse(format!("line {line} is not UTF-8"), "a job file is a TOML file, which is always UTF-8"))
        }
    }
}

fn read_state(mut state: Section<'_>, problems: &mut Vec<Problem>) -> Option<ByteSize> {
    if let Some(located) = state.raw("backend") {
        let path = state.path_of("backend");
        let missing = |what: &str| Problem::new(path.clone(), format!("{what} in this version of tidegate"));
        let help = "use backend = \"memory\"";
        let problem = match &located.value {
            Value::String(backend) => match backend.as_str() {
                "memory" | "jobmanager" => None,
                "filesystem" => Some(
                    missing("backend \"filesystem\" needs checkpoints in files, which are not available").help(help),
                ),
                "rocksdb" => Some(missing("backend \"rocksdb\" is not available").help(help)),
                _ => Some(Wrong::found(&located.value, "\"memory\"").problem(&path)),
            },
            other => Some(Wrong::found(other, "\"memory\"").problem(&path)),
        };
        if let Some(problem) = problem {
            state.report(problem.at(located.origin.clone()));
        }
    }
    if let Some(located) = state.raw("incremental") {
        let problem = Problem::new(
            state.path_of("incremental"),
            "incremental checkpoints are not available in this version of tidegate",
        );
        state.report(problem.help("remove it").at(located.origin.clone()));
    }
    let budget = state.optional::<Positive>("budget");
    state.finish(problems);
    budget.map(|size| size.0)
}

/// A size that is not 0.
pub(super) struct Positive(pub(super) ByteSize);

impl Field for Positive {
    fn read(value: &Value) -> Result<Self, Wrong> {
        let size = ByteSize::read(value)?;
        if size.0 == 0 { Err(Wrong::found(value, "more than 0 bytes")) } else { Ok(Self(size)) }
    }
}

/// A number of key groups.
struct MaxParallelism(u32);

impl Field for MaxParallelism {
    fn read(value: &Value) -> Result<Self, Wrong> {
        let expected = || format!("a whole number from 1 to {LARGEST_MAX_PARALLELISM}");
        let number = u32::read(value).map_err(|_| Wrong::found(value, expected()))?;
        if number > LARGEST_MAX_PARALLELISM { Err(Wrong::found(value, expected())) } else { Ok(Self(number)) }
    }
}
