//! Zipf-distributed numbers in constant time, by an alias table.
//!
//! Number `k`, from 0, has a weight of `1 / (k + 1)^exponent`. The table (Walker 1977, built after Vose 1991) takes 12
//! bytes per number; with exponent 1 only additions and divisions are involved, so that every machine draws the same.

/// A table to draw from.
#[derive(Debug)]
pub(super) struct Zipf {
    /// Below this share of 2^64 a column stands for its own number, else for its alias.
    own: Vec<u64>,
    alias: Vec<u32>,
}

impl Zipf {
    /// The table of the numbers below `numbers`, which is not 0.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "shares of 2^64")]
    pub(super) fn new(numbers: u32, exponent: f64) -> Self {
        let weight = |number: u32| {
            let rank = f64::from(number) + 1.0;
            if exponent == 1.0 { 1.0 / rank } else { rank.powf(-exponent) }
        };
        // From the smallest up, which loses least.
        let sum: f64 = (0..numbers).rev().map(weight).sum();
        // How full each column is, 1 being just full.
        let mut fill: Vec<f64> = (0..numbers).map(|number| weight(number) / sum * f64::from(numbers)).collect();
        let mut own = vec![u64::MAX; fill.len()];
        let mut alias: Vec<u32> = (0..numbers).collect();
        let (mut small, mut large): (Vec<u32>, Vec<u32>) =
            (0..numbers).partition(|number| fill[*number as usize] < 1.0);
        while let (Some(&giver), Some(taker)) = (large.last(), small.pop()) {
            let (from, to) = (giver as usize, taker as usize);
            own[to] = (fill[to] * 2f64.powi(64)) as u64;
            alias[to] = giver;
            fill[from] -= 1.0 - fill[to];
            if fill[from] < 1.0 {
                large.pop();
                small.push(giver);
            }
        }
        // What is left on either side is full but for rounding.
        Self { own, alias }
    }

    /// The number that a random number below 2^64 stands for.
    pub(super) fn draw(&self, random: u64) -> u32 {
        let scaled = u128::from(random) * self.own.len() as u128;
        // The whole part picks the column and the fraction decides within it.
        let column = usize::try_from(scaled >> 64).expect("below the length");
        let fraction = u64::try_from(scaled & u128::from(u64::MAX)).expect("64 bits");
        if fraction < self.own[column] { u32::try_from(column).expect("a u32 made it") } else { self.alias[column] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn frequencies_follow_the_weights() {
        for (numbers, exponent) in [(1, 1.0), (10, 1.0), (100, 1.3), (7, 0.1)] {
            let zipf = Zipf::new(numbers, exponent);
            let mut random = Random::new(1);
            let draws = 200_000;
            let mut counts = vec![0u32; numbers as usize];
            for _ in 0..draws {
                counts[zipf.draw(random.next_u64()) as usize] += 1;
            }
            let sum: f64 = (1..=numbers).map(|rank| f64::from(rank).powf(-exponent)).sum();
            for (number, count) in counts.iter().enumerate() {
                let expected = (number as f64 + 1.0).powf(-exponent) / sum * f64::from(draws);
                // Five standard deviations of a Poisson count.
                assert!((f64::from(*count) - expected).abs() <= 5.0 * expected.sqrt(), "{number}: {count}, {expected}");
            }
        }
    }
}
