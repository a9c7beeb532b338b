//! Putting a file whose fate must be known: an ambiguous answer is settled by reading back.
//!
//! Such files carry a random number of their writer, so equal bytes are the writer's own. On a store where a put may
//! still be applied after it was answered with an error, only a file at the path settles it: as long as there is none,
//! the put is tried again, and in the end its fate is unknown.

use std::time::Duration;

use bytes::Bytes;

use super::storage::{Storage, StorageError, StorageFailure};
use crate::clock::Clock;

/// How often a file is tried to be put.
const TRIES: u32 = 5;

/// How long the first pause between two tries is; each is twice the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// What became of a file.
#[derive(Debug)]
pub(super) enum Settled {
    /// It is there.
    Ours,
    /// Another one is there, with these bytes, and this one never will be.
    Theirs(Bytes),
    /// It may be there or may still come.
    Unknown(StorageError),
}

/// Puts a file and finds out what became of it.
pub(super) async fn put(storage: &dyn Storage, clock: &dyn Clock, path: &str, bytes: &Bytes) -> Settled {
    let mut pause = FIRST_PAUSE;
    for tries_left in (0..TRIES).rev() {
        let Err(put_error) = storage.put_new(path, bytes.clone()).await else { return Settled::Ours };
        let error = match storage.get(path).await {
            Ok(found) if found == *bytes => return Settled::Ours,
            Ok(found) => return Settled::Theirs(found),
            Err(error) if error.failure == StorageFailure::NotFound => put_error,
            Err(error) => error,
        };
        if tries_left == 0 {
            return Settled::Unknown(error);
        }
        clock.sleep(pause).await;
        pause *= 2;
    }
    unreachable!("the last try returns")
}
