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

/// The version of [`PendingPart`].
const VERSION: u32 = 1;

/// A committable: a part file that is durable under its pending name. Says the directory too, because the job may have
/// been given another one since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PendingPart {
    version: u32,
    directory: PathBuf,
    name: PartName,
}

impl PendingPart {
    pub(super) fn new(directory: &Path, name: PartName) -> Self {
        Self { version: VERSION, directory: directory.to_owned(), name }
    }

    pub(super) fn encode(&self) -> Committable {
        Committable(versioned::encode(self))
    }

    fn decode(committable: &Committable) -> Result<Self, ConnectorError> {
        versioned::decode("prepared output", VERSION, &committable.0)
    }

    /// The names of the file before and after the commit.
    fn paths(&self) -> (PathBuf, PathBuf) {
        (self.directory.join(self.name.pending()), self.directory.join(self.name.to_string()))
    }

    /// Finds the file under one of its names.
    fn check(&self) -> Result<(), ConnectorError> {
        let (pending, committed) = self.paths();
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

    /// Renames the file, or finds that this was done before.
    fn commit(&self) -> Result<(), ConnectorError> {
        let (pending, committed) = self.paths();
        match fs::rename(&pending, &committed) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.check(),
            outcome => outcome.map_err(|error| file_error("commit", &pending, error)),
        }
    }
}

/// Finds all parts. Done before the first is renamed, so that output of which a part is gone is not committed by halves.
fn check(committables: &[Committable]) -> Result<Vec<PendingPart>, ConnectorError> {
    let parts = committables.iter().map(PendingPart::decode).collect::<Result<Vec<_>, _>>()?;
    parts.iter().try_for_each(PendingPart::check)?;
    Ok(parts)
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
        let work = move || {
            let parts = check(&committables)?;
            parts.iter().try_for_each(PendingPart::commit)?;
            let directories: BTreeSet<&Path> = parts.iter().map(|part| part.directory.as_path()).collect();
            // Also for files that were there already: the crash may have come between the rename and this.
            directories.iter().try_for_each(|directory| sync_directory(directory))
        };
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
            for name in list(&directory)?.iter().filter(swept) {
                let path = directory.join(name);
                match fs::remove_file(&path) {
                    // Another sink of the job sweeps the same directory.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    outcome => outcome.map_err(|error| file_error("remove", &path, error))?,
                }
            }
            Ok(())
        };
        task::compute(&*self.env.compute, "sweep part files", work).map(|outcome| outcome?).boxed()
    }
}
