//! Barrier alignment: when a subtask with several input channels has a checkpoint's barrier on all of them.
//!
//! The rule is asynchronous barrier snapshotting (Carbone, Fóra, Ewen, Haridi, Tzoumas: Lightweight Asynchronous
//! Snapshots for Distributed Dataflows, 2015, algorithm 1): after a barrier a channel is not read until the barrier is on
//! all channels, so that the snapshot holds the effects of exactly the records before it.
//!
//! Owns which channels delivered the current barrier, and so which are blocked. Reading channels, taking the snapshot
//! and passing the barrier on belong to the runtime.
//!
//! Invariant: one checkpoint aligns at a time, no channel is blocked without one, and a checkpoint that completed, was
//! aborted or is older than either never aligns again.

use crate::id::CheckpointId;

#[cfg(test)]
mod tests;

/// What holds for the state after a restore.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Every record counts once: a channel that is ahead waits until the barrier is on all, so that no record behind
    /// it is in the snapshot.
    #[default]
    ExactlyOnce,
    /// Records behind the barrier may be in the snapshot, and count twice after a restore. No channel ever waits.
    AtLeastOnce,
}

/// The barriers on the input channels of one subtask.
#[derive(Clone, Debug)]
pub struct Alignment {
    mode: Mode,
    channels: Vec<Channel>,
    state: State,
    /// The newest checkpoint that was aborted: up to it barriers mean nothing. Those of checkpoints that completed or gave
    /// way to a newer one need no such mark, since no channel delivers an older barrier after a newer one.
    aborted: Option<CheckpointId>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Channel {
    /// The newest barrier that the channel delivered.
    barrier: Option<CheckpointId>,
    ended: bool,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Idle,
    /// So many channels have neither delivered the barrier nor ended: at least one.
    Aligning {
        id: CheckpointId,
        awaited: usize,
    },
}

impl Alignment {
    /// No barrier yet on any of so many channels.
    ///
    /// # Panics
    /// When there are no channels: barriers come to a subtask without inputs from the coordinator.
    #[must_use]
    pub fn new(channels: usize, mode: Mode) -> Self {
        assert!(channels > 0, "a subtask without input channels has no barriers to align");
        Self { mode, channels: vec![Channel::default(); channels], state: State::Idle, aborted: None }
    }

    /// A channel delivered a barrier. Returns the checkpoint if its barrier is now on all channels: it is to be taken
    /// and its barrier passed on now, before any other record.
    ///
    /// # Panics
    /// When the channel has ended, is blocked, or delivered this or a newer barrier before.
    #[must_use = "a checkpoint that is complete here is to be taken"]
    pub fn barrier(&mut self, channel: usize, id: CheckpointId) -> Option<CheckpointId> {
        self.assert_readable(channel);
        let newest = &mut self.channels[channel].barrier;
        assert!(*newest < Some(id), "channel {channel} delivered the barrier of {id} after that of {newest:?}");
        *newest = Some(id);
        match self.state {
            State::Idle if Some(id) <= self.aborted => None,
            State::Idle => self.begin(id),
            State::Aligning { id: current, .. } if id < current => None,
            State::Aligning { id: current, awaited } if id == current => self.arrived(id, awaited),
            State::Aligning { .. } => self.begin(id),
        }
    }

    /// A channel ended, which counts as having delivered every barrier. Returns the checkpoint that waited for nothing
    /// else: it is to be taken and its barrier passed on now.
    ///
    /// # Panics
    /// When the channel has ended before or is blocked.
    #[must_use = "a checkpoint that is complete here is to be taken"]
    pub fn ended(&mut self, channel: usize) -> Option<CheckpointId> {
        self.assert_readable(channel);
        self.channels[channel].ended = true;
        match self.state {
            // At least once, an ended channel may have delivered the barrier before, and is not awaited.
            State::Aligning { id, awaited } if self.channels[channel].barrier != Some(id) => self.arrived(id, awaited),
            State::Aligning { .. } | State::Idle => None,
        }
    }

    /// A checkpoint was given up, and with it all older ones: what waits for them is released, and barriers of them that
    /// are still to come are passed over.
    pub fn abort(&mut self, id: CheckpointId) {
        match self.state {
            State::Aligning { id: current, .. } if current <= id => self.state = State::Idle,
            State::Aligning { .. } | State::Idle => {}
        }
        self.aborted = self.aborted.max(Some(id));
    }

    /// Whether the channel must not be read now.
    #[inline]
    #[must_use]
    pub fn is_blocked(&self, channel: usize) -> bool {
        match (self.mode, self.state) {
            (Mode::ExactlyOnce, State::Aligning { id, .. }) => self.channels[channel].barrier == Some(id),
            (Mode::ExactlyOnce, State::Idle) | (Mode::AtLeastOnce, _) => false,
        }
    }

    /// The checkpoint that is aligning, and the channels it waits for.
    #[must_use]
    pub fn aligning(&self) -> Option<(CheckpointId, impl Iterator<Item = usize>)> {
        match self.state {
            State::Idle => None,
            State::Aligning { id, .. } => Some((id, self.awaited(id))),
        }
    }

    /// A newer checkpoint begins. One that was aligning gives way: the coordinator has given it up, or a sender has.
    fn begin(&mut self, id: CheckpointId) -> Option<CheckpointId> {
        let awaited = self.awaited(id).count();
        self.settle(id, awaited)
    }

    /// One of so many awaited channels delivered the barrier or ended.
    fn arrived(&mut self, id: CheckpointId, awaited: usize) -> Option<CheckpointId> {
        self.settle(id, awaited - 1)
    }

    fn settle(&mut self, id: CheckpointId, awaited: usize) -> Option<CheckpointId> {
        debug_assert_eq!(awaited, self.awaited(id).count(), "the count is kept beside the channels");
        if awaited > 0 {
            self.state = State::Aligning { id, awaited };
            return None;
        }
        self.state = State::Idle;
        Some(id)
    }

    fn awaited(&self, id: CheckpointId) -> impl Iterator<Item = usize> {
        let channels = self.channels.iter().enumerate();
        channels.filter(move |(_, channel)| !channel.ended && channel.barrier != Some(id)).map(|(index, _)| index)
    }

    /// What comes from a blocked channel is behind the barrier: taking it would put it into the snapshot.
    fn assert_readable(&self, channel: usize) {
        assert!(!self.channels[channel].ended, "channel {channel} has ended, nothing can come from it");
        assert!(!self.is_blocked(channel), "channel {channel} is blocked by a barrier and must not be read");
    }
}
