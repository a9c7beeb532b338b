//! The sections `[checkpoint]` and `[state]`: how a job takes checkpoints, where they are, and where state is kept.
//!
//! The two are read together since a backend may say where checkpoints are: the old spellings of Flink do.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::error::Problem;
use super::section::{Field, Positive, Section, Wrong, word};
use super::storage_url;
use super::units::{ByteSize, HumanDuration};
use super::value::{Layer, SourceText, Value};
use crate::api::{CheckpointMode, CheckpointSettings, Retention, StorageLocation};

/// Where checkpoints are unless somebody says otherwise, beside the job file.
const DEFAULT_STORAGE: &str = "file:.tidegate/checkpoints";

/// The shortest interval and timeout. Below it, a job does little but take checkpoints.
const SHORTEST: Duration = Duration::from_millis(10);

/// What is said of that which later versions have.
const NOT_AVAILABLE: &str = "not available in this version of tidegate";

/// What the section `[state]` says.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StateSection {
    /// What the keyed state of a subtask may take, if it says so.
    pub(super) budget: Option<ByteSize>,
    /// Where checkpoints are, if it says so, and who says it.
    place: Option<(ImpliedPlace, Layer)>,
}

/// A backend that says where checkpoints are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ImpliedPlace {
    /// `jobmanager`.
    Memory,
    /// `filesystem`.
    Files,
}

/// Reads `[state]`.
pub(super) fn read_state(mut state: Section<'_>, job: &Arc<SourceText>, problems: &mut Vec<Problem>) -> StateSection {
    let place = state.optional::<Backend>("backend").and_then(|backend| backend.0);
    let place = place.zip(state.origin_of("backend").map(|origin| origin.layer(job)));
    if state.optional::<bool>("incremental") == Some(true) {
        let origin = state.origin_of("incremental").expect("it was read");
        let message = format!("incremental checkpoints are {NOT_AVAILABLE}");
        state.report(Problem::new(state.path_of("incremental"), message).help("remove it").at(origin));
    }
    let budget = state.optional::<Positive>("budget").map(|size| size.0);
    state.finish(problems);
    StateSection { budget, place }
}

/// Reads `[checkpoint]`. None if it has no interval, which is a mistake unless all of it is defaults of the host.
pub(super) fn read_checkpoint(
    mut fields: Section<'_>,
    state: &StateSection,
    job: &Arc<SourceText>,
    base_dir: &Path,
    problems: &mut Vec<Problem>,
) -> Option<CheckpointSettings> {
    let asks = fields.origin().layer(job) > Layer::Host;
    if asks {
        fields.require("interval", "interval = \"10s\", the time from one checkpoint to the next");
    }
    let wanted = asks || fields.peek("interval").is_some();
    let interval = fields.optional::<LongEnough>("interval").map_or(SHORTEST, |interval| interval.0);
    let storage = read_storage(&mut fields, state, job, base_dir);
    let mut settings = CheckpointSettings::new(interval, storage);
    let set = |field: &mut Duration, read: Option<Duration>| *field = read.unwrap_or(*field);
    set(&mut settings.min_pause, fields.optional::<HumanDuration>("min-pause").map(|pause| pause.0));
    set(&mut settings.timeout, fields.optional::<LongEnough>("timeout").map(|timeout| timeout.0));
    settings.mode = fields.optional("mode").unwrap_or_default();
    settings.retain = fields.optional("retain").unwrap_or_default();
    settings.keep = fields.optional::<u32>("keep").unwrap_or(settings.keep);
    let tolerable = fields.optional::<Tolerable>("tolerable-failures");
    settings.tolerable_failures = tolerable.map_or(settings.tolerable_failures, |failures| failures.0);
    refuse_later_fields(&mut fields);
    fields.finish(problems);
    wanted.then_some(settings)
}

fn read_storage(
    fields: &mut Section<'_>,
    state: &StateSection,
    job: &Arc<SourceText>,
    base_dir: &Path,
) -> StorageLocation {
    let default = match state.place {
        Some((ImpliedPlace::Memory, _)) => StorageLocation::Memory,
        Some((ImpliedPlace::Files, _)) | None => {
            // Should the current directory be gone, the job file could not have been read.
            storage_url::parse(DEFAULT_STORAGE, base_dir).unwrap_or(StorageLocation::Memory)
        }
    };
    let path = fields.path_of("storage");
    let Some(located) = fields.raw("storage") else { return default };
    let problem = match &located.value {
        Value::String(text) => match storage_url::parse(text, base_dir) {
            Ok(place) => match state.contradicts(&place) {
                Some((_, layer)) if located.origin.layer(job) < layer => return default,
                Some((backend, layer)) if located.origin.layer(job) == layer => {
                    Problem::new(path, backend).help("use backend = \"memory\": then storage alone says where they are")
                }
                _ => return place,
            },
            Err(error) => Problem::new(path, error.message).expected(error.expected).help(error.help),
        },
        other => Wrong::found(other, storage_url::EXPECTED).problem(&path),
    };
    fields.report(problem.at(located.origin.clone()));
    default
}

