//! Makes prepared part files visible, or gives them up.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

use super::names::PartName;
use super::target::{file_error, list, sync_directory};
use crate::connectors::{Committable, Committer, ConnectorError, versioned};
use crate::env::Env;
use crate::id::Owner;
use crate::task;

/// The version of [`Output`].
const VERSION: u32 = 1;

/// A committable. Says the directory too, because the job may have been given another one since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Output {
    version: u32,
    directory: PathBuf,
    change: Change,
}

/// What a commit does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Change {
    /// Makes a part file visible that is durable under its pending name.
    Show(PartName),
    /// Removes the files of these names, which were there before the job.
    Remove(Vec<String>),
}

impl Output {
    /// A part file to be made visible.
    pub(super) fn part(directory: &Path, name: PartName) -> Self {
        Self { version: VERSION, directory: directory.to_owned(), change: Change::Show(name) }
    }

    /// Files to be removed because results take their place.
    pub(super) fn replaced(directory: &Path, names: Vec<String>) -> Self {
        Self { version: VERSION, directory: directory.to_owned(), change: Change::Remove(names) }
    }

    pub(super) fn encode(&self) -> Committable {
        Committable(versioned::encode(self))
    }

    fn decode(committable: &Committable) -> Result<Self, ConnectorError> {
        versioned::decode("prepared output", VERSION, &committable.0)
    }

    /// Finds a part under one of its names.
    fn check(&self) -> Result<(), ConnectorError> {
        let Change::Show(name) = &self.change else { return Ok(()) };
        let (pending, committed) = self.paths(name);
        if pending.is_file() || committed.is_file() {
            return Ok(());
        }
        Err(ConnectorError::Other(format!(
            "prepared output is gone: neither {} nor {} exists; its records are lost unless the job starts from an \
             earlier point",
            pending.display(),
            committed.display()
        )))
    }

    /// The names of a part before and after the commit.
    fn paths(&self, name: &PartName) -> (PathBuf, PathBuf) {
        (self.directory.join(name.pending()), self.directory.join(name.to_string()))
    }

    /// Renames a part, or finds that this was done before.
    fn show(&self) -> Result<(), ConnectorError> {
        let Change::Show(name) = &self.change else { return Ok(()) };
        let (pending, committed) = self.paths(name);
        match fs::rename(&pending, &committed) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.check(),
            outcome => outcome.map_err(|error| file_error("commit", &pending, error)),
        }
    }

    /// Removes what is replaced, or finds that this was done before.
    fn remove(&self) -> Result<(), ConnectorError> {
        let Change::Remove(names) = &self.change else { return Ok(()) };
        names.iter().try_for_each(|name| remove(&self.directory.join(name)))
    }
}

/// Removes a file, unless somebody has.
fn remove(path: &Path) -> Result<(), ConnectorError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        outcome => outcome.map_err(|error| file_error("remove", path, error)),
    }
}

/// Finds all parts. Done before the first is renamed, so that output of which a part is gone is not committed by halves.
fn check(committables: &[Committable]) -> Result<Vec<Output>, ConnectorError> {
    let outputs = committables.iter().map(Output::decode).collect::<Result<Vec<_>, _>>()?;
    outputs.iter().try_for_each(Output::check)?;
    Ok(outputs)
}

fn commit(committables: &[Committable]) -> Result<(), ConnectorError> {
    let outputs = check(committables)?;
    let directories: BTreeSet<&Path> = outputs.iter().map(|output| output.directory.as_path()).collect();
    let sync = || directories.iter().try_for_each(|directory| sync_directory(directory));
    outputs.iter().try_for_each(Output::show)?;
    // Also for files that were there already: the crash may have come between the rename and this. And before the first
    // is removed, so that at no time there is nothing.
    sync()?;
    if outputs.iter().any(|output| matches!(output.change, Change::Remove(_))) {
        outputs.iter().try_for_each(Output::remove)?;
        sync()?;
    }
    Ok(())
}

/// The committer of a file sink.
pub(super) struct FileCommitter {
    env: Env,
    directory: PathBuf,
}

impl FileCommitter {
    pub(super) fn new(env: Env, directory: PathBuf) -> Self {
        Self { env, directory }
    }
}

impl Committer for FileCommitter {
    fn check<'a>(&'a mut self, committables: &'a [Committable]) -> BoxFuture<'a, Result<(), ConnectorError>> {
        let committables = committables.to_vec();
        let work = move || check(&committables).map(drop);
        task::compute(&*self.env.compute, "check part files", work).map(|outcome| outcome?).boxed()
    }

    fn commit(&mut self, committables: Vec<Committable>) -> BoxFuture<'_, Result<(), ConnectorError>> {
        let work = move || commit(&committables);
        task::compute(&*self.env.compute, "commit part files", work).map(|outcome| outcome?).boxed()
    }

    fn sweep<'a>(&'a mut self, before: &'a Owner) -> BoxFuture<'a, Result<(), ConnectorError>> {
        let (directory, before) = (self.directory.clone(), before.clone());
        let work = move || {
            if !directory.is_dir() {
                // Nothing was ever written.
                return Ok(());
            }
            let earlier = |owner: &Owner| owner.job == before.job && owner.attempt < before.attempt;
            let swept = |name: &&String| PartName::parse_pending(name).is_some_and(|name| earlier(&name.owner));
            // Another sink of the job may sweep the same directory.
            list(&directory)?.iter().filter(swept).try_for_each(|name| remove(&directory.join(name)))
        };
        task::compute(&*self.env.compute, "sweep part files", work).map(|outcome| outcome?).boxed()
    }
}
