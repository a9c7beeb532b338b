//! The `blackhole` sink: counts records and forgets them.
//!
//! With `latency = true` it also tells how old records are when they arrive, by their event time: with the generator's
//! `timestamps = "due"`, the time from when a record was due to when its result was there.

use std::path::Path;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use serde::Deserialize;

use super::histogram::Histogram;
use super::settings::{SettingError, SinkSettings};
use super::{Commit, Committable, Committer, ConnectorError, Prepared, Sink, SinkWriter, TargetStart, WriterContext};
use crate::env::Env;
use crate::id::Owner;
use crate::record::Batch;

/// The settings of a `blackhole` sink.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct BlackholeSettings {
    /// Whether to tell the age of records when they arrive. They must carry event times. Default false.
    pub latency: bool,
}

impl SinkSettings for BlackholeSettings {
    fn build(self, _base_dir: &Path) -> Result<Arc<dyn Sink>, SettingError> {
        Ok(Arc::new(Blackhole { settings: self }))
    }
}

struct Blackhole {
    settings: BlackholeSettings,
}

impl Sink for Blackhole {
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
        let latencies = self.settings.latency.then(Histogram::default);
        Box::new(BlackholeWriter { env: context.env, records: 0, bytes: 0, latencies })
    }

    fn committer(&self, _env: &Env) -> Box<dyn Committer> {
        Box::new(NothingToCommit)
    }
}

struct BlackholeWriter {
    env: Env,
    records: u64,
    /// Of keys and values, without what columns add.
    bytes: u64,
    latencies: Option<Histogram>,
}

impl BlackholeWriter {
    fn count(&mut self, batch: &Batch) -> Result<(), ConnectorError> {
        self.records += batch.len() as u64;
        self.bytes += (batch.keys().data().len() + batch.values().data().len()) as u64;
        let Some(latencies) = &mut self.latencies else { return Ok(()) };
        if batch.timestamps().len() != batch.len() {
            let problem =
                "`latency = true`, but the records carry no event times; remove it, or set the source's timestamps";
            return Err(ConnectorError::Other(problem.to_owned()));
        }
        let now = i64::try_from(self.env.clock.wall().as_millis()).unwrap_or(i64::MAX);
        for timestamp in batch.timestamps() {
            // A record from the future is not late at all.
            latencies.record(u64::try_from(now.saturating_sub(*timestamp)).unwrap_or(0));
        }
        Ok(())
    }
}

impl SinkWriter for BlackholeWriter {
    fn write<'a>(&'a mut self, batch: &'a Batch) -> BoxFuture<'a, Result<(), ConnectorError>> {
        ready(self.count(batch)).boxed()
    }

    fn flush(&mut self) -> BoxFuture<'_, Result<(), ConnectorError>> {
        ready(Ok(())).boxed()
    }

    fn prepare(&mut self) -> BoxFuture<'_, Result<Prepared, ConnectorError>> {
        ready(Ok(ready(Ok(Vec::new())).boxed())).boxed()
    }

    fn summary(&self) -> Option<String> {
        let counts = format!("{} records, {} bytes", self.records, self.bytes);
        let Some(latencies) = &self.latencies else { return Some(counts) };
        let (p50, p99, max) = (latencies.quantile(500), latencies.quantile(990), latencies.max());
        Some(format!("{counts}, latency p50 {p50} ms, p99 {p99} ms, max {max} ms"))
    }
}

/// The committer of sinks that write at once.
pub(super) struct NothingToCommit;

impl Committer for NothingToCommit {
    fn commit(&mut self, committables: Vec<Committable>) -> BoxFuture<'_, Result<(), ConnectorError>> {
        ready(prepared_by_nobody(&committables)).boxed()
    }

    fn check<'a>(&'a mut self, committables: &'a [Committable]) -> BoxFuture<'a, Result<(), ConnectorError>> {
        ready(prepared_by_nobody(committables)).boxed()
    }

    fn sweep<'a>(&'a mut self, _before: &'a Owner) -> BoxFuture<'a, Result<(), ConnectorError>> {
        ready(Ok(())).boxed()
    }
}

/// These sinks prepare nothing, but a checkpoint may be of a time at which the node had another connector.
fn prepared_by_nobody(committables: &[Committable]) -> Result<(), ConnectorError> {
    if committables.is_empty() {
        return Ok(());
    }
    Err(ConnectorError::Other(
        "the checkpoint holds output that another connector prepared and that is not committed yet: give the sink the \
         connector back that it had, or give it a new name and the output up with --allow-non-restored-state"
            .to_owned(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connectors::testing::{block_on, env, prepare, writer_context};

    #[test]
    fn it_counts_and_tells_ages() {
        let env = env();
        let now = i64::try_from(env.clock.wall().as_millis()).unwrap();
        let sink = BlackholeSettings { latency: true }.build(Path::new("")).unwrap();
        let mut writer = sink.writer(writer_context(&env, 0, "run"));
        let mut batch = Batch::new();
        for age in [3_600_000, 3_600_000, -3_600_000] {
            batch.push(Some(b"key"), b"value", Some(now - age));
        }
        block_on(writer.write(&batch)).unwrap();
        assert_eq!(block_on(prepare(&mut *writer)).unwrap(), []);
        let summary = writer.summary().unwrap();
        let p50 = summary.strip_prefix("3 records, 24 bytes, latency p50 ").expect(&summary).split(' ').next().unwrap();
        let p50: u64 = p50.parse().unwrap();
        assert!((3_600_000..3_700_000).contains(&p50), "{summary}");
    }

    #[test]
    fn output_of_another_connector_is_refused() {
        let mut committer = NothingToCommit;
        let output = vec![Committable(b"a part file".to_vec())];
        let error = block_on(committer.check(&output)).unwrap_err().to_string();
        assert!(error.contains("another connector"), "{error}");
        block_on(committer.commit(output)).unwrap_err();
        block_on(committer.commit(Vec::new())).unwrap();
    }

    #[test]
    fn ages_need_event_times() {
        let env = env();
        let sink = BlackholeSettings { latency: true }.build(Path::new("")).unwrap();
        let mut batch = Batch::new();
        batch.push(None, b"value", None);
        let error = block_on(sink.writer(writer_context(&env, 0, "run")).write(&batch)).unwrap_err();
        assert!(error.to_string().contains("no event times"));
    }
}
