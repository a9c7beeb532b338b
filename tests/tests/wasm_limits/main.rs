//! What a job is told when an operator misbehaves, and that nobody else notices.
//!
//! Every guest is a component of its own under `tests/guests`. The texts are exact: they are what a user reads.

mod world;

use std::sync::Arc;
use std::time::Duration;

use tidegate::operator::{Call, Descriptor, Fault, GuestFault, Limits, OperatorFactory};
use tidegate::protocol::key_group;
use tidegate::record::Batch;
use tidegate::wasm::{Access, ComponentReport, EngineConfig, WasmEngine, WasmOperatorFactory};
use world::*;

#[test]
fn endless_loop() {
    let limits = Limits { call: Duration::from_millis(100), ..limits() };
    assert_eq!(
        Subject::with_limits("loops", limits).error("go"),
        "the operator ran longer than limits.call = 100ms in one call"
    );
}

#[test]
fn endless_allocation() {
    assert_eq!(
        Subject::new("allocates").error("go"),
        "the operator needs more memory than limits.memory = 67108864 bytes"
    );
}

#[test]
fn stack_overflow() {
    assert_eq!(Subject::new("recurses").error("go"), "the operator overflowed its stack");
    assert_eq!(
        Subject::new("recurses_with_arrays").error("go"),
        "the operator trapped: wasm trap: out of bounds memory access, as when the stack overflows with large \
         variables on it"
    );
}

#[test]
fn panic() {
    assert_eq!(
        Subject::new("panics").error("go"),
        "the operator trapped: wasm trap: wasm `unreachable` instruction executed; stderr: thread '<unnamed>' (1) \
         panicked at examples/panics.rs:9:9: boom"
    );
}

#[test]
fn trap_without_a_word() {
    assert_eq!(
        Subject::new("aborts").error("go"),
        "the operator trapped: wasm trap: wasm `unreachable` instruction executed in aborts::give_up"
    );
}

#[test]
fn exit() {
    assert_eq!(Subject::new("exits").error("go"), "the operator trapped: it called exit, reporting failure");
}

#[test]
fn returned_error() {
    let mut subject = Subject::new("fails");
    let fault = subject.process(unkeyed(&["a", "x"])).unwrap_err();
    assert_eq!(fault.to_string(), "the operator returned an error: cannot read this");
    assert!(matches!(&fault, Fault::Guest(fault) if fault.position().is_none()), "{fault:?}");
    let fault = subject.process(unkeyed(&["a", "b", "x@", "c"])).unwrap_err();
    assert!(matches!(&fault, Fault::Guest(fault) if fault.position() == Some(2)), "{fault:?}");
    assert!(subject.process(unkeyed(&["a"])).is_ok());
}

#[test]
fn ten_million_records_for_one() {
    let mut subject = Subject::new("floods");
    let (mut records, mut largest) = (0, 0);
    let call = Call::Process { input: 0, batch: Arc::new(unkeyed(&["10000000"])) };
    subject
        .call(call, |_, batch| {
            records += batch.len();
            largest = largest.max(batch.len());
        })
        .unwrap();
    assert_eq!((records, largest), (10_000_000, 1000));

    subject.hold(1 << 20);
    assert_eq!(
        subject.error("10000000"),
        "one call emitted more than limits.output = 1048576 bytes, which on-error = \"skip\" and \"dead-letter\" hold back"
    );
    subject.hold(1 << 20);
    subject.process(unkeyed(&["1000"])).unwrap();
}

#[test]
fn malformed_batches() {
    let mut subject = Subject::new("malformed");
    let mut check = |way: &str, error: &str| {
        assert_eq!(subject.error(way), format!("the operator broke the contract: {error}"), "{way}");
    };
    check("start", "malformed values: offsets start at 1, not at 0");
    check("falling", "malformed values: offset 2 falls from 3 to 2");
    check("end", "malformed values: the last offset is 5, but there are 4 bytes");
    check("short", "malformed values: the last offset is 2, but there are 4 bytes");
    check("none", "malformed values: the last offset is 0, but there are 4 bytes");
    check("huge", "malformed values: the last offset is 4294967295, but there are 4 bytes");
    check("keys", "2 values come with 1 keys");
    check("malformed keys", "malformed keys: offsets start at 4, not at 0");
    check("timestamps", "1 values come with 2 timestamps");
}

