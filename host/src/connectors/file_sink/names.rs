//! The names of part files.
//!
//! Committed: `part-<run>-<subtask>-<sequence>`. Pending: the same behind a dot and before `.pending`. Readers of the
//! directory that skip hidden files see committed output only.

use std::fmt;

const PENDING: &str = ".pending";

/// What a part file is named after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PartName {
    pub(super) run: String,
    pub(super) subtask: u32,
    /// Counts the files of one subtask in one run.
    pub(super) sequence: u64,
}

impl PartName {
    /// The name while the file is not committed.
    pub(super) fn pending(&self) -> String {
        format!(".{self}{PENDING}")
    }

    /// What a committed file is named after; none if it is no part file.
    pub(super) fn parse_committed(name: &str) -> Option<Self> {
        let mut parts = name.strip_prefix("part-")?.rsplitn(3, '-');
        let sequence = number(parts.next()?)?;
        let subtask = u32::try_from(number(parts.next()?)?).ok()?;
        let run = parts.next().filter(|run| !run.is_empty())?.to_owned();
        Some(Self { run, subtask, sequence })
    }

    /// What a pending file is named after; none if it is no pending part file.
    pub(super) fn parse_pending(name: &str) -> Option<Self> {
        Self::parse_committed(name.strip_prefix('.')?.strip_suffix(PENDING)?)
    }
}

fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

impl fmt::Display for PartName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Padded, so that names sort in the order in which the files were written.
        write!(f, "part-{}-{}-{:06}", self.run, self.subtask, self.sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        for (run, subtask, sequence) in [("7", 0, 0), ("3-abc-1", 12, 1_234_567)] {
            let name = PartName { run: run.to_owned(), subtask, sequence };
            assert_eq!(PartName::parse_committed(&name.to_string()), Some(name.clone()));
            assert_eq!(PartName::parse_pending(&name.pending()), Some(name.clone()));
            assert_eq!(PartName::parse_committed(&name.pending()), None);
        }
        for name in ["part-1-2", "part--1-2", "part-a-1-x", "part-a-+1-2", "notes", "part-a-1-2.pending"] {
            assert_eq!(PartName::parse_committed(name), None, "{name}");
        }
    }
}
