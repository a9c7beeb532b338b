//! The `file` sink: a directory of part files, one line per record, each seen only once it is committed.
//!
//! A writer appends to a pending file, hidden by its leading dot, in the directory itself, so that committing is a
//! rename. `prepare` makes the file durable under its hidden name and names it in a committable; the committer renames
//! it and makes the rename durable. Names are unique by job, attempt, node, subtask and sequence, so no writer ever meets
//! another's files, and committing twice finds the work done. Where nothing was written there is no file.

mod committer;
mod names;
mod target;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde::Deserialize;

use self::committer::{FileCommitter, Output};
use self::names::PartName;
use self::writer::FileWriter;
use super::line_encoder::LineEncoder;
use super::settings::{SettingError, SinkSettings};
use super::{Commit, Committable, Committer, ConnectorError, Sink, SinkWriter, TargetStart, WriterContext};
use crate::config::ByteSize;
use crate::env::Env;
use crate::task;

/// The settings of a `file` sink.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FileSinkSettings {
    /// The directory to write into; made if it is missing.
    pub path: PathBuf,
    /// What to do on a fresh start when there is something in the directory. Default `fail`.
    #[serde(default)]
    pub existing: Existing,
    /// A part file is closed and a new one begun at this size. Default 1 GiB.
    #[serde(default = "default_roll_bytes")]
    pub roll_bytes: ByteSize,
    /// Whether to write key, separator and value instead of the value alone. Default false.
    #[serde(default)]
    pub key: bool,
    /// What stands between key and value. Default a tabulator.
    pub separator: Option<String>,
}

/// What to do on a fresh start into a directory with output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Existing {
    /// Refuse to start.
    #[default]
    Fail,
    /// Leave what is there and write beside it.
    Append,
    /// Put the new results in the place of the part files that are there. Those are removed right behind the first new
    /// ones becoming visible, so that whoever reads meanwhile may find both but never neither; if the job fails before,
    /// they stay.
    Replace,
}

fn default_roll_bytes() -> ByteSize {
    ByteSize(1 << 30)
}

impl SinkSettings for FileSinkSettings {
    fn build(self, base_dir: &Path) -> Result<Arc<dyn Sink>, SettingError> {
        self.validate()?;
        let encoder = LineEncoder::new(self.key, self.separator.as_deref().unwrap_or("\t"));
        let directory = base_dir.join(&self.path);
        Ok(Arc::new(FileSink { directory, existing: self.existing, roll_bytes: self.roll_bytes.0, encoder }))
    }
}

impl FileSinkSettings {
    /// Checks that the values make sense together.
    ///
    /// # Errors
    /// The first that does not.
    pub fn validate(&self) -> Result<(), SettingError> {
        if self.path.as_os_str().is_empty() {
            return Err(SettingError::new("path", "must name a directory"));
        }
        if self.roll_bytes.0 == 0 {
            return Err(SettingError::new("roll-bytes", "must not be 0"));
        }
        if self.separator.is_some() && !self.key {
            return Err(SettingError::new("separator", "stands between key and value; it needs `key = true`"));
        }
        Ok(())
    }
}

/// A name that a part file might have.
pub(super) const A_PART_NAME: &str = "part-job-1-1-node-0-000000";

/// Whether a file of this name is a committed part file.
pub(super) fn is_part_name(name: &str) -> bool {
    PartName::parse_committed(name).is_some()
}

struct FileSink {
    directory: PathBuf,
    existing: Existing,
    roll_bytes: u64,
    encoder: LineEncoder,
}

impl Sink for FileSink {
    fn commit(&self) -> Commit {
        Commit::OnCommit
    }

    fn directory(&self) -> Option<&Path> {
        Some(&self.directory)
    }

    fn prepare_target<'a>(
        &'a self,
        env: &'a Env,
        start: TargetStart,
    ) -> BoxFuture<'a, Result<Vec<Committable>, ConnectorError>> {
        let (directory, existing) = (self.directory.clone(), self.existing);
        let work = move || {
            target::make_usable(&directory)?;
            if start == TargetStart::Restored {
                return Ok(Vec::new());
            }
            let replaced = target::find_existing(&directory, existing)?;
            Ok(if replaced.is_empty() { Vec::new() } else { vec![Output::replaced(&directory, replaced).encode()] })
        };
        task::compute(&*env.compute, "prepare output directory", work).map(|outcome| outcome?).boxed()
    }

    fn writer(&self, context: WriterContext) -> Box<dyn SinkWriter> {
        Box::new(FileWriter::new(context, self.directory.clone(), self.roll_bytes, self.encoder.clone()))
    }

    fn committer(&self, env: &Env) -> Box<dyn Committer> {
        Box::new(FileCommitter::new(env.clone(), self.directory.clone()))
    }
}

#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod tests;
