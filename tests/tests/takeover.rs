//! Two processes and one job: whoever takes it over gives the one result, and the other learns it and does no harm.

use tidegate_tests::binary::Job;

const SOURCE: &str = r#"
connector = "generator"
kind = "keyed-uniform"
format = "line"
keys = 100
records = 20000
"#;

/// The first process has written a third at least by the time at which its checkpoints are waited for, and would need a
/// second for all.
const SLOWLY: [&str; 2] = ["--set", "sources.lines.rate=20000"];

/// When the process that was stopped goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Woken {
    WhileTheOtherRuns,
    AfterTheOther,
}

#[track_caller]
fn check(woken: Woken) {
    let calm = Job::new(SOURCE);
    calm.finish(&[]);
    let job = Job::new(SOURCE);
    let mut first = job.start(&SLOWLY, "first");
    assert!(job.wait_for_checkpoint_above(3, &mut first), "{}", job.said("first"));
    first.signal("-STOP");

    let (code, said) = job.run(&["--resume"]);
    assert!(code == Some(1) && said.contains("--takeover"), "{said}");

    let mut second = job.start(&[&["--resume", "--takeover"][..], &SLOWLY[..]].concat(), "second");
    if woken == Woken::WhileTheOtherRuns {
        let newest = job.newest_checkpoint();
        assert!(job.wait_for_checkpoint_above(newest, &mut second), "{}", job.said("second"));
        first.signal("-CONT");
    }
    assert_eq!(second.wait(), Some(0), "{}", job.said("second"));
    if woken == Woken::AfterTheOther {
        first.signal("-CONT");
    }
    assert_eq!(first.wait(), Some(1), "{}", job.said("first"));
    assert!(job.said("first").contains("another process has taken the job over"), "{}", job.said("first"));
    assert_eq!(job.totals(), calm.totals(), "{woken:?}");

    // It is finished, whatever the first one left.
    job.finish(&["--resume"]);
    assert_eq!(job.totals(), calm.totals(), "{woken:?}");
}

#[test]
fn a_process_that_wakes_up_while_another_has_its_job_ends() {
    check(Woken::WhileTheOtherRuns);
}

#[test]
fn a_process_that_wakes_up_when_another_has_done_its_job_ends() {
    check(Woken::AfterTheOther);
}
