//! `tidegate component check`: is it an operator, and would a job take it?

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use super::exit::{Exit, Failure, chain};
use super::host::Host;
use super::json;
use super::numbers::size;
use super::stdout;
use crate::error_chain::links;
use crate::operator::{Descriptor, LARGEST_RECORD_LIMIT, Limits, OperatorFactory, StateKind};
use crate::wasm::{Access, ComponentReport, LoadError, OperatorSettings, WasmOperatorFactory};

/// What `tidegate component check --help` says behind the list of options.
const AFTER_HELP: &str = "\
The component is compiled, and its imports and exports are compared with what an operator may have. Nothing in it runs,
unless --config is given: then it is opened with that configuration, and says which states and outputs it has.

With --json, stdout gets one object: {\"file\":...,\"operator\":true|false,\"errors\":[...],\"bytes\":...,
\"contract\":... or null,\"migrates\":true|false,\"imports\":[{\"name\":...,\"access\":\"contract|virtual|refused\",
\"note\":... or null},...],\"exports\":[...],\"states\":[...] and \"outputs\":[...] with --config}

Exit codes: 0 a job would take it; 1 it would not.";

/// Says whether a file is an operator, what it imports, and what would be refused.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct CheckArguments {
    /// The component.
    #[arg(value_name = "FILE.wasm")]
    file: PathBuf,

    /// Opens the operator with this configuration and shows what it declares.
    #[arg(long, value_name = "JSON")]
    config: Option<String>,

    /// Writes the findings as JSON to stdout.
    #[arg(long)]
    json: bool,
}

/// What was found out.
struct Findings {
    report: Option<ComponentReport>,
    descriptor: Option<Descriptor>,
    error: Option<Box<dyn std::error::Error>>,
}

/// Runs the command.
pub(super) fn check(arguments: &CheckArguments) -> Result<Exit, Failure> {
    if let Some(config) = &arguments.config
        && let Err(error) = serde_json::from_str::<Value>(config)
    {
        return Err(Failure::Argument(format!("--config is not JSON: {error}; write it like --config '{{\"n\": 1}}'")));
    }
    let findings = look(arguments)?;
    if arguments.json {
        json::print(&to_json(arguments, &findings))?;
    } else {
        stdout::print(&to_text(arguments, &findings))?;
    }
    Ok(if findings.error.is_none() { Exit::Done } else { Exit::Failed })
}

fn look(arguments: &CheckArguments) -> Result<Findings, Failure> {
    Host::start()?.block_on(async |env, engine| {
        let failed = |report, error: LoadError| Findings { report, descriptor: None, error: Some(Box::new(error)) };
        let report = match ComponentReport::of(engine, env, &arguments.file).await {
            Ok(report) => report,
            Err(error) => return Ok(failed(None, error)),
        };
        if let Err(error) = report.verdict() {
            return Ok(Findings { report: Some(report), descriptor: None, error: Some(Box::new(error)) });
        }
        let Some(config) = &arguments.config else {
            return Ok(Findings { report: Some(report), descriptor: None, error: None });
        };
        let settings = OperatorSettings {
            job: "check".to_owned(),
            node: "check".to_owned(),
            config: config.clone(),
            limits: Limits::default(),
            max_record_bytes: LARGEST_RECORD_LIMIT,
        };
        match WasmOperatorFactory::load(engine, env, &arguments.file, settings).await {
            Ok(factory) => {
                Ok(Findings { report: Some(report), descriptor: Some(factory.descriptor().clone()), error: None })
            }
            Err(error) => Ok(failed(Some(report), error)),
        }
    })
}

fn to_text(arguments: &CheckArguments, findings: &Findings) -> String {
    let mut lines = Vec::new();
    let file = arguments.file.display();
    if let Some(report) = &findings.report {
        let what = match &report.contract {
            Some(version) => format!("an operator for version {version} of the contract"),
            None => "a component, but no operator".to_owned(),
        };
        let migrates = if report.migrates { ", can migrate state" } else { "" };
        lines.push(format!("{file}: {what}, {}{migrates}", size(report.bytes)));
        lines.push("imports:".to_owned());
        for import in &report.imports {
            lines.push(match import.access {
                Access::Contract => format!("  ok       {}", import.name),
                Access::Virtual(note) => format!("  virtual  {}: {note}", import.name),
                Access::Refused(note) => format!("  refused  {}: {note}", import.name),
            });
        }
        if report.imports.is_empty() {
            lines.push("  none".to_owned());
        }
    }
    if let Some(descriptor) = &findings.descriptor {
        lines.extend(descriptor.states.iter().map(|state| format!("state {}: {}", state.name, kind_name(state.kind))));
        lines.extend(descriptor.side_outputs.iter().map(|output| format!("output {}", output.name)));
    }
    lines.push(match &findings.error {
        None => "a job would take it".to_owned(),
        Some(error) => chain(&**error),
    });
    lines.join("\n") + "\n"
}

fn kind_name(kind: StateKind) -> &'static str {
    match kind {
        StateKind::KeyedValue => "keyed value",
        StateKind::KeyedList => "keyed list",
        StateKind::KeyedMap => "keyed map",
        StateKind::SplitList => "split list",
        StateKind::UnionList => "union list",
        StateKind::BroadcastMap => "broadcast map",
    }
}

fn to_json(arguments: &CheckArguments, findings: &Findings) -> Value {
    let mut value = json!({
        "file": arguments.file.display().to_string(),
        "operator": findings.error.is_none(),
        "errors": findings.error.as_ref().map(|error| links(&**error)).unwrap_or_default(),
    });
    if let Some(report) = &findings.report {
        value["bytes"] = report.bytes.into();
        value["contract"] = report.contract.as_deref().into();
        value["migrates"] = report.migrates.into();
        let imports = report.imports.iter().map(|import| {
            let (access, note) = match import.access {
                Access::Contract => ("contract", None),
                Access::Virtual(note) => ("virtual", Some(note)),
                Access::Refused(note) => ("refused", Some(note)),
            };
            json!({ "name": import.name, "access": access, "note": note })
        });
        value["imports"] = imports.collect();
        value["exports"] = report.exports.iter().map(String::as_str).collect();
    }
    if let Some(descriptor) = &findings.descriptor {
        value["states"] = descriptor.states.iter().map(|state| state.name.as_str()).collect();
        value["outputs"] = descriptor.side_outputs.iter().map(|output| output.name.as_str()).collect();
    }
    value
}
