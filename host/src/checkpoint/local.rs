//! What the `object_store` crate leaves undone on local files.
//!
//! It syncs the directories that it makes, but not those that were made for it. And it writes a file beside its place,
//! under its name with `#` and a number behind, and neither lists nor deletes such names: a process that is killed
//! leaves them, and a snapshot may be large.

use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Makes a directory and all above it, and makes them durable.
pub(super) fn create_directory(directory: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = directory.ancestors().take_while(|ancestor| !ancestor.exists()).collect();
    fs::create_dir_all(directory)?;
    // The directory itself in any case: whoever made it may not have come to syncing it.
    for made in missing.into_iter().chain([directory]) {
        if let Some(parent) = made.parent() {
            File::open(parent)?.sync_all()?;
        }
    }
    Ok(())
}

/// The file that was being written, if this is the name of an unfinished one.
pub(super) fn finished_name(path: &str) -> Option<&str> {
    let (finished, number) = path.rsplit_once('#')?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then_some(finished)
}

/// The unfinished files under a folder of a storage, in order.
pub(super) fn find(root: &Path, folder: &str) -> io::Result<Vec<String>> {
    let (mut folders, mut found) = (vec![folder.to_owned()], Vec::new());
    while let Some(folder) = folders.pop() {
        let entries = match fs::read_dir(root.join(&folder)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        for entry in entries {
            let entry = entry?;
            // What has another kind of name is not ours.
            let Some(path) = entry.file_name().to_str().map(|name| format!("{folder}/{name}")) else { continue };
            if entry.file_type()?.is_dir() {
                folders.push(path);
            } else if finished_name(&path).is_some() {
                found.push(path);
            }
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Deletes an unfinished file, and its folder if nothing else is in it.
pub(super) fn delete(root: &Path, path: &str) -> io::Result<()> {
    assert!(finished_name(path).is_some(), "{path} is a finished file");
    let path = root.join(path);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    if let Some(folder) = path.parent().filter(|folder| *folder != root) {
        // It fails if there is anything in it, which is as it should be.
        let _ = fs::remove_dir(folder);
    }
    Ok(())
}
