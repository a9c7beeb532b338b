//! Guessing which name was meant by one that does not exist.

/// The name nearest to `name`, if one is near enough to be meant.
pub(crate) fn closest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // A short name is near to everything, so few changes are allowed to it.
    let most = (name.chars().count() / 3).clamp(1, 3);
    let distance = |other: &str| edit_distance(&name.to_lowercase(), &other.to_lowercase());
    let near = known.into_iter().map(|other| (distance(other), other)).filter(|(distance, _)| *distance <= most);
    near.min().map(|(_, other)| other)
}

/// How many letters must be replaced, inserted, left out or swapped with their neighbour.
fn edit_distance(left: &str, right: &str) -> usize {
    let (left, right): (Vec<char>, Vec<char>) = (left.chars().collect(), right.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=right.len()).collect()];
    for (i, a) in left.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in right.iter().enumerate() {
            let replaced = rows[i][j] + usize::from(a != b);
            let mut best = replaced.min(row[j] + 1).min(rows[i][j + 1] + 1);
            if i > 0 && j > 0 && *a == right[j - 1] && left[i - 1] == *b {
                best = best.min(rows[i - 1][j - 1] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[left.len()][right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        let known =
            [("", "", 0), ("", "abc", 3), ("kitten", "sitting", 3), ("split", "splt", 1), ("cuont", "count", 1)];
        for (left, right, distance) in known {
            assert_eq!(edit_distance(left, right), distance, "{left} {right}");
            assert_eq!(edit_distance(right, left), distance, "{right} {left}");
        }
    }

    #[test]
    fn only_what_could_be_meant_is_suggested() {
        let known = ["lines", "split", "count"];
        assert_eq!(closest("cuont", known), Some("count"));
        assert_eq!(closest("Lines", known), Some("lines"));
        assert_eq!(closest("output", known), None);
        assert_eq!(closest("paralelsim", ["parallelism", "partition"]), Some("parallelism"));
        assert_eq!(closest("ab", ["cd"]), None);
    }
}
