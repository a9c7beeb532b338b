//! Finds the splits of a file source and hands them out.

use std::collections::{BTreeSet, VecDeque};
use std::path::PathBuf;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::discovery::{self, Target};
use super::position::FilePosition;
use crate::connectors::{ConnectorError, Extent, Split, SplitEnumerator};
use crate::env::Env;
use crate::task;

/// How often files that are followed are looked at.
pub(super) const POLL: Duration = Duration::from_millis(100);

/// Device and inode: what stays when a file is renamed.
type FileKey = (u64, u64);

/// The enumerator of a file source.
pub(super) struct FileEnumerator {
    env: Env,
    path: PathBuf,
    /// The size of splits; none when files are not cut.
    split_bytes: Option<u64>,
    follow: bool,
    /// What the path turned out to be; known once started.
    target: Option<Target>,
    pending: VecDeque<FilePosition>,
    /// Followed files that have been handed out or are about to be, for as long as they are to be found.
    known: BTreeSet<FileKey>,
    total_bytes: u64,
    pause: Option<BoxFuture<'static, ()>>,
}

impl FileEnumerator {
    pub(super) fn new(env: Env, path: PathBuf, split_bytes: Option<u64>, follow: bool) -> Self {
        Self {
            env,
            path,
            split_bytes,
            follow,
            target: None,
            pending: VecDeque::new(),
            known: BTreeSet::new(),
            total_bytes: 0,
            pause: None,
        }
    }

    async fn discover_first(&mut self) -> Result<(), ConnectorError> {
        let (path, split_bytes, follow) = (self.path.clone(), self.split_bytes, self.follow);
        let work = move || {
            let target = Target::of(&path)?;
            let files = target.files()?;
            if files.is_empty() && !follow {
                return Err(target.no_files());
            }
            let mut positions = Vec::new();
            for path in files {
                let (identity, size) = discovery::examine(&path)?;
                if follow {
                    positions.push(FilePosition::of_followed(path, identity));
                    continue;
                }
                let step = split_bytes.unwrap_or(size).max(1);
                let mut start = 0;
                while start < size {
                    let end = start.saturating_add(step).min(size);
                    positions.push(FilePosition::of_range(path.clone(), identity, start, end, size));
                    start = end;
                }
            }
            Ok((target, positions))
        };
        let (target, positions) = task::compute(&*self.env.compute, "find files", work).await??;
        self.target = Some(target);
        self.known = positions.iter().map(|position| (position.identity.device, position.identity.inode)).collect();
        self.total_bytes = positions.iter().map(|position| position.end.unwrap_or(0) - position.start).sum();
        self.pending = positions.into();
        Ok(())
    }

    /// Looks for files that were not there before.
    async fn discover_more(&mut self) -> Result<(), ConnectorError> {
        let (target, known) = (self.target.clone().expect("started"), self.known.clone());
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
        self.known = present;
        self.pending.extend(positions);
        Ok(())
    }

    async fn take(&mut self) -> Result<Option<Split>, ConnectorError> {
        loop {
            if let Some(position) = self.pending.pop_front() {
                return Ok(Some(Split { id: position.id(), position: position.encode() }));
            }
            if !self.follow {
                return Ok(None);
            }
            self.pause.get_or_insert_with(|| self.env.clock.sleep(POLL)).await;
            self.pause = None;
            self.discover_more().await?;
        }
    }
}

impl SplitEnumerator for FileEnumerator {
    fn start(&mut self) -> BoxFuture<'_, Result<(), ConnectorError>> {
        self.discover_first().boxed()
    }

    fn next_split(&mut self, _subtask: u32) -> BoxFuture<'_, Result<Option<Split>, ConnectorError>> {
        self.take().boxed()
    }

    fn extent(&self) -> Option<Extent> {
        (!self.follow && self.target.is_some()).then_some(Extent::Bytes(self.total_bytes))
    }
}
