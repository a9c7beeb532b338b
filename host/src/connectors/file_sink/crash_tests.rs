//! A file sink whose job crashes: what was committed stays, what was prepared can be committed, the rest goes.

use std::collections::BTreeSet;
use std::fs;

use futures_util::FutureExt;
use proptest::collection::vec;
use proptest::prelude::*;
use tempfile::TempDir;

use super::super::testing::{block_on, env, owner};
use super::super::{Committable, Prepared, SinkWriter, WriterContext};
use super::names::PartName;
use super::tests::{batch, names, sink};
use crate::id::{Attempt, Owner, SubtaskId};

/// What happens to a writer and its job.
#[derive(Clone, Copy, Debug)]
enum Step {
    Write,
    /// The epoch is cut.
    Cut,
    /// The epoch cut off last becomes durable, and goes into a checkpoint with all before it that are.
    Prepare,
    /// The epoch cut off last is begun to be made durable and given up.
    GiveUp,
    Commit,
    /// The attempt ends at once, and another one goes on from what was prepared or committed.
    Crash,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => Just(Step::Write),
        3 => Just(Step::Cut),
        3 => Just(Step::Prepare),
        1 => Just(Step::GiveUp),
        1 => Just(Step::Commit),
        1 => Just(Step::Crash),
    ];
    vec(step, 0..40)
}

/// A job around one writer.
struct World {
    directory: TempDir,
    owner: Owner,
    writer: Box<dyn SinkWriter>,
    next: u32,
    /// Written in the running epoch.
    open: Vec<u32>,
    /// Cut off and not durable.
    cut: Vec<(Prepared, Vec<u32>)>,
    /// In a checkpoint.
    prepared: Vec<(Committable, Vec<u32>)>,
    committed: BTreeSet<u32>,
}

impl World {
    fn new() -> Self {
        let (directory, owner) = (TempDir::new().unwrap(), owner("job"));
        let writer = writer(&directory, &owner);
        let (open, cut, prepared) = (Vec::new(), Vec::new(), Vec::new());
        Self { directory, owner, writer, next: 0, open, cut, prepared, committed: BTreeSet::new() }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Write => {
                block_on(self.writer.write(&batch(&[&self.next.to_string()]))).unwrap();
                self.open.push(self.next);
                self.next += 1;
            }
            Step::Cut => {
                let prepared = block_on(self.writer.prepare()).unwrap();
                self.cut.push((prepared, std::mem::take(&mut self.open)));
            }
            Step::Prepare => {
                let Some((prepared, values)) = self.cut.pop() else { return };
                let mut committables = block_on(prepared).unwrap();
                assert_eq!(committables.len(), usize::from(!values.is_empty()), "an empty epoch makes no file");
                self.prepared.extend(committables.pop().map(|committable| (committable, values)));
            }
            Step::GiveUp => {
                if let Some((prepared, _)) = self.cut.pop() {
                    drop(block_on(async { prepared.now_or_never() }));
                }
            }
            Step::Commit => self.commit(),
            Step::Crash => {
                self.cut.clear();
                self.open.clear();
                self.owner.attempt = self.owner.attempt.next();
                // As after a restore: what the checkpoint holds first, then away with the rest.
                self.commit();
                block_on(committer(&self.directory).sweep(&self.owner)).unwrap();
                self.writer = writer(&self.directory, &self.owner);
            }
        }
    }

    fn commit(&mut self) {
        let committables: Vec<_> = self.prepared.iter().map(|(committable, _)| committable.clone()).collect();
        let mut committer = committer(&self.directory);
        block_on(committer.check(&committables)).unwrap();
        block_on(committer.commit(committables)).unwrap();
        self.committed.extend(self.prepared.iter().flat_map(|(_, values)| values));
    }

    /// What readers see.
    fn visible(&self) -> Vec<u32> {
        let names = names(self.directory.path()).into_iter().filter(|name| !name.starts_with('.'));
        let text: String = names.map(|name| fs::read_to_string(self.directory.path().join(name)).unwrap()).collect();
        let mut values: Vec<u32> = text.lines().map(|line| line.parse().unwrap()).collect();
        values.sort_unstable();
        values
    }
}

fn committer(directory: &TempDir) -> Box<dyn super::Committer> {
    sink(directory.path(), "").committer(&env())
}

fn writer(directory: &TempDir, owner: &Owner) -> Box<dyn SinkWriter> {
    let subtask = SubtaskId { node: "out".to_owned(), index: 0 };
    sink(directory.path(), "").writer(WriterContext { subtask, owner: owner.clone(), env: env() })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Exactly what was in a committed checkpoint is visible, at any time and once, and nothing of others is touched.
    #[test]
    fn what_was_committed_is_what_is_seen(steps in steps()) {
        let mut world = World::new();
        let later = Owner { attempt: Attempt { run: 2, number: 1 }, ..owner("job") };
        let others = [later, owner("other")].map(|owner| PartName { owner, node: "out".to_owned(), subtask: 0, sequence: 0 }.pending());
        for name in &others {
            fs::write(world.directory.path().join(name), "").unwrap();
        }
        for step in steps {
            world.step(step);
            prop_assert_eq!(world.visible(), world.committed.iter().copied().collect::<Vec<_>>());
        }
        let names = names(world.directory.path());
        prop_assert!(others.iter().all(|name| names.contains(name)));
    }
}
