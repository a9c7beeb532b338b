//! A bound on how many records are given up in a stretch of time.

use std::time::Duration;

/// Counts in stretches of fixed length, which begin with the first record given up after the last one ended.
#[derive(Debug)]
pub(super) struct SkipBudget {
    most: u64,
    stretch: Duration,
    began: Option<Duration>,
    spent: u64,
}

impl SkipBudget {
    pub(super) fn new(most: u64, stretch: Duration) -> Self {
        Self { most, stretch, began: None, spent: 0 }
    }

    /// Gives up one more record at a moment of monotonic time, or says how many it would be.
    pub(super) fn spend(&mut self, now: Duration) -> Result<(), u64> {
        if self.began.is_none_or(|began| now.saturating_sub(began) >= self.stretch) {
            (self.began, self.spent) = (Some(now), 0);
        }
        self.spent += 1;
        if self.spent > self.most { Err(self.spent) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_returns_with_time() {
        let at = Duration::from_secs;
        let mut budget = SkipBudget::new(2, at(60));
        assert_eq!(budget.spend(at(100)), Ok(()));
        assert_eq!(budget.spend(at(101)), Ok(()));
        assert_eq!(budget.spend(at(159)), Err(3));
        assert_eq!(budget.spend(at(160)), Ok(()));
    }
}
