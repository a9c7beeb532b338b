use std::collections::VecDeque;

use proptest::prelude::*;
use proptest::sample::Index;

use super::*;

/// What a channel carries. A record is only counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Item {
    Record,
    Barrier(CheckpointId),
    End,
}

/// A channel with barriers of growing ids: some are left out, as by a sender that heard of an abort first, and the end
/// may come at any place.
fn channel() -> impl Strategy<Value = Vec<Item>> {
    let stretch = (0usize..4, prop::bool::weighted(0.9));
    (prop::collection::vec(stretch, 1..7), prop::option::weighted(0.5, 0usize..12)).prop_map(|(stretches, cut)| {
        let mut items = Vec::new();
        for ((records, has_barrier), id) in stretches.into_iter().zip(1..) {
            items.extend(std::iter::repeat_n(Item::Record, records));
            items.extend(has_barrier.then_some(Item::Barrier(CheckpointId(id))));
        }
        items.truncate(cut.unwrap_or(items.len()));
        items.push(Item::End);
        items
    })
}

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![Just(Mode::ExactlyOnce), Just(Mode::AtLeastOnce)]
}

/// All that happened, and what must follow from it, told from scratch each time.
#[derive(Debug)]
struct History {
    /// What each channel delivered.
    delivered: Vec<Vec<Item>>,
    aborted: Vec<CheckpointId>,
    completed: Vec<CheckpointId>,
}

impl History {
    fn has_barrier(&self, channel: usize, id: CheckpointId) -> bool {
        self.delivered[channel].contains(&Item::Barrier(id))
    }

    fn has_ended(&self, channel: usize) -> bool {
        self.delivered[channel].contains(&Item::End)
    }

    /// The checkpoint that counts: the newest whose barrier is on some channel, unless it or a newer one was aborted
    /// or completed.
    fn current(&self) -> Option<CheckpointId> {
        let barriers = self.delivered.iter().flatten().filter_map(|item| match item {
            Item::Barrier(id) => Some(*id),
            Item::Record | Item::End => None,
        });
        barriers.max().filter(|id| !self.aborted.iter().chain(&self.completed).any(|over| over >= id))
    }

    fn awaited(&self, id: CheckpointId) -> Vec<usize> {
        let channels = 0..self.delivered.len();
        channels.filter(|&channel| !self.has_barrier(channel, id) && !self.has_ended(channel)).collect()
    }
}

