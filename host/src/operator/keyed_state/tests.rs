//! Keyed state over the memory backend against maps that do the same naively.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::operator::{Ttl, TtlRefresh};
use crate::state::MemoryBackend;

const VALUE: u32 = 3;
const LIST: u32 = 1;
const MAP: u32 = 2;
const SPLIT: u32 = 9;

/// The keys that batches are made of.
const KEYS: [&str; 5] = ["", "a", "b", "key", "another key"];

fn descriptors() -> Vec<StateDescriptor> {
    let state = |id, name: &str, kind| StateDescriptor { id, name: name.into(), kind, ttl: None, schema_version: 1 };
    vec![
        state(SPLIT, "split", StateKind::SplitList),
        state(VALUE, "value", StateKind::KeyedValue),
        state(LIST, "list", StateKind::KeyedList),
        state(MAP, "map", StateKind::KeyedMap),
    ]
}

fn state_with(budget: u64, result_limit_bytes: u64) -> KeyedState {
    let backend = MemoryBackend::new("op", descriptors(), 0..128, 128, budget);
    KeyedState::new(&descriptors(), Box::new(backend), result_limit_bytes)
}

fn keyed(keys: &[&str]) -> Option<Arc<Batch>> {
    let mut batch = Batch::new();
    keys.iter().for_each(|key| batch.push(Some(key.as_bytes()), b"", None));
    Some(Arc::new(batch))
}

fn column<S: AsRef<[u8]>>(strings: impl IntoIterator<Item = S>) -> Column {
    strings.into_iter().collect()
}

type Bytes = Vec<u8>;

/// One call of the interface; slots are taken modulo the number of slots.
#[derive(Clone, Debug)]
enum Step {
    Put(u32, Bytes),
    Store(Vec<Option<Bytes>>),
    Update(Vec<(u32, Bytes)>),
    Append(Vec<(u32, Bytes)>),
    Replace(Vec<(u32, Vec<Bytes>)>),
    PutEntries(Vec<(u32, Bytes, Bytes)>),
    RemoveEntries(Vec<(u32, Bytes)>),
    Clear(u32, Vec<u32>),
    Read,
    Scan { start: Bytes, end: Option<Bytes>, limit: u32 },
}

#[derive(Clone, Debug)]
struct ModelCall {
    keys: Vec<usize>,
    steps: Vec<Step>,
    commit: bool,
}

/// Mostly short strings, and some that are too long for a block or for a flat map.
fn bytes() -> impl Strategy<Value = Bytes> {
    let filled = |lengths| (any::<u8>(), lengths).prop_map(|(byte, len): (u8, usize)| vec![byte; len]);
    prop_oneof![8 => filled(0..20usize), 2 => filled(100..300), 1 => filled(3000..9000)]
}

/// Few enough for entries to be written again.
fn entry_key() -> impl Strategy<Value = Bytes> {
    prop::collection::vec(0u8..3, 0..3)
}

fn step() -> impl Strategy<Value = Step> {
    use prop::collection::vec;
    let slot = 0u32..5;
    prop_oneof![
        (slot.clone(), bytes()).prop_map(|(slot, value)| Step::Put(slot, value)),
        vec(prop::option::of(bytes()), 5).prop_map(Step::Store),
        vec((slot.clone(), bytes()), 0..6).prop_map(Step::Update),
        vec((slot.clone(), bytes()), 0..6).prop_map(Step::Append),
        vec((slot.clone(), vec(bytes(), 0..4)), 0..3).prop_map(Step::Replace),
        vec((slot.clone(), entry_key(), bytes()), 0..12).prop_map(Step::PutEntries),
        vec((slot.clone(), entry_key()), 0..6).prop_map(Step::RemoveEntries),
        (prop::sample::select(vec![VALUE, LIST, MAP]), vec(slot, 0..4))
            .prop_map(|(state, slots)| Step::Clear(state, slots)),
        Just(Step::Read),
        (entry_key(), prop::option::of(entry_key()), 1u32..5).prop_map(|(start, end, limit)| Step::Scan {
            start,
            end,
            limit
        }),
    ]
}