#[test]
fn too_much_at_once() {
    let mut subject = Subject::new("oversized");
    assert_eq!(subject.process(unkeyed(&["1000000"])).unwrap()[0].values().get(0).len(), 1_000_000);
    assert_eq!(
        subject.error("17000000"),
        "the operator broke the contract: a key or value of 17000000 bytes is over record-limit = 16777216 bytes"
    );
    assert_eq!(subject.error("18000000"), "the operator handed over more than 17825792 bytes at once");
    let mut batch = Batch::new();
    batch.push(None, &vec![0; 18 << 20], None);
    assert_eq!(
        subject.process(batch).unwrap_err().to_string(),
        "a batch of 18874376 bytes is over the limit of 17825792 for one call of an operator"
    );
}

#[test]
fn a_record_of_the_limit_passes() {
    let limit = usize::try_from(RECORD_LIMIT).unwrap();
    let mut batch = Batch::new();
    batch.push(Some(&vec![b'k'; limit]), &vec![b'v'; limit], Some(1));
    batch.set_hashes(key_group::hash);
    assert!(Subject::new("fails").process(batch).unwrap().is_empty());
    // The world's collector takes 16 MiB, which is the limit by default.
    let emitted = Subject::new("oversized").process(unkeyed(&["16777216"])).unwrap();
    assert_eq!(emitted[0].values().get(0).len(), 16 << 20);
}

#[test]
fn batch_larger_than_the_guest() {
    let limits = Limits { memory_bytes: 4 << 20, ..limits() };
    let mut batch = Batch::new();
    batch.push(None, &vec![0; 8 << 20], None);
    assert_eq!(
        Subject::with_limits("fails", limits).process(batch).unwrap_err().to_string(),
        "the operator needs more memory than limits.memory = 4194304 bytes"
    );
}

#[test]
fn broken_rules() {
    let mut subject = Subject::new("breaks_rules");
    let mut check = |rule: &str, error: &str| {
        assert_eq!(subject.keyed_error(rule), format!("the operator broke the contract: {error}"), "{rule}");
    };
    check("slot", "slot 7 is out of range: this call has 1");
    check("slots", "slot 9 is out of range: this call has 1");
    check("twice", "slot 0 appears twice");
    check("state", "state 8 was not declared in the descriptor");
    check("missing", "missing position 1 of 1 strings is out of range or out of order");
    check("output", "output 2 was not declared in the descriptor");
    check("position", "position 5 is out of range: the batch has 1 records");
    check("random", "get-bytes would take 65537 bytes, over the limit of 65536: ask for less at once");
    check("metric", "a metric's name has 1 to 128 bytes");
    check("timers", "timers are not available in this version of tidegate");
    check("operator state", "operator state is not available in this version of tidegate");
}

#[test]
fn broken_rules_of_place() {
    let mut subject = Subject::new("breaks_rules");
    let error = subject.call(Call::Close, |_, _| {}).unwrap_err();
    assert_eq!(error.to_string(), "the operator broke the contract: emit cannot be called in close");
    let error = load_error("emits_in_open");
    assert_eq!(
        error,
        "emits_in_open.wasm as an operator: open failed: the operator broke the contract: emit cannot be called in open"
    );
}

#[test]
fn descriptors() {
    assert_eq!(
        load_error("duplicates"),
        "duplicates.wasm as an operator: open declared what it may not: two states have the id 1"
    );
    let factory = load("fickle").unwrap();
    let error = block_on(factory.create(&subtask())).err().expect("another name than the first time");
    assert_eq!(
        error.to_string(),
        "the operator broke the contract: open declared other states or outputs than when the job started; it must \
         depend on its config alone"
    );
    assert_eq!(
        load_error("fails_to_open"),
        "fails_to_open.wasm as an operator: open failed: the operator returned an error: no column in {}"
    );
}

#[test]
fn closed_world() {
    assert_eq!(
        load_error("connects"),
        "connects.wasm as an operator: it imports what an operator may not use:\n  wasi:sockets/network@0.2.6, \
         wasi:sockets/instance-network@0.2.6, wasi:sockets/udp@0.2.6, wasi:sockets/udp-create-socket@0.2.6, \
         wasi:sockets/tcp@0.2.6, wasi:sockets/tcp-create-socket@0.2.6, wasi:sockets/ip-name-lookup@0.2.6: operators \
         have no network (componentize-py: build with --stub-wasi)"
    );
    assert_eq!(
        Subject::new("reads_files").error("go"),
        "the operator returned an error: file: Err(Os { code: 44, kind: NotFound, message: \"No such file or directory\" }), \
         arguments: 0, variables: 0"
    );
}

