//! Finds files to follow, now and later, and hands them out.

use std::collections::{BTreeSet, VecDeque};
use std::path::PathBuf;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

use super::discovery::{self, Target};
use super::position::FilePosition;
use crate::connectors::{ConnectorError, Extent, RestoredSource, Split, SplitEnumerator, versioned};
use crate::env::Env;
use crate::task;

/// How often files that are followed are looked at.
pub(super) const POLL: Duration = Duration::from_millis(100);

/// The version of [`State`].
const VERSION: u32 = 1;

/// Device and inode: what stays when a file is renamed.
type FileKey = (u64, u64);

/// What a checkpoint keeps.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct State {
    version: u32,
    /// Files that have not been handed out, or were being read before a restore, each by its split's name.
    pending: VecDeque<(String, FilePosition)>,
    /// Files that have been handed out or are about to be, for as long as they are to be found.
    known: BTreeSet<FileKey>,
}

impl State {
    fn restore(restored: &RestoredSource) -> Result<Self, ConnectorError> {
        let mut state: Self = versioned::decode("the state of a file source", VERSION, &restored.enumerator)?;
        for split in restored.splits.iter().rev() {
            let position = FilePosition::decode(split)?;
            state.known.insert((position.identity.device, position.identity.inode));
            state.pending.push_front((split.id.clone(), position));
        }
        Ok(state)
    }

    fn add(&mut self, positions: Vec<FilePosition>) {
        self.pending.extend(positions.into_iter().map(|position| (position.id(), position)));
    }
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
            let mut state = State { version: VERSION, pending: VecDeque::new(), known: BTreeSet::new() };
            let mut positions = Vec::new();
            for path in target.files()? {
                let (identity, _) = discovery::examine(&path)?;
                state.known.insert((identity.device, identity.inode));
                positions.push(FilePosition::of_followed(path, identity));
            }
            state.add(positions);
            Ok((target, state))
        };
        let found: Result<_, ConnectorError> = task::compute(&*self.env.compute, "find files", work).await?;
        self.found = Some(found?);
        Ok(())
    }

    /// Looks for files that were not there before.
    async fn discover_more(&mut self) -> Result<(), ConnectorError> {
        let (target, state) = self.found.as_mut().expect("started");
        let (target, known) = (target.clone(), state.known.clone());
        let work = move || {
            let (mut present, mut positions) = (BTreeSet::new(), Vec::new());
            for path in target.files()? {
                // A file that is gone again, or between two names, is looked at again the next time.
                let Some(key) = discovery::stands_for(&path) else { continue };
                if present.insert(key) && !known.contains(&key) {
                    match discovery::examine(&path) {
                        Ok((identity, _)) => positions.push(FilePosition::of_followed(path, identity)),
                        Err(ConnectorError::File { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                            present.remove(&key);
                        }
                        Err(error) => return Err(error),
                    }
                }
            }
            Ok((present, positions))
        };
        let (present, positions) = task::compute(&*self.env.compute, "find new files", work).await??;
        // Files that are not found any more are forgotten: their inode may come back as another file's.
        state.known = present;
        state.add(positions);
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

    fn split_finished(&mut self, _split: &str) {}

    fn extent(&self) -> Option<Extent> {
        None
    }
}
