//! How connectors encode what goes into a checkpoint: JSON objects with a field `version`, each its own type.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::ConnectorError;

/// The one field that all versions have.
#[derive(Deserialize)]
struct Version {
    version: u32,
}

/// Encodes a value, whose paths have been checked to be UTF-8.
pub(super) fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).expect("plain data is JSON")
}

/// Decodes a value of this version. `what` is named in the error.
pub(super) fn decode<T: DeserializeOwned>(what: &str, version: u32, bytes: &[u8]) -> Result<T, ConnectorError> {
    let malformed = |problem: String| ConnectorError::Other(format!("{what} is not readable: {problem}"));
    // The version first: what another one holds would be called unknown fields.
    let found = serde_json::from_slice(bytes).map(|found: Version| found.version);
    let found = found.map_err(|error| malformed(error.to_string()))?;
    if found != version {
        return Err(malformed(format!("it is of version {found}, known is {version}")));
    }
    serde_json::from_slice(bytes).map_err(|error| malformed(error.to_string()))
}
