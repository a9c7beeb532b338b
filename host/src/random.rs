//! Random numbers that repeat: every stream of them is a function of a seed and of what it is for.
//!
//! Not for secrets. SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014) is enough:
//! it is small, passes the usual batteries, and any seed is a good one.

/// How far the state moves with each number.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The stream of a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The stream for one purpose under a seed: equal parts give equal streams.
    #[must_use]
    pub fn for_purpose(seed: u64, name: &str, parts: &[u64]) -> Self {
        let mut state = seed ^ xxhash_rust::xxh3::xxh3_64(name.as_bytes());
        for part in parts {
            state = Self { state: state ^ part }.next_u64();
        }
        Self { state }
    }

    /// Passes over so many numbers at once.
    pub fn skip(&mut self, numbers: u64) {
        self.state = self.state.wrapping_add(STEP.wrapping_mul(numbers));
    }

    /// A number below 2^64.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(STEP);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is not 0. The bias is below `bound / 2^64`.
    pub fn below(&mut self, bound: u64) -> u64 {
        u64::try_from((u128::from(self.next_u64()) * u128::from(bound)) >> 64).expect("below 2^64")
    }

    /// A number from 0 to 1, the latter not included.
    #[expect(clippy::cast_precision_loss, reason = "53 bits are what a double holds")]
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Fills a buffer.
    pub fn fill(&mut self, buffer: &mut [u8]) {
        for chunk in buffer.chunks_mut(8) {
            chunk.copy_from_slice(&self.next_u64().to_le_bytes()[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_pinned() {
        // The reference values of SplitMix64 for seed 1234567.
        let mut random = Random::new(1_234_567);
        assert_eq!(random.next_u64(), 6_457_827_717_110_365_317);
        assert_eq!(random.next_u64(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn skipping_is_drawing_and_forgetting() {
        let (mut skipped, mut drawn) = (Random::new(3), Random::new(3));
        skipped.skip(5);
        for _ in 0..5 {
            drawn.next_u64();
        }
        assert_eq!(skipped.next_u64(), drawn.next_u64());
    }

    #[test]
    fn purposes_differ() {
        let draw = |name, parts: &[u64]| Random::for_purpose(7, name, parts).next_u64();
        assert_eq!(draw("a", &[1, 2]), draw("a", &[1, 2]));
        assert_ne!(draw("a", &[1, 2]), draw("a", &[2, 1]));
        assert_ne!(draw("a", &[1, 2]), draw("b", &[1, 2]));
    }
}
