//! The directory of a file sink, made ready for a start.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use super::Existing;
use super::names::PartName;
use crate::connectors::ConnectorError;

/// A file of this name is made and removed again, to see whether the directory can be written.
const PROBE: &str = ".tidegate-probe";

/// An error about a file.
pub(super) fn file_error(action: &'static str, path: &Path, source: io::Error) -> ConnectorError {
    ConnectorError::File { action, path: path.to_owned(), source }
}

/// Makes renames and new files in a directory durable.
pub(super) fn sync_directory(directory: &Path) -> Result<(), ConnectorError> {
    File::open(directory)
        .and_then(|handle| handle.sync_all())
        .map_err(|error| file_error("sync directory", directory, error))
}

/// Makes the directory if it is missing, and sure that it can be written.
pub(super) fn make_usable(directory: &Path) -> Result<(), ConnectorError> {
    if directory.to_str().is_none() {
        let problem = format!("the output path {} is not valid UTF-8; choose another", directory.display());
        return Err(ConnectorError::Other(problem));
    }
    if !directory.is_dir() {
        fs::create_dir_all(directory).map_err(|error| file_error("create output directory", directory, error))?;
    }
    let probe = directory.join(PROBE);
    let outcome = File::create(&probe).and_then(|_| fs::remove_file(&probe));
    outcome.map_err(|error| file_error("write into output directory", directory, error))?;
    sync_directory(directory)
}

/// Looks at what is in the directory before a fresh start. Returns the names of the files that the results replace.
pub(super) fn find_existing(directory: &Path, existing: Existing) -> Result<Vec<String>, ConnectorError> {
    let mut names = list(directory)?;
    match existing {
        Existing::Fail => {
            if let Some(name) = names.iter().find(|name| !name.starts_with('.')) {
                return Err(ConnectorError::Other(format!(
                    "the output directory {} is not empty (it holds {name}, for one); choose another, or set \
                     `existing = \"append\"` to write beside what is there or `existing = \"replace\"` to replace its part files",
                    directory.display()
                )));
            }
        }
        Existing::Append => {}
        Existing::Replace => {
            // Pending ones too: nobody else is at work here, so a job that broke off left them.
            names.retain(|name| PartName::parse_committed(name).or(PartName::parse_pending(name)).is_some());
            return Ok(names);
        }
    }
    Ok(Vec::new())
}

/// The names in a directory, those that are not UTF-8 in a readable form.
pub(super) fn list(directory: &Path) -> Result<Vec<String>, ConnectorError> {
    let names = fs::read_dir(directory).and_then(|entries| {
        entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect::<io::Result<Vec<_>>>()
    });
    let mut names = names.map_err(|error| file_error("list output directory", directory, error))?;
    names.sort_unstable();
    Ok(names)
}
