//! The process as a host of jobs: its threads, its engine, its place in the file system.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::PathBuf;
use std::thread::available_parallelism;

use tokio::runtime::{Builder, Runtime};

use super::exit::Failure;
use super::signals::survive_large_files;
use crate::config::HOST_FILE;
use crate::env::Env;
use crate::wasm::{EngineConfig, WasmEngine};

/// Threads for coordination, which never wait behind guests.
const CONTROL_THREADS: usize = 2;

/// Threads and what else a job needs of the process.
pub(super) struct Host {
    /// The world as jobs see it.
    pub(super) env: Env,
    /// Compiles and runs components.
    pub(super) engine: WasmEngine,
    control: Runtime,
    workers: Runtime,
}

impl Host {
    /// Starts the threads: as many workers as there are processors, and a few for coordination.
    pub(super) fn start() -> Result<Self, Failure> {
        let threads = available_parallelism().map_or(1, usize::from);
        let runtime =
            |name, threads| Builder::new_multi_thread().enable_all().worker_threads(threads).thread_name(name).build();
        let workers = runtime("worker", threads).map_err(Failure::other)?;
        let control = runtime("control", CONTROL_THREADS).map_err(Failure::other)?;
        let entered = control.enter();
        survive_large_files().map_err(Failure::other)?;
        drop(entered);
        // The standard library seeds its hashers from the system's entropy.
        let seed = RandomState::new().build_hasher().finish();
        let env = Env::system(workers.handle(), control.handle(), seed);
        let config = EngineConfig { cache: cache_directory(), ..EngineConfig::default() };
        let engine = WasmEngine::new(config).map_err(Failure::other)?;
        Ok(Self { env, engine, control, workers })
    }

    /// Runs a future to its end, and everything it started beside it.
    pub(super) fn block_on<T>(self, future: impl AsyncFnOnce(&Env, &WasmEngine) -> T) -> T {
        let result = self.control.block_on(future(&self.env, &self.engine));
        // What still runs then, such as a read that does not return, must not keep the process.
        self.workers.shutdown_background();
        self.control.shutdown_background();
        result
    }
}

/// The host-wide file of defaults, if there is one.
pub(super) fn host_file() -> Option<PathBuf> {
    match variable("TIDEGATE_CONFIG") {
        Some(path) if !path.as_os_str().is_empty() => Some(path),
        _ => Some(PathBuf::from(HOST_FILE)).filter(|path| path.is_file()),
    }
}

fn cache_directory() -> Option<PathBuf> {
    if let Some(path) = variable("TIDEGATE_CACHE") {
        return Some(path).filter(|path| !path.as_os_str().is_empty());
    }
    let user = variable("XDG_CACHE_HOME").or_else(|| variable("HOME").map(|home| home.join(".cache")));
    user.filter(|path| path.is_absolute()).map(|path| path.join("tidegate"))
}

fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).map(PathBuf::from)
}
