//! What a coordinator must do, told from scratch after each event from all that happened before. Slow and obvious.

use std::time::Duration;

use super::*;

/// What happened and what was done, with the time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Saw(Event),
    Did(Action),
}

#[derive(Debug)]
pub(super) struct Model {
    pub(super) rules: CheckpointRules,
    pub(super) tasks: u32,
    pub(super) first: CheckpointId,
    pub(super) log: Vec<(Duration, Entry)>,
}

impl Model {
    /// What the coordinator must answer now.
    pub(super) fn on(&mut self, now: Duration, event: Event) -> Vec<Action> {
        self.log.push((now, Entry::Saw(event)));
        let before = self.log.len();
        while let Some(action) = self.next_action(now, event, before) {
            self.log.push((now, Entry::Did(action)));
        }
        let done = self.log[before..].iter().map(|(_, entry)| match entry {
            Entry::Did(action) => action.clone(),
            Entry::Saw(_) => unreachable!("only actions follow the event"),
        });
        done.collect()
    }

    pub(super) fn tasks(&self) -> impl Iterator<Item = TaskIndex> {
        (0..self.tasks).map(TaskIndex)
    }

    pub(super) fn saw(&self, event: Event) -> bool {
        self.log.iter().any(|(_, entry)| *entry == Entry::Saw(event))
    }

    pub(super) fn did(&self, action: &Action) -> bool {
        self.log.iter().any(|(_, entry)| matches!(entry, Entry::Did(done) if done == action))
    }

    pub(super) fn was_aborted(&self, id: CheckpointId) -> bool {
        self.log.iter().any(|(_, entry)| matches!(entry, Entry::Did(Action::Abort { id: over, .. }) if *over == id))
    }

    pub(super) fn is_persisting(&self, id: CheckpointId) -> bool {
        self.did(&Action::Persist(id)) && !self.saw(Event::Persisted(id)) && !self.was_aborted(id)
    }

    pub(super) fn is_committing(&self, id: CheckpointId) -> bool {
        self.did(&Action::Commit(id)) && !self.saw(Event::Committed(id))
    }

    /// The last checkpoint that was triggered, if it is not over.
    pub(super) fn current(&self) -> Option<CheckpointId> {
        self.triggers()
            .last()
            .map(|(_, id)| *id)
            .filter(|id| !self.was_aborted(*id) && !self.saw(Event::Committed(*id)))
    }

    /// The current checkpoint, while it can be given up.
    pub(super) fn collecting(&self) -> Option<CheckpointId> {
        self.current().filter(|id| !self.did(&Action::Persist(*id)))
    }

    pub(super) fn awaited(&self, id: CheckpointId) -> Vec<TaskIndex> {
        let has_spoken = |task| self.saw(Event::TaskFinished(task)) || self.has_acknowledged(task, id);
        self.tasks().filter(|task| !has_spoken(*task)).collect()
    }

    pub(super) fn has_acknowledged(&self, task: TaskIndex, id: CheckpointId) -> bool {
        self.after_trigger(id).contains(&Event::Acknowledged(task, id))
    }

    fn failures_in_a_row(&self) -> u32 {
        let since_success =
            self.log.iter().rev().take_while(|(_, entry)| !matches!(entry, Entry::Saw(Event::Persisted(_))));
        let failed = since_success.filter(|(_, entry)| match entry {
            Entry::Did(Action::Abort { reason, .. }) => *reason != AbortReason::Stopped,
            _ => false,
        });
        u32::try_from(failed.count()).expect("few")
    }

    pub(super) fn triggers(&self) -> Vec<(Duration, CheckpointId)> {
        let triggers = self.log.iter().filter_map(|(at, entry)| match entry {
            Entry::Did(Action::Trigger(id)) => Some((*at, *id)),
            _ => None,
        });
        triggers.collect()
    }

    fn is_closed(&self) -> bool {
        self.saw(Event::Stop)
            || self
                .log
                .iter()
                .any(|(_, entry)| matches!(entry, Entry::Did(Action::FailJob(_) | Action::AllFinished(_))))
    }

    fn after_trigger(&self, id: CheckpointId) -> Vec<Event> {
        let trigger = Entry::Did(Action::Trigger(id));
        let after = self.log.iter().skip_while(|(_, entry)| *entry != trigger).filter_map(|(_, entry)| match entry {
            Entry::Saw(event) => Some(*event),
            Entry::Did(_) => None,
        });
        after.collect()
    }

    /// Whether all tasks had finished when it was triggered.
    fn is_final(&self, id: CheckpointId) -> bool {
        let trigger = Entry::Did(Action::Trigger(id));
        let before = self.log.iter().take_while(|(_, entry)| *entry != trigger);
        before.filter(|(_, entry)| matches!(entry, Entry::Saw(Event::TaskFinished(_)))).count() == self.tasks as usize
    }

