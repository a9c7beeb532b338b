//! Where checkpoints are, as people write it: `memory:`, `file:///var/lib/tidegate`, `file:checkpoints`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use crate::api::StorageLocation;

/// Schemes that later versions have.
const UNAVAILABLE: [&str; 4] = ["s3", "s3a", "s3n", "hdfs"];

/// Why a text names no place for checkpoints: what is wrong, what was expected, what to do; the last two may be empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StorageUrlError {
    pub(super) message: String,
    pub(super) expected: &'static str,
    pub(super) help: String,
}

/// What a place looks like, for messages.
pub(super) const EXPECTED: &str = "\"file:///an/absolute/path\", \"file:a/relative/path\" or \"memory:\"";

/// Reads a place. Relative paths begin at `base_dir`.
pub(super) fn parse(text: &str, base_dir: &Path) -> Result<StorageLocation, StorageUrlError> {
    let wrong = |message: String, help: String| StorageUrlError { message, expected: EXPECTED, help };
    let found = |help: String| wrong(format!("found the string {text:?}"), help);
    let Some((scheme, rest)) = text.split_once(':') else {
        return Err(found(match text {
            "memory" | "jobmanager" => "did you mean \"memory:\"?".to_owned(),
            "" | "filesystem" => String::new(),
            path if path.starts_with('/') => format!("did you mean \"file://{path}\"?"),
            path => format!("did you mean \"file:{path}\"?"),
        }));
    };
    match scheme.to_ascii_lowercase().as_str() {
        "memory" if rest.is_empty() => Ok(StorageLocation::Memory),
        "memory" => Err(found("did you mean \"memory:\"?".to_owned())),
        "file" => {
            let path = match rest.strip_prefix("//") {
                None => rest,
                Some(rest) => match rest.split_at(rest.find('/').unwrap_or(rest.len())) {
                    ("" | "localhost", path) => path,
                    (host, _) => {
                        let message = format!("{text:?} is about a machine named {host:?}");
                        return Err(wrong(
                            message,
                            format!("write \"file:{rest}\" for a path relative to the job file"),
                        ));
                    }
                },
            };
            if path.is_empty() {
                return Err(wrong(format!("{text:?} has no path"), String::new()));
            }
            let path = decode(path).map_err(|problem| wrong(format!("{text:?} {problem}"), String::new()))?;
            let path = std::path::absolute(base_dir.join(path));
            let path =
                path.map_err(|error| wrong(format!("the current directory is not known: {error}"), String::new()))?;
            Ok(StorageLocation::Directory(path))
        }
        scheme if UNAVAILABLE.contains(&scheme) => Err(StorageUrlError {
            message: format!("checkpoints in {scheme}:// are not available in this version of tidegate"),
            expected: "",
            help:
                "use a directory, such as \"file:///var/lib/tidegate/checkpoints\"; it may be on a network file system"
                    .to_owned(),
        }),
        scheme => Err(wrong(format!("checkpoints cannot be in {scheme}:"), String::new())),
    }
}

/// Reads the path of one checkpoint as the command line has it: a path, or a URL of a file as messages show it.
///
/// # Errors
/// When it is a URL of something else: what is wrong with it.
pub fn checkpoint_path(text: &str) -> Result<PathBuf, String> {
    let is_url = text
        .split_once(':')
        .is_some_and(|(scheme, rest)| scheme.eq_ignore_ascii_case("file") || rest.starts_with("//"));
    if !is_url {
        return Ok(PathBuf::from(text));
    }
    match parse(text, Path::new("")) {
        Ok(StorageLocation::Directory(path)) => Ok(path),
        Ok(StorageLocation::Memory) => Err("memory: holds no checkpoint after its run".to_owned()),
        Err(StorageUrlError { message, help, .. }) if help.is_empty() => Err(message),
        Err(StorageUrlError { message, help, .. }) => Err(format!("{message}; {help}")),
    }
}

/// Replaces `%20` and the like by what they stand for.
fn decode(text: &str) -> Result<OsString, &'static str> {
    const WRONG: &str = "has a % without two hexadecimal digits behind it; a % itself is written %25";
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, behind @ ..] = rest {
        rest = behind;
        bytes.push(match (first, behind) {
            (b'%', [high, low, behind @ ..]) => {
                rest = behind;
                let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
                digit(high).zip(digit(low)).map(|(high, low)| high << 4 | low).ok_or(WRONG)?
            }
            (b'%', _) => return Err(WRONG),
            (byte, _) => *byte,
        });
    }
    if bytes.contains(&0) { Err("has a NUL in its path") } else { Ok(OsString::from_vec(bytes)) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn directory(text: &str) -> PathBuf {
        match parse(text, Path::new("/jobs")) {
            Ok(StorageLocation::Directory(path)) => path,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn places_are_read() {
        assert_eq!(parse("memory:", Path::new("")), Ok(StorageLocation::Memory));
        for (text, path) in [
            ("file:///var/lib", "/var/lib"),
            ("file:/var/lib", "/var/lib"),
            ("FILE://localhost/var/lib", "/var/lib"),
            ("file:checkpoints", "/jobs/checkpoints"),
            ("file:./a/b", "/jobs/a/b"),
            ("file:///a%20b/100%25#?", "/a b/100%#?"),
        ] {
            assert_eq!(directory(text), Path::new(path), "{text}");
        }
        // The job file may itself be named by a relative path.
        let StorageLocation::Directory(path) = parse("file:x", Path::new("jobs")).unwrap() else { panic!("a path") };
        assert!(path.is_absolute() && path.ends_with("jobs/x"), "{path:?}");
    }

    #[test]
    fn what_is_no_place_is_explained() {
        let refused = |text: &str| {
            let error = parse(text, Path::new("/jobs")).unwrap_err();
            format!("{} / {}", error.message, error.help)
        };
        assert_eq!(refused("memory"), "found the string \"memory\" / did you mean \"memory:\"?");
        assert_eq!(refused("/var/lib"), "found the string \"/var/lib\" / did you mean \"file:///var/lib\"?");
        assert_eq!(refused("checkpoints"), "found the string \"checkpoints\" / did you mean \"file:checkpoints\"?");
        assert_eq!(refused("file://"), "\"file://\" has no path / ");
        assert_eq!(
            refused("file://a/b"),
            "\"file://a/b\" is about a machine named \"a\" / write \"file:a/b\" for a path relative to the job file"
        );
        for text in ["file:/a%", "file:/a%2", "file:/a%zz"] {
            assert!(refused(text).contains("has a % without two hexadecimal digits behind it"), "{text}");
        }
        assert!(refused("file:a%00").contains("NUL"));
        assert!(refused("s3://bucket/x").starts_with("checkpoints in s3:// are not available in this version"));
        assert!(refused("hdfs://name/x").starts_with("checkpoints in hdfs:// are not available in this version"));
        assert_eq!(refused("https://x"), "checkpoints cannot be in https: / ");
    }

    proptest! {
        /// What is shown can be written: reading it gives the same place.
        #[test]
        fn what_is_shown_can_be_read(bytes in prop::collection::vec(1u8.., 0..20)) {
            let path = Path::new("/").join(OsString::from_vec(bytes));
            let place = StorageLocation::Directory(std::path::absolute(path).unwrap());
            prop_assert_eq!(parse(&place.to_string(), Path::new("/jobs")), Ok(place));
        }
    }
}
