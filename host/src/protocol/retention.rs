//! Which completed checkpoints a job keeps, while it runs and when it ends.
//!
//! Owns the list of the job's own completed checkpoints. Deleting their files belongs to the driver. A checkpoint or
//! savepoint that the job was started from by its path belongs to who named it: it is never in the list, and so never
//! deleted. Nothing is asked here when a process dies: what it has is found when it is resumed.
//!
//! Invariant: the newest completed checkpoint stays as long as the job runs.

use std::collections::VecDeque;

use crate::id::CheckpointId;

/// When checkpoints outlive the job. A job that finishes deletes its own in any case, and a process that dies deletes
/// nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Retention {
    /// They stay when the job is cancelled and when it fails.
    #[default]
    OnCancellation,
    /// They stay when the job fails, and go when it is cancelled.
    OnFailure,
    /// They go with the job.
    Never,
}

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobEnd {
    /// All its tasks came to the end of their input.
    Finished,
    /// Somebody ended it.
    Cancelled,
    /// It failed and is not restarted.
    Failed,
}

impl Retention {
    /// Whether checkpoints stay after such an end.
    #[must_use]
    pub fn keeps_after(self, end: JobEnd) -> bool {
        match (self, end) {
            (Self::OnCancellation | Self::OnFailure | Self::Never, JobEnd::Finished) => false,
            (Self::OnCancellation, JobEnd::Cancelled | JobEnd::Failed) => true,
            (Self::OnFailure, JobEnd::Failed) => true,
            (Self::OnFailure, JobEnd::Cancelled) => false,
            (Self::Never, JobEnd::Cancelled | JobEnd::Failed) => false,
        }
    }
}

/// The job's own completed checkpoints that are not deleted, each with what the driver needs to know of it.
#[derive(Clone, Debug)]
pub struct CompletedCheckpoints<T> {
    /// How many stay when one completes.
    keep: usize,
    /// In order.
    kept: VecDeque<(CheckpointId, T)>,
}

impl<T> CompletedCheckpoints<T> {
    /// Those that a resumed job found, in order; none for a job that starts anew or from a path. From the next
    /// completion on, so many are kept.
    ///
    /// # Panics
    /// When none were kept, or those found are not in order.
    #[must_use]
    pub fn new(keep: u32, found: impl IntoIterator<Item = (CheckpointId, T)>) -> Self {
        assert!(keep > 0, "without its newest checkpoint a job could not be restored");
        let kept: VecDeque<(CheckpointId, T)> = found.into_iter().collect();
        assert!(kept.iter().is_sorted_by(|(older, _), (newer, _)| older < newer), "completed out of order");
        Self { keep: keep as usize, kept }
    }

    /// The one to restore from.
    #[must_use]
    pub fn newest(&self) -> Option<CheckpointId> {
        self.kept.back().map(|(id, _)| *id)
    }

    /// What is known of those that are kept, oldest first.
    pub fn kept(&self) -> impl Iterator<Item = &T> {
        self.kept.iter().map(|(_, known)| known)
    }

    /// A checkpoint is durable. Returns those that it subsumes, oldest first: they are to be deleted.
    ///
    /// # Panics
    /// When it is not newer than all others.
    #[must_use = "subsumed checkpoints are to be deleted"]
    pub fn completed(&mut self, id: CheckpointId, known: T) -> Vec<T> {
        assert!(self.newest() < Some(id), "{id} completed after {:?}", self.newest());
        self.kept.push_back((id, known));
        let subsumed = self.kept.len().saturating_sub(self.keep);
        self.kept.drain(..subsumed).map(|(_, known)| known).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RETENTIONS: [Retention; 3] = [Retention::OnCancellation, Retention::OnFailure, Retention::Never];
    const ENDS: [JobEnd; 3] = [JobEnd::Finished, JobEnd::Cancelled, JobEnd::Failed];

    #[test]
    fn what_stays_after_which_end() {
        let kept = RETENTIONS.map(|retention| ENDS.map(|end| retention.keeps_after(end)));
        assert_eq!(kept, [[false, true, true], [false, false, true], [false, false, false]]);
    }

    proptest! {
        /// The newest ones stay, as many as are to be kept. All others are deleted, in order and once each.
        #[test]
        fn the_newest_stay(
            keep in 1u32..5,
            found in 0usize..5,
            gaps in prop::collection::vec(1u64..4, 0..20),
        ) {
            let mut last = 0;
            let all: Vec<CheckpointId> = gaps.iter().map(|gap| { last += gap; CheckpointId(last) }).collect();
            let (found, new) = all.split_at(found.min(all.len()));
            let mut list = CompletedCheckpoints::new(keep, found.iter().map(|id| (*id, *id)));
            let mut deleted = Vec::new();
            for (done, id) in (found.len() + 1..).zip(new) {
                deleted.extend(list.completed(*id, *id));
                prop_assert_eq!(&deleted, &all[..done.saturating_sub(keep as usize)]);
                prop_assert_eq!(list.newest(), Some(*id));
            }
            let kept = all.len() - deleted.len();
            prop_assert_eq!(list.kept().count(), kept);
            deleted.extend(list.kept());
            prop_assert_eq!(&deleted, &all);
        }
    }
}
