//! The directories that a job's sinks write into: no other job may, and no source of the job may read there.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use super::error::JobError;
use crate::api::{JobGraph, NodeKind};
use crate::connectors::{ConnectorError, OutputLock, Source};
use crate::env::Env;
use crate::task;

/// Directories that are the job's for as long as this lives.
#[derive(Debug)]
pub(super) struct Targets {
    _locks: BTreeMap<PathBuf, OutputLock>,
}

/// Takes the directories, which are made if they are missing; with `take_over`, also from another job that has them.
///
/// # Errors
/// When another job writes into one of them, or a source of this one would read what is written there.
pub(super) async fn claim(graph: &JobGraph, env: &Env, take_over: bool) -> Result<Targets, JobError> {
    let (mut sources, mut sinks) = (Vec::new(), Vec::new());
    for node in graph.nodes() {
        match &node.kind {
            NodeKind::Source(source) => sources.push((node.name.clone(), Arc::clone(source))),
            NodeKind::Sink(sink) => sinks.extend(sink.directory().map(|path| (node.name.clone(), path.to_owned()))),
            NodeKind::Operator(_) => {}
        }
    }
    let work = move || {
        let mut locks = BTreeMap::new();
        for (name, directory) in sinks {
            take(directory, &sources, take_over, &mut locks).map_err(|source| (name, source))?;
        }
        Ok(Targets { _locks: locks })
    };
    match task::compute(&*env.compute, "claim output directories", work).await {
        Ok(claimed) => claimed.map_err(|(name, source)| JobError::Connector { place: format!("sink {name}"), source }),
        Err(source) => Err(JobError::Host { place: "the output directories".to_owned(), source }),
    }
}

fn take(
    directory: PathBuf,
    sources: &[(String, Arc<dyn Source>)],
    take_over: bool,
    locks: &mut BTreeMap<PathBuf, OutputLock>,
) -> Result<(), ConnectorError> {
    let directory = make(directory)?;
    if let Some((source, _)) = sources.iter().find(|(_, source)| source.meets_output_in(&directory)) {
        return Err(ConnectorError::Other(format!(
            "it writes into {}, which source {source} reads from: the job would read or remove its own input or output; \
             choose another directory",
            directory.display()
        )));
    }
    // Sinks of one job may share a directory, because no two write files of one name.
    if let Entry::Vacant(free) = locks.entry(directory) {
        let lock = OutputLock::take(free.key(), take_over)?;
        free.insert(lock);
    }
    Ok(())
}

/// Makes a directory if it is missing; returns its one true path.
fn make(directory: PathBuf) -> Result<PathBuf, ConnectorError> {
    let failed = |source| ConnectorError::File { action: "create output directory", path: directory.clone(), source };
    if !directory.is_dir() {
        fs::create_dir_all(&directory).map_err(failed)?;
    }
    fs::canonicalize(&directory).map_err(failed)
}