#[test]
fn sleeping_takes_the_hosts_time_and_counts() {
    let mut subject = Subject::new("sleeps");
    assert_eq!(subject.error("30"), "the operator returned an error: slept 30ms, wall clock Ok(0ns)");
    assert_eq!(subject.error("600000"), "the operator ran longer than limits.call = 60s in one call");
}

#[test]
fn memory_that_has_grown_wears_an_instance() {
    let limits = Limits { memory_bytes: 256 << 20, ..limits() };
    let mut subject = Subject::with_limits("hoards", limits);
    subject.process(unkeyed(&["1000"])).unwrap();
    assert!(!subject.operator().is_worn());
    subject.process(unkeyed(&["100000000"])).unwrap();
    assert!(!subject.operator().is_worn(), "not yet half of the limit");
    subject.process(unkeyed(&["50000000"])).unwrap();
    assert!(subject.operator().is_worn());
    let fault = subject.process(unkeyed(&["200000000"])).unwrap_err();
    let message = "no room for 200000000 bytes".to_owned();
    assert!(
        matches!(&fault, Fault::Guest(GuestFault::Returned { message: said, .. }) if *said == message),
        "a guest may cope with getting no memory: {fault:?}"
    );
}

#[test]
fn output_of_the_console_does_not_disturb() {
    let mut subject = Subject::new("prints");
    subject.process(unkeyed(&["100000"])).unwrap();
    subject.process(unkeyed(&["1"])).unwrap();
}

/// The counts that a batch makes the well-behaved operator emit.
fn counts(subject: &mut Subject, records: &[(&str, &str)]) -> Vec<u64> {
    let emitted = subject.process(keyed(records)).unwrap();
    let count = |value: &[u8]| u64::from_le_bytes(value.try_into().unwrap());
    emitted.iter().flat_map(|batch| batch.values().iter().map(count).collect::<Vec<_>>()).collect()
}

#[test]
fn others_are_unaffected() {
    let engine = engine();
    let mut good = Subject::in_engine(&engine, "counts", limits());
    assert_eq!(counts(&mut good, &[("a", ""), ("b", ""), ("a", "")]), [1, 1, 2]);
    for bad in ["loops", "allocates", "recurses", "recurses_with_arrays", "panics", "aborts", "exits"] {
        let limits = Limits { call: Duration::from_millis(500), ..limits() };
        let mut bad = Subject::in_engine(&engine, bad, limits);
        bad.process(unkeyed(&["go"])).unwrap_err();
        bad.process(unkeyed(&["and a fresh instance"])).unwrap_err();
    }
    assert_eq!(counts(&mut good, &[("b", ""), ("a", "")]), [2, 3]);
}

#[test]
fn a_neighbour_runs_while_a_guest_loops() {
    let engine = engine();
    let mut looping = Subject::in_engine(&engine, "loops", Limits { call: Duration::from_secs(3600), ..limits() });
    let mut good = Subject::in_engine(&engine, "counts", limits());
    // The loop gives way at a tick, or this would not return for an hour.
    looping.cancel(unkeyed(&["go"]));
    assert_eq!(counts(&mut good, &[("a", "")]), [1]);
}

#[test]
fn a_cancelled_call_leaves_state_as_it_was() {
    let mut subject = Subject::new("counts");
    assert_eq!(counts(&mut subject, &[("a", "")]), [1]);
    // It has stored 2 and waits for room in its output.
    subject.cancel(keyed(&[("a", "")]));
    assert_eq!(counts(&mut subject, &[("a", "")]), [2]);
}

#[test]
fn keyed_state_needs_keys() {
    let mut subject = Subject::new("breaks_rules");
    let broke = |fault: Fault| fault.to_string();
    assert_eq!(
        broke(subject.process(unkeyed(&["slot"])).unwrap_err()),
        "the operator broke the contract: get cannot be called on an input without keys"
    );
    assert_eq!(
        broke(subject.call(Call::Watermark, |_, _| {}).unwrap_err()),
        "the operator broke the contract: get cannot be called outside process"
    );
}

