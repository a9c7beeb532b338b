//! The `stdout` sink: records as lines on standard output, there to be seen at once.
//!
//! Lines of different subtasks never mix, because only whole lines are written, each write under one lock.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use serde::Deserialize;

use super::blackhole::NothingToCommit;
use super::line_encoder::LineEncoder;
use super::settings::{SettingError, SinkSettings};
use super::{Commit, Committable, Committer, ConnectorError, Prepared, Sink, SinkWriter, TargetStart, WriterContext};
use crate::env::Env;
use crate::record::Batch;
use crate::task::{self, Task};

/// How much is collected before it is written, unless a flush comes first.
const CHUNK_BYTES: usize = 64 << 10;

/// The settings of a `stdout` sink.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct StdoutSettings {
    /// Whether to write key, tabulator and value instead of the value alone. Default false.
    pub key: bool,
}

impl SinkSettings for StdoutSettings {
    fn build(self, _base_dir: &Path) -> Result<Arc<dyn Sink>, SettingError> {
        let output: Output = Arc::new(Mutex::new(std::io::stdout()));
        Ok(Arc::new(StdoutSink { encoder: LineEncoder::new(self.key, "\t"), output }))
    }
}

/// What is written to: standard output, or what a test puts in its place.
type Output = Arc<Mutex<dyn Write + Send>>;

struct StdoutSink {
    encoder: LineEncoder,
    output: Output,
}

impl Sink for StdoutSink {
    fn commit(&self) -> Commit {
        Commit::AtOnce
    }

    fn prepare_target<'a>(
        &'a self,
        _env: &'a Env,
        _start: TargetStart,
    ) -> BoxFuture<'a, Result<Vec<Committable>, ConnectorError>> {
        ready(Ok(Vec::new())).boxed()
    }

    fn writer(&self, context: WriterContext) -> Box<dyn SinkWriter> {
        let (encoder, output) = (self.encoder.clone(), Arc::clone(&self.output));
        Box::new(StdoutWriter { env: context.env, encoder, output, lines: Vec::new(), writing: None })
    }

    fn committer(&self, _env: &Env) -> Box<dyn Committer> {
        Box::new(NothingToCommit)
    }
}

struct StdoutWriter {
    env: Env,
    encoder: LineEncoder,
    output: Output,
    /// The lines that have not been handed to a write.
    lines: Vec<u8>,
    /// The write that is going on; it returns its buffer.
    writing: Option<Task<std::io::Result<Vec<u8>>>>,
}

impl StdoutWriter {
    /// Waits for the write that is going on.
    async fn settle(&mut self) -> Result<Vec<u8>, ConnectorError> {
        let Some(writing) = &mut self.writing else { return Ok(Vec::new()) };
        let written = writing.await;
        self.writing = None;
        let failed =
            |source| ConnectorError::File { action: "write to", path: PathBuf::from("standard output"), source };
        written?.map_err(failed)
    }

    /// Hands the collected lines to a write, off the async threads because whoever reads them may be slow.
    async fn write_out(&mut self) -> Result<(), ConnectorError> {
        let buffer = self.settle().await?;
        if self.lines.is_empty() {
            return Ok(());
        }
        let mut lines = std::mem::replace(&mut self.lines, buffer);
        let output = Arc::clone(&self.output);
        let work = move || {
            let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
            output.write_all(&lines)?;
            output.flush()?;
            lines.clear();
            Ok(lines)
        };
        self.writing = Some(task::compute(&*self.env.compute, "write standard output", work));
        Ok(())
    }

    async fn write_batch(&mut self, batch: &Batch) -> Result<(), ConnectorError> {
        self.encoder.encode(batch, &mut self.lines)?;
        if self.lines.len() >= CHUNK_BYTES { self.write_out().await } else { Ok(()) }
    }

    async fn write_all(&mut self) -> Result<(), ConnectorError> {
        self.write_out().await?;
        self.settle().await.map(drop)
    }
}

impl SinkWriter for StdoutWriter {
    fn write<'a>(&'a mut self, batch: &'a Batch) -> BoxFuture<'a, Result<(), ConnectorError>> {
        self.write_batch(batch).boxed()
    }

    fn flush(&mut self) -> BoxFuture<'_, Result<(), ConnectorError>> {
        self.write_all().boxed()
    }

    fn prepare(&mut self) -> BoxFuture<'_, Result<Prepared, ConnectorError>> {
        async {
            self.write_all().await?;
            Ok(ready(Ok(Vec::new())).boxed())
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connectors::testing::{block_on, env, prepare, writer_context};

    fn written(key: bool, batches: &[&[&str]]) -> Vec<u8> {
        let seen: Arc<Mutex<Vec<u8>>> = Arc::default();
        let output: Output = seen.clone();
        let sink = StdoutSink { encoder: LineEncoder::new(key, "\t"), output };
        let mut writer = sink.writer(writer_context(&env(), 0, "r1"));
        block_on(async {
            for values in batches {
                let mut batch = Batch::new();
                values.iter().for_each(|value| batch.push(Some(b"k"), value.as_bytes(), None));
                writer.write(&batch).await.unwrap();
            }
            writer.flush().await.unwrap();
            assert!(prepare(&mut *writer).await.unwrap().is_empty());
        });
        seen.lock().unwrap().clone()
    }

    #[test]
    fn lines_are_seen_after_a_flush_in_order() {
        assert_eq!(written(false, &[&["a", "b"], &[], &["c"]]), b"a\nb\nc\n");
        assert_eq!(written(true, &[&["a"]]), b"k\ta\n");
        let long = "x".repeat(CHUNK_BYTES);
        let expected = format!("{long}\nb\n{long}\n");
        assert!(written(false, &[&[&long], &["b"], &[&long]]) == expected.as_bytes());
    }

    struct Closed;

    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_closed_output_is_an_error() {
        let sink = StdoutSink { encoder: LineEncoder::new(false, "\t"), output: Arc::new(Mutex::new(Closed)) };
        let mut writer = sink.writer(writer_context(&env(), 0, "r1"));
        let mut batch = Batch::new();
        batch.push(None, b"a", None);
        let error = block_on(async {
            writer.write(&batch).await?;
            writer.flush().await
        });
        assert_eq!(error.unwrap_err().to_string(), "cannot write to standard output");
    }
}
