//! A record that turns into ten million, in flat memory. Alone in its process, whose memory is measured.

use std::path::Path;

use tidegate::connectors::registry;
use tidegate_tests::guest_job::{GuestJob, block_on, run_beside_another, unkeyed};

/// By how much the peak may grow.
const GROWTH_KIB: u64 = 64 << 10;

/// The most memory that the process has had resident since the peak was reset, in KiB.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("this is Linux");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("the kernel counts it");
    peak.trim().trim_end_matches(" kB").parse().expect("a number")
}

fn flood(records: &'static str) {
    let sink = registry::sink("blackhole", serde_json::json!({}), Path::new(".")).expect("it has no settings");
    let job = GuestJob::new("floods", unkeyed(&[records]));
    let ended = block_on(run_beside_another(job, |job| job.start_with_sink(sink))).expect("the guest loads");
    assert_eq!((ended.error, ended.records_in), (Vec::new(), 1));
    assert_eq!(ended.records_out.to_string(), records);
}

#[test]
fn ten_million_records_for_one_take_flat_memory() {
    // Everything that is there once: compiled guests, threads, their heaps.
    flood("100000");
    // Where the kernel does not reset the peak, what compiling took hides some of the growth.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    let before = peak_kib();
    flood("10000000");
    let growth = peak_kib() - before;
    assert!(growth < GROWTH_KIB, "the peak grew by {growth} KiB");
}
