//! What a job must output, computed by plain code, and the comparison with what it did.
//!
//! Only what every legal order of events shares is checked: a keyed running sum depends on the order in which records
//! of a key arrive, so its outputs are read as a chain of sums whose steps must be the input.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use tidegate::id::SubtaskId;

use super::operators::number;
use super::record::Record;

/// What was committed in one sink, by the subtask that wrote it, in the order of writing.
pub type Parts = BTreeMap<SubtaskId, Vec<Record>>;

/// What the output of one sink must be.
#[derive(Clone, Debug)]
pub enum Expectation {
    /// The running sums of these values by key, all of which are above 0.
    RunningSums(Vec<(Vec<u8>, i64)>),
    /// These records, in any order.
    Records(Vec<Record>),
    /// One dead letter for each of these keys and values.
    DeadLetters(Vec<(Vec<u8>, Vec<u8>)>),
}

impl Expectation {
    /// Compares the whole output of a job that finished.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn check(&self, parts: &Parts) -> Result<(), String> {
        match self {
            Self::RunningSums(inputs) => {
                let sums = sums_by_key(parts)?;
                let mut expected: BTreeMap<&[u8], Vec<i64>> = BTreeMap::new();
                inputs.iter().for_each(|(key, value)| expected.entry(key).or_default().push(*value));
                for (key, values) in &mut expected {
                    let found = steps(sums.get(*key).map_or(&[], Vec::as_slice));
                    values.sort_unstable();
                    if found != *values {
                        return Err(format!("key {}: added up {found:?}, not {values:?}", key.escape_ascii()));
                    }
                }
                match sums.keys().find(|key| !expected.contains_key(key.as_slice())) {
                    Some(key) => Err(format!("key {} is not in the input", key.escape_ascii())),
                    None => Ok(()),
                }
            }
            Self::Records(expected) => difference(expected.clone(), parts.values().flatten().cloned().collect()),
            Self::DeadLetters(expected) => {
                let letters: Vec<String> = parts
                    .values()
                    .flatten()
                    .map(|record| String::from_utf8(record.value.clone()).map_err(|error| error.to_string()))
                    .collect::<Result<_, _>>()?;
                if letters.len() != expected.len() {
                    return Err(format!("{} dead letters, not {}", letters.len(), expected.len()));
                }
                for (key, value) in expected {
                    let (key, value) = (format!("{:?}", BASE64.encode(key)), format!("{:?}", BASE64.encode(value)));
                    if !letters.iter().any(|letter| letter.contains(&key) && letter.contains(&value)) {
                        return Err(format!("no dead letter has the key {key} and the value {value}: {letters:?}"));
                    }
                }
                Ok(())
            }
        }
    }

    /// Compares the whole output of a job that may count records twice after a restore: nothing may be missing or come
    /// from nowhere.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn check_at_least_once(&self, parts: &Parts) -> Result<(), String> {
        match self {
            Self::RunningSums(inputs) => {
                let mut totals: BTreeMap<&[u8], i64> = BTreeMap::new();
                inputs.iter().for_each(|(key, value)| *totals.entry(key).or_default() += value);
                let mut largest: BTreeMap<&[u8], i64> = BTreeMap::new();
                for record in parts.values().flatten() {
                    let (Some(key), Some(sum)) = (&record.key, number(&record.value)) else {
                        return Err(format!("{record:?} is no sum of a key"));
                    };
                    let before = largest.entry(key).or_insert(sum);
                    *before = sum.max(*before);
                }
                let short = totals.iter().find(|(key, total)| largest.get(*key).is_none_or(|sum| sum < *total));
                if let Some((key, total)) = short {
                    return Err(format!("key {}: {:?} and not {total}", key.escape_ascii(), largest.get(key)));
                }
                match largest.keys().find(|key| !totals.contains_key(*key)) {
                    Some(key) => Err(format!("key {} is not in the input", key.escape_ascii())),
                    None => Ok(()),
                }
            }
            Self::Records(expected) => {
                let mut rest: Vec<&Record> = parts.values().flatten().collect();
                rest.sort();
                if let Some(record) = rest.iter().find(|record| !expected.contains(record)) {
                    return Err(format!("{record:?} was not expected"));
                }
                for record in expected {
                    let at = rest.binary_search(&record).map_err(|_| format!("{record:?} is missing"))?;
                    rest.remove(at);
                }
                Ok(())
            }
            Self::DeadLetters(expected) => {
                let letters = parts.values().map(Vec::len).sum::<usize>();
                if letters >= expected.len() { Ok(()) } else { Err(format!("{letters} dead letters")) }
            }
        }
    }

    /// Compares the output of a job that was stopped on its way: nothing may be there that the whole would not have.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn check_part(&self, parts: &Parts) -> Result<(), String> {
        match self {
            Self::RunningSums(inputs) => {
                let mut totals: BTreeMap<&[u8], (usize, i64)> = BTreeMap::new();
                for (key, value) in inputs {
                    let total = totals.entry(key).or_default();
                    *total = (total.0 + 1, total.1 + value);
                }
                for (key, sums) in sums_by_key(parts)? {
                    let (count, total) = totals.get(key.as_slice()).copied().unwrap_or_default();
                    let distinct = sums.windows(2).all(|pair| pair[0] < pair[1]);
                    if sums.len() > count || sums.last().is_some_and(|last| *last > total) || !distinct {
                        return Err(format!("key {}: {sums:?} of {count} adding up to {total}", key.escape_ascii()));
                    }
                }
                Ok(())
            }
            Self::Records(expected) => {
                let mut rest = expected.clone();
                rest.sort();
                for record in parts.values().flatten() {
                    let Ok(at) = rest.binary_search(record) else {
                        return Err(format!("{record:?} was not expected, or not so often"));
                    };
                    rest.remove(at);
                }
                Ok(())
            }
            Self::DeadLetters(expected) => {
                let letters = parts.values().map(Vec::len).sum::<usize>();
                if letters <= expected.len() { Ok(()) } else { Err(format!("{letters} dead letters")) }
            }
        }
    }
}

