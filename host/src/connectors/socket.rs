//! The `socket` source: lines from a server that it connects to.
//!
//! A peer's lines come once: nothing can be read again, so there is no position, and a job that goes on from a checkpoint
//! connects again. When the connection breaks it is made
//! again, after a wait that doubles with every failure and is drawn at random, so that many do not come at once.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use memchr::memchr;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use super::settings::{SettingError, SourceSettings};
use super::{
    Boundedness, ConnectorError, Extent, ReaderContext, ReaderEvent, RestoredSource, Source, SourceReader, Split,
    SplitEnumerator, StreamShape, versioned,
};
use crate::config::ByteSize;
use crate::env::Env;
use crate::random::Random;
use crate::record::Batch;

/// The longest wait after a first failure.
const FIRST_WAIT: Duration = Duration::from_millis(100);

/// The longest wait of all.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// How much is read at once, and so the most that a batch holds.
const CHUNK_BYTES: usize = 64 << 10;

/// The most records of a batch.
const BATCH_RECORDS: usize = 4096;

/// The settings of a `socket` source.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SocketSettings {
    /// The server to connect to, as `host:port`.
    pub address: String,
    /// Whether to connect again when the connection cannot be made or breaks. If not, the peer's close ends the source.
    /// Default true.
    #[serde(default = "yes")]
    pub reconnect: bool,
}

fn yes() -> bool {
    true
}

impl SourceSettings for SocketSettings {
    fn build(self, _base_dir: &Path) -> Result<Arc<dyn Source>, SettingError> {
        let port = self.address.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port);
        if !port.is_some_and(|port| port.parse::<u16>().is_ok_and(|port| port != 0)) {
            let problem = format!("{:?} must be a host and a port, such as \"localhost:9000\"", self.address);
            return Err(SettingError::new("address", problem));
        }
        Ok(Arc::new(SocketSource { settings: self }))
    }
}

struct SocketSource {
    settings: SocketSettings,
}

impl Source for SocketSource {
    fn boundedness(&self) -> Boundedness {
        if self.settings.reconnect { Boundedness::Unbounded } else { Boundedness::Bounded }
    }

    fn shape(&self) -> StreamShape {
        StreamShape::default()
    }

    fn cannot_replay(&self) -> Option<String> {
        Some(format!("what {} sent once cannot be read again", self.settings.address))
    }

    fn enumerator(&self, _env: &Env, restored: Option<RestoredSource>) -> Box<dyn SplitEnumerator> {
        let split = Split { id: self.settings.address.clone(), position: Vec::new() };
        Box::new(OneSplit { state: State { version: VERSION, handed_out: false }, split, restored })
    }

    fn reader(&self, context: ReaderContext) -> Box<dyn SourceReader> {
        let random = Random::for_purpose(context.env.seed, "socket waits", &[u64::from(context.subtask.index)]);
        Box::new(SocketReader {
            settings: self.settings.clone(),
            env: context.env,
            max_record_bytes: context.max_record_bytes,
            random,
            split: None,
            link: Link::Down,
            failures: 0,
            received: Vec::new(),
            used: 0,
            scanned: 0,
            read_bytes: 0,
        })
    }
}

/// Hands out the one connection.
struct OneSplit {
    state: State,
    split: Split,
    restored: Option<RestoredSource>,
}

/// What a checkpoint keeps.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct State {
    version: u32,
    handed_out: bool,
}

/// The version of [`State`].
const VERSION: u32 = 1;

impl OneSplit {
    fn restore(&mut self) -> Result<(), ConnectorError> {
        if let Some(restored) = self.restored.take() {
            self.state = versioned::decode("the state of a socket source", VERSION, &restored.enumerator)?;
            // A connection that was read goes on; one that its peer had closed for good does not.
            self.state.handed_out &= restored.splits.is_empty();
        }
        Ok(())
    }
}

impl SplitEnumerator for OneSplit {
    fn start(&mut self) -> BoxFuture<'_, Result<(), ConnectorError>> {
        ready(self.restore()).boxed()
    }

    fn next_split(&mut self, _subtask: u32) -> BoxFuture<'_, Result<Option<Split>, ConnectorError>> {
        let handed_out = std::mem::replace(&mut self.state.handed_out, true);
        ready(Ok((!handed_out).then(|| self.split.clone()))).boxed()
    }

    fn snapshot(&self) -> Vec<u8> {
        versioned::encode(&self.state)
    }

    fn split_finished(&mut self, _split: &str) {}

    fn extent(&self) -> Option<Extent> {
        None
    }
}