fn model_call() -> impl Strategy<Value = ModelCall> {
    let keys = prop::collection::vec(0..KEYS.len(), 1..8);
    let parts = (keys, prop::collection::vec(step(), 0..12), prop::bool::weighted(0.7));
    parts.prop_map(|(keys, steps, commit)| ModelCall { keys, steps, commit })
}

/// What each key holds.
#[derive(Clone, Debug, Default)]
struct Model {
    values: BTreeMap<usize, Bytes>,
    lists: BTreeMap<usize, Vec<Bytes>>,
    maps: BTreeMap<usize, BTreeMap<Bytes, Bytes>>,
}

impl Model {
    fn list(&self, key: usize) -> &[Bytes] {
        self.lists.get(&key).map_or(&[], Vec::as_slice)
    }

    fn entry(&self, key: usize, entry: &[u8]) -> Option<&Bytes> {
        self.maps.get(&key).and_then(|map| map.get(entry))
    }

    /// The entries from `start` up to `end` of the maps of `keys`, with the positions of the keys.
    fn scan(&self, keys: &[usize], start: &[u8], end: Option<&[u8]>) -> Vec<(u32, Bytes, Bytes)> {
        let mut found = Vec::new();
        for (position, key) in keys.iter().enumerate() {
            for (entry, value) in self.maps.get(key).into_iter().flatten() {
                if entry.as_slice() >= start && end.is_none_or(|end| entry.as_slice() < end) {
                    found.push((position as u32, entry.clone(), value.clone()));
                }
            }
        }
        found
    }
}

/// The first of each slot, so that none appears twice.
fn distinct<T: Clone>(pairs: &[(u32, T)], count: u32) -> Vec<(u32, T)> {
    let mut seen = BTreeMap::new();
    pairs.iter().for_each(|(slot, item)| {
        seen.entry(slot % count).or_insert_with(|| item.clone());
    });
    seen.into_iter().rev().collect()
}

/// Takes one step on both sides and compares what they read. `keys` are those of the slots.
fn take(step: &Step, state: &mut KeyedState, model: &mut Model, keys: &[usize]) -> Result<(), TestCaseError> {
    let count = keys.len() as u32;
    let key = |slot: u32| keys[(slot % count) as usize];
    match step {
        Step::Put(slot, value) => {
            state.put(VALUE, slot % count, value).unwrap();
            model.values.insert(key(*slot), value.clone());
        }
        Step::Store(values) => {
            let values = &values[..keys.len()];
            state.store(VALUE, values.iter().cloned().collect()).unwrap();
            for (key, value) in keys.iter().zip(values) {
                match value {
                    Some(value) => model.values.insert(*key, value.clone()),
                    None => model.values.remove(key),
                };
            }
        }
        Step::Update(updates) => {
            let slots: Vec<u32> = updates.iter().map(|(slot, _)| slot % count).collect();
            state.update(VALUE, &slots, &column(updates.iter().map(|(_, value)| value))).unwrap();
            updates.iter().for_each(|(slot, value)| {
                model.values.insert(key(*slot), value.clone());
            });
        }
        Step::Append(items) => {
            let slots: Vec<u32> = items.iter().map(|(slot, _)| slot % count).collect();
            state.append(LIST, &slots, &column(items.iter().map(|(_, item)| item))).unwrap();
            items.iter().for_each(|(slot, item)| model.lists.entry(key(*slot)).or_default().push(item.clone()));
        }
        Step::Replace(lists) => {
            let lists = distinct(lists, count);
            let slots: Vec<u32> = lists.iter().map(|(slot, _)| *slot).collect();
            let mut items = Lists::new();
            lists.iter().for_each(|(_, list)| items.push(list));
            state.replace_lists(LIST, &slots, &items).unwrap();
            lists.into_iter().for_each(|(slot, list)| {
                model.lists.insert(key(slot), list);
            });
        }
        Step::PutEntries(entries) => {
            let slots: Vec<u32> = entries.iter().map(|(slot, ..)| slot % count).collect();
            let entry_keys = column(entries.iter().map(|(_, entry, _)| entry));
            state.put_entries(MAP, &slots, &entry_keys, &column(entries.iter().map(|(.., value)| value))).unwrap();
            for (slot, entry, value) in entries {
                model.maps.entry(key(*slot)).or_default().insert(entry.clone(), value.clone());
            }
        }
        Step::RemoveEntries(entries) => {
            let slots: Vec<u32> = entries.iter().map(|(slot, _)| slot % count).collect();
            state.remove_entries(MAP, &slots, &column(entries.iter().map(|(_, entry)| entry))).unwrap();
            for (slot, entry) in entries {
                model.maps.entry(key(*slot)).or_default().remove(entry);
            }
        }
        Step::Clear(which, slots) => {
            let slots: Vec<u32> = slots.iter().map(|slot| slot % count).collect();
            state.clear(*which, &slots).unwrap();
            for &slot in &slots {
                match *which {
                    VALUE => drop(model.values.remove(&key(slot))),
                    LIST => drop(model.lists.remove(&key(slot))),
                    _ => drop(model.maps.remove(&key(slot))),
                }
            }
        }
        Step::Read => compare(state, model, keys)?,
        Step::Scan { start, end, limit } => scan_in_pages(state, model, keys, start, end.as_deref(), *limit)?,
    }
    Ok(())
}

