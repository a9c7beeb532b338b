//! A split with its file open: takes records out of what was read.

use std::fs::File;
use std::io;
use std::path::Path;

use super::discovery::{self, file_error};
use super::format::{RecordFormat, without_return};
use super::framer::Framer;
use super::position::{FilePosition, read_fully};
use super::window::{Window, shrunk};
use crate::config::ByteSize;
use crate::connectors::ConnectorError;
use crate::record::Batch;

/// The most records of a batch.
const BATCH_RECORDS: usize = 4096;

/// The size at which a batch is full.
const BATCH_BYTES: usize = 64 << 10;

/// How much of a file is looked at first for its header.
const HEADER_BYTES: usize = 4 << 10;

/// A split with its file open.
#[derive(Debug)]
pub(super) struct OpenSplit {
    pub(super) window: Window,
    format: RecordFormat,
    framer: Framer,
    /// How much of the window's rest is known to hold no end of a record.
    scanned: usize,
    /// Whether the window begins in a record that is another split's.
    skipping: bool,
}

/// What opening a file brought.
#[derive(Debug)]
pub(super) enum Opening {
    /// The open file, and the position with what the file has grown by.
    Open(Box<OpenSplit>, FilePosition),
    /// The header of a followed file is not complete.
    NoHeaderYet,
    /// Another file is there, or none.
    Gone,
}

/// Why no more records were taken.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// The batch is full.
    Full,
    /// There is no whole record in the window.
    NeedsMore,
    /// The split ends here.
    Finished,
    /// The next record is wrong.
    Malformed(String),
}

impl OpenSplit {
    /// Opens the file of a split and makes sure that it is the same. Blocks.
    ///
    /// # Errors
    /// When it cannot be read, has shrunk, or has a wrong header.
    pub(super) fn open(
        mut position: FilePosition,
        mut format: RecordFormat,
        framer: Framer,
        max_record_bytes: usize,
    ) -> Result<Opening, ConnectorError> {
        let path = position.path.clone();
        let failed = |error| file_error("read", &path, error);
        let opened = match discovery::open(&path) {
            Err(ConnectorError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => None,
            opened => Some(opened?),
        };
        let mut found = None;
        if let Some((file, metadata)) = opened {
            found = position.identity.recognise(&file, &metadata).map_err(failed)?.map(|same| (file, metadata, same));
        }
        if found.is_none() && position.end.is_none() {
            found = discovery::find_renamed(&path, &position.identity)?;
        }
        let Some((file, metadata, identity)) = found else { return Ok(Opening::Gone) };
        position.identity = identity;
        if let Some(size) = position.size.filter(|size| *size > metadata.len()) {
            return Err(shrunk(&path, size, metadata.len()));
        }
        if position.offset > metadata.len() {
            return Ok(Opening::Gone);
        }
        if format.needs_header() {
            let size = position.size.unwrap_or(metadata.len());
            let header = read_header(&file, framer, size, max_record_bytes).map_err(failed)?;
            let wrong = |problem| ConnectorError::Data { place: place(&path, 1), problem };
            let (header, complete) = header.ok_or_else(|| wrong(too_long(max_record_bytes)))?;
            if !complete && position.size.is_none() {
                return Ok(Opening::NoHeaderYet);
            }
            format.read_header(&header).map_err(wrong)?;
            if position.offset == 0 {
                position.offset = header.len() as u64 + u64::from(complete);
            }
        }
        // From one byte before the split, because a newline there makes its first byte the start of a record.
        let skipping = position.start > 0 && position.offset == position.start;
        let from = position.offset - u64::from(skipping);
        let window = Window::new(file, &position, from);
        Ok(Opening::Open(Box::new(Self { window, format, framer, scanned: 0, skipping }), position))
    }

    /// Takes records out of the window until something stops it, and moves the position behind them. `ended` tells that
    /// no more bytes will come, so that what is left is a record without its newline.
    pub(super) fn take_records(
        &mut self,
        position: &mut FilePosition,
        max_record_bytes: usize,
        ended: bool,
        batch: &mut Batch,
    ) -> Stop {
        let end = position.end.unwrap_or(u64::MAX);
        loop {
            let start = self.window.offset();
            if start >= end {
                // What a split without a record of its own was looked at for belongs to it all the same.
                position.offset = start;
                return Stop::Finished;
            }
            if batch.len() >= BATCH_RECORDS || batch.byte_size() >= BATCH_BYTES {
                return Stop::Full;
            }
            let rest = self.window.rest();
            let found = self.framer.find_end(&rest[self.scanned..]).map(|at| self.scanned + at);
            if found.is_none() && (self.skipping || !ended) {
                self.scanned = rest.len();
                if self.skipping {
                    self.window.consume(self.scanned);
                    self.scanned = 0;
                } else if self.scanned > max_record_bytes.saturating_add(1) {
                    let quote = if self.framer.is_closed() { "" } else { ", or close a quote that is open in it" };
                    return self.malformed(too_long(max_record_bytes) + quote);
                }
                return if ended { Stop::Finished } else { Stop::NeedsMore };
            }
            let len = found.unwrap_or(rest.len());
            let with_newline = len + usize::from(found.is_some());
            if with_newline == 0 {
                return Stop::Finished;
            }
            if self.skipping {
                self.skipping = false;
            } else {
                let record = &rest[..len];
                if without_return(record).len() > max_record_bytes {
                    return self.malformed(too_long(max_record_bytes));
                }
                if let Err(problem) = self.format.append(record, start == 0, batch) {
                    return self.malformed(problem);
                }
            }
            self.scanned = 0;
            self.framer.reset();
            self.window.consume(with_newline);
            position.offset = self.window.offset();
        }
    }

    /// Stops in front of a record, so that it is found again.
    fn malformed(&mut self, problem: String) -> Stop {
        self.scanned = 0;
        self.framer.reset();
        Stop::Malformed(problem)
    }
}

/// The bytes of a file's first record, and whether its newline is there; none when it is too long.
fn read_header(file: &File, framer: Framer, size: u64, max_record_bytes: usize) -> io::Result<Option<(Vec<u8>, bool)>> {
    let mut wanted = HEADER_BYTES;
    loop {
        let mut bytes = vec![0; usize::try_from(size).unwrap_or(usize::MAX).min(wanted)];
        let len = read_fully(file, &mut bytes, 0)?;
        bytes.truncate(len);
        let end = framer.clone().find_end(&bytes);
        bytes.truncate(end.unwrap_or(len));
        if without_return(&bytes).len() > max_record_bytes {
            return Ok(None);
        }
        if end.is_some() || len < wanted {
            return Ok(Some((bytes, end.is_some())));
        }
        wanted *= 4;
    }
}

/// A line of a file, for messages.
pub(super) fn place(path: &Path, line: u64) -> String {
    format!("{}, line {line}", path.display())
}

fn too_long(max_record_bytes: usize) -> String {
    let limit = ByteSize(max_record_bytes as u64);
    format!("the record is longer than the limit of {limit}; split it, or raise `record-limit` in the job file")
}
