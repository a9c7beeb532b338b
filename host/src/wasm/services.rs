//! Time, randomness, log and metrics, as a guest calls them. All of it is the host's and can be virtual.

use super::bindings::tidegate::operator::{clock, log, metrics, random};
use super::guest::Guest;
use super::host::trap;
use crate::operator::RuleViolation;

type Result<T> = wasmtime::Result<T>;

/// How many random bytes a guest gets at once. The contract names it.
const MOST_RANDOM_BYTES: u32 = 65536;

impl clock::Host for Guest {
    fn processing_time(&mut self) -> Result<u64> {
        Ok(u64::try_from(self.context.processing_time().as_millis()).unwrap_or(u64::MAX))
    }

    fn watermark(&mut self) -> Result<Option<i64>> {
        Ok(self.context.watermark().map(|watermark| watermark.0))
    }

    fn monotonic_time(&mut self) -> Result<u64> {
        Ok(self.monotonic_nanoseconds())
    }
}

impl random::Host for Guest {
    fn get_bytes(&mut self, count: u32) -> Result<Vec<u8>> {
        if count > MOST_RANDOM_BYTES {
            let (bytes, limit) = (u64::from(count), u64::from(MOST_RANDOM_BYTES));
            return Err(trap(RuleViolation::ResultSize { what: "get-bytes", bytes, limit }));
        }
        let mut bytes = vec![0; count as usize];
        self.context.random.fill(&mut bytes);
        Ok(bytes)
    }

    fn get_u64(&mut self) -> Result<u64> {
        Ok(self.context.random.next_u64())
    }
}

impl log::Host for Guest {
    fn write(&mut self, severity: log::Level, message: String) -> Result<()> {
        let level = match severity {
            log::Level::Trace => tracing::Level::TRACE,
            log::Level::Debug => tracing::Level::DEBUG,
            log::Level::Info => tracing::Level::INFO,
            log::Level::Warn => tracing::Level::WARN,
            log::Level::Error => tracing::Level::ERROR,
        };
        self.log.write(level, &message);
        Ok(())
    }
}

impl metrics::Host for Guest {
    fn add_to_counter(&mut self, name: String, amount: u32) -> Result<()> {
        self.context.metrics.add_to_counter(&name, u64::from(amount)).map_err(trap)
    }

    fn set_gauge(&mut self, name: String, value: f64) -> Result<()> {
        self.context.metrics.set_gauge(&name, value).map_err(trap)
    }

    fn observe(&mut self, name: String, values: Vec<f64>) -> Result<()> {
        self.context.metrics.observe(&name, &values).map_err(trap)
    }
}
