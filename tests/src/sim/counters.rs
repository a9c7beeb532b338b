//! What a run came across, so that a suite can tell whether it tried what it is there to try.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of one run, or of many added up.
        #[derive(Debug, Default)]
        pub struct Counters {
            $($(#[$doc])* pub $name: AtomicU64,)*
        }

        impl Counters {
            /// Adds the counters of a run.
            pub fn add(&self, other: &Self) {
                $(self.$name.fetch_add(other.$name.load(Relaxed), Relaxed);)*
            }

            /// The names of those that are 0: what was never tried.
            #[must_use]
            pub fn zeros(&self) -> Vec<&'static str> {
                let all = [$((stringify!($name), self.$name.load(Relaxed))),*];
                all.into_iter().filter(|(_, value)| *value == 0).map(|(name, _)| name).collect()
            }
        }

        impl fmt::Display for Counters {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let all = [$((stringify!($name), self.$name.load(Relaxed))),*];
                let words: Vec<String> = all.iter().map(|(name, value)| format!("{name} {value}")).collect();
                f.write_str(&words.join(", "))
            }
        }
    };
}

impl Counters {
    /// The names of those of these that are 0.
    #[must_use]
    pub fn zeros_among(&self, names: &[&str]) -> Vec<&'static str> {
        self.zeros().into_iter().filter(|name| names.contains(name)).collect()
    }
}

counters! {
    /// Messages that arrived as they were sent.
    prompt_messages,
    /// Messages that travelled for a while.
    delayed_messages,
    /// Times that a sender found its channel full.
    full_channels,
    /// Batches that sources brought in.
    source_batches,
    /// Records that became visible in a sink.
    committed_records,
    /// Runs whose job finished.
    finished_jobs,
    /// Runs whose job was cancelled on the way.
    cancelled_jobs,
    /// Runs whose job failed, as it had to.
    failed_jobs,
    /// Records given up by `on-error`.
    given_up_records,
    /// Errors of sources and sinks.
    connector_errors,
    /// Changes that storage refused.
    changes_failed,
    /// Changes that did not happen, told as unclear.
    changes_lost,
    /// Changes that happened, told as unclear.
    changes_unclear,
    /// Changes that happened after they had been told as unclear.
    changes_late,
    /// Times that somebody looked what had become of an unclear change.
    unclear_changes_settled,
    /// Reads that failed.
    reads_failed,
    /// Uploads that were neither finished nor given up.
    torn_uploads,
    /// Files of checkpoints that never were, deleted by a later process.
    garbage_files,
    /// Parts of a sink that were committed again.
    replayed_commits,
    /// Sweeps of a sink that failed.
    failed_sweeps,
    /// Parts of a sink that were swept.
    swept_parts,
    /// Messages that had arrived and waited behind a barrier.
    held_back_messages,
    /// Tasks that crashed.
    task_crashes,
    /// Processes that crashed.
    process_crashes,
    /// Processes that stood still for a while.
    pauses,
    /// Processes that stood still until another had taken the job over, and were refused then.
    fenced_zombies,
    /// Storms of storage errors.
    storms,
    /// Jobs that were resumed by another process.
    resumes,
    /// Resumes with other parallelism.
    rescales,
    /// Restarts within a process.
    restarts,
    /// Checkpoints that were completed.
    completed_checkpoints,
    /// Checkpoints that were given up.
    aborted_checkpoints,
    /// Those that took too long.
    expired_checkpoints,
    /// Those that a task declined.
    declined_checkpoints,
    /// Acknowledgements of checkpoints that had been given up.
    late_acknowledgements,
    /// Tasks that had finished in a checkpoint in which others had not.
    finished_tasks_in_checkpoints,
    /// Resumes of a job that had finished.
    resumes_after_the_end,
    /// Polls.
    steps,
}
