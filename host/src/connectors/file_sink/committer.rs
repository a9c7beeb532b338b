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
use crate::connectors::{Committable, Committer, ConnectorError};
use crate::env::Env;
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
    run: String,
    subtask: u32,
    sequence: u64,
}

impl PendingPart {
    pub(super) fn new(directory: &Path, name: &PartName) -> Self {
        let PartName { run, subtask, sequence } = name.clone();
        Self { version: VERSION, directory: directory.to_owned(), run, subtask, sequence }
    }

    pub(super) fn encode(&self) -> Committable {
        Committable(serde_json::to_vec(self).expect("the path was checked to be UTF-8"))
    }

    fn decode(committable: &Committable) -> Result<Self, ConnectorError> {
        let malformed = |problem: String| ConnectorError::Other(format!("prepared output is not readable: {problem}"));
        let part: Self = serde_json::from_slice(&committable.0).map_err(|error| malformed(error.to_string()))?;
        if part.version != VERSION {
            return Err(malformed(format!("it is of version {}, known is {VERSION}", part.version)));
        }
        Ok(part)
    }

    /// The names of the file before and after the commit.
    fn paths(&self) -> (PathBuf, PathBuf) {
        let name = PartName { run: self.run.clone(), subtask: self.subtask, sequence: self.sequence };
        (self.directory.join(name.pending()), self.directory.join(name.to_string()))
    }

    /// Finds the file under one of its names. All are looked for before the first is renamed, so that output of which a
    /// part is gone is not committed by halves.
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
    fn commit(&mut self, committables: Vec<Committable>) -> BoxFuture<'_, Result<(), ConnectorError>> {
        let work = move || {
            let parts = committables.iter().map(PendingPart::decode).collect::<Result<Vec<_>, _>>()?;
            parts.iter().try_for_each(PendingPart::check)?;
            parts.iter().try_for_each(PendingPart::commit)?;
            let directories: BTreeSet<&Path> = parts.iter().map(|part| part.directory.as_path()).collect();
            // Also for files that were there already: the crash may have come between the rename and this.
            directories.iter().try_for_each(|directory| sync_directory(directory))
        };
        task::compute(&*self.env.compute, "commit part files", work).map(|outcome| outcome?).boxed()
    }

    fn discard(&mut self, run: &str) -> BoxFuture<'_, Result<(), ConnectorError>> {
        let (directory, run) = (self.directory.clone(), run.to_owned());
        let work = move || {
            let of_run = |name: &&String| PartName::parse_pending(name).is_some_and(|name| name.run == run);
            for name in list(&directory)?.iter().filter(of_run) {
                let path = directory.join(name);
                fs::remove_file(&path).map_err(|error| file_error("remove", &path, error))?;
            }
            Ok(())
        };
        task::compute(&*self.env.compute, "discard part files", work).map(|outcome| outcome?).boxed()
    }
}
