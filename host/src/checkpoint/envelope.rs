//! The envelope of small files: what says which format and version a file is, and that it is whole.
//!
//! `magic (8) | version (u16) | length of the body (u64) | body (postcard) | xxh3 of all before (u64)`, numbers in little
//! endian. The envelope is the same for all versions of a format, so that a newer file is told from a damaged one.
//!
//! Always holds: a file of which any byte was changed, lost or added does not open.

use serde::Serialize;
use serde::de::DeserializeOwned;
use xxhash_rust::xxh3::xxh3_64;

const HEADER_BYTES: usize = 18;
const CHECKSUM_BYTES: usize = 8;

/// A format of small files.
#[derive(Debug)]
pub(super) struct Format {
    /// What a file is called in errors.
    pub(super) name: &'static str,
    /// What a file begins with.
    pub(super) magic: [u8; 8],
    /// The version that is written, and the only one that is read so far.
    pub(super) version: u16,
}

/// Why a file does not open.
#[derive(Debug, thiserror::Error)]
pub enum EnvelopeError {
    /// It begins differently.
    #[error("it is no {format}")]
    OtherFormat {
        /// What was expected.
        format: &'static str,
    },
    /// It is too short or too long.
    #[error("it has {found} bytes where there must be {expected}: it is {}", if found < expected { "cut short" } else { "not what was written" })]
    Length {
        /// How long it must be.
        expected: u64,
        /// How long it is.
        found: u64,
    },
    /// Its checksum is wrong.
    #[error("its checksum is wrong: it was damaged or changed after it was written")]
    Damaged,
    /// It was written by a newer tidegate.
    #[error("it has version {found} of its format, and this tidegate reads up to version {known}: use a newer one")]
    Newer {
        /// The file's version.
        found: u16,
        /// The newest version that can be read.
        known: u16,
    },
    /// It is whole but makes no sense.
    #[error("its content cannot be understood: {problem}")]
    Malformed {
        /// What does not fit.
        problem: String,
    },
}

impl Format {
    /// Puts a body into an envelope. Equal bodies give equal files.
    pub(super) fn seal<T: Serialize>(&self, body: &T) -> Vec<u8> {
        let mut file = Vec::with_capacity(256);
        file.extend_from_slice(&self.magic);
        file.extend_from_slice(&self.version.to_le_bytes());
        file.extend_from_slice(&[0; 8]);
        let mut file = postcard::to_extend(body, file).expect("plain data is written to memory");
        let length = (file.len() - HEADER_BYTES) as u64;
        file[HEADER_BYTES - 8..HEADER_BYTES].copy_from_slice(&length.to_le_bytes());
        file.extend_from_slice(&xxh3_64(&file).to_le_bytes());
        file
    }

    /// Checks the envelope and reads the body.
    pub(super) fn open<T: DeserializeOwned>(&self, file: &[u8]) -> Result<T, EnvelopeError> {
        if !file.starts_with(&self.magic[..file.len().min(self.magic.len())]) || file.is_empty() {
            return Err(EnvelopeError::OtherFormat { format: self.name });
        }
        let length_error = |expected| EnvelopeError::Length { expected, found: file.len() as u64 };
        let smallest = HEADER_BYTES + CHECKSUM_BYTES;
        if file.len() < smallest {
            return Err(length_error(smallest as u64));
        }
        let (content, checksum) = file.split_at(file.len() - CHECKSUM_BYTES);
        let (header, body) = content.split_at(HEADER_BYTES);
        let length = u64::from_le_bytes(header[HEADER_BYTES - 8..].try_into().expect("eight bytes"));
        if length != body.len() as u64 {
            return Err(length_error(length.saturating_add(smallest as u64)));
        }
        if xxh3_64(content).to_le_bytes() != checksum {
            return Err(EnvelopeError::Damaged);
        }
        let version = u16::from_le_bytes(header[8..10].try_into().expect("two bytes"));
        if version > self.version {
            return Err(EnvelopeError::Newer { found: version, known: self.version });
        }
        let malformed = |problem: String| EnvelopeError::Malformed { problem };
        if version < self.version {
            return Err(malformed(format!("there is no version {version} of the format")));
        }
        match postcard::take_from_bytes(body) {
            Ok((body, [])) => Ok(body),
            Ok((_, rest)) => Err(malformed(format!("{} bytes are left over", rest.len()))),
            Err(error) => Err(malformed(error.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: Format = Format { name: "test file", magic: *b"tg-test\n", version: 3 };

    fn open(file: &[u8]) -> Result<Vec<String>, String> {
        FORMAT.open(file).map_err(|error| error.to_string())
    }

    #[test]
    fn what_was_sealed_opens() {
        let body = vec!["a".to_owned(), String::new()];
        assert_eq!(open(&FORMAT.seal(&body)), Ok(body));
    }

    #[test]
    fn no_damage_goes_unnoticed() {
        let file = FORMAT.seal(&vec!["some".to_owned(), "text".to_owned()]);
        for at in 0..file.len() {
            for bit in 0..8 {
                let mut damaged = file.clone();
                damaged[at] ^= 1 << bit;
                assert!(open(&damaged).is_err(), "bit {bit} of byte {at}");
            }
            assert!(open(&file[..at]).is_err(), "cut after {at}");
        }
        assert!(open(&[&file[..], &[0]].concat()).is_err());
    }

    #[test]
    fn errors_say_what_is_wrong() {
        let file = FORMAT.seal(&vec!["text".to_owned()]);
        let error = |file: &[u8]| open(file).unwrap_err();
        assert_eq!(error(b"something else entirely, no file of ours"), "it is no test file");
        assert_eq!(error(b""), "it is no test file");
        assert!(error(&file[..20]).contains("cut short"));
        assert!(error(&file[..file.len() - 1]).contains("cut short"));
        let mut damaged = file.clone();
        damaged[20] ^= 1;
        assert!(error(&damaged).contains("checksum"));
        let newer = Format { version: 4, ..FORMAT }.seal(&());
        assert!(error(&newer).contains("version 4 of its format, and this tidegate reads up to version 3"));
        assert!(error(&Format { version: 2, ..FORMAT }.seal(&())).contains("no version 2"));
        assert!(error(&FORMAT.seal(&(0u8, 1u8))).contains("left over"));
    }
}
