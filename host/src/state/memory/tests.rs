//! The memory backend against sorted maps, under all that can come between: freezes, snapshots read late or dropped
//! half-way, merges.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::random::Random;

const GROUPS: u32 = 4;
const VALUES: StateIndex = StateIndex(0);
const LISTS: StateIndex = StateIndex(1);
const MAPS: StateIndex = StateIndex(2);

type Bytes = Vec<u8>;

/// What a backend should hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Model {
    values: BTreeMap<Bytes, Bytes>,
    lists: BTreeMap<Bytes, Vec<Bytes>>,
    maps: BTreeMap<Bytes, BTreeMap<Bytes, Bytes>>,
}

#[derive(Clone, Debug)]
enum Step {
    Values(BTreeMap<u8, Option<u16>>),
    Append(BTreeMap<u8, Vec<u16>>),
    Entries(Vec<(u8, u8, Option<u16>)>),
    Clear(u8, Vec<u8>),
    Freeze,
    /// Reads on in a snapshot.
    Read(u8, usize),
    Drop(u8),
    Merge(usize),
}

/// A snapshot, what it should hold, and what was read from it.
struct Held {
    frozen: Box<dyn FrozenState>,
    expected: Model,
    read: Model,
    place: Option<Place>,
}

fn backend() -> MemoryBackend {
    let state =
        |id: u32, name: &str, kind| StateDescriptor { id, name: name.into(), kind, ttl: None, schema_version: 1 };
    let states = vec![
        state(0, "values", StateKind::KeyedValue),
        state(1, "lists", StateKind::KeyedList),
        state(2, "maps", StateKind::KeyedMap),
    ];
    MemoryBackend::new("op", states, 0..GROUPS, GROUPS, u64::MAX)
}

/// Key 0 is too long for a small record.
fn key(number: u8) -> Bytes {
    vec![number; if number == 0 { 5000 } else { 1 + usize::from(number) % 20 }]
}

/// A string of this length, which tells others of the same length apart as far as one byte does.
fn string(len: u16) -> Bytes {
    vec![len as u8; usize::from(len)]
}

