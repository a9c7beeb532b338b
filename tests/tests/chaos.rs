//! A process that is killed at any moment loses nothing and repeats nothing: the real binary, `kill -9`, `--resume`.
//!
//! The output of a keyed sum that was killed again and again must be, line for line once sorted, that of one that was
//! left alone. `TIDEGATE_KILLS` says how often it is killed; the default is for every day.

use std::time::Duration;

use tempfile::TempDir;
use tidegate::random::Random;
use tidegate_tests::binary::Job;

/// How often the process is killed unless the environment says otherwise.
const KILLS: u64 = 25;

/// At first a process lives at most so long, so that some die before their first checkpoint and some after several. On
/// a machine on which that is too short for any checkpoint, lives get longer.
const LONGEST_LIFE_MS: u64 = 450;

/// How many records come per second while processes are killed.
const RATE: u64 = 4_000;

const JOB: &str = r#"
name = "chaos"

[checkpoint]
interval = "100ms"
storage = "file:checkpoints"

[sources.lines]
connector = "generator"
kind = "keyed-uniform"
format = "line"
keys = 500
records = RECORDS

[operators.parse]
component = "EXAMPLES/keyed-sum/parse.wasm"
input = "lines"

[operators.sum]
component = "EXAMPLES/keyed-sum/sum.wasm"
input = { from = "parse", partition = "hash" }
parallelism = 2

[sinks.out]
connector = "file"
input = "sum"
path = "out"
"#;

#[expect(clippy::disallowed_methods, reason = "the other process runs on the machine's own time")]
fn wait(time: Duration) {
    std::thread::sleep(time);
}

#[test]
fn a_job_that_is_killed_again_and_again_loses_nothing_and_repeats_nothing() {
    let kills = std::env::var("TIDEGATE_KILLS").map_or(KILLS, |kills| kills.parse().expect("a number"));
    let seed = std::env::var("TIDEGATE_SEED").map_or(1, |seed| seed.parse().expect("a number"));
    // Far more than come through while it is killed, so that it is never finished before.
    let records = RATE * kills * LONGEST_LIFE_MS / 1000 * 2;
    // Lives are not spent on compiling.
    let cache = TempDir::new().expect("a directory for the test");
    let job = || Job::from_text(&JOB.replace("RECORDS", &records.to_string())).with_cache(cache.path());
    let calm = job();
    calm.finish(&[]);
    let expected = calm.committed();
    assert_eq!(expected.len() as u64, records);

    let (chaos, mut random) = (job(), Random::new(seed));
    let (mut killed, mut longest_ms, mut fruitless, mut committed) = (0, LONGEST_LIFE_MS, 0, 0);
    while killed < kills {
        let rate = format!("sources.lines.rate={RATE}");
        let mut process = chaos.start(&["--resume", "--set", &rate], "said");
        wait(Duration::from_millis(random.below(longest_ms)));
        if process.ended() {
            // On a slow machine lives get so long that the job comes to its end before the last kill.
            let (code, said) = (process.wait(), chaos.said("said"));
            assert!(
                code == Some(0) && killed >= kills / 2,
                "seed {seed}: after {killed} kills it ended by itself: {code:?}, {said}"
            );
            break;
        }
        // Kills it, and waits until it is gone.
        drop(process);
        killed += 1;
        // What others see at any time is never more than the whole, and nothing twice.
        let seen = chaos.committed();
        let twice = seen.windows(2).find(|pair| pair[0] == pair[1]);
        assert_eq!(twice, None, "seed {seed}: after {killed} kills");
        let unknown = seen.iter().find(|line| expected.binary_search(line).is_err());
        assert_eq!(unknown, None, "seed {seed}: after {killed} kills");
        fruitless = if seen.len() > committed { 0 } else { fruitless + 1 };
        committed = seen.len();
        if fruitless == 3 {
            (longest_ms, fruitless) = (longest_ms * 3 / 2, 0);
        }
    }
    assert!(committed > 0, "seed {seed}: no checkpoint was ever completed");
    chaos.finish(&["--resume"]);
    assert!(chaos.committed() == expected, "seed {seed}: the output differs from that of a job left alone");
}
