//! Whole jobs whose operator misbehaves: what their user is told, and that a job beside them never notices.
//!
//! Every guest is a component of its own under `tests/guests`. The texts are exact: they are what a user reads, the
//! error first and then its causes.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use tidegate::operator::{Limits, OnError};
use tidegate_tests::guest_job::{
    Ended, GuestJob, LoadedJob, ample, block_on, chain, keyed, run_beside_another, unkeyed,
};
use tidegate_tests::sim::Record;

/// Runs a job beside a well-behaved one, which must come out right.
fn run(job: GuestJob) -> Ended {
    block_on(run_beside_another(job, LoadedJob::start)).expect("the guest loads")
}

/// Checks what the user is told by a job that fails, which commits nothing.
#[track_caller]
fn assert_fails(job: GuestJob, error: [&str; 2]) {
    let ended = run(job);
    assert_eq!(ended.error, error);
    assert_eq!((ended.output, ended.dead_letters), (Vec::new(), Vec::new()), "a failed job commits nothing");
}

/// Checks what the user is told when a guest fails on one record.
#[track_caller]
fn assert_go_fails(guest: &'static str, limits: Limits, cause: &str) {
    let job = GuestJob::new(guest, unkeyed(&["go"])).with_limits(limits);
    assert_fails(job, ["operator subject[0] failed on the record \"go\"", cause]);
}

#[test]
fn endless_loop() {
    let limits = Limits { call: Duration::from_millis(100), ..ample() };
    assert_go_fails("loops", limits, "the operator ran longer than limits.call = 100ms in one call");
}

#[test]
fn endless_allocation() {
    assert_go_fails("allocates", ample(), "the operator needs more memory than limits.memory = 67108864 bytes");
}

#[test]
fn stack_overflow() {
    assert_go_fails("recurses", ample(), "the operator overflowed its stack");
    assert_go_fails(
        "recurses_with_arrays",
        ample(),
        "the operator trapped: wasm trap: out of bounds memory access, as when the stack overflows with large variables \
         on it",
    );
}

#[test]
fn panic() {
    assert_go_fails(
        "panics",
        ample(),
        "the operator trapped: wasm trap: wasm `unreachable` instruction executed; stderr: thread '<unnamed>' (1) \
         panicked at examples/panics.rs:9:9: boom",
    );
}

#[test]
fn returned_error() {
    let cause = "the operator returned an error: cannot read this";
    let job = |values| GuestJob::new("fails", unkeyed(values));
    let many = ["a", "b", "c", "d", "x", "e", "f"];
    assert_fails(job(&many), ["operator subject[0] failed on the record \"x\"", cause]);
    let many = ["a", "b", "c", "d", "x@\n", "e", "f"];
    assert_fails(job(&many), ["operator subject[0] failed on the record \"x@\\n\"", cause]);
}

#[test]
fn malformed_offsets() {
    let error = |way| GuestJob::new("malformed", unkeyed(&[way]));
    assert_fails(
        error("falling"),
        [
            "operator subject[0] failed on the record \"falling\"",
            "the operator broke the contract: malformed values: offset 2 falls from 3 to 2",
        ],
    );
    assert_fails(
        error("huge"),
        [
            "operator subject[0] failed on the record \"huge\"",
            "the operator broke the contract: malformed values: the last offset is 4294967295, but there are 4 bytes",
        ],
    );
}

#[test]
fn slot_out_of_range() {
    assert_fails(
        GuestJob::new("breaks_rules", keyed(&[("k", "slot")])),
        [
            "operator subject[0] failed on the record with key \"k\" and value \"slot\"",
            "the operator broke the contract: slot 7 is out of range: this call has 1",
        ],
    );
}

#[test]
fn sockets() {
    let job = GuestJob::new("connects", unkeyed(&["go"]));
    let refused = block_on(run_beside_another(job, LoadedJob::start)).expect_err("it must not load");
    let path = refused.path.display().to_string();
    let error: Vec<String> = chain(&refused).iter().map(|link| link.replace(&path, "connects.wasm")).collect();
    assert_eq!(
        error,
        ["cannot use connects.wasm as an operator: it imports what an operator may not use:\n  \
          wasi:sockets/network@0.2.6, wasi:sockets/instance-network@0.2.6, wasi:sockets/udp@0.2.6, \
          wasi:sockets/udp-create-socket@0.2.6, wasi:sockets/tcp@0.2.6, wasi:sockets/tcp-create-socket@0.2.6, \
          wasi:sockets/ip-name-lookup@0.2.6: operators have no network (componentize-py: build with --stub-wasi)"]
    );
}

#[test]
fn a_flood_that_is_held_back_is_given_up() {
    let limits = Limits { output_bytes: 1 << 20, ..ample() };
    let values = ["1", "10000000", "2"];
    let job = |on_error| GuestJob::new("floods", unkeyed(&values)).with_limits(limits).with_on_error(on_error);
    // The guest reads only the first record of a batch.
    let ended = run(job(OnError::Skip).one_by_one());
    assert_eq!((ended.error, ended.output.len(), ended.skipped), (Vec::new(), 3, 1));
    let ended = run(job(OnError::DeadLetter).one_by_one());
    assert_eq!((ended.error, ended.output.len(), ended.skipped), (Vec::new(), 3, 0));
    let letter = r#"{"error":"one call emitted more than limits.output = 1048576 bytes, which on-error = \"skip\" and \"dead-letter\" hold back","node":"subject","subtask":0,"timestamp":null,"key":null,"value":"MTAwMDAwMDA="}"#;
    assert_eq!(ended.dead_letters, [letter]);
}