/// Reads all there is of the keys and compares it.
fn compare(state: &mut KeyedState, model: &Model, keys: &[usize]) -> Result<(), TestCaseError> {
    let all: Vec<u32> = (0..keys.len() as u32).collect();
    let values: OptionalColumn = keys.iter().map(|key| model.values.get(key)).collect();
    prop_assert_eq!(&state.load(VALUE).unwrap(), &values);
    // Twice each, and backwards.
    let slots: Vec<u32> = all.iter().rev().chain(&all).copied().collect();
    let some: OptionalColumn = slots.iter().map(|&slot| model.values.get(&keys[slot as usize])).collect();
    prop_assert_eq!(&state.load_some(VALUE, &slots).unwrap(), &some);
    prop_assert_eq!(state.get(VALUE, 0).unwrap(), model.values.get(&keys[0]).cloned());

    let mut lists = Lists::new();
    keys.iter().for_each(|key| lists.push(model.list(*key)));
    prop_assert_eq!(state.load_lists(LIST, &all).unwrap(), lists);

    let entry_keys: Vec<Bytes> = (0..3u8).flat_map(|one| [vec![one], vec![one, 1], vec![]]).collect();
    let slots: Vec<u32> = all.iter().flat_map(|&slot| entry_keys.iter().map(move |_| slot)).collect();
    let named = column(all.iter().flat_map(|_| &entry_keys));
    let expected: OptionalColumn =
        slots.iter().zip(named.iter()).map(|(&slot, entry)| model.entry(keys[slot as usize], entry)).collect();
    prop_assert_eq!(state.get_entries(MAP, &slots, &named).unwrap(), expected);
    scan_in_pages(state, model, keys, &[], None, 1000)
}

