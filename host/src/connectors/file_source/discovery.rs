//! Which files a path stands for.

use std::fs::{self, File, Metadata};
use std::io;
use std::path::{Path, PathBuf};

use super::position::{FileKey, Identity};
use crate::connectors::{ConnectorError, file_sink};

/// What a path of the settings is.
#[derive(Clone, Debug)]
pub(super) enum Target {
    File(PathBuf),
    Directory(PathBuf),
    Pattern(String),
}

/// An error about a file.
pub(super) fn file_error(action: &'static str, path: &Path, source: io::Error) -> ConnectorError {
    ConnectorError::File { action, path: path.to_owned(), source }
}

impl Target {
    /// Looks at what a path is: what exists under its very name is never a pattern.
    pub(super) fn of(path: &Path) -> Result<Self, ConnectorError> {
        let text = path.to_str().ok_or_else(|| not_utf8(path))?;
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => Ok(Self::Directory(path.to_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound && text.contains(['*', '?', '[']) => {
                Ok(Self::Pattern(text.to_owned()))
            }
            // Whatever is wrong with it shows when it is opened.
            _ => Ok(Self::File(path.to_owned())),
        }
    }

    /// The files, in the order of their names. May be none, for a directory or a pattern.
    pub(super) fn files(&self) -> Result<Vec<PathBuf>, ConnectorError> {
        let mut files = match self {
            Self::File(path) => vec![path.clone()],
            Self::Directory(directory) => {
                let entries = fs::read_dir(directory).and_then(Iterator::collect::<io::Result<Vec<_>>>);
                let entries = entries.map_err(|error| file_error("list", directory, error))?;
                let mut files: Vec<_> = entries.into_iter().map(|entry| entry.path()).collect();
                files.retain(|path| !has_prefix(path, &['.', '_']) && !path.is_dir());
                files
            }
            Self::Pattern(pattern) => {
                let options = glob::MatchOptions { require_literal_leading_dot: true, ..glob::MatchOptions::new() };
                let paths = glob::glob_with(pattern, options).map_err(|error| {
                    ConnectorError::Other(format!(
                        "{pattern} is not a glob pattern: {} at character {}",
                        error.msg, error.pos
                    ))
                })?;
                let paths = paths.collect::<Result<Vec<_>, _>>();
                let mut files = paths.map_err(|error| {
                    let path = error.path().to_owned();
                    file_error("list", &path, error.into())
                })?;
                let underscore = has_prefix(Path::new(pattern), &['_']);
                files.retain(|path| (underscore || !has_prefix(path, &['_'])) && !path.is_dir());
                files
            }
        };
        if let Some(path) = files.iter().find(|path| path.to_str().is_none()) {
            return Err(not_utf8(path));
        }
        files.sort_unstable();
        Ok(files)
    }

    /// Whether it stands for part files in this directory, which is canonical.
    pub(super) fn meets_output_in(&self, directory: &Path) -> bool {
        let is_it = |path: &Path| fs::canonicalize(path).is_ok_and(|path| path == directory);
        let in_it = |path: &Path| fs::canonicalize(path).is_ok_and(|path| path.parent() == Some(directory));
        let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        match self {
            Self::File(path) => in_it(path) && file_sink::is_part_name(&name(path)),
            Self::Directory(path) => is_it(path),
            Self::Pattern(pattern) => {
                let (parent, names) = (Path::new(pattern).parent().unwrap_or(Path::new("")), name(Path::new(pattern)));
                let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
                let parts = glob::Pattern::new(&names).is_ok_and(|names| names.matches(file_sink::A_PART_NAME));
                let meets = |path: &PathBuf| in_it(path) && (parts || file_sink::is_part_name(&name(path)));
                (parts && is_it(parent)) || self.files().is_ok_and(|files| files.iter().any(meets))
            }
        }
    }

    /// The error when there are no files.
    pub(super) fn no_files(&self) -> ConnectorError {
        ConnectorError::Other(match self {
            Self::File(path) => format!("there is no file {}", path.display()),
            Self::Directory(path) => format!(
                "there are no files in directory {}; names that begin with `.` or `_` and directories in it do not count",
                path.display()
            ),
            Self::Pattern(pattern) => format!("no file matches {pattern}"),
        })
    }
}

fn has_prefix(path: &Path, prefixes: &[char]) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefixes))
}

fn not_utf8(path: &Path) -> ConnectorError {
    ConnectorError::Other(format!("the file name {} is not valid UTF-8; rename the file", path.display()))
}

/// Opens a file to read and looks at it.
pub(super) fn open(path: &Path) -> Result<(File, Metadata), ConnectorError> {
    // Looked at first, because opening a pipe would wait for its writer.
    let regular = fs::metadata(path).map_err(|error| file_error("open", path, error))?.is_file();
    if !regular {
        let problem =
            format!("{} is not a regular file, and only those can be read again after a failure", path.display());
        return Err(ConnectorError::Other(problem));
    }
    let opened = File::open(path).and_then(|file| file.metadata().map(|metadata| (file, metadata)));
    opened.map_err(|error| file_error("open", path, error))
}

/// A file that was found: its path, identity and size.
pub(super) fn examine(path: &Path) -> Result<(Identity, u64), ConnectorError> {
    let (file, metadata) = open(path)?;
    let identity = Identity::of(&file, &metadata).map_err(|error| file_error("read", path, error))?;
    Ok((identity, metadata.len()))
}

/// The file that a path stands for now, if any.
pub(super) fn stands_for(path: &Path) -> Option<FileKey> {
    fs::metadata(path).ok().map(|metadata| FileKey::of(&metadata))
}

/// Looks whether a file of this key is another one than was known by it. None also when another file has come to stand
/// under the path meanwhile, which the next look will find.
pub(super) fn find_other(
    path: &Path,
    key: FileKey,
    known: Option<&Identity>,
) -> Result<Option<Identity>, ConnectorError> {
    let failed = |error| file_error("read", path, error);
    let (file, metadata) = open(path)?;
    if FileKey::of(&metadata) != key {
        return Ok(None);
    }
    if let Some(known) = known
        && known.recognise(&file, &metadata).map_err(failed)?.is_some()
    {
        return Ok(None);
    }
    Identity::of(&file, &metadata).map(Some).map_err(failed)
}

/// Looks for a file that had a path, under another name in the same directory.
pub(super) fn find_renamed(
    path: &Path,
    identity: &Identity,
) -> Result<Option<(File, Metadata, Identity)>, ConnectorError> {
    let Some(directory) = path.parent() else { return Ok(None) };
    let failed = |error| file_error("list", directory, error);
    for entry in fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if stands_for(&path) != Some(identity.key) {
            continue;
        }
        let (file, metadata) = open(&path)?;
        let recognised = identity.recognise(&file, &metadata).map_err(|error| file_error("read", &path, error))?;
        if let Some(identity) = recognised {
            return Ok(Some((file, metadata, identity)));
        }
    }
    Ok(None)
}
