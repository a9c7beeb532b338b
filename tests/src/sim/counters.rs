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
    /// Polls.
    steps,
}