fn scan_in_pages(
    state: &mut KeyedState,
    model: &Model,
    keys: &[usize],
    start: &[u8],
    end: Option<&[u8]>,
    limit: u32,
) -> Result<(), TestCaseError> {
    let slots = (0..keys.len() as u32).rev().collect();
    let scan = EntryScan { slots, start: start.to_vec(), end: end.map(<[u8]>::to_vec) };
    let (mut found, mut resume) = (Vec::new(), None);
    loop {
        let page = state.scan_entries(MAP, &scan, resume.as_ref(), limit).unwrap();
        prop_assert!(page.positions.len() <= limit as usize);
        let entries = page.keys.iter().zip(page.values.iter());
        for (&position, (key, value)) in page.positions.iter().zip(entries) {
            found.push((position, key.to_vec(), value.to_vec()));
        }
        if page.next.is_none() {
            break;
        }
        prop_assert!(!page.positions.is_empty(), "a page in the middle has entries");
        resume = page.next;
    }
    let backwards: Vec<usize> = keys.iter().rev().copied().collect();
    prop_assert_eq!(found, model.scan(&backwards, start, end));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    /// Keyed state is a map per state: calls that are committed change it, calls that are abandoned do not, and a call
    /// sees what it wrote.
    #[test]
    fn state_is_what_was_committed(calls in prop::collection::vec(model_call(), 1..10)) {
        let mut state = state_with(u64::MAX, 16 << 20);
        let mut model = Model::default();
        for call in calls {
            let names: Vec<&str> = call.keys.iter().map(|&key| KEYS[key]).collect();
            state.begin(keyed(&names), true);
            let mut keys: Vec<usize> = Vec::new();
            for &key in &call.keys {
                if !keys.contains(&key) {
                    keys.push(key);
                }
            }
            let mut changed = model.clone();
            for step in &call.steps {
                take(step, &mut state, &mut changed, &keys)?;
            }
            compare(&mut state, &changed, &keys)?;
            if call.commit {
                state.commit().unwrap();
                model = changed;
            } else {
                state.abandon();
            }
        }
        let all: Vec<usize> = (0..KEYS.len()).collect();
        state.begin(keyed(&KEYS), true);
        compare(&mut state, &model, &all)?;
        // What is removed costs nothing.
        let slots: Vec<u32> = (0..KEYS.len() as u32).collect();
        [VALUE, LIST, MAP].into_iter().for_each(|which| state.clear(which, &slots).unwrap());
        state.commit().unwrap();
        prop_assert_eq!(state.byte_size(), 0);
    }
}

/// What broke, as the user reads it.
fn broken<T: fmt::Debug>(result: Result<T, Fault>) -> String {
    match result.unwrap_err() {
        Fault::Guest(fault) => fault.to_string().replace("the operator broke the contract: ", ""),
        fault => panic!("{fault:?} is no guest's fault"),
    }
}

#[test]
fn without_keys_there_is_no_keyed_state() {
    let mut state = state_with(u64::MAX, 1000);
    for (batch, place) in [(None, "outside process"), (Some(unkeyed()), "on an input without keys")] {
        state.begin(batch, true);
        let one = column(["x"]);
        let scan = EntryScan { slots: vec![0], start: vec![], end: None };
        let broken_by = [
            ("get", broken(state.get(VALUE, 0))),
            ("put", broken(state.put(VALUE, 0, b""))),
            ("load", broken(state.load(VALUE))),
            ("load-some", broken(state.load_some(VALUE, &[0]))),
            ("store", broken(state.store(VALUE, OptionalColumn::new()))),
            ("update", broken(state.update(VALUE, &[0], &one))),
            ("clear", broken(state.clear(VALUE, &[0]))),
            ("load-lists", broken(state.load_lists(LIST, &[0]))),
            ("append", broken(state.append(LIST, &[0], &one))),
            ("replace-lists", broken(state.replace_lists(LIST, &[0], &Lists::new()))),
            ("get-entries", broken(state.get_entries(MAP, &[0], &one))),
            ("put-entries", broken(state.put_entries(MAP, &[0], &one, &one))),
            ("remove-entries", broken(state.remove_entries(MAP, &[0], &one))),
            ("scan-entries", broken(state.scan_entries(MAP, &scan, None, 1))),
        ];
        for (function, message) in broken_by {
            assert_eq!(message, format!("{function} cannot be called {place}"));
        }
    }
    state.begin(Some(unkeyed()), true);
    assert_eq!(state.slots().unwrap(), [0u32; 0]);
    state.begin(None, true);
    assert_eq!(broken(state.slots()), "slots cannot be called outside process");
}

