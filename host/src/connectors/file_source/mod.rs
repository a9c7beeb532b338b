//! The `file` source: the records of one file, of a directory's files or of those that match a pattern.
//!
//! A bounded file is read up to the size it had when the job first started, in splits that any reader may take; a record
//! belongs to the split that it starts in. A followed file is one split without end. Positions say which file they are
//! of, so that another one under its name, or a shorter one, is never taken for it.

mod csv;
mod discovery;
mod enumerator;
mod follow_enumerator;
mod format;
mod framer;
mod json;
mod open_split;
mod position;
mod reader;
mod settings;
mod split_reader;
mod window;

use std::path::{Path, PathBuf};

use self::discovery::Target;
use self::enumerator::FileEnumerator;
use self::follow_enumerator::FollowEnumerator;
use self::format::RecordFormat;
use self::framer::Framer;
use self::reader::FileReader;
pub use self::settings::{FileSourceSettings, Format, OnTruncate};
use self::split_reader::Reading;
use super::{Boundedness, ReaderContext, RestoredSource, Source, SourceReader, SplitEnumerator, StreamShape};
use crate::env::Env;

struct FileSource {
    settings: FileSourceSettings,
    path: PathBuf,
}

impl FileSource {
    /// A source with settings that have been checked.
    fn new(settings: FileSourceSettings, base_dir: &Path) -> Self {
        let path = base_dir.join(&settings.path);
        Self { settings, path }
    }
}

impl Source for FileSource {
    fn boundedness(&self) -> Boundedness {
        if self.settings.follow { Boundedness::Unbounded } else { Boundedness::Bounded }
    }

    fn shape(&self) -> StreamShape {
        StreamShape { keyed: self.settings.key.is_some(), timed: self.settings.timestamp.is_some() }
    }

    fn cannot_replay(&self) -> Option<String> {
        None
    }

    fn meets_output_in(&self, directory: &Path) -> bool {
        // What is wrong with the path shows at the start.
        Target::of(&self.path).is_ok_and(|target| target.meets_output_in(directory))
    }

    fn enumerator(&self, env: &Env, restored: Option<RestoredSource>) -> Box<dyn SplitEnumerator> {
        let path = self.path.clone();
        if self.settings.follow {
            Box::new(FollowEnumerator::new(env.clone(), path, restored))
        } else {
            Box::new(FileEnumerator::new(env.clone(), path, self.settings.split_bytes(), restored))
        }
    }

    fn reader(&self, context: ReaderContext) -> Box<dyn SourceReader> {
        let quoted_newlines = self.settings.format == Format::Csv && self.settings.quoted_newlines.unwrap_or(true);
        let framer = if quoted_newlines { Framer::csv(self.settings.delimiter()) } else { Framer::Lines };
        Box::new(FileReader::new(Reading {
            env: context.env,
            max_record_bytes: context.max_record_bytes,
            format: RecordFormat::new(&self.settings),
            framer,
            on_truncate: self.settings.on_truncate,
            follow: self.settings.follow,
        }))
    }
}

#[cfg(test)]
mod restore_tests;
#[cfg(test)]
mod tests;
