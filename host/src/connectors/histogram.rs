//! How values are distributed, in bounded memory.
//!
//! Values below 256 are counted exactly; above, each power of two is cut into 128 buckets of one width, so that a
//! quantile is at most 1/128 above the true one. The maximum is exact.

/// Buckets per power of two, as a power of two.
const PRECISION_BITS: u32 = 7;

/// Counts of values by bucket.
#[derive(Clone, Debug, Default)]
pub(super) struct Histogram {
    /// Grows to the bucket of the largest value: at most some 7,500.
    counts: Vec<u64>,
    total: u64,
    max: u64,
}

impl Histogram {
    /// Counts a value.
    pub(super) fn record(&mut self, value: u64) {
        let bucket = bucket(value);
        if bucket >= self.counts.len() {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += 1;
        self.total += 1;
        self.max = self.max.max(value);
    }

    /// The largest value.
    pub(super) fn max(&self) -> u64 {
        self.max
    }

    /// The value that `per_mille` of a thousand values do not pass; 0 when there are none.
    pub(super) fn quantile(&self, per_mille: u64) -> u64 {
        let rank = u128::from(self.total) * u128::from(per_mille);
        let mut seen = 0u128;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += u128::from(*count);
            if *count != 0 && seen * 1000 >= rank {
                return highest(bucket).min(self.max);
            }
        }
        self.max
    }
}

fn bucket(value: u64) -> usize {
    // The position of the highest bit decides the width of the bucket, the bits behind it the bucket.
    let shift = (u64::BITS - value.leading_zeros()).saturating_sub(PRECISION_BITS + 1);
    ((shift as usize) << PRECISION_BITS) + usize::try_from(value >> shift).expect("at most 8 bits are left")
}

/// The largest value of a bucket.
fn highest(bucket: usize) -> u64 {
    let width = 1 << PRECISION_BITS;
    let shift = (bucket / width).saturating_sub(1);
    let top = bucket - shift * width;
    ((top as u64) << shift) | ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A bucket holds the value it is found for, and is less than 1 % wide.
        #[test]
        fn buckets_are_narrow(value: u64, bits in 0u32..64) {
            let value = value >> bits;
            let highest = highest(bucket(value));
            prop_assert!(highest >= value);
            prop_assert!(highest - value <= value / 128);
        }

        /// Quantiles are those of the sorted values, to within a bucket.
        #[test]
        fn quantiles_are_those_of_sorted_values(mut values in prop::collection::vec(0u64..100_000, 1..200), per_mille in 1u64..=1000) {
            let mut histogram = Histogram::default();
            values.iter().for_each(|value| histogram.record(*value));
            values.sort_unstable();
            let rank = (values.len() * usize::try_from(per_mille).unwrap()).div_ceil(1000);
            let exact = values[rank - 1];
            let found = histogram.quantile(per_mille);
            prop_assert!(found >= exact && found <= exact + exact / 128, "{found} for {exact}");
            prop_assert_eq!(histogram.max(), values[values.len() - 1]);
        }
    }

    #[test]
    fn an_empty_histogram_has_zeros() {
        assert_eq!(Histogram::default().quantile(500), 0);
    }
}
