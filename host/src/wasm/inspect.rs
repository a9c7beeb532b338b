//! Is this file an operator, and may it run?
//!
//! The same check stands before the components of a job and behind `component check`. No code of the component runs
//! here; what it declares is known only once a factory has called its `open`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use wasmtime::component::Component;

use super::engine::{CompileError, WasmEngine};
use super::wasi;
use crate::env::Env;
use crate::operator::{DescriptorError, Fault};
use crate::task::{self, TaskError};

/// The version of the operator contract that this host speaks, and the oldest that a host must have for it.
const CONTRACT: Version = Version { major: 0, minor: 1, patch: 0 };

/// The contract's package.
const PACKAGE: &str = "tidegate:operator/";

/// The interfaces of the contract that an operator may import.
const SERVICES: &[&str] =
    &["types", "keyed-state", "operator-state", "timers", "collector", "clock", "random", "log", "metrics"];

/// How a WebAssembly file starts, of either sort.
const WASM: &[u8] = b"\0asm";

/// What follows in a core module.
const CORE_MODULE: &[u8] = &[1, 0, 0, 0];

/// A component cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot use {path} as an operator: {failure}", path = .path.display())]
pub struct LoadError {
    /// The component's file.
    pub path: PathBuf,
    /// Why.
    #[source]
    pub failure: LoadFailure,
}

