//! The numbers that an operator reports about itself.

use std::collections::BTreeMap;

use super::RuleViolation;

/// How many metrics one operator instance may make.
const MOST_METRICS: usize = 256;

/// How long the name of a metric may be, in bytes.
const LONGEST_NAME: usize = 128;

/// Counters, gauges and histograms of one subtask, made on first use.
///
/// What a call does to them counts with the call: they are as before if the call is abandoned.
#[derive(Clone, Debug, Default)]
pub struct UserMetrics {
    metrics: BTreeMap<String, Entry>,
    /// Counts the calls that were committed or abandoned.
    call: u64,
    /// Whether something has changed in the call at hand.
    changed: bool,
}

#[derive(Clone, Debug)]
struct Entry {
    now: Metric,
    /// As it was before the call that last changed it; none if that call made it.
    before: Option<Metric>,
    /// The call that last changed it.
    changed_in: u64,
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

impl Summary {
    fn add(&mut self, other: &Self) {
        match (self.count, other.count) {
            (_, 0) => {}
            (0, _) => *self = *other,
            _ => {
                self.count += other.count;
                self.sum += other.sum;
                self.min = self.min.min(other.min);
                self.max = self.max.max(other.max);
            }
        }
    }
}

impl UserMetrics {
    /// Adds to a counter.
    ///
    /// # Errors
    /// When the name is in use for another kind, or there are too many metrics.
    pub fn add_to_counter(&mut self, name: &str, amount: u64) -> Result<(), RuleViolation> {
        match self.metric(name, || Metric::Counter(0))? {
            Metric::Counter(sum) => *sum = sum.saturating_add(amount),
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
        self.metrics.iter().map(|(name, entry)| (name.as_str(), &entry.now))
    }

    /// Makes what the call at hand did count. Returns whether that is anything.
    pub fn commit(&mut self) -> bool {
        self.call += 1;
        std::mem::take(&mut self.changed)
    }

    /// Undoes what the call at hand did.
    pub fn abandon(&mut self) {
        if std::mem::take(&mut self.changed) {
            let call = self.call;
            self.metrics.retain(|_, entry| match &entry.before {
                _ if entry.changed_in != call => true,
                None => false,
                Some(before) => {
                    entry.now = before.clone();
                    true
                }
            });
        }
        self.call += 1;
    }

    /// Becomes equal to another, without making anew what is in both.
    pub fn copy_from(&mut self, other: &Self) {
        for (name, metric) in other.iter() {
            match self.metrics.get_mut(name) {
                Some(entry) => entry.now = metric.clone(),
                None => {
                    let entry = Entry { now: metric.clone(), before: None, changed_in: self.call };
                    self.metrics.insert(name.to_owned(), entry);
                }
            }
        }
    }

    /// Adds those of another subtask: counters and histograms as one, of gauges the last.
    pub fn add(&mut self, other: &Self) {
        for (name, metric) in other.iter() {
            let call = self.call;
            let Some(entry) = self.metrics.get_mut(name) else {
                let entry = Entry { now: metric.clone(), before: None, changed_in: call };
                self.metrics.insert(name.to_owned(), entry);
                continue;
            };
            match (&mut entry.now, metric) {
                (Metric::Counter(sum), Metric::Counter(more)) => *sum = sum.saturating_add(*more),
                (Metric::Histogram(all), Metric::Histogram(more)) => all.add(more),
                // A name may be of another kind in another subtask, since it is made on first use.
                (now, metric) => *now = metric.clone(),
            }
        }
    }

    fn metric(&mut self, name: &str, new: impl FnOnce() -> Metric) -> Result<&mut Metric, RuleViolation> {
        self.changed = true;
        if !self.metrics.contains_key(name) {
            if name.is_empty() || name.len() > LONGEST_NAME {
                return Err(RuleViolation::Other(format!("a metric's name has 1 to {LONGEST_NAME} bytes")));
            }
            if self.metrics.len() == MOST_METRICS {
                return Err(RuleViolation::Other(format!("an operator has at most {MOST_METRICS} metrics")));
            }
            self.metrics.insert(name.to_owned(), Entry { now: new(), before: None, changed_in: self.call });
        }
        let entry = self.metrics.get_mut(name).expect("it was just made");
        if entry.changed_in != self.call {
            entry.before = Some(entry.now.clone());
            entry.changed_in = self.call;
        }
        Ok(&mut entry.now)
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
    fn an_abandoned_call_counts_nothing() {
        let mut metrics = UserMetrics::default();
        metrics.add_to_counter("seen", 2).unwrap();
        metrics.set_gauge("lag", 1.0).unwrap();
        assert!(metrics.commit());
        assert!(!metrics.commit());
        metrics.add_to_counter("seen", 3).unwrap();
        metrics.add_to_counter("seen", 3).unwrap();
        metrics.observe("size", &[1.0]).unwrap();
        metrics.abandon();
        let all: Vec<_> = metrics.iter().collect();
        assert_eq!(all, [("lag", &Metric::Gauge(1.0)), ("seen", &Metric::Counter(2))]);
        metrics.add_to_counter("seen", 1).unwrap();
        assert!(metrics.commit());
        metrics.abandon();
        assert_eq!(metrics.iter().last(), Some(("seen", &Metric::Counter(3))));
    }

    #[test]
    fn subtasks_are_added_up() {
        let of = |seen, lag, sizes: &[f64]| {
            let mut metrics = UserMetrics::default();
            metrics.add_to_counter("seen", seen).unwrap();
            metrics.set_gauge("lag", lag).unwrap();
            metrics.observe("size", sizes).unwrap();
            metrics
        };
        let mut all = UserMetrics::default();
        all.copy_from(&of(2, 1.0, &[3.0, 1.0]));
        all.add(&of(5, 4.0, &[7.0]));
        all.add(&of(0, 2.0, &[]));
        let size = Summary { count: 3, sum: 11.0, min: 1.0, max: 7.0 };
        let expected =
            [("lag", &Metric::Gauge(2.0)), ("seen", &Metric::Counter(7)), ("size", &Metric::Histogram(size))];
        assert_eq!(all.iter().collect::<Vec<_>>(), expected);
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
