use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::Index;

use super::model::Entry;
use super::model::Model;
use super::*;

const FIRST: CheckpointId = CheckpointId(7);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn rules() -> impl Strategy<Value = CheckpointRules> {
    let tolerable = prop_oneof![Just(0), Just(1), Just(2), Just(u32::MAX)];
    (0u64..20, 0u64..20, 0u64..60, tolerable).prop_map(|(interval, min_pause, timeout, tolerable_failures)| {
        CheckpointRules { interval: ms(interval), min_pause: ms(min_pause), timeout: ms(timeout), tolerable_failures }
    })
}

/// What may happen next, still without the checkpoint that it happens to.
#[derive(Clone, Copy, Debug)]
enum Step {
    Tick,
    TriggerNow,
    Enumerators { succeed: bool },
    Acknowledge(Index),
    Decline(Index),
    Finish(Index),
    Settle { succeed: bool },
    Stop,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => Just(Step::Tick),
        1 => Just(Step::TriggerNow),
        4 => prop::bool::weighted(0.9).prop_map(|succeed| Step::Enumerators { succeed }),
        12 => any::<Index>().prop_map(Step::Acknowledge),
        1 => any::<Index>().prop_map(Step::Decline),
        1 => any::<Index>().prop_map(Step::Finish),
        8 => prop::bool::weighted(0.9).prop_map(|succeed| Step::Settle { succeed }),
    ]
}

/// The last step of a job is often that it stops.
fn steps() -> impl Strategy<Value = Vec<(u64, i64, Step)>> {
    let age = prop_oneof![12 => Just(0), 2 => 1i64..5, 1 => Just(-1)];
    let steps = prop::collection::vec((0u64..12, age, step()), 1..160);
    (steps, prop::option::weighted(0.2, any::<Index>())).prop_map(|(mut steps, stop)| {
        if let Some(at) = stop.map(|stop| stop.index(steps.len())) {
            steps[at].2 = Step::Stop;
        }
        steps
    })
}

/// The event of a step, if it can happen: the driver keeps its promises, and messages may be late, repeated or of a
/// checkpoint that never was.
fn event(model: &Model, step: Step, age: i64) -> Option<Event> {
    let newest = model.triggers().last().map_or(FIRST, |(_, id)| *id);
    let id = CheckpointId(newest.0.saturating_add_signed(-age));
    let task = |index: Index| TaskIndex(u32::try_from(index.index(model.tasks as usize)).expect("below the tasks"));
    let is_known = model.did(&Action::Trigger(id));
    match step {
        Step::Tick => Some(Event::Tick),
        Step::TriggerNow => Some(Event::TriggerNow),
        Step::Stop => Some(Event::Stop),
        Step::Enumerators { succeed } => {
            let event = if succeed { Event::EnumeratorsSnapshotted } else { Event::EnumeratorsFailed };
            (model.collecting() == Some(id) || model.was_aborted(id)).then_some(event(id))
        }
        Step::Acknowledge(index) => {
            let (task, is_current) = (task(index), model.collecting() == Some(id));
            let repeats = model.has_acknowledged(task, id);
            let can = is_current && !model.saw(Event::TaskFinished(task));
            (!is_known || model.was_aborted(id) || repeats || can).then_some(Event::Acknowledged(task, id))
        }
        Step::Decline(index) => {
            let (task, is_current) = (task(index), model.collecting() == Some(id));
            let can = is_current && !model.saw(Event::TaskFinished(task));
            (can || model.was_aborted(id)).then_some(Event::Declined(task, id))
        }
        Step::Finish(index) => Some(Event::TaskFinished(task(index))).filter(|event| !model.saw(*event)),
        Step::Settle { succeed } => {
            let event = if succeed { Event::Persisted } else { Event::PersistFailed };
            if model.is_committing(newest) {
                Some(Event::Committed(newest))
            } else {
                model.is_persisting(newest).then_some(event(newest))
            }
        }
    }
}

