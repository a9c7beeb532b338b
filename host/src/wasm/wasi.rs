//! The system interface that a guest sees: an empty machine.
//!
//! No files, sockets, environment or arguments. What a guest writes to stdout and stderr goes to the job's log. Clocks
//! and randomness are those of the call context, so they can be virtual and repeat. A guest that waits for a time is
//! suspended on the host's clock, and the wait counts against `limits.call`: an operator that sleeps holds its subtask
//! up just as one that computes.

use std::sync::Arc;
use std::time::Duration;

use wasmtime::component::{HasData, Linker, Resource, ResourceTable};
use wasmtime_wasi::cli::WasiCli;
use wasmtime_wasi::filesystem::WasiFilesystem;
use wasmtime_wasi::p2::bindings::clocks::{monotonic_clock, wall_clock};
use wasmtime_wasi::p2::bindings::random::{insecure, insecure_seed, random};
use wasmtime_wasi::p2::bindings::{cli, filesystem};
use wasmtime_wasi::p2::{DynPollable, Pollable, subscribe};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};
use wasmtime_wasi_io::bindings::wasi::io;

use super::guest::Guest;
use super::host::trap;
use super::log::{GuestLog, Stream};
use super::ticks::RunTime;
use crate::clock::Clock;
use crate::operator::RuleViolation;

/// The interfaces that a component may import beside the operator contract, without their versions.
pub(super) const LINKED: &[&str] = &[
    "wasi:cli/environment",
    "wasi:cli/exit",
    "wasi:cli/stderr",
    "wasi:cli/stdin",
    "wasi:cli/stdout",
    "wasi:cli/terminal-input",
    "wasi:cli/terminal-output",
    "wasi:cli/terminal-stderr",
    "wasi:cli/terminal-stdin",
    "wasi:cli/terminal-stdout",
    "wasi:clocks/monotonic-clock",
    "wasi:clocks/wall-clock",
    "wasi:filesystem/preopens",
    "wasi:filesystem/types",
    "wasi:io/error",
    "wasi:io/poll",
    "wasi:io/streams",
    "wasi:random/insecure",
    "wasi:random/insecure-seed",
    "wasi:random/random",
];

/// How many random bytes a guest gets at once through WASI, which names no limit.
const MOST_RANDOM_BYTES: u64 = 1 << 20;

/// The empty machine, but for its console.
pub(super) fn context(log: &GuestLog) -> WasiCtx {
    WasiCtx::builder().stdout(log.stream(Stream::Stdout)).stderr(log.stream(Stream::Stderr)).build()
}

/// Links what `LINKED` lists.
pub(super) fn add_to_linker(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    io::error::add_to_linker::<Guest, Resources>(linker, |guest| &mut guest.resources)?;
    io::poll::add_to_linker::<Guest, Resources>(linker, |guest| &mut guest.resources)?;
    io::streams::add_to_linker::<Guest, Resources>(linker, |guest| &mut guest.resources)?;
    wall_clock::add_to_linker::<Guest, Virtual>(linker, |guest| guest)?;
    monotonic_clock::add_to_linker::<Guest, Virtual>(linker, |guest| guest)?;
    random::add_to_linker::<Guest, Virtual>(linker, |guest| guest)?;
    insecure::add_to_linker::<Guest, Virtual>(linker, |guest| guest)?;
    insecure_seed::add_to_linker::<Guest, Virtual>(linker, |guest| guest)?;
    use wasmtime_wasi::cli::WasiCliView as _;
    use wasmtime_wasi::filesystem::WasiFilesystemView as _;
    filesystem::preopens::add_to_linker::<Guest, WasiFilesystem>(linker, Guest::filesystem)?;
    filesystem::types::add_to_linker::<Guest, WasiFilesystem>(linker, Guest::filesystem)?;
    cli::exit::add_to_linker::<Guest, WasiCli>(linker, Guest::cli)?;
    cli::environment::add_to_linker::<Guest, WasiCli>(linker, Guest::cli)?;
    cli::stdin::add_to_linker::<Guest, WasiCli>(linker, Guest::cli)?;
    cli::stdout::add_to_linker::<Guest, WasiCli>(linker, Guest::cli)?;
    cli::stderr::add_to_linker::<Guest, WasiCli>(linker, Guest::cli)?;
    cli::terminal_input::add_to_linker::<Guest, WasiCli>(linker, Guest::cli)?;
    cli::terminal_output::add_to_linker::<Guest, WasiCli>(linker, Guest::cli)?;
    cli::terminal_stdin::add_to_linker::<Guest, WasiCli>(linker, Guest::cli)?;
    cli::terminal_stdout::add_to_linker::<Guest, WasiCli>(linker, Guest::cli)?;
    cli::terminal_stderr::add_to_linker::<Guest, WasiCli>(linker, Guest::cli)
}