impl StateSection {
    /// What a backend says that does not go with a place for checkpoints, and who says it.
    fn contradicts(&self, place: &StorageLocation) -> Option<(&'static str, Layer)> {
        match (place, self.place?) {
            (StorageLocation::Directory(_), (ImpliedPlace::Memory, layer)) => {
                Some(("state.backend = \"jobmanager\" keeps checkpoints in memory, not in files", layer))
            }
            (StorageLocation::Memory, (ImpliedPlace::Files, layer)) => {
                Some(("state.backend = \"filesystem\" keeps checkpoints in files, not in memory", layer))
            }
            _ => None,
        }
    }
}

/// Refuses what later versions have, unless it says what this version does anyway.
fn refuse_later_fields(fields: &mut Section<'_>) {
    let refuse = |fields: &mut Section<'_>, name: &str, what: &str, help: &str| {
        let origin = fields.origin_of(name).expect("it was read");
        let problem = Problem::new(fields.path_of(name), format!("{what} {NOT_AVAILABLE}"));
        fields.report(problem.help(help).at(origin));
    };
    if fields.optional::<u32>("max-concurrent").is_some_and(|number| number > 1) {
        let what = "more than one checkpoint at a time is";
        refuse(fields, "max-concurrent", what, "remove it: the next checkpoint begins when the last one is over");
    }
    let (what, help) = ("unaligned checkpoints are", "remove it: barriers are aligned");
    if fields.optional::<bool>("unaligned") == Some(true) {
        refuse(fields, "unaligned", what, help);
    }
    if fields.optional::<HumanDuration>("aligned-timeout").is_some_and(|timeout| !timeout.0.is_zero()) {
        refuse(fields, "aligned-timeout", what, help);
    }
}

/// A backend, by what it says about the place of checkpoints.
struct Backend(Option<ImpliedPlace>);

impl Field for Backend {
    fn read(value: &Value) -> Result<Self, Wrong> {
        let words = [
            ("memory", Ok(None)),
            ("hashmap", Ok(None)),
            ("jobmanager", Ok(Some(ImpliedPlace::Memory))),
            ("filesystem", Ok(Some(ImpliedPlace::Files))),
            ("rocksdb", Err("backend \"rocksdb\" is")),
        ];
        match word(value, &words) {
            Ok(Ok(place)) => Ok(Self(place)),
            Ok(Err(what)) => Err(Wrong::refused(format!("{what} {NOT_AVAILABLE}"), "\"memory\"")),
            Err(_) => Err(Wrong::found(value, "\"memory\"")),
        }
    }
}

impl Field for CheckpointMode {
    fn read(value: &Value) -> Result<Self, Wrong> {
        word(value, &[("exactly-once", Self::ExactlyOnce), ("at-least-once", Self::AtLeastOnce)])
    }
}

impl Field for Retention {
    fn read(value: &Value) -> Result<Self, Wrong> {
        let all = [("on-cancellation", Self::OnCancellation), ("on-failure", Self::OnFailure), ("never", Self::Never)];
        word(value, &all)
    }
}

/// A duration that is not too short for a checkpoint.
struct LongEnough(Duration);

impl Field for LongEnough {
    fn read(value: &Value) -> Result<Self, Wrong> {
        let duration = HumanDuration::read(value)?.0;
        let shortest = || format!("at least {:?}", HumanDuration(SHORTEST).to_string());
        if duration < SHORTEST { Err(Wrong::found(value, shortest())) } else { Ok(Self(duration)) }
    }
}

/// A number of failures, 0 too.
struct Tolerable(u32);

impl Field for Tolerable {
    fn read(value: &Value) -> Result<Self, Wrong> {
        match value {
            Value::Integer(number) => u32::try_from(*number).ok().map(Self),
            _ => None,
        }
        .ok_or_else(|| Wrong::found(value, format!("a whole number from 0 to {}", u32::MAX)))
    }
}