    fn next_action(&self, now: Duration, event: Event, answered_from: usize) -> Option<Action> {
        let is_first = self.log.len() == answered_from;
        self.failed_job(answered_from)
            .or_else(|| if is_first { self.answer(event) } else { None })
            .or_else(|| self.persist())
            .or_else(|| self.expiry(now))
            .or_else(|| self.trigger(now))
    }

    /// The abort just done was one too many.
    fn failed_job(&self, answered_from: usize) -> Option<Action> {
        let (failures, tolerable) = (self.failures_in_a_row(), self.rules.tolerable_failures);
        match &self.log[answered_from..].last()?.1 {
            Entry::Did(Action::Abort { id, reason }) if failures > tolerable && !self.is_closed() => {
                Some(Action::FailJob(TooManyFailures { id: *id, failures, tolerable, reason: reason.clone() }))
            }
            _ => None,
        }
    }

    fn answer(&self, event: Event) -> Option<Action> {
        let abort = |id: CheckpointId, reason| (self.collecting() == Some(id)).then_some(Action::Abort { id, reason });
        match event {
            Event::Acknowledged(task, id) => {
                let was_triggered = self.did(&Action::Trigger(id));
                (!was_triggered || self.was_aborted(id)).then_some(Action::Discard(task, id))
            }
            Event::Declined(task, id) => abort(id, AbortReason::Declined(task)),
            Event::EnumeratorsFailed(id) => abort(id, AbortReason::EnumeratorsFailed),
            Event::Persisted(id) => Some(Action::Commit(id)),
            Event::PersistFailed(id) => Some(Action::Abort { id, reason: AbortReason::PersistFailed }),
            Event::Committed(id) => self.is_final(id).then_some(Action::AllFinished(id)),
            Event::Stop => self.collecting().and_then(|id| abort(id, AbortReason::Stopped)),
            Event::Tick | Event::TriggerNow | Event::EnumeratorsSnapshotted(_) | Event::TaskFinished(_) => None,
        }
    }

    fn persist(&self) -> Option<Action> {
        let id = self.collecting()?;
        let is_complete =
            self.awaited(id).is_empty() && self.after_trigger(id).contains(&Event::EnumeratorsSnapshotted(id));
        is_complete.then_some(Action::Persist(id))
    }

    fn expiry(&self, now: Duration) -> Option<Action> {
        let id = self.collecting()?;
        let (triggered, _) = *self.triggers().last()?;
        // Nothing expires at its own trigger, not even with a timeout of nothing: the next tick comes at once.
        let just_triggered = self.log.last().map(|(_, entry)| entry) == Some(&Entry::Did(Action::Trigger(id)));
        let reason = AbortReason::Expired { timeout: self.rules.timeout, awaited: self.awaited(id) };
        (!just_triggered && now >= triggered + self.rules.timeout).then_some(Action::Abort { id, reason })
    }

    fn trigger(&self, now: Duration) -> Option<Action> {
        let is_requested =
            self.log.iter().rev().take_while(|(_, entry)| !matches!(entry, Entry::Did(Action::Trigger(_))));
        let is_requested = is_requested.into_iter().any(|(_, entry)| *entry == Entry::Saw(Event::TriggerNow));
        let all_finished = self.tasks().all(|task| self.saw(Event::TaskFinished(task)));
        let is_due = is_requested || if all_finished { self.final_due(now) } else { self.periodic_due(now) };
        let id = CheckpointId(self.first.0 + self.triggers().len() as u64);
        (is_due && self.current().is_none() && !self.is_closed()).then_some(Action::Trigger(id))
    }

    fn final_due(&self, now: Duration) -> bool {
        let failed = self
            .log
            .iter()
            .rev()
            .find(|(_, entry)| matches!(entry, Entry::Did(Action::Abort { id, .. }) if self.is_final(*id)));
        let pause = FINAL_RETRY_PAUSE.min(self.rules.interval.max(self.rules.min_pause));
        failed.is_none_or(|(at, _)| now >= *at + pause)
    }

    fn periodic_due(&self, now: Duration) -> bool {
        let interval = self.rules.interval.max(self.rules.min_pause);
        let due = self.triggers().iter().fold(interval, |due, (at, _)| if *at >= due { *at + interval } else { due });
        let succeeded = self.log.iter().rev().find(|(_, entry)| matches!(entry, Entry::Saw(Event::Persisted(_))));
        now >= due && succeeded.is_none_or(|(at, _)| now >= *at + self.rules.min_pause)
    }
}
