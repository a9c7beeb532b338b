//! Whole jobs in the simulated world, with and without faults: repeatable, different for different seeds, always right.

use std::collections::BTreeSet;

use tidegate_tests::sim::{Counters, Lives, Run, Topology, World};

/// The seed to replay, or else so many from 0 on.
fn seeds(count: u64) -> Vec<u64> {
    match std::env::var("TIDEGATE_SEED") {
        Ok(seed) => vec![seed.parse().expect("TIDEGATE_SEED is a number")],
        Err(_) => (0..count).collect(),
    }
}

/// Whether one seed is replayed, so that nothing can be said about all of them.
fn replays() -> bool {
    std::env::var_os("TIDEGATE_SEED").is_some()
}

/// The records of all sinks in the order in which they were written: what an outsider sees of the order of events.
fn arrivals(run: &Run) -> Vec<String> {
    run.committed.values().flat_map(|parts| parts.iter().map(|part| format!("{part:?}"))).collect()
}

#[test]
fn jobs_end_with_the_right_output() {
    let counters = Counters::default();
    for seed in seeds(500) {
        let run = World::from_seed(seed).run();
        run.assert_right();
        counters.add(&run.counters);
    }
    let zeros = counters.zeros_among(&[
        "prompt_messages",
        "delayed_messages",
        "full_channels",
        "source_batches",
        "committed_records",
        "finished_jobs",
        "cancelled_jobs",
        "failed_jobs",
        "given_up_records",
    ]);
    assert!(replays() || zeros.is_empty(), "never happened: {zeros:?}");
}

#[test]
fn output_is_exactly_once_whatever_fails() {
    let counters = Counters::default();
    for seed in seeds(400) {
        let run = Lives::from_seed(seed).run();
        run.assert_right();
        counters.add(&run.counters);
    }
    assert!(replays() || counters.zeros().is_empty(), "never happened: {:?}", counters.zeros());
}

#[test]
fn every_topology_survives() {
    for topology in Topology::ALL {
        for seed in seeds(15) {
            Lives::new(seed, topology).run().assert_right();
        }
    }
}

#[test]
fn one_seed_is_one_run_of_a_job_with_faults_as_well() {
    for seed in seeds(40) {
        let (one, other) = (Lives::from_seed(seed).run(), Lives::from_seed(seed).run());
        assert_eq!(one.trace_hash, other.trace_hash, "seed {seed}: {}", one.plan);
        assert_eq!(one.committed, other.committed, "seed {seed}: {}", one.plan);
    }
}

#[test]
fn every_topology_ends_with_the_right_output() {
    for topology in Topology::ALL {
        for seed in seeds(40) {
            World::new(seed, topology).run().assert_right();
        }
    }
}

#[test]
fn one_seed_is_one_run() {
    for seed in seeds(60) {
        let (one, other) = (World::from_seed(seed).run(), World::from_seed(seed).run());
        assert_eq!(one.trace_hash, other.trace_hash, "seed {seed}: {}", one.plan);
        assert_eq!(one.committed, other.committed, "seed {seed}: {}", one.plan);
    }
}

#[test]
fn seeds_differ_in_the_order_of_events() {
    if replays() {
        return;
    }
    // The seed of the plan stays, so that only the order of events can differ.
    let (mut hashes, mut orders) = (BTreeSet::new(), BTreeSet::new());
    let runs: Vec<Run> =
        (0..40).map(|schedule| World::new(3, Topology::Sources).with_schedule(schedule).run()).collect();
    for run in &runs {
        run.assert_right();
        hashes.insert(run.trace_hash);
        orders.insert(arrivals(run));
    }
    assert_eq!(hashes.len(), runs.len());
    assert!(orders.len() > runs.len() / 2, "only {} orders of arrival in {} runs", orders.len(), runs.len());
}

#[test]
fn the_real_runtime_has_the_same_output() {
    for topology in Topology::ALL {
        for seed in seeds(8) {
            let world = World::new(seed, topology).with_ones();
            let (simulated, real) = (world.run(), world.run_on_tokio());
            simulated.assert_right();
            real.assert_right();
            let sorted = |run: &Run, sink: &str| {
                let mut records: Vec<_> = run.committed[sink].values().flatten().cloned().collect();
                // Which subtask rejected it is the order's business, not the result's.
                records.retain(|_| sink != "dead");
                // Nor is which record a running sum was emitted for, when two of a key may change places.
                records.iter_mut().for_each(|record| record.timestamp = None);
                records.sort();
                records
            };
            assert!(simulated.committed.keys().eq(real.committed.keys()));
            for sink in simulated.committed.keys() {
                assert_eq!(sorted(&simulated, sink), sorted(&real, sink), "seed {seed}, {sink}: {}", simulated.plan);
            }
        }
    }
}
