//! What a checkpoint is good for: the real binary, killed and gone on with at another parallelism, and with damaged files.

use std::fs;
use std::path::{Path, PathBuf};

use tidegate_tests::binary::{Job, Totals, files, write_lines};

/// Enough for a dozen lives of some checkpoints each.
const LINES: u64 = 1_000_000;

/// A job that reads so many keys, and what they come to.
fn job(lines: u64, keys: u64) -> (Job, Totals) {
    let job = Job::new("connector = \"file\"\npath = \"lines.csv\"\nsplit-bytes = \"4KiB\"");
    let totals = write_lines(&job.path("lines.csv"), lines, keys);
    (job, totals)
}

/// Runs a job at one parallelism after another, and kills it each time as soon as there is a new checkpoint. The sums
/// in the end are those of a job that nobody killed.
#[track_caller]
fn check_rescaled(keys: u64, parallelisms: &[u32]) {
    let (job, expected) = job(LINES, keys);
    let mut killed = 0;
    for parallelism in parallelisms {
        let set = format!("parallelism={parallelism}");
        let newest = job.newest_checkpoint();
        let mut running = job.start(&["--resume", "--set", &set], "said");
        if job.wait_for_checkpoint_above(newest, &mut running) {
            killed += 1;
        }
        let ended = running.ended();
        drop(running);
        let said = job.said("said");
        assert!(!ended || killed > 1 && !said.contains("error"), "at parallelism {parallelism}: {said}");
    }
    job.finish(&["--resume"]);
    assert!(job.totals() == expected, "{keys} keys at {parallelisms:?} after {killed} kills: the sums differ");
    assert_eq!(job.left_behind(), Vec::<PathBuf>::new());
}

#[test]
fn many_keys_move_to_more_and_to_fewer_subtasks() {
    check_rescaled(500, &[2, 1, 3, 7, 4, 2]);
}

#[test]
fn subtasks_without_a_key_come_and_go() {
    check_rescaled(2, &[2, 7, 1, 4, 3, 2]);
}

fn copy(from: &Path, to: &Path) {
    for file in files(from) {
        let target = to.join(file.strip_prefix(from).expect("a file in there"));
        fs::create_dir_all(target.parent().expect("a directory")).expect("a directory");
        fs::copy(file, target).expect("a copy");
    }
}

#[test]
fn damage_is_told_with_the_file_and_mended_by_the_file() {
    // So many keys that states are files of their own.
    let (job, expected) = job(LINES / 2, 100_000);
    let mut running = job.start(&["--set", "checkpoint.interval=100ms"], "said");
    assert!(job.wait_for_checkpoint_above(0, &mut running), "{}", job.said("said"));
    // In good order, so that hardly anything is there that is not needed.
    running.signal("-INT");
    assert_eq!(running.wait(), Some(0), "{}", job.said("said"));
    let places = ["checkpoints", "out"];
    let put_back = || {
        for place in places {
            fs::remove_dir_all(job.path(place)).expect("a directory");
            copy(&job.path("kept").join(place), &job.path(place));
        }
    };
    places.iter().for_each(|place| copy(&job.path(place), &job.path("kept").join(place)));
    let (mut told, mut snapshots) = (0, 0);
    for kept in files(&job.path("kept/checkpoints")).into_iter().filter(|file| !file.ends_with("lock")) {
        let sound = fs::read(&kept).expect("a file");
        let file = job.path("").join(kept.strip_prefix(job.path("kept")).expect("a file in there"));
        let name = file.file_name().expect("a name").to_str().expect("ASCII").to_owned();
        let mut flipped = sound.clone();
        flipped[sound.len() / 2] ^= 4;
        for damaged in [flipped, sound[..sound.len() / 2].to_vec()] {
            put_back();
            fs::write(&file, damaged).expect("a file");
            let (code, said) = job.run(&["--resume", "--set", "restart.strategy=\"none\""]);
            assert!(!said.contains("panicked"), "{said}");
            if code == Some(0) {
                // Nothing that the job goes on from.
                assert!(job.totals() == expected, "{} was damaged, and the sums differ", file.display());
            } else {
                assert!(code == Some(1) && said.contains(&name), "{}: {said}", file.display());
                told += 1;
                snapshots += u32::from(name.ends_with("-sum"));
            }
        }
    }
    assert!(told >= 6 && snapshots >= 2, "{told} of which {snapshots} are states");
    put_back();
    job.finish(&["--resume"]);
    assert!(job.totals() == expected, "the sums differ");
}

#[test]
fn what_cannot_start_fails_at_once() {
    let (job, expected) = job(100, 2);
    fs::rename(job.path("lines.csv"), job.path("elsewhere")).expect("a file");
    let (code, said) = job.run(&[]);
    assert!(code == Some(1) && said.contains("lines.csv"), "{said}");
    fs::rename(job.path("elsewhere"), job.path("lines.csv")).expect("a file");
    job.finish(&[]);
    let (code, said) = job.run(&[]);
    assert!(code == Some(1) && said.contains("is not empty"), "{said}");
    assert_eq!(job.totals(), expected);
}
