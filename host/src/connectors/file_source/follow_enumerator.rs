//! Finds files to follow, now and later, and hands them out.
//!
//! A file is known from when it is found until its reader is done with it and no name stands for it any more. In between
//! it may be renamed, vanish from sight and come back without being read twice; behind that its inode may come back as
//! another file's, which is told from it by its birth, or where the file system knows none, by what it begins with.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

use super::discovery::{self, Target};
use super::position::{FileKey, FilePosition, Identity};
use crate::connectors::{ConnectorError, Extent, RestoredSource, Split, SplitEnumerator, versioned};
use crate::env::Env;
use crate::task;

/// How often files that are followed are looked at.
pub(super) const POLL: Duration = Duration::from_millis(100);

/// The version of [`State`].
const VERSION: u32 = 1;

/// What a checkpoint keeps.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct State {
    version: u32,
    /// Files that have not been handed out, or were being read before a restore, each by its split's name.
    pending: VecDeque<(String, FilePosition)>,
    known: Vec<Known>,
}

/// A file that has been found.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Known {
    /// The name of its split.
    split: String,
    /// When it was found, or later.
    identity: Identity,
    /// Whether its reader is done with it, and so has closed it: only then can its inode become another file's.
    finished: bool,
}

impl State {
    fn restore(restored: &RestoredSource) -> Result<Self, ConnectorError> {
        let mut state: Self = versioned::decode("the state of a file source", VERSION, &restored.enumerator)?;
        for split in restored.splits.iter().rev() {
            state.pending.push_front((split.id.clone(), FilePosition::decode(split)?));
        }
        // Whoever was done with a file before the checkpoint may have said so too late.
        let pending: BTreeSet<&String> = state.pending.iter().map(|(id, _)| id).collect();
        for known in &mut state.known {
            known.finished = !pending.contains(&known.split);
        }
        Ok(state)
    }

    fn add(&mut self, position: FilePosition) {
        let (split, identity) = (position.id(), position.identity);
        self.known.push(Known { split: split.clone(), identity, finished: false });
        self.pending.push_back((split, position));
    }

    /// What a look at the files changes. Blocks.
    fn look(&self, target: &Target) -> Result<Look, ConnectorError> {
        let known: BTreeMap<FileKey, &Known> = self.known.iter().map(|known| (known.identity.key, known)).collect();
        let mut look = Look { present: BTreeSet::new(), found: Vec::new() };
        for path in target.files()? {
            // A file that is gone again, or between two names, is looked at again the next time.
            let Some(key) = discovery::stands_for(&path) else { continue };
            let known = known.get(&key);
            let certain = known.is_some_and(|known| !known.finished || key.born_ns.is_some());
            if !look.present.insert(key) || certain {
                continue;
            }
            match discovery::find_other(&path, key, known.map(|known| &known.identity)) {
                Ok(None) => {}
                Ok(Some(identity)) => look.found.push(FilePosition::of_followed(path, identity)),
                Err(ConnectorError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                    look.present.remove(&key);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(look)
    }

    fn apply(&mut self, Look { present, found }: Look) {
        let found_keys: BTreeSet<FileKey> = found.iter().map(|position| position.identity.key).collect();
        self.known.retain(|known| {
            let key = &known.identity.key;
            let replaced = found_keys.contains(key);
            !known.finished || (present.contains(key) && !replaced)
        });
        found.into_iter().for_each(|position| self.add(position));
    }
}

/// What was there at a look.
struct Look {
    present: BTreeSet<FileKey>,
    /// Files that were not known.
    found: Vec<FilePosition>,
}

/// The enumerator of followed files.
pub(super) struct FollowEnumerator {
    env: Env,
    path: PathBuf,
    restored: Option<RestoredSource>,
    /// What the path turned out to be, and what was found; known once started.
    found: Option<(Target, State)>,
    pause: Option<BoxFuture<'static, ()>>,
}

impl FollowEnumerator {
    pub(super) fn new(env: Env, path: PathBuf, restored: Option<RestoredSource>) -> Self {
        Self { env, path, restored, found: None, pause: None }
    }

    async fn begin(&mut self) -> Result<(), ConnectorError> {
        let (path, restored) = (self.path.clone(), self.restored.take());
        let work = move || {
            let target = Target::of(&path)?;
            if let Some(restored) = restored {
                return Ok((target, State::restore(&restored)?));
            }
            let mut state = State { version: VERSION, pending: VecDeque::new(), known: Vec::new() };
            let mut keys = BTreeSet::new();
            for path in target.files()? {
                let (identity, _) = discovery::examine(&path)?;
                // A file of two names is one file.
                if keys.insert(identity.key) {
                    state.add(FilePosition::of_followed(path, identity));
                }
            }
            Ok((target, state))
        };
        let found: Result<_, ConnectorError> = task::compute(&*self.env.compute, "find files", work).await?;
        self.found = Some(found?);
        Ok(())
    }

    /// Looks for files that were not there before.
    async fn discover_more(&mut self) -> Result<(), ConnectorError> {
        let (target, state) = self.found.as_mut().expect("started");
        let (target, before) = (target.clone(), state.clone());
        let look = task::compute(&*self.env.compute, "find new files", move || before.look(&target)).await??;
        state.apply(look);
        Ok(())
    }

    async fn take(&mut self) -> Result<Option<Split>, ConnectorError> {
        loop {
            let (_, state) = self.found.as_mut().expect("started");
            if let Some((id, position)) = state.pending.pop_front() {
                return Ok(Some(Split { id, position: position.encode() }));
            }
            self.pause.get_or_insert_with(|| self.env.clock.sleep(POLL)).await;
            self.pause = None;
            self.discover_more().await?;
        }
    }
}

impl SplitEnumerator for FollowEnumerator {
    fn start(&mut self) -> BoxFuture<'_, Result<(), ConnectorError>> {
        self.begin().boxed()
    }

    fn next_split(&mut self, _subtask: u32) -> BoxFuture<'_, Result<Option<Split>, ConnectorError>> {
        self.take().boxed()
    }

    fn snapshot(&self) -> Vec<u8> {
        versioned::encode(&self.found.as_ref().expect("started").1)
    }

    fn split_finished(&mut self, split: &str) {
        let (_, state) = self.found.as_mut().expect("started");
        for known in state.known.iter_mut().filter(|known| known.split == split) {
            known.finished = true;
        }
    }

    fn extent(&self) -> Option<Extent> {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;

    /// Where nothing is known of births, an inode that comes back is another file's if the head differs, and else its own,
    /// grown.
    #[test]
    fn files_are_told_apart_by_their_heads() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("log");
        fs::write(&path, "old\n").unwrap();
        let (old, _) = discovery::examine(&path).unwrap();
        for (content, other) in [("old\n", false), ("old\nmore\n", false), ("new\n", true), ("", true)] {
            fs::write(&path, content).unwrap();
            let found = discovery::find_other(&path, old.key, Some(&old)).unwrap();
            assert_eq!(found.is_some(), other, "{content:?}");
        }
        assert!(discovery::find_other(&path, old.key, None).unwrap().is_some());
    }
}
