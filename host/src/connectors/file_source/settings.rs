//! The settings of a `file` source.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;

use super::FileSource;
use crate::config::ByteSize;
use crate::connectors::Source;
use crate::connectors::settings::{SettingError, SourceSettings};

/// The settings of a `file` source.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FileSourceSettings {
    /// A file, a directory (its files, but not those of directories in it) or a glob pattern. In a directory, and by a
    /// pattern that does not say otherwise, names that begin with `.` or `_` are passed over. Files are read in the
    /// order of their names.
    pub path: PathBuf,
    /// What the files hold. Default `lines`.
    #[serde(default)]
    pub format: Format,
    /// Whether to go on reading what is appended, and in a directory or by a pattern also files that appear. A path to one
    /// file must lead to one when the job first starts; behind that it may be renamed, and a new one come to stand in its
    /// place. A file that has been replaced under its name, or removed, is read until 5 s have passed without news. Default false.
    #[serde(default)]
    pub follow: bool,
    /// What to do when a followed file has shrunk or was overwritten. Default `fail`.
    #[serde(default)]
    pub on_truncate: OnTruncate,
    /// `csv`: whether the first record names the columns. Default false.
    pub header: Option<bool>,
    /// `csv`: whether fields in quotes may hold newlines. If not, big files can be read in parallel. Default true.
    pub quoted_newlines: Option<bool>,
    /// `csv`: what stands between fields, one ASCII character. Default `,`.
    pub delimiter: Option<String>,
    /// `csv`, `json`: the column or top-level field that becomes the record's key; a CSV column without a header goes
    /// by its number, from 1. In JSON it must be a string, or a number or boolean, which become text. No keys by default.
    pub key: Option<String>,
    /// `csv`, `json`: the column or field with the event time, in whole milliseconds since 1970. None by default.
    pub timestamp: Option<String>,
    /// Larger files are read in parts of this size. Default 64 MiB.
    pub split_bytes: Option<ByteSize>,
}

/// What a file holds, and so what a record's value is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// A record per line; the value is the line's bytes, whatever they are, without `\n` or `\r\n`.
    #[default]
    Lines,
    /// Comma-separated values; a quote that is opened must be closed. The value is a JSON object of column names and strings, or without a header an array of
    /// strings. Empty lines are passed over.
    Csv,
    /// A JSON text per line; the value is the line. Empty lines are passed over.
    Json,
}

/// What to do when a followed file has shrunk or was overwritten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnTruncate {
    /// Fail, naming the file.
    #[default]
    Fail,
    /// Read the file from its start again.
    Restart,
}

impl SourceSettings for FileSourceSettings {
    fn build(self, base_dir: &Path) -> Result<Arc<dyn Source>, SettingError> {
        self.validate()?;
        Ok(Arc::new(FileSource::new(self, base_dir)))
    }
}

impl FileSourceSettings {
    /// Checks that the values make sense together.
    ///
    /// # Errors
    /// The first that does not.
    pub fn validate(&self) -> Result<(), SettingError> {
        let check =
            |good: bool, field, problem: &str| if good { Ok(()) } else { Err(SettingError::new(field, problem)) };
        let (csv, lines) = (self.format == Format::Csv, self.format == Format::Lines);
        check(!self.path.as_os_str().is_empty(), "path", "must name a file, a directory or a glob pattern")?;
        check(csv || self.header.is_none(), "header", "only `format = \"csv\"` has headers")?;
        check(csv || self.quoted_newlines.is_none(), "quoted-newlines", "only `format = \"csv\"` has quotes")?;
        check(csv || self.delimiter.is_none(), "delimiter", "only `format = \"csv\"` has delimiters")?;
        let delimiter = self.delimiter.as_deref().unwrap_or(",").as_bytes();
        let good = delimiter.len() == 1 && delimiter[0].is_ascii() && !b"\"\r\n".contains(&delimiter[0]);
        check(good, "delimiter", "must be one ASCII character other than a quote or a line end")?;
        check(!lines || self.key.is_none(), "key", "lines have no fields; use `format = \"csv\"` or `\"json\"`")?;
        check(
            !lines || self.timestamp.is_none(),
            "timestamp",
            "lines have no fields; use `format = \"csv\"` or `\"json\"`",
        )?;
        if csv && self.header != Some(true) {
            let number =
                |name: &Option<String>| name.as_ref().is_none_or(|name| name.parse().is_ok_and(|at: usize| at > 0));
            let problem = "without `header = true` a column goes by its number, from 1";
            check(number(&self.key), "key", problem)?;
            check(number(&self.timestamp), "timestamp", problem)?;
        }
        let restart = self.on_truncate == OnTruncate::Restart;
        check(
            self.follow || !restart,
            "on-truncate",
            "only a file with `follow = true` can be read again from its start",
        )?;
        check(self.split_bytes != Some(ByteSize(0)), "split-bytes", "must not be 0")
    }

    /// The size of splits; none when files cannot be cut, because they are followed or have newlines in quotes.
    pub(super) fn split_bytes(&self) -> Option<u64> {
        let whole = self.follow || (self.format == Format::Csv && self.quoted_newlines.unwrap_or(true));
        (!whole).then(|| self.split_bytes.map_or(64 << 20, |bytes| bytes.0))
    }

    /// What stands between the fields of CSV.
    pub(super) fn delimiter(&self) -> u8 {
        // The settings have been checked.
        self.delimiter.as_ref().map_or(b',', |delimiter| delimiter.as_bytes()[0])
    }
}
