//! Finds the splits of bounded files and hands them out.
//!
//! Which files there are, and where they are cut, is fixed when the job first starts. What is kept of that is a file's
//! size and how much of it has been handed out, so that a checkpoint holds little also of files of terabytes.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use serde::{Deserialize, Serialize};

use super::discovery::{self, Target};
use super::position::{FilePosition, Identity};
use crate::connectors::{ConnectorError, Extent, RestoredSource, Split, SplitEnumerator, versioned};
use crate::env::Env;
use crate::task;

/// The version of [`State`].
const VERSION: u32 = 1;

/// What a checkpoint keeps: what has not been handed out.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct State {
    version: u32,
    /// Splits that readers had begun before a restore, each by its name.
    begun: VecDeque<(String, FilePosition)>,
    files: VecDeque<Uncut>,
}

/// A file of which the last part has not been handed out.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Uncut {
    path: PathBuf,
    identity: Identity,
    size: u64,
    /// The size of its splits, fixed like the size.
    step: u64,
    /// Where the next split begins; below the size.
    next: u64,
}

impl Uncut {
    /// The next split, and whether it is the last.
    fn cut(&mut self) -> (FilePosition, bool) {
        let (start, end) = (self.next, self.next.saturating_add(self.step).min(self.size));
        self.next = end;
        (FilePosition::of_range(self.path.clone(), self.identity, start, end, self.size), end == self.size)
    }
}

impl State {
    /// Looks at the files, which blocks.
    fn discover(path: &Path, split_bytes: Option<u64>) -> Result<Self, ConnectorError> {
        let target = Target::of(path)?;
        let paths = target.files()?;
        if paths.is_empty() {
            return Err(target.no_files());
        }
        let mut files = VecDeque::new();
        for path in paths {
            let (identity, size) = discovery::examine(&path)?;
            if size > 0 {
                files.push_back(Uncut { path, identity, size, step: split_bytes.unwrap_or(size), next: 0 });
            }
        }
        Ok(Self { version: VERSION, begun: VecDeque::new(), files })
    }

    fn restore(restored: &RestoredSource) -> Result<Self, ConnectorError> {
        let mut state: Self = versioned::decode("the state of a file source", VERSION, &restored.enumerator)?;
        if let Some(file) = state.files.iter().find(|file| file.next >= file.size || file.step == 0) {
            let problem = format!("the state of a file source is not readable: {} has no rest", file.path.display());
            return Err(ConnectorError::Other(problem));
        }
        for split in &restored.splits {
            state.begun.push_back((split.id.clone(), FilePosition::decode(split)?));
        }
        Ok(state)
    }

    fn take(&mut self) -> Option<Split> {
        if let Some((id, position)) = self.begun.pop_front() {
            return Some(Split { id, position: position.encode() });
        }
        let (position, last) = self.files.front_mut()?.cut();
        if last {
            self.files.pop_front();
        }
        Some(position.split())
    }

    /// How much there is to read.
    fn bytes(&self) -> u64 {
        let begun = self.begun.iter().map(|(_, position)| position.left_bytes());
        begun.chain(self.files.iter().map(|file| file.size - file.next)).sum()
    }
}

/// The enumerator of bounded files.
pub(super) struct FileEnumerator {
    env: Env,
    path: PathBuf,
    /// The size of splits; none when files are not cut.
    split_bytes: Option<u64>,
    restored: Option<RestoredSource>,
    /// Known once started.
    state: Option<State>,
    /// At the start.
    left_bytes: u64,
}

impl FileEnumerator {
    pub(super) fn new(env: Env, path: PathBuf, split_bytes: Option<u64>, restored: Option<RestoredSource>) -> Self {
        Self { env, path, split_bytes, restored, state: None, left_bytes: 0 }
    }

    async fn begin(&mut self) -> Result<(), ConnectorError> {
        let state = match self.restored.take() {
            Some(restored) => State::restore(&restored)?,
            None => {
                let (path, split_bytes) = (self.path.clone(), self.split_bytes);
                task::compute(&*self.env.compute, "find files", move || State::discover(&path, split_bytes)).await??
            }
        };
        self.left_bytes = state.bytes();
        self.state = Some(state);
        Ok(())
    }
}

impl SplitEnumerator for FileEnumerator {
    fn start(&mut self) -> BoxFuture<'_, Result<(), ConnectorError>> {
        self.begin().boxed()
    }

    fn next_split(&mut self, _subtask: u32) -> BoxFuture<'_, Result<Option<Split>, ConnectorError>> {
        ready(Ok(self.state.as_mut().expect("started").take())).boxed()
    }

    fn snapshot(&self) -> Vec<u8> {
        versioned::encode(self.state.as_ref().expect("started"))
    }

    fn split_finished(&mut self, _split: &str) {}

    fn extent(&self) -> Option<Extent> {
        self.state.as_ref().map(|_| Extent::Bytes(self.left_bytes))
    }
}
