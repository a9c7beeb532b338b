//! Whether and when a job restarts after a failure.
//!
//! The strategies, and what they count, are those of Apache Flink. Owns the history of failures that a decision needs;
//! waiting and restarting belong to the scheduler, which also draws the random number.
//!
//! Invariant: a job that fails often enough within a strategy's bounds is given up, except with a delay that grows
//! exponentially, which never gives up.

use std::collections::VecDeque;
use std::time::Duration;

#[cfg(test)]
mod tests;

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
        /// The first delay, and the shortest.
        initial: Duration,
        /// The longest delay.
        max: Duration,
        /// What a delay is multiplied by to make the next; more than 1.
        multiplier: f64,
        /// After so long without a failure, from the restart on, the delay is the first one again.
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

/// What becomes of a job that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It restarts.
    Restart {
        /// From the failure to the restart.
        after: Duration,
    },
    /// It has failed for good.
    GiveUp(GiveUp),
}

/// Why a job is not restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GiveUp {
    /// The settings say so.
    #[error("the job does not restart after failures: restart.strategy is none")]
    NoRestarts,
    /// All restarts were used.
    #[error("the job failed again after {attempts} restarts, which is all that restart.attempts allows")]
    AttemptsUsed {
        /// How many there were.
        attempts: u32,
    },
    /// The job failed too often in too short a time.
    #[error("the job failed {failures} times within {interval:?}, more than restart.max-failures allows")]
    TooOften {
        /// How many failures there were.
        failures: usize,
        /// In what time.
        interval: Duration,
    },
}

/// The failures of a job so far, as far as its strategy cares.
#[derive(Clone, Debug)]
pub struct RestartState {
    settings: RestartSettings,
    /// Restarts since the first failure, or since the delay was last the first one.
    restarts: u32,
    /// When the failures within the interval of a failure rate were; at most one more than it allows.
    recent: VecDeque<Duration>,
    /// When the last restart was due.
    restarted_at: Option<Duration>,
}

impl RestartState {
    /// Nothing has failed yet.
    ///
    /// # Panics
    /// When delays would not grow, or the shortest is above the longest: settings are checked where they are read.
    #[must_use]
    pub fn new(settings: RestartSettings) -> Self {
        if let RestartSettings::ExponentialDelay { initial, max, multiplier, jitter, .. } = settings {
            assert!(initial <= max, "the first delay, {initial:?}, is above the longest, {max:?}");
            assert!(multiplier.is_finite() && multiplier >= 1.0, "delays do not grow by a factor of {multiplier}");
            assert!((0.0..=1.0).contains(&jitter), "{jitter} is not a part of a delay");
        }
        Self { settings, restarts: 0, recent: VecDeque::new(), restarted_at: None }
    }

    /// The job failed now. `random` is at least 0 and below 1.
    #[must_use]
    pub fn failed(&mut self, now: Duration, random: f64) -> Decision {
        debug_assert!((0.0..1.0).contains(&random), "{random} is not below 1");
        let after = match self.settings {
            RestartSettings::None => return Decision::GiveUp(GiveUp::NoRestarts),
            RestartSettings::FixedDelay { attempts, delay } => {
                if self.restarts >= attempts {
                    return Decision::GiveUp(GiveUp::AttemptsUsed { attempts });
                }
                delay
            }
            RestartSettings::FailureRate { max_failures, interval, delay } => {
                self.recent.retain(|failure| now.saturating_sub(*failure) <= interval);
                self.recent.push_back(now);
                let failures = self.recent.len();
                if failures > max_failures as usize {
                    return Decision::GiveUp(GiveUp::TooOften { failures, interval });
                }
                delay
            }
            RestartSettings::ExponentialDelay { initial, max, multiplier, reset_after, jitter } => {
                if self.restarted_at.is_some_and(|at| now >= at.saturating_add(reset_after)) {
                    self.restarts = 0;
                }
                // A power beyond all floats must not make a number that is none of a first delay of nothing.
                let growth = multiplier.powf(f64::from(self.restarts)).min(f64::MAX);
                let delay = initial.as_secs_f64() * growth;
                let delay = delay.min(max.as_secs_f64());
                let swing = delay * jitter * (2.0 * random - 1.0);
                Duration::try_from_secs_f64(delay + swing).unwrap_or(max).clamp(initial, max)
            }
        };
        self.restarts = self.restarts.saturating_add(1);
        self.restarted_at = Some(now.saturating_add(after));
        Decision::Restart { after }
    }
}
