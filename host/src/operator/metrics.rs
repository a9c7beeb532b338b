//! The numbers that an operator reports about itself.

use std::collections::BTreeMap;

use super::RuleViolation;

/// How many metrics one operator instance may make.
const MOST_METRICS: usize = 256;

/// How long the name of a metric may be, in bytes.
const LONGEST_NAME: usize = 128;

/// Counters, gauges and histograms of one subtask, made on first use.
#[derive(Debug, Default)]
pub struct UserMetrics {
    metrics: BTreeMap<String, Metric>,
}

/// One metric as it stands.
#[derive(Clone, Debug, PartialEq)]
pub enum Metric {
    /// A sum.
    Counter(u64),
    /// A number that comes and goes.
    Gauge(f64),
    /// What was observed, in short.
    Histogram(Summary),
}

/// A histogram in short.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summary {
    /// The number of observations.
    pub count: u64,
    /// Their sum.
    pub sum: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl UserMetrics {
    /// Adds to a counter.
    ///
    /// # Errors
    /// When the name is in use for another kind, or there are too many metrics.
    pub fn add_to_counter(&mut self, name: &str, amount: u64) -> Result<(), RuleViolation> {
        match self.metric(name, || Metric::Counter(0))? {
            Metric::Counter(sum) => *sum += amount,
            _ => return Err(wrong_kind(name)),
        }
        Ok(())
    }

    /// Sets a gauge.
    ///
    /// # Errors
    /// When the name is in use for another kind, or there are too many metrics.
    pub fn set_gauge(&mut self, name: &str, value: f64) -> Result<(), RuleViolation> {
        match self.metric(name, || Metric::Gauge(0.0))? {
            Metric::Gauge(gauge) => *gauge = value,
            _ => return Err(wrong_kind(name)),
        }
        Ok(())
    }

    /// Adds observations to a histogram.
    ///
    /// # Errors
    /// When the name is in use for another kind, or there are too many metrics.
    pub fn observe(&mut self, name: &str, values: &[f64]) -> Result<(), RuleViolation> {
        match self.metric(name, || Metric::Histogram(Summary::default()))? {
            Metric::Histogram(summary) => {
                for &value in values {
                    let first = summary.count == 0;
                    summary.min = if first { value } else { summary.min.min(value) };
                    summary.max = if first { value } else { summary.max.max(value) };
                    summary.count += 1;
                    summary.sum += value;
                }
            }
            _ => return Err(wrong_kind(name)),
        }
        Ok(())
    }

    /// All metrics, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Metric)> {
        self.metrics.iter().map(|(name, metric)| (name.as_str(), metric))
    }

    fn metric(&mut self, name: &str, new: impl FnOnce() -> Metric) -> Result<&mut Metric, RuleViolation> {
        if !self.metrics.contains_key(name) {
            if name.is_empty() || name.len() > LONGEST_NAME {
                return Err(RuleViolation::Other(format!("a metric's name has 1 to {LONGEST_NAME} bytes")));
            }
            if self.metrics.len() == MOST_METRICS {
                return Err(RuleViolation::Other(format!("an operator has at most {MOST_METRICS} metrics")));
            }
            self.metrics.insert(name.to_owned(), new());
        }
        Ok(self.metrics.get_mut(name).expect("it was just made"))
    }
}

fn wrong_kind(name: &str) -> RuleViolation {
    RuleViolation::Other(format!("metric {name} is in use for another kind"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_of_one_kind() {
        let mut metrics = UserMetrics::default();
        metrics.add_to_counter("seen", 2).unwrap();
        metrics.add_to_counter("seen", 3).unwrap();
        assert!(metrics.set_gauge("seen", 1.0).is_err());
        metrics.observe("size", &[3.0, 1.0]).unwrap();
        let all: Vec<_> = metrics.iter().collect();
        let size = Summary { count: 2, sum: 4.0, min: 1.0, max: 3.0 };
        assert_eq!(all, [("seen", &Metric::Counter(5)), ("size", &Metric::Histogram(size))]);
    }

    #[test]
    fn metrics_are_bounded() {
        let mut metrics = UserMetrics::default();
        for metric in 0..MOST_METRICS {
            metrics.add_to_counter(&format!("m{metric}"), 1).unwrap();
        }
        assert!(metrics.add_to_counter("one more", 1).is_err());
        metrics.add_to_counter("m0", 1).unwrap();
    }
}