#[test]
fn engines_are_apart_and_an_engine_outlives_its_handle() {
    let mut subjects: Vec<Subject> = (0..3).map(|_| Subject::new("counts")).collect();
    for subject in &mut subjects {
        assert_eq!(counts(subject, &[("a", ""), ("a", "")]), [1, 2]);
    }
    drop(subjects.pop());
    assert_eq!(counts(&mut subjects[0], &[("a", "")]), [3]);
}

#[test]
fn without_ticks_a_call_is_never_interrupted() {
    let engine = WasmEngine::new(EngineConfig { tick: None, ..EngineConfig::default() }).unwrap();
    let mut subject = Subject::in_engine(&engine, "prints", Limits { call: Duration::ZERO, ..limits() });
    subject.process(unkeyed(&["1000"])).unwrap();
}

#[test]
fn a_report_tells_what_a_component_is() {
    let report = |name| block_on(ComponentReport::of(&engine(), &env(), &guest(name))).unwrap();
    let counts = report("counts");
    assert_eq!((counts.contract.as_deref(), counts.migrates), (Some("0.1.0"), false));
    assert!(counts.verdict().is_ok());
    let access = |name: &str| counts.imports.iter().find(|import| import.name == name).map(|import| import.access);
    assert_eq!(access("tidegate:operator/keyed-state@0.1.0"), Some(Access::Contract));
    assert!(matches!(access("wasi:cli/stderr@0.2.6"), Some(Access::Virtual(_))), "{:?}", counts.imports);
    assert!(report("connects").verdict().is_err());
}

/// The error of loading a file with this content.
fn load_bytes(bytes: &[u8]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("op.wasm");
    std::fs::write(&path, bytes).unwrap();
    let loaded = block_on(WasmOperatorFactory::load(&engine(), &env(), &path, settings("{}", limits())));
    let error = loaded.expect_err("it must not load").to_string();
    error.replace(&folder.path().display().to_string(), "")
}

#[test]
fn files_that_are_no_operators() {
    assert_eq!(
        load_bytes(b"#!/bin/sh"),
        "cannot use /op.wasm as an operator: it is not a WebAssembly file; build the operator to a component (Rust: \
         --target wasm32-wasip2)"
    );
    assert_eq!(
        load_bytes(b"\0asm\x01\0\0\0"),
        "cannot use /op.wasm as an operator: it is a core module, not a component; build it for a component target \
         (Rust: --target wasm32-wasip2), or make a component of it with `wasm-tools component new`"
    );
    assert_eq!(
        load_bytes(b"\0asm\x0d\0\x01\0"),
        "cannot use /op.wasm as an operator: it is no operator: it exports nothing, and not tidegate:operator/handler"
    );
    let cut = &std::fs::read(guest("counts")).unwrap()[..1000];
    let error = load_bytes(cut);
    assert!(error.starts_with("cannot use /op.wasm as an operator: it does not compile: "), "{error}");
    assert_eq!(
        load_missing(),
        "cannot use /nowhere/op.wasm as an operator: it cannot be read: No such file or directory (os error 2)"
    );
}

fn load_missing() -> String {
    let path = std::path::Path::new("/nowhere/op.wasm");
    let loaded = block_on(WasmOperatorFactory::load(&engine(), &env(), path, settings("{}", limits())));
    loaded.expect_err("there is no such file").to_string()
}

#[test]
fn the_descriptor_is_what_open_declared() {
    let factory = load("counts").unwrap();
    let Descriptor { states, side_outputs } = factory.descriptor();
    assert_eq!((states.len(), states[0].name.as_str(), side_outputs.len()), (1, "count", 0));
    assert_eq!(load("breaks_rules").unwrap().descriptor().side_outputs[0].name, "late");
}

#[test]
fn a_cached_component_runs_as_a_compiled_one_does() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    let run = || {
        let engine = WasmEngine::new(EngineConfig { cache: Some(cache.clone()), ..EngineConfig::default() }).unwrap();
        let mut subject = Subject::in_engine(&engine, "counts", limits());
        assert_eq!(counts(&mut subject, &[("a", ""), ("a", "")]), [1, 2]);
    };
    run();
    let entries: Vec<_> = std::fs::read_dir(&cache).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(entries.len(), 1, "{entries:?}");
    run();
    std::fs::write(&entries[0], "damaged").unwrap();
    run();
}