struct Resources;

impl HasData for Resources {
    type Data<'a> = &'a mut ResourceTable;
}

/// The guest's own clocks and randomness.
struct Virtual;

impl HasData for Virtual {
    type Data<'a> = &'a mut Guest;
}

impl WasiView for Guest {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.resources }
    }
}

impl wall_clock::Host for Guest {
    fn now(&mut self) -> wasmtime::Result<wall_clock::Datetime> {
        let now = self.context.processing_time();
        Ok(wall_clock::Datetime { seconds: now.as_secs(), nanoseconds: now.subsec_nanos() })
    }

    fn resolution(&mut self) -> wasmtime::Result<wall_clock::Datetime> {
        Ok(wall_clock::Datetime { seconds: 0, nanoseconds: 1_000_000 })
    }
}

impl monotonic_clock::Host for Guest {
    fn now(&mut self) -> wasmtime::Result<u64> {
        Ok(self.monotonic_nanoseconds())
    }

    fn resolution(&mut self) -> wasmtime::Result<u64> {
        Ok(1)
    }

    fn subscribe_instant(&mut self, when: u64) -> wasmtime::Result<Resource<DynPollable>> {
        let (clock, run_time) = (Arc::clone(&self.clock), self.run_time.clone());
        let deadline = Deadline { clock, run_time, until: Duration::from_nanos(when), limit: self.limits.call };
        let deadline = self.resources.push(deadline)?;
        subscribe(&mut self.resources, deadline)
    }

    fn subscribe_duration(&mut self, duration: u64) -> wasmtime::Result<Resource<DynPollable>> {
        let when = self.monotonic_nanoseconds().saturating_add(duration);
        monotonic_clock::Host::subscribe_instant(self, when)
    }
}

/// A moment that a guest waits for.
struct Deadline {
    clock: Arc<dyn Clock>,
    run_time: RunTime,
    until: Duration,
    limit: Duration,
}

#[wasmtime_wasi::async_trait]
impl Pollable for Deadline {
    async fn ready(&mut self) {
        let wait = self.until.saturating_sub(self.clock.monotonic());
        if wait.is_zero() {
            return;
        }
        self.clock.sleep(self.run_time.sleep(wait, self.limit)).await;
    }
}

impl Guest {
    fn random_bytes(&mut self, count: u64) -> wasmtime::Result<Vec<u8>> {
        let limit = MOST_RANDOM_BYTES;
        if count > limit {
            return Err(trap(RuleViolation::ResultSize { what: "wasi:random", bytes: count, limit }));
        }
        let mut bytes = vec![0; usize::try_from(count)?];
        self.context.random.fill(&mut bytes);
        Ok(bytes)
    }
}

impl random::Host for Guest {
    fn get_random_bytes(&mut self, count: u64) -> wasmtime::Result<Vec<u8>> {
        self.random_bytes(count)
    }

    fn get_random_u64(&mut self) -> wasmtime::Result<u64> {
        Ok(self.context.random.next_u64())
    }
}

impl insecure::Host for Guest {
    fn get_insecure_random_bytes(&mut self, count: u64) -> wasmtime::Result<Vec<u8>> {
        self.random_bytes(count)
    }

    fn get_insecure_random_u64(&mut self) -> wasmtime::Result<u64> {
        Ok(self.context.random.next_u64())
    }
}

impl insecure_seed::Host for Guest {
    fn insecure_seed(&mut self) -> wasmtime::Result<(u64, u64)> {
        Ok((self.context.random.next_u64(), self.context.random.next_u64()))
    }
}