fn unkeyed() -> Arc<Batch> {
    let mut batch = Batch::new();
    batch.push(None, b"v", None);
    Arc::new(batch)
}

#[test]
fn rules_are_checked() {
    let mut state = state_with(u64::MAX, 1000);
    state.begin(keyed(&["a", "b", "a"]), true);
    assert_eq!(state.slots().unwrap(), [0, 1, 0]);
    let (one, two) = (column(["x"]), column(["x", "y"]));
    let out_of_range = "slot 2 is out of range: this call has 2";
    assert_eq!(broken(state.load(77)), "state 77 was not declared in the descriptor");
    assert_eq!(broken(state.load(LIST)), "state list is a list per key, which this call cannot use");
    assert_eq!(broken(state.append(MAP, &[0], &one)), "state map is a map per key, which this call cannot use");
    assert!(broken(state.clear(SPLIT, &[0])).contains("belongs to no key"));
    assert_eq!(broken(state.get(VALUE, 2)), out_of_range);
    assert_eq!(broken(state.put(VALUE, 2, b"")), out_of_range);
    assert_eq!(broken(state.load_some(VALUE, &[0, 2])), out_of_range);
    assert_eq!(broken(state.update(VALUE, &[0, 2], &two)), out_of_range);
    assert_eq!(broken(state.clear(VALUE, &[u32::MAX])), "slot 4294967295 is out of range: this call has 2");
    assert_eq!(broken(state.update(VALUE, &[0], &two)), "slots and values: 1 and 2 must be equal");
    assert_eq!(
        broken(state.store(VALUE, [Some("x")].into_iter().collect())),
        "slots and values: 2 and 1 must be equal"
    );
    assert_eq!(broken(state.append(LIST, &[0], &two)), "slots and items: 1 and 2 must be equal");
    assert_eq!(broken(state.load_lists(LIST, &[1, 0, 1])), "slot 1 appears twice");
    let mut lists = Lists::new();
    [["x"], ["y"]].into_iter().for_each(|list| lists.push(list));
    assert_eq!(broken(state.replace_lists(LIST, &[1, 1], &lists)), "slot 1 appears twice");
    assert_eq!(broken(state.replace_lists(LIST, &[1], &lists)), "slots and lists: 1 and 2 must be equal");
    assert_eq!(broken(state.get_entries(MAP, &[0], &two)), "slots and keys: 1 and 2 must be equal");
    assert_eq!(broken(state.put_entries(MAP, &[0], &one, &two)), "slots and values: 1 and 2 must be equal");
    assert_eq!(broken(state.remove_entries(MAP, &[2], &one)), out_of_range);
    let scan = EntryScan { slots: vec![0], start: b"m".to_vec(), end: None };
    assert!(broken(state.scan_entries(MAP, &scan, None, 0)).contains("limit 0"));
    for (position, key) in [(1, "x"), (0, "a")] {
        let cursor = EntryCursor { position, key: key.into() };
        assert!(broken(state.scan_entries(MAP, &scan, Some(&cursor), 1)).contains("not of this scan"));
    }
    // Nothing of all this was written.
    assert_eq!(state.load(VALUE).unwrap(), [None::<&str>, None].into_iter().collect());
}

