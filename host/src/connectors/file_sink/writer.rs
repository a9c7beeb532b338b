//! Writes part files: lines collect in memory, and go to the file in large chunks off the async threads.
//!
//! Two chunks at most are in memory, the one that fills and the one that is being written, and one or two more for each
//! epoch that has been cut and is not durable.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};

use super::committer::Output;
use super::names::PartName;
use super::target::{file_error, sync_directory};
use crate::connectors::line_encoder::LineEncoder;
use crate::connectors::{ConnectorError, Prepared, SinkWriter, WriterContext};
use crate::record::Batch;
use crate::task::{self, Task};

/// How much is collected before it is written.
const CHUNK_BYTES: usize = 1 << 20;

/// The part file that is being written.
struct Part {
    path: PathBuf,
    file: File,
}

/// What comes back from writing a chunk: the part, unless it was closed, and the chunk's buffer.
type Written = Result<(Option<Part>, Vec<u8>), ConnectorError>;

/// The writer of one subtask.
pub(super) struct FileWriter {
    context: WriterContext,
    directory: PathBuf,
    roll_bytes: u64,
    encoder: LineEncoder,
    /// The lines that have not been handed to a write.
    lines: Vec<u8>,
    /// The part at rest; none while a write has it, or when none is open.
    part: Option<Part>,
    /// The write that is going on.
    writing: Option<Task<Written>>,
    /// Of the open part, with what the write that is going on adds.
    part_bytes: u64,
    next_sequence: u64,
    /// Closed and synced since the last `prepare`, or about to be by the write that is going on.
    closed: Vec<PartName>,
    /// For the summary.
    files: u64,
}

impl FileWriter {
    pub(super) fn new(context: WriterContext, directory: PathBuf, roll_bytes: u64, encoder: LineEncoder) -> Self {
        Self {
            context,
            directory,
            roll_bytes,
            encoder,
            lines: Vec::new(),
            part: None,
            writing: None,
            part_bytes: 0,
            next_sequence: 0,
            closed: Vec::new(),
            files: 0,
        }
    }

    /// Waits for the write that is going on.
    async fn settle(&mut self) -> Result<Vec<u8>, ConnectorError> {
        let Some(writing) = &mut self.writing else { return Ok(Vec::new()) };
        let written = writing.await;
        self.writing = None;
        let (part, buffer) = written??;
        self.part = part;
        Ok(buffer)
    }

    /// Hands the collected lines to a write, which opens the part if none is open and closes it if told.
    async fn write_out(&mut self, close: bool) -> Result<(), ConnectorError> {
        let buffer = self.settle().await?;
        let lines = std::mem::replace(&mut self.lines, buffer);
        if lines.is_empty() && self.part.is_none() {
            return Ok(());
        }
        self.part_bytes += lines.len() as u64;
        let (open, directory) = (self.part.take(), self.directory.clone());
        let name = if close { self.close() } else { self.name() };
        let work = move || {
            let mut part = Part::append(open, &name, &directory, &lines)?;
            if close {
                part.sync()?;
            }
            let mut buffer = lines;
            buffer.clear();
            Ok(((!close).then_some(part), buffer))
        };
        self.writing = Some(task::compute(&*self.context.env.compute, "write part file", work));
        Ok(())
    }

    /// The name of the part that is open or would be opened next.
    fn name(&self) -> PartName {
        PartName::new(&self.context.owner, &self.context.subtask, self.next_sequence)
    }

    /// Counts the part as closed: what is written next goes to another one. Returns its name.
    fn close(&mut self) -> PartName {
        let name = self.name();
        self.closed.push(name.clone());
        self.files += 1;
        self.next_sequence += 1;
        self.part_bytes = 0;
        name
    }

    async fn write_batch(&mut self, batch: &Batch) -> Result<(), ConnectorError> {
        self.encoder.encode(batch, &mut self.lines)?;
        if self.part_bytes + self.lines.len() as u64 >= self.roll_bytes {
            self.write_out(true).await
        } else if self.lines.len() >= CHUNK_BYTES {
            self.write_out(false).await
        } else {
            Ok(())
        }
    }

    /// Takes everything of the epoch away from the writer, also the write that is going on, and waits for nothing.
    fn cut(&mut self) -> Prepared {
        let last = (self.part_bytes > 0 || !self.lines.is_empty()).then(|| self.close());
        let names = std::mem::take(&mut self.closed);
        let (part, writing, lines) = (self.part.take(), self.writing.take(), std::mem::take(&mut self.lines));
        if names.is_empty() {
            return ready(Ok(Vec::new())).boxed();
        }
        let (env, directory) = (self.context.env.clone(), self.directory.clone());
        async move {
            let part = match writing {
                Some(writing) => writing.await??.0,
                None => part,
            };
            let work = move || {
                if let Some(name) = last {
                    Part::append(part, &name, &directory, &lines)?.sync()?;
                }
                // The names of the files must be as durable as their content.
                sync_directory(&directory)?;
                Ok(names.into_iter().map(|name| Output::part(&directory, name).encode()).collect())
            };
            task::compute(&*env.compute, "prepare part files", work).await?
        }
        .boxed()
    }
}

impl Part {
    /// Appends to a part, or to a new one of this name.
    fn append(part: Option<Self>, name: &PartName, directory: &Path, lines: &[u8]) -> Result<Self, ConnectorError> {
        let mut part = match part {
            Some(part) => part,
            None => Self::create(name, directory)?,
        };
        part.file.write_all(lines).map_err(|error| file_error("write", &part.path, error))?;
        Ok(part)
    }

    fn create(name: &PartName, directory: &Path) -> Result<Self, ConnectorError> {
        let path = directory.join(name.pending());
        // A file of that name would be another writer's of the same attempt: a mix-up that must not pass unseen.
        let file = OpenOptions::new().write(true).create_new(true).open(&path);
        let file = file.map_err(|error| file_error("create", &path, error))?;
        Ok(Self { path, file })
    }

    fn sync(&mut self) -> Result<(), ConnectorError> {
        self.file.sync_all().map_err(|error| file_error("sync", &self.path, error))
    }
}

impl SinkWriter for FileWriter {
    fn write<'a>(&'a mut self, batch: &'a Batch) -> BoxFuture<'a, Result<(), ConnectorError>> {
        self.write_batch(batch).boxed()
    }

    fn flush(&mut self) -> BoxFuture<'_, Result<(), ConnectorError>> {
        // Nobody sees a pending file, so writing it in small pieces would help no one.
        ready(Ok(())).boxed()
    }

    fn prepare(&mut self) -> BoxFuture<'_, Result<Prepared, ConnectorError>> {
        ready(Ok(self.cut())).boxed()
    }

    fn summary(&self) -> Option<String> {
        let files = if self.files == 1 { "1 part file".to_owned() } else { format!("{} part files", self.files) };
        Some(format!("{files} in {}", self.directory.display()))
    }
}
