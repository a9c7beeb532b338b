//! The Wasm engine: its configuration, the thread that ticks, compilation and its cache.
//!
//! An engine is an object like any other; two in one process know nothing of one another. Components that one engine
//! compiled run only in it.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use wasmtime::component::Component;
use wasmtime::{Config, Engine, OptLevel};

use super::cache::CompileCache;
use super::ticks::{RunTime, Ticker};
use crate::task::{self, Compute, TaskError};

/// What an engine can be told.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Where compiled components are kept; none compiles anew every time. Whoever can write there can run code in this
    /// process, so it is made for its owner alone, and not used if others may write to it.
    pub cache: Option<PathBuf>,
    /// How often a running guest is interrupted so that its neighbours run and its time is counted. None never
    /// interrupts: what a guest does is then a function of its input alone, but it may run for ever.
    pub tick: Option<Duration>,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self { cache: None, tick: Some(Duration::from_millis(1)) }
    }
}

/// The engine could not be made.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// This machine cannot run Wasm as configured.
    #[error("cannot set up the WebAssembly engine: {0}")]
    Config(String),
    /// The thread that interrupts guests could not be started.
    #[error("cannot start the thread that interrupts operators")]
    Ticker(#[source] std::io::Error),
}

/// A component could not be compiled.
#[derive(Debug, thiserror::Error)]
pub(super) enum CompileError {
    #[error("{0}")]
    Invalid(String),
    #[error(transparent)]
    Task(#[from] TaskError),
}

/// Compiles and runs components. A handle: clones share one engine.
#[derive(Clone)]
pub struct WasmEngine(Arc<Parts>);

struct Parts {
    engine: Engine,
    cache: Option<CompileCache>,
    ticker: Ticker,
}

impl fmt::Debug for WasmEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WasmEngine").field("cache", &self.0.cache).finish_non_exhaustive()
    }
}

impl WasmEngine {
    /// Makes an engine.
    ///
    /// # Errors
    /// When this machine cannot run Wasm, or the thread that ticks cannot be started.
    pub fn new(config: EngineConfig) -> Result<Self, EngineError> {
        let mut settings = Config::new();
        settings
            .wasm_component_model(true)
            // Nothing in the contract is concurrent, and calls cost a third of what they cost with it.
            .concurrency_support(false)
            .cranelift_opt_level(OptLevel::Speed)
            // The same input gives the same output on every machine.
            .cranelift_nan_canonicalization(true)
            .relaxed_simd_deterministic(true)
            .epoch_interruption(config.tick.is_some());
        let engine = Engine::new(&settings).map_err(|error| EngineError::Config(format!("{error:#}")))?;
        let ticker = Ticker::start(&engine, config.tick).map_err(EngineError::Ticker)?;
        let cache = config.cache.map(|directory| CompileCache::new(directory, &engine));
        Ok(Self(Arc::new(Parts { engine, cache, ticker })))
    }

    pub(super) fn engine(&self) -> &Engine {
        &self.0.engine
    }

    /// A count of the time in which one guest runs.
    pub(super) fn run_time(&self) -> RunTime {
        self.0.ticker.run_time()
    }

    /// Compiles a component off the async threads, or takes it from the cache.
    pub(super) async fn compile(&self, compute: &dyn Compute, bytes: Arc<[u8]>) -> Result<Component, CompileError> {
        let this = self.clone();
        let work = move || match &this.0.cache {
            Some(cache) => cache.load_or(&bytes, || Component::from_binary(&this.0.engine, &bytes)),
            None => Component::from_binary(&this.0.engine, &bytes),
        };
        let component = task::compute(compute, "compile component", work).await?;
        component.map_err(|error| CompileError::Invalid(format!("{error:#}")))
    }
}
