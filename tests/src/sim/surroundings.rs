//! What a simulated job has around it, apart from time: what goes wrong, what is counted, what is noted.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use super::counters::Counters;
use super::faults::Faults;
use super::journal::Journal;

/// Shared by the sources, sinks and storage of one world.
#[derive(Debug)]
pub struct Surroundings {
    /// What goes wrong.
    pub faults: Faults,
    /// What the run came across.
    pub counters: Arc<Counters>,
    /// What happened, in words.
    pub journal: Journal,
    /// The seeds of processes that another one has overtaken: they do not know that the job is not theirs any more.
    overtaken: Mutex<BTreeSet<u64>>,
    /// The seed of the last process that began to write output.
    last_writer: AtomicU64,
}

impl Surroundings {
    /// Surroundings in which nothing goes wrong.
    #[must_use]
    pub fn kind() -> Arc<Self> {
        Arc::new(Self {
            faults: Faults::none(),
            counters: Arc::default(),
            journal: Journal::default(),
            overtaken: Mutex::default(),
            last_writer: AtomicU64::new(0),
        })
    }

    /// Surroundings in which goes wrong what the seed says.
    #[must_use]
    pub fn harsh(seed: u64) -> Arc<Self> {
        Arc::new(Self {
            faults: Faults::from_seed(seed),
            counters: Arc::default(),
            journal: Journal::default(),
            overtaken: Mutex::default(),
            last_writer: AtomicU64::new(0),
        })
    }

    /// Another process goes on with the job of the one with this seed.
    pub fn overtake(&self, process_seed: u64) {
        self.overtaken.lock().expect("no panic under this lock").insert(process_seed);
    }

    /// Whether another process goes on with the job of this one.
    pub fn is_overtaken(&self, process_seed: u64) -> bool {
        self.overtaken.lock().expect("no panic under this lock").contains(&process_seed)
    }

    /// A process begins to write output.
    pub fn begins_to_write(&self, process_seed: u64) {
        self.last_writer.store(process_seed, Relaxed);
    }

    /// The seed of the last process that began to write output.
    pub fn last_writer(&self) -> u64 {
        self.last_writer.load(Relaxed)
    }
}