const PANIC: &str = "the operator trapped: wasm trap: wasm `unreachable` instruction executed; stderr: thread \
                     '<unnamed>' (1) panicked at examples/picky.rs:";

/// What `picky` is given, and of each record either what must come out or why it is given up.
fn picky_records() -> Vec<(Record, Result<Vec<u8>, &'static str>)> {
    const KEYS: usize = 7;
    let mut counts = [0; KEYS];
    let record = |number: usize| {
        let (kind, fate) = match number % 50 {
            3 => ("x@", Err("the operator returned an error: not this one")),
            // Two in a row, so that what is left of a range after one of them is tried again.
            17 | 18 => ("x", Err("the operator returned an error: one of these")),
            31 => ("p", Err(PANIC)),
            40 => ("r", Err("the operator rejected a record: not wanted")),
            _ => ("", Ok(())),
        };
        let value = format!("{kind}{number}");
        let fate = fate.map(|()| {
            counts[number % KEYS] += 1;
            format!("{value}:{}", counts[number % KEYS]).into_bytes()
        });
        let key = Some(format!("key {}", number % KEYS).into_bytes());
        (Record { key, value: value.into_bytes(), timestamp: None }, fate)
    };
    (0..1500).map(record).collect()
}

fn picky(on_error: OnError) -> Ended {
    let records = picky_records().into_iter().map(|(record, _)| record).collect();
    let ended = run(GuestJob::new("picky", records).with_on_error(on_error));
    let taken = |(record, fate): (Record, Result<_, _>)| fate.ok().map(|value| Record { value, ..record });
    let expected: Vec<Record> = picky_records().into_iter().filter_map(taken).collect();
    assert_eq!(ended.error, Vec::<String>::new());
    assert_eq!(ended.output, expected, "all others once, in order, with the state as if the bad ones had not been");
    assert_eq!(ended.records_in, 1500);
    ended
}

#[test]
fn skipped_are_exactly_those_at_fault() {
    let ended = picky(OnError::Skip);
    assert_eq!((ended.skipped, ended.records_out, ended.dead_letters), (150, 1350, Vec::new()));
}

#[test]
fn dead_letters_are_exactly_those_at_fault() {
    let ended = picky(OnError::DeadLetter);
    assert_eq!((ended.skipped, ended.records_out), (0, 1500));
    let mut letters: Vec<String> = Vec::new();
    for letter in ended.dead_letters {
        // Where the guest panicked is the business of another test.
        let place = letter.find(PANIC).map(|at| at + PANIC.len());
        let rest = place.and_then(|at| letter[at..].find('"').map(|end| at + end));
        letters
            .push(place.zip(rest).map_or(letter.clone(), |(at, end)| format!("{}{}", &letter[..at], &letter[end..])));
    }
    let letter = |(record, fate): (Record, Result<Vec<u8>, &str>)| {
        let (key, value) = (BASE64.encode(record.key.unwrap_or_default()), BASE64.encode(record.value));
        fate.err().map(|error| {
            format!(
                r#"{{"error":"{error}","node":"subject","subtask":0,"timestamp":null,"key":"{key}","value":"{value}"}}"#
            )
        })
    };
    let mut expected: Vec<String> = picky_records().into_iter().filter_map(letter).collect();
    // Rejected records are told of when the others of their call are known to be good.
    letters.sort();
    expected.sort();
    assert_eq!(letters, expected);
}

#[test]
fn a_record_that_loops_is_skipped() {
    let records = keyed(&[("k", "a"), ("k", "l"), ("k", "b")]);
    let limits = Limits { call: Duration::from_millis(200), ..ample() };
    let job = GuestJob::new("picky", records).with_limits(limits).with_on_error(OnError::Skip).one_by_one();
    let ended = run(job);
    assert_eq!((ended.error, ended.skipped), (Vec::new(), 1));
    assert_eq!(ended.output, keyed(&[("k", "a:1"), ("k", "b:2")]));
}

#[test]
fn too_many_given_up() {
    let records = keyed(&[("k", "a"), ("k", "r1"), ("k", "x2"), ("k", "b"), ("k", "r3"), ("k", "x4"), ("k", "r5")]);
    let limits = Limits { skipped_per_minute: 3, ..ample() };
    for on_error in [OnError::Skip, OnError::DeadLetter] {
        let job = GuestJob::new("picky", records.clone()).with_limits(limits).with_on_error(on_error).one_by_one();
        assert_fails(
            job,
            [
                "operator subject[0] gave up 4 records within a minute, over limits.skipped-per-minute = 3; the last \
                 one is the record with key \"k\" and value \"x4\"",
                "the operator returned an error: one of these",
            ],
        );
        let enough = Limits { skipped_per_minute: 5, ..limits };
        let job = GuestJob::new("picky", records.clone()).with_limits(enough).with_on_error(on_error);
        let ended = run(job);
        assert_eq!((ended.error, ended.output), (Vec::new(), keyed(&[("k", "a:1"), ("k", "b:2")])));
    }
}

#[test]
fn a_rejected_record_fails_a_job_that_tolerates_none() {
    assert_fails(
        GuestJob::new("picky", keyed(&[("k", "a"), ("j", "b"), ("j", "r"), ("k", "c")])),
        [
            "operator subject[0] failed on the record with key \"j\" and value \"r\"",
            "the operator rejected a record: not wanted",
        ],
    );
}
