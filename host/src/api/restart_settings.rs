//! What becomes of a job whose task has failed: plain data, with every default in one place.

use std::time::Duration;

/// Whether and when a job restarts after a failure.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum RestartSettings {
    /// Never: the first failure is the job's.
    #[default]
    None,
    /// A number of times, after the same delay each time.
    FixedDelay {
        /// How many restarts there are in all.
        attempts: u32,
        /// From the failure to the restart.
        delay: Duration,
    },
    /// As long as failures are rare.
    FailureRate {
        /// How many failures an interval may have; one more fails the job.
        max_failures: u32,
        /// The interval, which ends with each failure.
        interval: Duration,
        /// From the failure to the restart.
        delay: Duration,
    },
    /// Always, after delays that grow from failure to failure.
    ExponentialDelay {
        /// The first delay.
        initial: Duration,
        /// The longest delay.
        max: Duration,
        /// What a delay is multiplied by to make the next; more than 1.
        multiplier: f64,
        /// After so long without a failure the delay is the first one again.
        reset_after: Duration,
        /// The part of a delay by which it is made longer or shorter at random, from 0 to 1.
        jitter: f64,
    },
}

impl RestartSettings {
    /// Once, after a second.
    pub const FIXED_DELAY: Self = Self::FixedDelay { attempts: 1, delay: Duration::from_secs(1) };

    /// One failure a minute, with a second to the restart.
    pub const FAILURE_RATE: Self =
        Self::FailureRate { max_failures: 1, interval: Duration::from_secs(60), delay: Duration::from_secs(1) };

    /// From a second to a minute, half as long again each time. What a job with checkpoints has.
    pub const EXPONENTIAL_DELAY: Self = Self::ExponentialDelay {
        initial: Duration::from_secs(1),
        max: Duration::from_secs(60),
        multiplier: 1.5,
        reset_after: Duration::from_secs(3600),
        jitter: 0.1,
    };
}
