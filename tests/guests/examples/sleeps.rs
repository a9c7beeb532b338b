//! Sleeps for as many milliseconds as its one record says, and returns how long that took by both clocks.

use tidegate_test_guests::*;

use std::time::{Duration, Instant, SystemTime};

struct Hostile;

impl Operator for Hostile {
    fn process(_: u32, records: Batch) -> Result<(), Failure> {
        let millis: u64 = String::from_utf8_lossy(string(&records.values, 0)).parse().unwrap();
        let (start, wall) = (Instant::now(), SystemTime::now());
        std::thread::sleep(Duration::from_millis(millis));
        let (slept, wall) = (start.elapsed(), SystemTime::now().duration_since(wall));
        Err(Failure { message: format!("slept {slept:?}, wall clock {wall:?}"), position: None })
    }
}

guest!(Hostile);
