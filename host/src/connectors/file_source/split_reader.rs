//! Reads one split: opens its file, turns bytes into records, watches a followed file.
//!
//! Whatever is waited for is kept, so that a step may be dropped at any time and taken again.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::discovery::{self, file_error};
use super::format::RecordFormat;
use super::framer::Framer;
use super::open_split::{OpenSplit, Opening, Stop, place};
use super::position::{FilePosition, Identity, read_fully};
use super::settings::OnTruncate;
use super::window::Fill;
use crate::connectors::{ConnectorError, Split};
use crate::env::Env;
use crate::record::Batch;
use crate::task::{self, Task};

/// How long a followed file that was left behind must be without news to be done with. Whoever writes it may have it open
/// for a while yet, as a service that is told to reopen its log does.
const QUIET: Duration = Duration::from_secs(5);

/// What all splits of a reader are read with.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) env: Env,
    pub(super) max_record_bytes: usize,
    pub(super) format: RecordFormat,
    pub(super) framer: Framer,
    pub(super) on_truncate: OnTruncate,
    pub(super) follow: bool,
}

/// What a step brought.
#[derive(Debug)]
pub(super) enum Step {
    /// Records, at least one.
    Records(Batch),
    /// Nothing for the moment.
    Idle,
    /// The split has been read.
    Finished,
}

/// The reader of one split.
#[derive(Debug)]
pub(super) struct SplitReader {
    id: String,
    position: FilePosition,
    /// How much of the split had been read by other readers.
    inherited_bytes: u64,
    opening: Option<Task<Result<Opening, ConnectorError>>>,
    open: Option<Box<OpenSplit>>,
    /// Whether no more bytes will come.
    ended: bool,
    /// Since when the followed file is left behind and without news.
    quiet_since: Option<Duration>,
    /// What is wrong with the next record, while its line is counted.
    malformed: Option<(String, Task<io::Result<u64>>)>,
}

impl SplitReader {
    pub(super) fn new(id: String, position: FilePosition) -> Self {
        let inherited_bytes = position.read_bytes();
        Self {
            id,
            position,
            inherited_bytes,
            opening: None,
            open: None,
            ended: false,
            quiet_since: None,
            malformed: None,
        }
    }

    /// The split's name.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// The split with how far it has been read.
    pub(super) fn snapshot(&self) -> Split {
        Split { id: self.id.clone(), position: self.position.encode() }
    }

    /// How much this reader has read. A file that was begun again counts from its start.
    pub(super) fn read_bytes(&self) -> u64 {
        self.position.read_bytes().saturating_sub(self.inherited_bytes)
    }

    /// Waits for the next records. Cancel-safe.
    pub(super) async fn step(&mut self, reading: &Reading) -> Result<Step, ConnectorError> {
        loop {
            if self.malformed.is_some() {
                return Err(self.blame().await);
            }
            let Some(open) = &mut self.open else {
                match self.open(reading).await? {
                    None => continue,
                    Some(step) => return Ok(step),
                }
            };
            let mut batch = Batch::new();
            let stop = open.take_records(&mut self.position, reading.max_record_bytes, self.ended, &mut batch);
            if !batch.is_empty() {
                return Ok(Step::Records(batch));
            }
            match stop {
                Stop::Full => {}
                Stop::Finished => return Ok(Step::Finished),
                Stop::Malformed(problem) => {
                    let (file, end) = (open.window.file(), open.window.offset());
                    let count = task::compute(&*reading.env.compute, "count lines", move || count_lines(&file, end));
                    self.malformed = Some((problem, count));
                }
                Stop::NeedsMore => match open.window.fill(&reading.env).await? {
                    Fill::More => {
                        self.position.identity = open.window.identity();
                        self.quiet_since = None;
                    }
                    Fill::End => self.ended = true,
                    Fill::Nothing => {
                        if !open.window.is_left_behind() {
                            self.quiet_since = None;
                            return Ok(Step::Idle);
                        }
                        let now = reading.env.clock.monotonic();
                        self.ended = now.saturating_sub(*self.quiet_since.get_or_insert(now)) >= QUIET;
                        if !self.ended {
                            return Ok(Step::Idle);
                        }
                    }
                    Fill::Replaced if reading.on_truncate == OnTruncate::Fail => return Err(self.replaced()),
                    Fill::Replaced => {
                        let identity = open.window.identity();
                        self.restart(identity);
                    }
                },
            }
        }
    }

    /// Opens the file; none when that is done.
    async fn open(&mut self, reading: &Reading) -> Result<Option<Step>, ConnectorError> {
        let opening = self.opening.get_or_insert_with(|| {
            let (position, format, framer) = (self.position.clone(), reading.format.clone(), reading.framer);
            let limit = reading.max_record_bytes;
            let work = move || OpenSplit::open(position, format, framer, limit);
            task::compute(&*reading.env.compute, "open file", work)
        });
        let opened = opening.await;
        self.opening = None;
        match opened?? {
            Opening::Open(open, position) => {
                (self.open, self.position) = (Some(open), position);
                Ok(None)
            }
            Opening::NoHeaderYet => Ok(Some(Step::Idle)),
            Opening::Gone if reading.on_truncate == OnTruncate::Restart => {
                let path = self.position.path.clone();
                let examined = task::compute(&*reading.env.compute, "open file", move || discovery::examine(&path));
                match examined.await? {
                    // The same file with other content; another file is another split, which the enumerator finds.
                    Ok((identity, _)) if identity.key == self.position.identity.key => {
                        self.restart(identity);
                        Ok(None)
                    }
                    Err(ConnectorError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                        Ok(Some(Step::Finished))
                    }
                    examined => examined.map(|_| Some(Step::Finished)),
                }
            }
            Opening::Gone => Err(self.replaced()),
        }
    }

    /// Begins again at the start of the file.
    fn restart(&mut self, identity: Identity) {
        self.position = FilePosition::of_followed(self.position.path.clone(), identity);
        self.inherited_bytes = 0;
        self.quiet_since = None;
        self.open = None;
    }

    fn replaced(&self) -> ConnectorError {
        let (path, offset) = (self.position.path.display(), self.position.offset);
        let what =
            format!("{path} has shrunk, or been removed or replaced by another file, after {offset} bytes were read");
        ConnectorError::Other(match self.position.end {
            Some(_) => format!("{what}; put the file back as it was, or start the job afresh"),
            None => format!("{what}; put it back, or set `on-truncate = \"restart\"` to read it from its start again"),
        })
    }

    /// The error about the next record.
    async fn blame(&mut self) -> ConnectorError {
        let Some((_, counting)) = &mut self.malformed else { unreachable!("called when a record is malformed") };
        let counted = counting.await;
        let (problem, _) = self.malformed.take().expect("it was there");
        match counted {
            Ok(Ok(lines)) => ConnectorError::Data { place: place(&self.position.path, lines + 1), problem },
            Ok(Err(error)) => file_error("read", &self.position.path, error),
            Err(error) => error.into(),
        }
    }
}

/// The number of newlines before an offset.
fn count_lines(file: &Arc<File>, end: u64) -> io::Result<u64> {
    let mut buffer = vec![0; 1 << 20];
    let (mut lines, mut offset) = (0, 0);
    while offset < end {
        let wanted = usize::try_from(end - offset).unwrap_or(usize::MAX).min(buffer.len());
        let len = read_fully(file, &mut buffer[..wanted], offset)?;
        if len == 0 {
            break;
        }
        lines += memchr::memchr_iter(b'\n', &buffer[..len]).count() as u64;
        offset += len as u64;
    }
    Ok(lines)
}
