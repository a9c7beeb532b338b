//! Watermark merging: event time at a subtask is the minimum over its open channels.
//!
//! Invariant: what `advance` and `end` report never falls.

use crate::record::Watermark;

/// The watermarks of the channels of one subtask, and the minimum of them.
#[derive(Clone, Debug)]
pub struct WatermarkMerge {
    /// Per channel the newest watermark; none before the first.
    channels: Vec<Option<Watermark>>,
    merged: Option<Watermark>,
}

impl WatermarkMerge {
    /// No watermark on any of so many channels.
    #[must_use]
    pub fn new(channels: usize) -> Self {
        Self { channels: vec![None; channels], merged: None }
    }

    /// The merged watermark; none before every channel had one.
    #[must_use]
    pub fn merged(&self) -> Option<Watermark> {
        self.merged
    }

    /// A channel delivered a watermark. Returns the merged one if it moved on.
    pub fn advance(&mut self, channel: usize, watermark: Watermark) -> Option<Watermark> {
        let newest = &mut self.channels[channel];
        *newest = (*newest).max(Some(watermark));
        self.merge()
    }

    /// A channel ended: it holds nothing back any more. Returns the merged watermark if that let it move on.
    pub fn end(&mut self, channel: usize) -> Option<Watermark> {
        self.channels[channel] = Some(Watermark::MAX);
        self.merge()
    }

    fn merge(&mut self) -> Option<Watermark> {
        let minimum = self.channels.iter().copied().min().flatten();
        if minimum <= self.merged {
            return None;
        }
        self.merged = minimum;
        minimum
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The merged watermark is the minimum over the channels, each of which never goes back.
        #[test]
        fn merged_is_the_minimum(steps in prop::collection::vec((0usize..4, -5i64..5, prop::bool::weighted(0.1)), 0..60)) {
            let mut merge = WatermarkMerge::new(4);
            let mut oracle = [None::<i64>; 4];
            for (channel, time, ends) in steps {
                let time = if ends { i64::MAX } else { time };
                let before = merge.merged();
                let moved = if ends { merge.end(channel) } else { merge.advance(channel, Watermark(time)) };
                oracle[channel] = oracle[channel].max(Some(time));
                let minimum = oracle.iter().copied().min().flatten().map(Watermark);
                prop_assert_eq!(merge.merged(), minimum);
                prop_assert_eq!(moved, (minimum != before).then_some(minimum).flatten());
            }
        }
    }
}