/// The sums of each key, rising. Within one writer they must have come in that order.
fn sums_by_key(parts: &Parts) -> Result<BTreeMap<Vec<u8>, Vec<i64>>, String> {
    let mut all: BTreeMap<Vec<u8>, Vec<i64>> = BTreeMap::new();
    for (subtask, records) in parts {
        let mut newest: BTreeMap<&[u8], i64> = BTreeMap::new();
        for record in records {
            let (Some(key), Some(sum)) = (&record.key, number(&record.value)) else {
                return Err(format!("{record:?} is no sum of a key"));
            };
            if let Some(before) = newest.insert(key, sum)
                && before >= sum
            {
                return Err(format!("{subtask}: key {}: {sum} came behind {before}", key.escape_ascii()));
            }
            all.entry(key.clone()).or_default().push(sum);
        }
    }
    all.values_mut().for_each(|sums| sums.sort_unstable());
    Ok(all)
}

/// What was added from one sum to the next, beginning at 0, sorted.
fn steps(sums: &[i64]) -> Vec<i64> {
    let before = std::iter::once(0).chain(sums.iter().copied());
    let mut steps: Vec<i64> = sums.iter().zip(before).map(|(sum, before)| sum - before).collect();
    steps.sort_unstable();
    steps
}

/// Compares two multisets of records.
fn difference(mut expected: Vec<Record>, mut found: Vec<Record>) -> Result<(), String> {
    expected.sort();
    found.sort();
    if expected == found {
        return Ok(());
    }
    let at = expected.iter().zip(&found).take_while(|(expected, found)| expected == found).count();
    let (wanted, got) = (expected.get(at), found.get(at));
    Err(format!("{} records, not {}; first wrong one: {got:?}, not {wanted:?}", found.len(), expected.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(sums: &[&[(&str, i64)]]) -> Parts {
        let record = |(key, sum): &(&str, i64)| Record {
            key: Some(key.as_bytes().to_vec()),
            value: sum.to_string().into_bytes(),
            timestamp: None,
        };
        let subtask = |index| SubtaskId { node: "out".into(), index };
        sums.iter().zip(0..).map(|(sums, index)| (subtask(index), sums.iter().map(record).collect())).collect()
    }

    #[test]
    fn wrong_sums_are_noticed() {
        let input = [("a", 2), ("b", 1), ("a", 3)];
        let input = input.iter().map(|(key, value)| (key.as_bytes().to_vec(), *value)).collect();
        let expectation = Expectation::RunningSums(input);
        assert_eq!(expectation.check(&parts(&[&[("a", 2), ("b", 1), ("a", 5)]])), Ok(()));
        assert_eq!(expectation.check(&parts(&[&[("a", 5)], &[("b", 1), ("a", 3)]])), Ok(()));
        let wrong: [&[&[(&str, i64)]]; 6] = [
            &[&[("a", 2), ("b", 1)]],                     // One is lost.
            &[&[("a", 2), ("b", 1), ("a", 5), ("a", 5)]], // One is there twice.
            &[&[("a", 2), ("b", 1), ("a", 3)]],           // The state was lost in between.
            &[&[("a", 5), ("b", 1), ("a", 2)]],           // Out of order in one writer.
            &[&[("a", 2), ("b", 1), ("a", 5), ("c", 1)]], // A key from nowhere.
            &[&[("a", 2), ("a", 5)]],                     // A key is lost.
        ];
        for wrong in wrong {
            assert!(expectation.check(&parts(wrong)).is_err(), "{wrong:?}");
        }
        assert_eq!(expectation.check_part(&parts(&[&[("a", 5)], &[]])), Ok(()));
        assert!(expectation.check_part(&parts(&[&[("a", 6)], &[]])).is_err());
        assert!(expectation.check_part(&parts(&[&[("a", 5)], &[("a", 5)]])).is_err());
    }

    #[test]
    fn wrong_records_are_noticed() {
        let right = parts(&[&[("a", 1), ("a", 1), ("b", 2)]]);
        let expectation = Expectation::Records(right.values().flatten().cloned().collect());
        assert_eq!(expectation.check(&parts(&[&[("b", 2)], &[("a", 1), ("a", 1)]])), Ok(()));
        assert!(expectation.check(&parts(&[&[("b", 2)], &[("a", 1)]])).is_err());
        assert_eq!(expectation.check_part(&parts(&[&[("b", 2)], &[("a", 1)]])), Ok(()));
        assert!(expectation.check_part(&parts(&[&[("b", 2)], &[("b", 2)]])).is_err());
    }
}
