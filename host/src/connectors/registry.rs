//! The connectors by name.
//!
//! A table of the job file names its connector; what is left of the table, without the fields that every node has, is
//! the connector's settings. Whatever can be deserialized will do, so that errors keep the place in the file that the
//! format at hand knows.

use std::path::Path;
use std::sync::Arc;

use serde::Deserializer;

use super::blackhole::BlackholeSettings;
use super::file_sink::FileSinkSettings;
use super::file_source::FileSourceSettings;
use super::generator::GeneratorSettings;
use super::settings::{SettingError, SinkSettings, SourceSettings};
use super::socket::SocketSettings;
use super::stdout::StdoutSettings;
use super::{Sink, Source};

/// The names of the sources.
pub const SOURCES: &[&str] = &["file", "generator", "socket"];

/// The names of the sinks.
pub const SINKS: &[&str] = &["blackhole", "file", "stdout"];

/// Why a connector could not be made from its table. `E` is the error of the format that the table was written in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError<E> {
    /// There is no connector of that name.
    #[error("unknown connector {name:?}; known: {known}", known = .known.join(", "))]
    Unknown {
        /// The name.
        name: String,
        /// The names that would have done.
        known: &'static [&'static str],
    },
    /// A field is unknown, missing or of the wrong type.
    #[error("{0}")]
    Malformed(E),
    /// A value makes no sense.
    #[error(transparent)]
    Setting(SettingError),
}

/// Makes a source.
///
/// # Errors
/// When there is no such connector or its settings are wrong.
pub fn source<'de, D: Deserializer<'de>>(
    connector: &str,
    settings: D,
    base_dir: &Path,
) -> Result<Arc<dyn Source>, BuildError<D::Error>> {
    match connector {
        "file" => build_source::<FileSourceSettings, D>(settings, base_dir),
        "generator" => build_source::<GeneratorSettings, D>(settings, base_dir),
        "socket" => build_source::<SocketSettings, D>(settings, base_dir),
        _ => Err(BuildError::Unknown { name: connector.to_owned(), known: SOURCES }),
    }
}

/// Makes a sink.
///
/// # Errors
/// When there is no such connector or its settings are wrong.
pub fn sink<'de, D: Deserializer<'de>>(
    connector: &str,
    settings: D,
    base_dir: &Path,
) -> Result<Arc<dyn Sink>, BuildError<D::Error>> {
    match connector {
        "blackhole" => build_sink::<BlackholeSettings, D>(settings, base_dir),
        "file" => build_sink::<FileSinkSettings, D>(settings, base_dir),
        "stdout" => build_sink::<StdoutSettings, D>(settings, base_dir),
        _ => Err(BuildError::Unknown { name: connector.to_owned(), known: SINKS }),
    }
}

fn build_source<'de, S: SourceSettings, D: Deserializer<'de>>(
    settings: D,
    base_dir: &Path,
) -> Result<Arc<dyn Source>, BuildError<D::Error>> {
    S::deserialize(settings).map_err(BuildError::Malformed)?.build(base_dir).map_err(BuildError::Setting)
}

fn build_sink<'de, S: SinkSettings, D: Deserializer<'de>>(
    settings: D,
    base_dir: &Path,
) -> Result<Arc<dyn Sink>, BuildError<D::Error>> {
    S::deserialize(settings).map_err(BuildError::Malformed)?.build(base_dir).map_err(BuildError::Setting)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source_error(connector: &str, table: &str) -> String {
        let table: toml::Table = table.parse().expect("valid TOML");
        source(connector, table, Path::new("/job")).err().expect("an error").to_string()
    }

    fn sink_error(connector: &str, table: &str) -> String {
        let table: toml::Table = table.parse().expect("valid TOML");
        sink(connector, table, Path::new("/job")).err().expect("an error").to_string()
    }

    #[test]
    fn unknown_names_list_the_known_ones() {
        assert_eq!(source_error("fiel", ""), "unknown connector \"fiel\"; known: file, generator, socket");
        assert_eq!(sink_error("generator", ""), "unknown connector \"generator\"; known: blackhole, file, stdout");
    }

    #[test]
    fn every_listed_name_is_known() {
        for name in SOURCES {
            assert!(!source_error(name, "nonsense = 1").contains("unknown connector"), "{name}");
        }
        for name in SINKS {
            assert!(!sink_error(name, "nonsense = 1").contains("unknown connector"), "{name}");
        }
    }

    #[test]
    fn fields_are_checked() {
        assert!(source_error("file", "path = \"a\"\npaht = \"b\"").contains("unknown field `paht`"));
        assert!(source_error("file", "").contains("missing field `path`"));
        assert!(source_error("file", "path = 1").contains("expected path string"));
        let size = source_error("file", "path = \"a\"\nsplit-bytes = 5000");
        assert!(size.contains("expected a size with its unit, such as \"64KiB\""), "{size}");
        assert!(source_error("file", "path = \"a\"\nkey = \"k\"").starts_with("key: "));
        assert!(source_error("generator", "kind = \"keyed-uniform\"\nrate = 0").starts_with("rate: "));
        assert!(sink_error("file", "path = \"\"").starts_with("path: "));
    }
}
