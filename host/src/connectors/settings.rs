//! What all connectors' settings have in common: a plain struct, read from a table of the job file, that builds.
//!
//! Reading finds unknown fields and wrong types; `build` finds values that make no sense. Neither looks at files or
//! sockets: that is for when the job starts.

use std::path::Path;
use std::sync::Arc;

use serde::de::DeserializeOwned;

use super::{Sink, Source};

/// A value of a connector's table that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct SettingError {
    /// The field.
    pub field: &'static str,
    /// What is wrong and what would be right.
    pub problem: String,
}

impl SettingError {
    /// An error about a field.
    pub(super) fn new(field: &'static str, problem: impl Into<String>) -> Self {
        Self { field, problem: problem.into() }
    }
}

/// The settings of a kind of source.
pub trait SourceSettings: DeserializeOwned {
    /// Makes the source. Relative paths start at `base_dir`.
    ///
    /// # Errors
    /// When a value makes no sense.
    fn build(self, base_dir: &Path) -> Result<Arc<dyn Source>, SettingError>;
}

/// The settings of a kind of sink.
pub trait SinkSettings: DeserializeOwned {
    /// Makes the sink. Relative paths start at `base_dir`.
    ///
    /// # Errors
    /// When a value makes no sense.
    fn build(self, base_dir: &Path) -> Result<Arc<dyn Sink>, SettingError>;
}
