//! The job file: what a job is, read and checked as a whole.
//!
//! Owns the sections and their fields. Tables of sources and sinks are the connectors' own apart from a few fields that
//! every node has. Nothing is started or compiled here; what is left to do is in `plan`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::checkpoint_section::{read_checkpoint, read_state};
use super::error::{ConfigError, Problem};
use super::graph_problem::graph_problem;
use super::host_file;
use super::node::{NodeTable, Reading};
use super::overrides;
use super::restart_section;
use super::section::{Field, Parallelism, Positive, Section, Wrong};
use super::units::ByteSize;
use super::value::{self, Origin, SourceText, Table, Value};
use crate::api::graph_check::{check, is_name};
use crate::api::{CheckpointSettings, JobOptions, RestartSettings};
use crate::id::Owner;
use crate::operator::LARGEST_RECORD_LIMIT;
use crate::protocol::key_group::DEFAULT_MAX_PARALLELISM;

/// Sections that later versions have, with what they are about. A job that asks for them must not run without them.
pub(super) const UNAVAILABLE: [(&str, &str); 1] = [("time", "event-time settings")];

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
    /// How checkpoints are taken; none takes none.
    pub checkpoint: Option<CheckpointSettings>,
    /// Whether and when the job restarts after a failure.
    pub restart: RestartSettings,
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
        let job = read(&sources.job, &JOB_FILE)?;
        let host = sources.host.as_deref().map(|path| read(path, &HOST_WIDE_FILE)).transpose()?;
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
            checkpoint: self.checkpoint.clone(),
            restart: self.restart.clone(),
            job_file: self.whole.text().to_owned(),
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
        let name = top.required::<JobName>("name", "name = \"wordcount\" or another name for the job");
        let parallelism_origin = top.origin_of("parallelism");
        let parallelism = top.optional::<Parallelism>("parallelism").map_or(1, |parallelism| parallelism.0);
        let max_parallelism =
            top.optional::<Parallelism>("max-parallelism").map_or(DEFAULT_MAX_PARALLELISM, |max| max.0);
        let record_limit = top.optional::<Positive>("record-limit").map_or(DEFAULT_RECORD_LIMIT, |size| size.0);
        let channel = top.table("channel").and_then(|mut channel| {
            let bytes = channel.optional::<Positive>("bytes");
            channel.finish(problems);
            bytes
        });
        let state = top.table("state").map(|state| read_state(state, file, problems)).unwrap_or_default();
        let checkpoint = top.table("checkpoint");
        let checkpoint = checkpoint.and_then(|fields| read_checkpoint(fields, &state, file, base_dir, problems));
        let restart = restart_section::read(top.table("restart"), checkpoint.is_some(), file, problems);
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
        let has_operators = reading.nodes.iter().any(|node| node.section == "operators");
        if has_operators && record_limit.0 > LARGEST_RECORD_LIMIT {
            let origin = top.origin_of("record-limit").expect("the default is smaller");
            let message = format!("records of {record_limit} are too large for operators");
            let problem = Problem::new("record-limit", message);
            top.report(problem.expected(format!("at most \"{}\"", ByteSize(LARGEST_RECORD_LIMIT))).at(origin));
        }
        let hidden = UNAVAILABLE.map(|(section, _)| section);
        top.finish_hiding(&hidden, problems);
        let Reading { nodes, gaps, .. } = reading;
        let file = Self {
            name: name.map(|name| name.0).unwrap_or_default(),
            max_parallelism,
            channel: channel.map_or(DEFAULT_CHANNEL, |size| size.0),
            record_limit,
            state_budget: state.budget.unwrap_or(DEFAULT_STATE_BUDGET),
            checkpoint,
            restart,
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

/// What to tell a user about a file that cannot be read.
struct FileHelp {
    /// What kind of file it is.
    what: &'static str,
    /// What to do if it is not there.
    missing: &'static str,
}

const JOB_FILE: FileHelp = FileHelp { what: "job file", missing: "check the path" };

const HOST_WIDE_FILE: FileHelp = FileHelp {
    what: "host-wide file of defaults",
    missing: "correct the path in the variable TIDEGATE_CONFIG, or unset it to do without the file",
};

fn read(path: &Path, file: &FileHelp) -> Result<Arc<SourceText>, ConfigError> {
    let what = file.what;
    let refuse = |message: String, help: String| {
        let problem = Problem::new("", format!("cannot read the {what} {}: {message}", path.display()));
        ConfigError::new(vec![problem.help(help)])
    };
    let bytes = fs::read(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => refuse("there is no such file".to_owned(), file.missing.to_owned()),
        _ => refuse(error.to_string(), format!("a {what} is a TOML file that you may read")),
    })?;
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Arc::new(SourceText { path: path.to_owned(), text })),
        Err(error) => {
            let line =
                error.as_bytes()[..error.utf8_error().valid_up_to()].iter().filter(|byte| **byte == b'\n').count() + 1;
            Err(refuse(format!("line {line} is not UTF-8"), format!("a {what} is a TOML file, which is always UTF-8")))
        }
    }
}

/// The name of a job.
struct JobName(String);

impl Field for JobName {
    fn read(value: &Value) -> Result<Self, Wrong> {
        let name = String::read(value)?;
        if is_name(&name) { Ok(Self(name)) } else { Err(Wrong::found(value, "1 to 100 letters, digits, '-' or '_'")) }
    }
}