/// A result must fit the guest, wherever its parts come from.
#[test]
fn results_are_bounded() {
    let mut state = state_with(u64::MAX, 1000);
    let fill = |state: &mut KeyedState| {
        state.begin(keyed(&["a", "b"]), true);
        let big = vec![7; 600];
        let both = column([&big, &big]);
        state.update(VALUE, &[0, 1], &both).unwrap();
        state.append(LIST, &[0, 1], &both).unwrap();
        state.put_entries(MAP, &[0, 1], &column(["k", "k"]), &both).unwrap();
    };
    let check = |state: &mut KeyedState| {
        assert_eq!(
            broken(state.load(VALUE)),
            "load would take 1200 bytes, over the limit of 1000: ask for less at once"
        );
        assert!(broken(state.load_some(VALUE, &[0, 0])).starts_with("load-some would take"));
        assert!(broken(state.load_lists(LIST, &[0, 1])).starts_with("load-lists would take"));
        assert!(broken(state.get_entries(MAP, &[0, 1], &column(["k", "k"]))).starts_with("get-entries would take"));
        assert_eq!(state.load_some(VALUE, &[1]).unwrap().len(), 1);
        let scan = EntryScan { slots: vec![0, 1], start: vec![], end: None };
        let page = state.scan_entries(MAP, &scan, None, 10).unwrap();
        assert_eq!((page.positions.as_slice(), page.next.is_some()), (&[0][..], true));
    };
    fill(&mut state);
    check(&mut state);
    state.commit().unwrap();
    state.begin(keyed(&["a", "b"]), true);
    check(&mut state);
    state.put_entries(MAP, &[0], &column(["k"]), &column([vec![7; 1001]])).unwrap();
    let scan = EntryScan { slots: vec![0], start: vec![], end: None };
    assert!(broken(state.scan_entries(MAP, &scan, None, 10)).starts_with("scan-entries would take 1002 bytes"));
}

#[test]
fn what_a_call_stages_is_bounded() {
    let mut state = state_with(u64::MAX, 1000);
    state.begin(keyed(&["a"]), true);
    let item = column([vec![7; 16 << 20]]);
    let fault = (0..100).find_map(|_| state.append(LIST, &[0], &item).err()).unwrap();
    assert!(matches!(fault, Fault::Guest(GuestFault::TooMuchData { limit: STAGED_LIMIT_BYTES })), "{fault:?}");
    // Writing one value over and over is not staging more and more.
    state.begin(keyed(&["a"]), true);
    (0..1000).for_each(|_| state.put(VALUE, 0, item.get(0)).unwrap());
}

#[test]
fn a_budget_is_the_hosts_business() {
    let mut state = state_with(5000, 1 << 20);
    state.begin(keyed(&["a"]), true);
    state.put(VALUE, 0, &[7; 4000]).unwrap();
    state.commit().unwrap();
    let held = state.byte_size();
    assert!((4000..5000).contains(&held), "{held}");
    state.begin(keyed(&["b"]), true);
    state.put(VALUE, 0, &[7; 4000]).unwrap();
    let error = state.commit().unwrap_err();
    assert!(error.to_string().contains("over its budget of 5000"), "{error}");
}

#[test]
#[should_panic(expected = "the backend was made for the declared states")]
fn a_backend_of_other_states_is_refused() {
    let mut others = descriptors();
    others[1].ttl = Some(Ttl { duration: Duration::from_secs(1), refresh: TtlRefresh::OnWrite });
    let backend = MemoryBackend::new("op", others, 0..128, 128, u64::MAX);
    let _ = KeyedState::new(&descriptors(), Box::new(backend), 1000);
}

#[test]
#[should_panic(expected = "but owns 0..1")]
fn keys_of_other_subtasks_are_refused() {
    let backend = MemoryBackend::new("op", descriptors(), 0..1, 128, u64::MAX);
    let mut state = KeyedState::new(&descriptors(), Box::new(backend), 1000);
    state.begin(keyed(&KEYS), true);
    let _ = state.load(VALUE);
}

#[test]
fn keys_that_were_not_placed_are_out_of_reach() {
    let mut state = state_with(1 << 20, 1 << 20);
    state.begin(keyed(&["a"]), false);
    assert_eq!(state.slots().unwrap(), [0u32; 0]);
    assert_eq!(broken(state.load(VALUE)), "load cannot be called on an input that is not partitioned by key");
}