/// The connection, or the lack of one.
enum Link {
    Down,
    Waiting(BoxFuture<'static, ()>),
    Connecting(BoxFuture<'static, io::Result<TcpStream>>),
    Up(TcpStream),
    /// Closed by the peer, for good.
    Closed,
}

struct SocketReader {
    settings: SocketSettings,
    env: Env,
    max_record_bytes: usize,
    random: Random,
    split: Option<Split>,
    link: Link,
    /// How many in a row.
    failures: u32,
    received: Vec<u8>,
    /// How much of what was received has become records.
    used: usize,
    /// How much behind that is known to hold no newline.
    scanned: usize,
    read_bytes: u64,
}

impl SocketReader {
    async fn advance(&mut self) -> Result<ReaderEvent, ConnectorError> {
        loop {
            let batch = self.take_lines()?;
            if !batch.is_empty() {
                return Ok(ReaderEvent::Batch(batch));
            }
            match &mut self.link {
                Link::Down => {
                    let address = self.settings.address.clone();
                    self.link = Link::Connecting(async move { TcpStream::connect(address).await }.boxed());
                }
                Link::Waiting(pause) => {
                    pause.await;
                    self.link = Link::Down;
                }
                Link::Connecting(connecting) => match connecting.await {
                    Ok(stream) => self.link = Link::Up(stream),
                    Err(error) => self.broken("connect to", error)?,
                },
                Link::Up(stream) => {
                    self.received.drain(..self.used);
                    self.used = 0;
                    self.received.reserve(CHUNK_BYTES);
                    match stream.read_buf(&mut self.received).await {
                        Ok(0) => self.closed(),
                        Ok(more) => {
                            self.failures = 0;
                            self.read_bytes += more as u64;
                        }
                        Err(error) => {
                            // A line that was cut off is not a line.
                            self.received.clear();
                            self.scanned = 0;
                            self.broken("read from", error)?;
                        }
                    }
                }
                Link::Closed => {
                    self.link = Link::Down;
                    let split = self.split.take().expect("never called without a split");
                    return Ok(ReaderEvent::SplitFinished(split.id));
                }
            }
        }
    }

    /// The whole lines that were received.
    fn take_lines(&mut self) -> Result<Batch, ConnectorError> {
        let mut batch = Batch::new();
        while batch.len() < BATCH_RECORDS && batch.byte_size() < CHUNK_BYTES {
            let rest = &self.received[self.used..];
            let end = memchr(b'\n', &rest[self.scanned..]).map(|at| self.scanned + at);
            let line = &rest[..end.unwrap_or(rest.len())];
            let line_bytes = line.strip_suffix(b"\r").unwrap_or(line);
            // Without its end in sight, a carriage return may still be the line's own.
            if line_bytes.len() > self.max_record_bytes {
                if !batch.is_empty() {
                    break;
                }
                let limit = ByteSize(self.max_record_bytes as u64);
                return Err(ConnectorError::Data {
                    place: self.settings.address.clone(),
                    problem: format!(
                        "a line is longer than the limit of {limit}; send shorter ones, or raise `record-limit` in the job file"
                    ),
                });
            }
            let Some(end) = end else {
                self.scanned = rest.len();
                break;
            };
            batch.push(None, line_bytes, None);
            self.used += end + 1;
            self.scanned = 0;
        }
        Ok(batch)
    }

    /// The peer has closed the connection in an orderly way, so that what it sent last is a line.
    fn closed(&mut self) {
        if !self.received.is_empty() {
            self.received.push(b'\n');
        }
        if self.settings.reconnect {
            tracing::warn!(address = %self.settings.address, "the peer closed the connection; connecting again");
            self.wait();
        } else {
            self.link = Link::Closed;
        }
    }

    fn broken(&mut self, action: &'static str, source: io::Error) -> Result<(), ConnectorError> {
        let address = self.settings.address.clone();
        if !self.settings.reconnect {
            self.link = Link::Down;
            return Err(ConnectorError::Network { action, address, source });
        }
        if self.failures == 0 {
            tracing::warn!(%address, error = %source, "cannot {action} the peer; trying again");
        }
        self.wait();
        Ok(())
    }

    /// Waits before the next connection: from half to all of a time that doubles with every failure.
    fn wait(&mut self) {
        let longest = FIRST_WAIT.saturating_mul(1 << self.failures.min(16)).min(LONGEST_WAIT);
        let wait = longest.mul_f64(0.5 + self.random.unit() / 2.0);
        self.failures = self.failures.saturating_add(1);
        self.link = Link::Waiting(self.env.clock.sleep(wait));
    }
}

impl SourceReader for SocketReader {
    fn add_split(&mut self, split: Split) -> Result<(), ConnectorError> {
        self.split = Some(split);
        Ok(())
    }

    fn next(&mut self) -> BoxFuture<'_, Result<ReaderEvent, ConnectorError>> {
        self.advance().boxed()
    }

    fn snapshot(&self) -> Vec<Split> {
        self.split.iter().cloned().collect()
    }

    fn progress(&self) -> u64 {
        self.read_bytes
    }
}

#[cfg(test)]
mod tests;
