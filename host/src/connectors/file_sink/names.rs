//! The names of part files.
//!
//! Committed: `part-<job>-<run>-<attempt>-<node>-<subtask>-<sequence>`. Pending: the same behind a dot and before
//! `.pending`. Readers of the directory that skip hidden files see committed output only. Node names may hold dashes, and
//! no other part does.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::id::{Attempt, Owner, SubtaskId};

const PENDING: &str = ".pending";

/// What a part file is named after.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PartName {
    pub(super) owner: Owner,
    pub(super) node: String,
    pub(super) subtask: u32,
    /// Counts the files of one subtask in one attempt.
    pub(super) sequence: u64,
}

impl PartName {
    pub(super) fn new(owner: &Owner, subtask: &SubtaskId, sequence: u64) -> Self {
        Self { owner: owner.clone(), node: subtask.node.clone(), subtask: subtask.index, sequence }
    }

    /// The name while the file is not committed.
    pub(super) fn pending(&self) -> String {
        format!(".{self}{PENDING}")
    }

    /// What a committed file is named after; none if it is no part file.
    pub(super) fn parse_committed(name: &str) -> Option<Self> {
        let mut parts = name.strip_prefix("part-")?.splitn(4, '-');
        let job = parts.next().filter(|job| !job.is_empty())?.to_owned();
        let attempt = Attempt { run: number(parts.next()?)?, number: number(parts.next()?)? };
        let mut parts = parts.next()?.rsplitn(3, '-');
        let (sequence, subtask) = (number(parts.next()?)?, number(parts.next()?)?);
        let node = parts.next().filter(|node| !node.is_empty())?.to_owned();
        Some(Self { owner: Owner { job, attempt }, node, subtask, sequence })
    }

    /// What a pending file is named after; none if it is no pending part file.
    pub(super) fn parse_pending(name: &str) -> Option<Self> {
        Self::parse_committed(name.strip_prefix('.')?.strip_suffix(PENDING)?)
    }
}

fn number<T: FromStr>(text: &str) -> Option<T> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

impl fmt::Display for PartName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { owner, node, subtask, sequence } = self;
        // Padded, so that names sort in the order in which the files were written.
        write!(f, "part-{owner}-{node}-{subtask}-{sequence:06}")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A name says who wrote it, whatever the node is called.
        #[test]
        fn names_read_back(
            job in "[0-9a-zA-Z]{1,16}", run: u64, number: u32, node in "[0-9a-zA-Z_-]{1,8}", subtask: u32, sequence: u64,
        ) {
            let owner = Owner { job, attempt: Attempt { run, number } };
            let name = PartName { owner, node, subtask, sequence };
            prop_assert_eq!(PartName::parse_committed(&name.to_string()), Some(name.clone()));
            prop_assert_eq!(PartName::parse_pending(&name.pending()), Some(name.clone()));
            prop_assert_eq!(PartName::parse_committed(&name.pending()), None);
        }
    }

    #[test]
    fn names_of_other_files_are_none() {
        for name in
            ["part-j-1-1-out-0-x", "part-j-1-1-0-0", "part--1-1-out-0-0", "part-j-1-+1-out-0-0", "notes", "part-1-2"]
        {
            assert_eq!(PartName::parse_committed(name), None, "{name}");
        }
    }
}