/// What holds over a whole log, whatever the model says.
fn check_laws(model: &Model) -> Result<(), TestCaseError> {
    let mut fates: BTreeMap<CheckpointId, Vec<&Action>> = BTreeMap::new();
    let mut under_way = None;
    for (_, entry) in &model.log {
        match entry {
            Entry::Did(Action::Trigger(id)) => {
                prop_assert_eq!(under_way, None, "two under way");
                prop_assert!(fates.keys().all(|older| older < id), "ids grow");
                under_way = Some(*id);
                fates.insert(*id, Vec::new());
            }
            Entry::Did(action @ (Action::Persist(id) | Action::Commit(id) | Action::Abort { id, .. })) => {
                prop_assert_eq!(under_way, Some(*id));
                under_way = under_way.filter(|_| !matches!(action, Action::Abort { .. }));
                fates.get_mut(id).expect("triggered before").push(action);
            }
            Entry::Did(Action::AllFinished(id)) => prop_assert_eq!(fates[id].len(), 2),
            Entry::Saw(Event::Committed(_)) => under_way = None,
            Entry::Did(Action::Discard(..) | Action::FailJob(_)) | Entry::Saw(_) => {}
        }
    }
    for (id, fate) in fates {
        let is_lawful = match fate.as_slice() {
            [] | [Action::Persist(_)] => under_way == Some(id),
            [Action::Persist(_), Action::Commit(_)] | [Action::Abort { .. }] => true,
            [Action::Persist(_), Action::Abort { reason, .. }] => *reason == AbortReason::PersistFailed,
            _ => false,
        };
        prop_assert!(is_lawful, "{} went {:?}", id, fate);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    /// Whatever happens in whatever order, the coordinator does what the model says, and wakes up exactly when there is
    /// something to do.
    #[test]
    fn it_does_what_the_model_says(rules in rules(), tasks in 1u32..4, steps in steps()) {
        let mut coordinator = Coordinator::new(rules, tasks, FIRST, Duration::ZERO);
        let mut model = Model { rules, tasks, first: FIRST, log: Vec::new() };
        let mut now = Duration::ZERO;
        for (pass, age, step) in steps {
            now += ms(pass);
            let event = event(&model, step, age).unwrap_or(Event::Tick);
            let actions = coordinator.on(now, event);
            prop_assert_eq!(&actions, &model.on(now, event), "on {:?} after {:#?}", event, model.log);

            let collecting = coordinator.collecting().map(|(id, awaited)| (id, awaited.collect::<Vec<_>>()));
            prop_assert_eq!(collecting, model.collecting().map(|id| (id, model.awaited(id))));
            let tick = |at: Duration| coordinator.clone().on(at, Event::Tick);
            match coordinator.next_wakeup() {
                None => prop_assert_eq!(tick(now + Duration::from_secs(1_000_000)), []),
                Some(at) => {
                    prop_assert_ne!(tick(at.max(now)), []);
                    prop_assert!(at <= now || tick(at - Duration::from_nanos(1)).is_empty());
                }
            }
        }
        check_laws(&model)?;
    }

    /// If tasks answer, checkpoints go on, some failures aside; and once all tasks have finished, the job does.
    #[test]
    fn checkpoints_go_on_until_the_job_is_finished(
        lives in prop::collection::vec(0u64..6, 1..5),
        mut failing in prop::collection::vec(prop::bool::weighted(0.1), 60),
        order in prop::collection::vec(any::<Index>(), 400),
    ) {
        let rules = CheckpointRules { interval: ms(10), min_pause: ms(3), timeout: ms(1000), tolerable_failures: u32::MAX };
        let tasks = u32::try_from(lives.len()).expect("few");
        let mut coordinator = Coordinator::new(rules, tasks, FIRST, Duration::ZERO);
        // What each task has still to say, the last queue being the driver's; each is in order, together they are not.
        let mut queues = vec![VecDeque::new(); lives.len() + 1];
        let (mut barriers_left, mut completed) = (lives.clone(), 0);
        let (mut now, mut event, mut all_finished) = (Duration::ZERO, Event::Tick, None);
        for index in order {
            for action in coordinator.on(now, event) {
                let driver = lives.len();
                match action {
                    Action::Trigger(id) => {
                        queues[driver].push_back(Event::EnumeratorsSnapshotted(id));
                        for (task, left) in (0..).map(TaskIndex).zip(&mut barriers_left) {
                            let declines = failing.pop().unwrap_or(false);
                            let answers = match *left {
                                _ if declines && *left > 0 => vec![Event::Declined(task, id)],
                                0 => vec![],
                                1 => vec![Event::Acknowledged(task, id), Event::TaskFinished(task)],
                                _ => vec![Event::Acknowledged(task, id)],
                            };
                            *left -= u64::from(answers.contains(&Event::Acknowledged(task, id)));
                            queues[task.0 as usize].extend(answers);
                        }
                    }
                    Action::Persist(id) => {
                        let fails = failing.pop().unwrap_or(false);
                        queues[driver].push_back(if fails { Event::PersistFailed(id) } else { Event::Persisted(id) });
                    }
                    Action::Commit(id) => {
                        completed += 1;
                        queues[driver].push_back(Event::Committed(id));
                    }
                    Action::AllFinished(id) => all_finished = Some(id),
                    Action::Abort { .. } | Action::Discard(..) => {}
                    Action::FailJob(_) => unreachable!("all failures are tolerated"),
                }
            }
            if now.is_zero() {
                // Some finish before they have seen any barrier.
                for (task, left) in (0..).map(TaskIndex).zip(&lives) {
                    queues[task.0 as usize].extend((*left == 0).then_some(Event::TaskFinished(task)));
                }
                now = ms(1);
            }
            let speaking: Vec<usize> = (0..queues.len()).filter(|queue| !queues[*queue].is_empty()).collect();
            event = if speaking.is_empty() {
                let Some(at) = coordinator.next_wakeup() else { break };
                now = now.max(at);
                Event::Tick
            } else {
                let speaker = speaking[index.index(speaking.len())];
                queues[speaker].pop_front().expect("it has something to say")
            };
        }
        prop_assert!(all_finished.is_some(), "not finished: {:?}", coordinator);
        prop_assert!(completed >= 1);
    }
}

/// A coordinator that is spoken to.
struct Talk {
    coordinator: Coordinator,
    now: Duration,
}

const A: TaskIndex = TaskIndex(0);
const B: TaskIndex = TaskIndex(1);
const SECOND: CheckpointId = CheckpointId(8);
const THIRD: CheckpointId = CheckpointId(9);

impl Talk {
    /// Two tasks, a checkpoint every 100 ms, 60 ms after the last one at the least.
    fn new(tolerable_failures: u32) -> Self {
        let rules = CheckpointRules { interval: ms(100), min_pause: ms(60), timeout: ms(1000), tolerable_failures };
        Self { coordinator: Coordinator::new(rules, 2, FIRST, Duration::ZERO), now: Duration::ZERO }
    }

    #[track_caller]
    fn check(&mut self, at: u64, event: Event, actions: &[Action]) {
        self.now = ms(at);
        assert_eq!(self.coordinator.on(self.now, event), actions, "{event:?} at {at} ms");
    }

    /// All tasks acknowledge at once.
    #[track_caller]
    fn complete(&mut self, at: u64, id: CheckpointId) {
        self.check(at, Event::EnumeratorsSnapshotted(id), &[]);
        self.check(at, Event::Acknowledged(A, id), &[]);
        self.check(at, Event::Acknowledged(B, id), &[Action::Persist(id)]);
        self.check(at, Event::Persisted(id), &[Action::Commit(id)]);
    }
}

#[test]
fn the_pause_counts_from_the_last_success() {
    let mut talk = Talk::new(9);
    talk.check(99, Event::Tick, &[]);
    talk.check(100, Event::Tick, &[Action::Trigger(FIRST)]);
    talk.complete(170, FIRST);
    talk.check(171, Event::Committed(FIRST), &[]);
    talk.check(229, Event::Tick, &[]);
    talk.check(230, Event::Tick, &[Action::Trigger(SECOND)]);
    let declined = Action::Abort { id: SECOND, reason: AbortReason::Declined(B) };
    // A failure starts no pause: what was due during it comes at once.
    talk.check(400, Event::Declined(B, SECOND), &[declined, Action::Trigger(THIRD)]);
    talk.check(401, Event::Acknowledged(A, SECOND), &[Action::Discard(A, SECOND)]);
}

#[test]
fn consecutive_failures_fail_the_job_and_a_success_forgives_them() {
    let declined = || AbortReason::Declined(A);
    let mut talk = Talk::new(1);
    talk.check(100, Event::Tick, &[Action::Trigger(FIRST)]);
    talk.check(101, Event::Declined(A, FIRST), &[Action::Abort { id: FIRST, reason: declined() }]);
    talk.check(101, Event::Declined(B, FIRST), &[]);
    talk.check(200, Event::Tick, &[Action::Trigger(SECOND)]);
    talk.complete(201, SECOND);
    talk.check(201, Event::Committed(SECOND), &[]);
    for (at, failures) in [(300, 1), (400, 2)] {
        let id = CheckpointId(SECOND.0 + u64::from(failures));
        talk.check(at, Event::Tick, &[Action::Trigger(id)]);
        let mut actions = vec![Action::Abort { id, reason: declined() }];
        if failures > 1 {
            actions.push(Action::FailJob(TooManyFailures { id, failures, tolerable: 1, reason: declined() }));
        }
        talk.check(at, Event::Declined(A, id), &actions);
    }
    talk.check(9000, Event::TriggerNow, &[]);
}

#[test]
fn nothing_expires_once_it_is_being_persisted() {
    let mut talk = Talk::new(0);
    talk.check(100, Event::TriggerNow, &[Action::Trigger(FIRST)]);
    talk.check(100, Event::TaskFinished(A), &[]);
    talk.check(100, Event::Acknowledged(B, FIRST), &[]);
    talk.check(1000, Event::EnumeratorsSnapshotted(FIRST), &[Action::Persist(FIRST)]);
    talk.check(9000, Event::Tick, &[]);
    talk.check(9000, Event::Stop, &[]);
    talk.check(9000, Event::Declined(B, FIRST), &[]);
    talk.check(9001, Event::Persisted(FIRST), &[Action::Commit(FIRST)]);
    talk.check(9001, Event::Acknowledged(B, FIRST), &[]);
    talk.check(9002, Event::Committed(FIRST), &[]);
}

#[test]
fn an_expired_checkpoint_names_who_was_awaited() {
    let mut talk = Talk::new(0);
    talk.check(100, Event::Tick, &[Action::Trigger(FIRST)]);
    talk.check(100, Event::Acknowledged(A, FIRST), &[]);
    let reason = AbortReason::Expired { timeout: ms(1000), awaited: vec![B] };
    let failed = TooManyFailures { id: FIRST, failures: 1, tolerable: 0, reason: reason.clone() };
    assert_eq!(
        failed.to_string(),
        "checkpoint 7 failed; that makes 1 in a row, and checkpoint.tolerable-failures is 0"
    );
    assert_eq!(reason.to_string(), "not complete within 1s: task 1 is awaited");
    talk.check(1100, Event::Tick, &[Action::Abort { id: FIRST, reason }, Action::FailJob(failed)]);
}

#[test]
fn the_final_checkpoint_comes_at_once_and_is_tried_again() {
    let mut talk = Talk::new(1);
    talk.check(100, Event::Tick, &[Action::Trigger(FIRST)]);
    talk.check(101, Event::TaskFinished(A), &[]);
    talk.check(101, Event::TaskFinished(B), &[]);
    talk.check(101, Event::EnumeratorsSnapshotted(FIRST), &[Action::Persist(FIRST)]);
    talk.check(102, Event::Persisted(FIRST), &[Action::Commit(FIRST)]);
    // One was under way when the last task finished: it is not the final one, which follows at once.
    talk.check(103, Event::Committed(FIRST), &[Action::Trigger(SECOND)]);
    let failed = Action::Abort { id: SECOND, reason: AbortReason::EnumeratorsFailed };
    talk.check(104, Event::EnumeratorsFailed(SECOND), &[failed]);
    assert_eq!(talk.coordinator.next_wakeup(), Some(ms(204)));
    talk.check(204, Event::Tick, &[Action::Trigger(THIRD)]);
    talk.check(205, Event::EnumeratorsSnapshotted(THIRD), &[Action::Persist(THIRD)]);
    talk.check(206, Event::Persisted(THIRD), &[Action::Commit(THIRD)]);
    talk.check(207, Event::Committed(THIRD), &[Action::AllFinished(THIRD)]);
    assert_eq!(talk.coordinator.next_wakeup(), None);
}

#[test]
fn a_job_that_stops_makes_no_more_checkpoints() {
    let mut talk = Talk::new(0);
    talk.check(100, Event::Tick, &[Action::Trigger(FIRST)]);
    talk.check(101, Event::Stop, &[Action::Abort { id: FIRST, reason: AbortReason::Stopped }]);
    talk.check(102, Event::Acknowledged(A, FIRST), &[Action::Discard(A, FIRST)]);
    talk.check(9000, Event::TriggerNow, &[]);
}

#[test]
fn a_failed_write_fails_no_job_that_is_stopping() {
    let mut talk = Talk::new(0);
    talk.check(100, Event::Tick, &[Action::Trigger(FIRST)]);
    talk.check(100, Event::EnumeratorsSnapshotted(FIRST), &[]);
    talk.check(100, Event::Acknowledged(A, FIRST), &[]);
    talk.check(100, Event::Acknowledged(B, FIRST), &[Action::Persist(FIRST)]);
    talk.check(101, Event::Stop, &[]);
    let failed = Action::Abort { id: FIRST, reason: AbortReason::PersistFailed };
    talk.check(102, Event::PersistFailed(FIRST), &[failed]);
}

#[test]
#[should_panic(expected = "finished before it acknowledged")]
fn a_task_says_all_it_has_to_say_before_it_finishes() {
    let mut talk = Talk::new(0);
    talk.check(100, Event::Tick, &[Action::Trigger(FIRST)]);
    talk.check(100, Event::TaskFinished(A), &[]);
    talk.check(100, Event::Acknowledged(A, FIRST), &[]);
}

#[test]
#[should_panic(expected = "was not to be persisted")]
fn only_what_is_being_persisted_becomes_durable() {
    Talk::new(0).check(100, Event::Persisted(FIRST), &[]);
}