/// Why a component cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadFailure {
    /// The file cannot be read.
    #[error("it cannot be read")]
    Read(#[source] std::io::Error),
    /// The file is something else altogether.
    #[error("it is not a WebAssembly file; build the operator to a component (Rust: --target wasm32-wasip2)")]
    NotWasm,
    /// The file is a core module.
    #[error(
        "it is a core module, not a component; build it for a component target (Rust: --target wasm32-wasip2), or make \
         a component of it with `wasm-tools component new`"
    )]
    CoreModule,
    /// The file is damaged, or uses what the engine does not know.
    #[error("it does not compile: {0}")]
    Compile(String),
    /// It is a component, but no operator.
    #[error("it is no operator: it exports {found}, and not {PACKAGE}handler")]
    NotAnOperator {
        /// What it exports.
        found: String,
    },
    /// It is an operator for another version of tidegate.
    #[error(
        "it was built for version {found} of the operator contract, and this tidegate speaks {CONTRACT}: rebuild it"
    )]
    ContractVersion {
        /// The version that it was built for.
        found: String,
    },
    /// It wants more than an operator may have.
    #[error("it imports what an operator may not use:{}", list(.imports))]
    Refused {
        /// What it may not have.
        imports: Vec<Import>,
    },
    /// Functions are missing or have other types than the contract says.
    #[error("it does not fit the operator contract: {0}")]
    Contract(String),
    /// `open` failed.
    #[error("open failed: {0}")]
    Open(#[source] Fault),
    /// What `open` declared makes no sense.
    #[error("open declared what it may not: {0}")]
    Descriptor(#[source] DescriptorError),
    /// The host failed.
    #[error(transparent)]
    Task(#[from] TaskError),
}

impl LoadFailure {
    pub(super) fn at(self, path: &Path) -> LoadError {
        LoadError { path: path.to_owned(), failure: self }
    }
}

impl From<CompileError> for LoadFailure {
    fn from(error: CompileError) -> Self {
        match error {
            CompileError::Invalid(message) => Self::Compile(message),
            CompileError::Task(error) => Self::Task(error),
        }
    }
}

/// Something that a component imports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    /// Its name, with its version.
    pub name: String,
    /// What an operator gets for it.
    pub access: Access,
}

/// What an operator gets for an import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It is a part of the operator contract.
    Contract,
    /// It is there, and what it leads to is the host's.
    Virtual(&'static str),
    /// It is not there, for this reason.
    Refused(&'static str),
}

/// What can be said of a component without running it.
#[derive(Clone, Debug)]
pub struct ComponentReport {
    /// The size of the file in bytes.
    pub bytes: u64,
    /// What it imports.
    pub imports: Vec<Import>,
    /// The names of what it exports.
    pub exports: Vec<String>,
    /// The version of the operator contract that it was built for, if it is an operator.
    pub contract: Option<String>,
    /// Whether it can read state that its earlier versions wrote.
    pub migrates: bool,
}

impl ComponentReport {
    /// Reads and compiles a component and looks at it.
    ///
    /// # Errors
    /// When the file cannot be read, or is not a component that compiles.
    pub async fn of(engine: &WasmEngine, env: &Env, path: &Path) -> Result<Self, LoadError> {
        compile(engine, env, path).await.map(|(_, report)| report).map_err(|failure| failure.at(path))
    }

    /// Whether a job would take it.
    ///
    /// # Errors
    /// Why not.
    pub fn verdict(&self) -> Result<(), LoadFailure> {
        let Some(contract) = &self.contract else {
            let found = if self.exports.is_empty() { "nothing".to_owned() } else { self.exports.join(", ") };
            return Err(LoadFailure::NotAnOperator { found });
        };
        if !CONTRACT.is_compatible_with(contract) {
            return Err(LoadFailure::ContractVersion { found: contract.clone() });
        }
        let refused = self.imports.iter().filter(|import| matches!(import.access, Access::Refused(_)));
        let imports: Vec<Import> = refused.cloned().collect();
        if imports.is_empty() { Ok(()) } else { Err(LoadFailure::Refused { imports }) }
    }

    fn new(engine: &WasmEngine, component: &Component, bytes: u64) -> Self {
        let (ty, engine) = (component.component_type(), engine.engine());
        let exports: Vec<String> = ty.exports(engine).map(|(name, _)| name.to_owned()).collect();
        let interface = |interface: &str| {
            let name = exports.iter().find_map(|name| name.strip_prefix(PACKAGE)?.strip_prefix(interface));
            name.and_then(|rest| if rest.is_empty() { Some("") } else { rest.strip_prefix('@') }).map(str::to_owned)
        };
        let (contract, migrates) = (interface("handler"), interface("migration").is_some());
        let imports = ty.imports(engine).map(|(name, _)| Import { name: name.to_owned(), access: access(name) });
        Self { bytes, imports: imports.collect(), exports, contract, migrates }
    }
}

/// Reads, checks and compiles the component of a job.
pub(super) async fn load(engine: &WasmEngine, env: &Env, path: &Path) -> Result<Component, LoadError> {
    let loaded = compile(engine, env, path).await.and_then(|(component, report)| report.verdict().map(|()| component));
    loaded.map_err(|failure| failure.at(path))
}

async fn compile(engine: &WasmEngine, env: &Env, path: &Path) -> Result<(Component, ComponentReport), LoadFailure> {
    let file = path.to_owned();
    let read = task::compute(&*env.compute, "read component", move || std::fs::read(file)).await?;
    let bytes: Arc<[u8]> = read.map_err(LoadFailure::Read)?.into();
    match bytes.strip_prefix(WASM) {
        None => return Err(LoadFailure::NotWasm),
        Some(rest) if rest.starts_with(CORE_MODULE) => return Err(LoadFailure::CoreModule),
        Some(_) => {}
    }
    let component = engine.compile(&*env.compute, Arc::clone(&bytes)).await?;
    let report = ComponentReport::new(engine, &component, bytes.len() as u64);
    Ok((component, report))
}

/// What an operator gets for an import of this name.
fn access(name: &str) -> Access {
    let (interface, version) = name.split_once('@').unwrap_or((name, ""));
    if let Some(service) = interface.strip_prefix(PACKAGE) {
        return match SERVICES.contains(&service) {
            false => Access::Refused("this version of tidegate does not know it"),
            true if CONTRACT.is_compatible_with(version) => Access::Contract,
            true => Access::Refused("it is of another version of the operator contract"),
        };
    }
    if wasi::LINKED.contains(&interface) && version.starts_with("0.2.") {
        return Access::Virtual(match interface.split(['/', ':']).nth(1) {
            Some("filesystem") => "there are no files",
            Some("clocks") => "the host's clock, which can be virtual",
            Some("random") => "seeded by the host, not for secrets",
            _ => "no arguments, environment or input; output goes to the log",
        });
    }
    Access::Refused(match interface.split_once('/').map_or(interface, |(package, _)| package) {
        "wasi:sockets" => "operators have no network (componentize-py: build with --stub-wasi)",
        "wasi:http" => "operators have no network (componentize-js: build with --disable http --disable fetch-event)",
        _ => "this version of tidegate does not know it",
    })
}

/// Imports by reason, a line each.
fn list(imports: &[Import]) -> String {
    let mut lines: Vec<(&str, Vec<&str>)> = Vec::new();
    for import in imports {
        let Access::Refused(reason) = import.access else { continue };
        match lines.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, names)) => names.push(&import.name),
            None => lines.push((reason, vec![&import.name])),
        }
    }
    lines.iter().map(|(reason, names)| format!("\n  {}: {reason}", names.join(", "))).collect()
}

/// A version of the operator contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version {
    major: u64,
    minor: u64,
    patch: u64,
}

impl Version {
    /// Whether an operator for the version that `text` names runs here: adding functions is a patch, all else is not.
    /// An operator that calls a function which this host lacks does not link, which names the function.
    fn is_compatible_with(self, text: &str) -> bool {
        let mut numbers = text.split('.').map(str::parse::<u64>);
        match (numbers.next(), numbers.next(), numbers.next(), numbers.next()) {
            (Some(Ok(major)), Some(Ok(minor)), Some(Ok(_)), None) => {
                major == self.major && (self.major > 0 || minor == self.minor)
            }
            _ => false,
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}