/// Calls `access` with these keys.
fn with_keys<T>(keys: &[Bytes], access: impl FnOnce(Keys<'_>) -> T) -> T {
    let column: Column = keys.iter().collect();
    let hashes: Vec<u64> = keys.iter().map(|key| key_group::hash(key)).collect();
    let positions: Vec<u32> = (0..u32::try_from(keys.len()).unwrap()).collect();
    access(Keys { column: &column, hashes: &hashes, positions: &positions })
}

fn write_values(backend: &mut MemoryBackend, writes: &[(Bytes, Option<Bytes>)]) {
    let keys: Vec<Bytes> = writes.iter().map(|write| write.0.clone()).collect();
    let values: OptionalColumn = writes.iter().map(|write| write.1.as_ref()).collect();
    with_keys(&keys, |keys| backend.write_values(VALUES, keys, &values)).unwrap();
}

fn append(backend: &mut MemoryBackend, writes: &[(Bytes, Vec<Bytes>)]) {
    let keys: Vec<Bytes> = writes.iter().map(|write| write.0.clone()).collect();
    let mut lists = Lists::new();
    writes.iter().for_each(|write| lists.push(&write.1));
    with_keys(&keys, |keys| backend.append_lists(LISTS, keys, &lists)).unwrap();
}

fn write_entries(backend: &mut MemoryBackend, writes: &[(Bytes, Bytes, Option<Bytes>)]) {
    let keys: Vec<Bytes> = writes.iter().map(|write| write.0.clone()).collect();
    let entry_keys: Column = writes.iter().map(|write| &write.1).collect();
    let values: OptionalColumn = writes.iter().map(|write| write.2.as_ref()).collect();
    with_keys(&keys, |keys| backend.write_entries(MAPS, keys, &entry_keys, &values)).unwrap();
}

impl Model {
    fn take(&mut self, key: &[u8], payload: Payload<'_>) {
        match payload {
            Payload::Value(value) => assert!(self.values.insert(key.into(), value.into()).is_none()),
            Payload::Items(items) => {
                self.lists.entry(key.into()).or_default().extend(items.strings().map(Bytes::from));
            }
            Payload::Entries(entries) => {
                let mut strings = entries.strings();
                while let Some(entry) = strings.next() {
                    let value = strings.next().expect("each key has a value").to_vec();
                    let map = self.maps.entry(key.into()).or_default();
                    assert!(map.last_key_value().is_none_or(|last| **last.0 < *entry), "entries rise");
                    map.insert(entry.into(), value);
                }
            }
        }
    }

    fn write(&mut self, writes: &[(Bytes, Bytes, Option<Bytes>)]) {
        for (key, entry, value) in writes {
            let map = self.maps.entry(key.clone()).or_default();
            match value {
                Some(value) => drop(map.insert(entry.clone(), value.clone())),
                None => drop(map.remove(entry)),
            }
            if map.is_empty() {
                self.maps.remove(key);
            }
        }
    }
}

/// Checks that all reads of these keys give what the model has.
fn check(backend: &mut MemoryBackend, model: &Model, keys: &[Bytes], scans: impl Fn(&Bytes) -> bool) {
    with_keys(keys, |probe| {
        let mut values = OptionalColumn::new();
        backend.load_values(VALUES, probe, u64::MAX, &mut values).unwrap();
        let mut lists = Lists::new();
        backend.load_lists(LISTS, probe, u64::MAX, &mut lists).unwrap();
        for (position, key) in keys.iter().enumerate() {
            assert_eq!(values.get(position), model.values.get(key).map(Vec::as_slice));
            let list: Vec<&[u8]> = lists.get(position).collect();
            assert_eq!(
                list,
                model.lists.get(key).map(|list| list.iter().map(Vec::as_slice).collect()).unwrap_or(vec![])
            );
        }
    });
    let none = BTreeMap::new();
    for key in keys.iter().filter(|key| scans(key)) {
        let expected = model.maps.get(key).unwrap_or(&none);
        let mut found = BTreeMap::new();
        let mut start = Bytes::new();
        loop {
            let scan = |probe: Keys<'_>| backend.scan_entries(MAPS, probe, &start, None, 7, usize::MAX).unwrap();
            let page = with_keys(std::slice::from_ref(key), scan);
            found.extend(page.keys.iter().map(<[u8]>::to_vec).zip(page.values.iter().map(<[u8]>::to_vec)));
            if !page.more {
                break;
            }
            start = page.keys.iter().last().unwrap().to_vec();
            start.push(0);
        }
        assert_eq!(&found, expected);
        let entries: Vec<Bytes> = (0..=20).map(string).collect();
        let same: Vec<Bytes> = entries.iter().map(|_| key.clone()).collect();
        let mut values = OptionalColumn::new();
        let column: Column = entries.iter().collect();
        with_keys(&same, |probe| backend.get_entries(MAPS, probe, &column, u64::MAX, &mut values)).unwrap();
        for (entry, value) in entries.iter().zip(values.iter()) {
            assert_eq!(value, expected.get(entry).map(Vec::as_slice));
        }
    }
    for (state, count) in [(VALUES, model.values.len()), (LISTS, model.lists.len()), (MAPS, model.maps.len())] {
        assert_eq!(backend.key_count(state), count as u64, "state {state:?}");
    }
}

impl Held {
    /// Reads on, and at the end compares. Returns whether that was the end.
    fn read(&mut self, most_bytes: usize) -> bool {
        let (read, last) = (&mut self.read, &mut self.place);
        let more = self.frozen.next(most_bytes, &mut |place, key, payload| {
            assert_eq!(key_group::group_of(key_group::hash(key), GROUPS), place.group);
            assert!(Some(place) >= *last, "places rise");
            *last = Some(place);
            read.take(key, payload);
        });
        if !more {
            assert_eq!(self.read, self.expected);
        }
        !more
    }
}

/// A backend, the same that is never frozen, the model, and the snapshots.
struct Interleaving {
    subject: MemoryBackend,
    plain: MemoryBackend,
    model: Model,
    held: Vec<Held>,
}

impl Interleaving {
    fn new() -> Self {
        Self { subject: backend(), plain: backend(), model: Model::default(), held: Vec::new() }
    }

    fn both(&mut self, write: impl Fn(&mut MemoryBackend)) {
        write(&mut self.subject);
        write(&mut self.plain);
    }

    fn freeze(&mut self) {
        let (frozen, expected) = (self.subject.freeze(), self.model.clone());
        self.held.push(Held { frozen, expected, read: Model::default(), place: None });
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Values(writes) => {
                let writes: Vec<_> =
                    writes.into_iter().map(|(number, value)| (key(number), value.map(string))).collect();
                for (key, value) in writes.clone() {
                    match value {
                        Some(value) => drop(self.model.values.insert(key, value)),
                        None => drop(self.model.values.remove(&key)),
                    }
                }
                self.both(|backend| write_values(backend, &writes));
            }
            Step::Append(writes) => {
                let list = |lens: Vec<u16>| lens.into_iter().map(string).collect::<Vec<_>>();
                let writes: Vec<_> = writes.into_iter().map(|(number, lens)| (key(number), list(lens))).collect();
                for (key, items) in writes.iter().filter(|write| !write.1.is_empty()) {
                    self.model.lists.entry(key.clone()).or_default().extend(items.iter().cloned());
                }
                self.both(|backend| append(backend, &writes));
            }
            Step::Entries(writes) => {
                let write = |(number, entry, value): (u8, u8, Option<u16>)| {
                    (key(number), string(entry.into()), value.map(string))
                };
                let writes: Vec<_> = writes.into_iter().map(write).collect();
                self.model.write(&writes);
                self.both(|backend| write_entries(backend, &writes));
            }
            Step::Clear(state, numbers) => {
                let mut keys: Vec<Bytes> = numbers.into_iter().map(key).collect();
                keys.sort_unstable();
                keys.dedup();
                for key in &keys {
                    match state {
                        0 => drop(self.model.values.remove(key)),
                        1 => drop(self.model.lists.remove(key)),
                        _ => drop(self.model.maps.remove(key)),
                    }
                }
                let state = StateIndex(state.into());
                self.both(|backend| with_keys(&keys, |keys| backend.clear(state, keys)).unwrap());
            }
            Step::Freeze => self.freeze(),
            Step::Read(number, most_bytes) if !self.held.is_empty() => {
                let number = usize::from(number) % self.held.len();
                if self.held[number].read(most_bytes) {
                    self.held.remove(number);
                }
            }
            Step::Drop(number) if !self.held.is_empty() => {
                drop(self.held.remove(usize::from(number) % self.held.len()));
            }
            Step::Read(..) | Step::Drop(_) => {}
            Step::Merge(entries) => drop(self.subject.merge(entries)),
        }
    }

    fn check(&mut self, keys: &[Bytes], scans: impl Fn(&Bytes) -> bool) {
        check(&mut self.subject, &self.model, keys, scans);
        assert_eq!(self.subject.byte_size(), self.plain.byte_size());
    }

    /// Reads the snapshots to their ends, merges, and checks that nothing is left behind.
    fn finish(mut self, keys: &[Bytes]) {
        for mut held in std::mem::take(&mut self.held) {
            while !held.read(1 << 16) {}
        }
        while self.subject.merge(50) {
            check(&mut self.subject, &self.model, &keys[..keys.len().min(50)], |_| true);
        }
        self.check(keys, |_| true);
        assert!(self.subject.content.iter().flatten().all(Group::is_whole));
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let number = 0u8..12;
    let len = prop_oneof![6 => 0u16..40, 1 => 0u16..3000];
    let value = prop::option::weighted(0.7, len.clone());
    let entry = (number.clone(), 0u8..20, prop::option::weighted(0.7, prop_oneof![0u16..40, 0u16..200]));
    let step = prop_oneof![
        3 => prop::collection::btree_map(number.clone(), value, 0..6).prop_map(Step::Values),
        3 => prop::collection::btree_map(number.clone(), prop::collection::vec(len, 0..3), 0..6).prop_map(Step::Append),
        6 => prop::collection::vec(entry, 0..12).prop_map(Step::Entries),
        1 => (0u8..3, prop::collection::vec(number, 0..4)).prop_map(|(state, keys)| Step::Clear(state, keys)),
        3 => Just(Step::Freeze),
        3 => (any::<u8>(), 1usize..2000).prop_map(|(held, bytes)| Step::Read(held, bytes)),
        2 => any::<u8>().prop_map(Step::Drop),
        4 => (0usize..12).prop_map(Step::Merge),
    ];
    prop::collection::vec(step, 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever is written, frozen, read, dropped and merged in whatever order: reads give what was written, the bytes
    /// are those of the content, and a snapshot gives what there was when it was taken.
    #[test]
    fn freezing_changes_nothing(steps in steps()) {
        let keys: Vec<Bytes> = (0..12).map(key).collect();
        let mut interleaving = Interleaving::new();
        for step in steps {
            interleaving.step(step);
            interleaving.check(&keys, |_| true);
        }
        interleaving.finish(&keys);
    }

    /// Equal content gives equal snapshots, whatever the secrets and however it came about.
    #[test]
    fn snapshots_do_not_depend_on_secrets(steps in steps()) {
        let mut interleaving = Interleaving::new();
        steps.into_iter().for_each(|step| interleaving.step(step));
        let listing = |backend: &mut MemoryBackend| {
            let (mut frozen, mut listing) = (backend.freeze(), Vec::new());
            while frozen.next(1 << 20, &mut |_, key, payload| listing.push(format!("{key:?} {payload:?}"))) {}
            listing
        };
        prop_assert_eq!(listing(&mut interleaving.subject), listing(&mut interleaving.plain));
    }
}

/// The same with so many keys that tables split, in layers and below them.
#[test]
fn freezing_changes_nothing_at_scale() {
    let mut random = Random::new(1);
    let name = |number: u64| number.to_be_bytes().to_vec();
    let mut interleaving = Interleaving::new();
    for round in 0..120 {
        let mut numbers: Vec<u64> = (0..2000).map(|_| random.below(40_000)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let write = |number: u64| (name(number), (!(number + round).is_multiple_of(5)).then(|| vec![round as u8; 20]));
        let writes: Vec<(Bytes, Option<Bytes>)> = numbers.iter().map(|&number| write(number)).collect();
        for (key, value) in writes.clone() {
            match value {
                Some(value) => drop(interleaving.model.values.insert(key, value)),
                None => drop(interleaving.model.values.remove(&key)),
            }
        }
        interleaving.both(|backend| write_values(backend, &writes));
        // One map of many entries, another key's beside it.
        let entries: Vec<(Bytes, Bytes, Option<Bytes>)> = (0..500)
            .map(|_| {
                let entry = name(random.below(3000));
                (key(1 + random.below(2) as u8), entry, (random.below(4) > 0).then(|| vec![round as u8; 9]))
            })
            .collect();
        interleaving.model.write(&entries);
        interleaving.both(|backend| write_entries(backend, &entries));
        match random.below(8) {
            0 => interleaving.freeze(),
            1 | 2 => interleaving.step(Step::Read(random.below(3) as u8, 100_000)),
            3 => interleaving.step(Step::Drop(random.below(3) as u8)),
            _ => drop(interleaving.subject.merge(700)),
        }
        let mut keys: Vec<Bytes> = numbers.iter().map(|&number| name(number)).collect();
        keys.extend([key(1), key(2)]);
        interleaving.check(&keys, |key| key.len() < 8);
    }
    let keys: Vec<Bytes> = (0..40_000).map(name).chain([key(1), key(2)]).collect();
    interleaving.finish(&keys);
}

/// Freezes that follow one another without a merge in between leave a bounded number of layers.
#[test]
fn layers_are_bounded() {
    let mut interleaving = Interleaving::new();
    for round in 0..40u16 {
        interleaving.step(Step::Values((0..12).map(|number| (number, Some(round))).collect()));
        interleaving.step(Step::Append((0..12).map(|number| (number, vec![round])).collect()));
        interleaving.step(Step::Entries((0..12).map(|number| (number, round as u8 % 20, Some(round * 7))).collect()));
        interleaving.freeze();
        interleaving.step(Step::Drop(0));
    }
    let layers = |group: &Group| match &group.layers {
        group::Layers::Below(below) => below.len(),
        _ => 0,
    };
    assert!(interleaving.subject.content.iter().flatten().map(layers).max().unwrap() <= group::MOST_FROZEN_LAYERS);
    interleaving.finish(&(0..12).map(key).collect::<Vec<_>>());
}

/// A merge does no more than it was asked to, also inside a map, and goes on where it was.
#[test]
fn a_merge_is_bounded() {
    let mut interleaving = Interleaving::new();
    let entries = |range: std::ops::Range<u32>| -> Vec<(Bytes, Bytes, Option<Bytes>)> {
        range.map(|entry| (key(1), entry.to_be_bytes().to_vec(), Some(vec![1; 8]))).collect()
    };
    write_entries(&mut interleaving.subject, &entries(0..5000));
    drop(interleaving.subject.freeze());
    write_entries(&mut interleaving.subject, &entries(4000..6000));
    let mut merges = 1;
    while interleaving.subject.merge(100) {
        merges += 1;
    }
    assert!((20..=22).contains(&merges), "{merges} merges of 100 for 2000 entries");
    assert_eq!(interleaving.subject.key_count(MAPS), 1);
}