/// How many records come before the barrier, or before the end if there is no such barrier.
fn records_before(items: &[Item], id: CheckpointId) -> usize {
    let cut = items.iter().position(|item| *item == Item::Barrier(id)).unwrap_or(items.len());
    items[..cut].iter().filter(|item| **item == Item::Record).count()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    /// With any interleaving of barriers, ends and aborts: a checkpoint completes at the very step that puts its barrier
    /// on the last open channel, unless it was aborted or a newer one began; channels are blocked exactly while they
    /// are ahead of one that aligns; the snapshot is a consistent cut; and there is always a channel to read.
    #[test]
    fn complete_checkpoints_are_consistent_cuts(
        mode in mode(),
        channels in prop::collection::vec(channel(), 1..5),
        aborts in prop::collection::vec((any::<Index>(), 1u64..8), 0..4),
        order in prop::collection::vec(any::<Index>(), 200),
    ) {
        let total: usize = channels.iter().map(Vec::len).sum();
        let mut alignment = Alignment::new(channels.len(), mode);
        let mut queues: Vec<VecDeque<Item>> = channels.iter().cloned().map(VecDeque::from).collect();
        let delivered = vec![Vec::new(); channels.len()];
        let mut history = History { delivered, aborted: Vec::new(), completed: Vec::new() };
        for step in 0..total {
            for (_, id) in aborts.iter().filter(|(at, _)| at.index(total) == step) {
                alignment.abort(CheckpointId(*id));
                history.aborted.push(CheckpointId(*id));
            }
            let open: Vec<usize> = (0..channels.len()).filter(|&at| !queues[at].is_empty()).collect();
            let readable: Vec<usize> = open.iter().copied().filter(|&at| !alignment.is_blocked(at)).collect();
            prop_assert!(!readable.is_empty(), "nothing can be read: {:?}", alignment);
            let channel = readable[order[step].index(readable.len())];
            let item = queues[channel].pop_front().expect("only channels with something in them are read");
            history.delivered[channel].push(item);
            let completed = match item {
                Item::Record => None,
                Item::Barrier(id) => alignment.barrier(channel, id),
                Item::End => alignment.ended(channel),
            };

            let due = history.current().filter(|id| history.awaited(*id).is_empty());
            prop_assert_eq!(completed, due);
            if let Some(id) = completed {
                history.completed.push(id);
                for (whole, delivered) in channels.iter().zip(&history.delivered) {
                    let before = records_before(whole, id);
                    let read = delivered.iter().filter(|item| **item == Item::Record).count();
                    prop_assert!(read == before || (mode == Mode::AtLeastOnce && read > before));
                }
            }

            let current = history.current();
            let aligning = alignment.aligning().map(|(id, awaited)| (id, awaited.collect::<Vec<_>>()));
            prop_assert_eq!(aligning, current.map(|id| (id, history.awaited(id))));
            for channel in 0..channels.len() {
                let ahead = current.is_some_and(|id| history.has_barrier(channel, id));
                prop_assert_eq!(alignment.is_blocked(channel), ahead && mode == Mode::ExactlyOnce);
            }
        }
        prop_assert!(history.completed.is_sorted_by(|a, b| a < b), "completed twice or out of order");
        prop_assert!(alignment.aligning().is_none(), "all channels have ended, so nothing is awaited");
    }
}

const ONE: CheckpointId = CheckpointId(1);
const TWO: CheckpointId = CheckpointId(2);

#[test]
fn one_channel_never_waits() {
    let mut alignment = Alignment::new(1, Mode::ExactlyOnce);
    assert_eq!(alignment.barrier(0, ONE), Some(ONE));
    assert!(!alignment.is_blocked(0));
}

#[test]
fn a_newer_barrier_releases_the_older_alignment() {
    let mut alignment = Alignment::new(3, Mode::ExactlyOnce);
    assert_eq!(alignment.barrier(0, ONE), None);
    assert_eq!(alignment.barrier(1, TWO), None);
    assert_eq!([0, 1, 2].map(|channel| alignment.is_blocked(channel)), [false, true, false]);
    assert_eq!(alignment.barrier(2, ONE), None, "the older one is over");
    assert!(!alignment.is_blocked(2));
    assert_eq!(alignment.barrier(0, TWO), None);
    assert_eq!(alignment.barrier(2, TWO), Some(TWO));
}

#[test]
fn an_abort_that_comes_first_passes_barriers_over() {
    let mut alignment = Alignment::new(2, Mode::ExactlyOnce);
    alignment.abort(ONE);
    assert_eq!(alignment.barrier(0, ONE), None);
    assert!(!alignment.is_blocked(0));
    assert_eq!(alignment.barrier(1, ONE), None);
    assert_eq!(alignment.barrier(0, TWO), None);
    alignment.abort(ONE);
    assert!(alignment.is_blocked(0), "a late abort of an older one changes nothing");
    assert_eq!(alignment.ended(1), Some(TWO));
}

#[test]
#[should_panic(expected = "is blocked by a barrier")]
fn a_blocked_channel_is_not_read() {
    let mut alignment = Alignment::new(2, Mode::ExactlyOnce);
    let _ = alignment.barrier(0, ONE);
    let _ = alignment.barrier(0, TWO);
}

#[test]
#[should_panic(expected = "after that of")]
fn barriers_of_a_channel_never_go_back() {
    let mut alignment = Alignment::new(1, Mode::ExactlyOnce);
    let _ = alignment.barrier(0, TWO);
    let _ = alignment.barrier(0, ONE);
}
