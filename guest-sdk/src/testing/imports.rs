//! The functions of the contract as the host in memory has them, in the modules and with the signatures of the
//! generated ones. A breach of the contract panics.

use super::host::with;

pub(crate) mod keyed_state {
    use std::collections::BTreeMap;
    use std::ops::Bound;

    use super::super::host::{Host, Stored};
    use super::{columns, offsets_hold, with};
    use crate::bindings::tidegate::operator::types::{
        ColumnParam, ColumnResult, ListsParam, ListsResult, OptionalColumnParam, OptionalColumnResult, StateKind,
    };

    pub(crate) use crate::bindings::tidegate::operator::keyed_state::{CursorParam, CursorResult, Page, Scan};

    const VALUE: &[StateKind] = &[StateKind::KeyedValue];
    const LIST: &[StateKind] = &[StateKind::KeyedList];
    const MAP: &[StateKind] = &[StateKind::KeyedMap];
    const ANY: &[StateKind] = &[StateKind::KeyedValue, StateKind::KeyedList, StateKind::KeyedMap];

    /// Opens a call that needs a state of some kind.
    fn call<R>(state: u32, kinds: &[StateKind], access: impl FnOnce(&mut Host) -> R) -> R {
        with(|host| {
            host.host_calls += 1;
            host.check_state(state, kinds);
            access(host)
        })
    }

    /// As many bytes as the host hands over at most.
    const LARGEST_RESULT: usize = 16 << 20;

    fn column<'a>(strings: impl IntoIterator<Item = &'a [u8]>) -> ColumnResult {
        let mut column = ColumnResult { data: Vec::new(), offsets: vec![0] };
        for string in strings {
            column.data.extend_from_slice(string);
            column.offsets.push(column.data.len() as u32);
        }
        assert!(column.data.len() <= LARGEST_RESULT, "a result of {} bytes: ask for less at once", column.data.len());
        column
    }

    fn optional<'a>(strings: impl IntoIterator<Item = Option<&'a [u8]>>) -> OptionalColumnResult {
        let strings: Vec<_> = strings.into_iter().collect();
        let missing = (0u32..).zip(&strings).filter(|(_, string)| string.is_none()).map(|(index, _)| index).collect();
        OptionalColumnResult { values: column(strings.into_iter().map(Option::unwrap_or_default)), missing }
    }

    pub(crate) fn slots() -> Vec<u32> {
        with(|host| {
            host.host_calls += 1;
            host.slots.clone()
        })
    }

    pub(crate) fn load(state: u32) -> OptionalColumnResult {
        call(state, VALUE, |host| {
            let found = host.keys.iter().map(|key| match host.staged.get(&(state, key.clone())) {
                Some(Stored::Value(value)) => Some(value.as_slice()),
                _ => None,
            });
            optional(found)
        })
    }

    pub(crate) fn load_some(state: u32, slots: &[u32]) -> OptionalColumnResult {
        call(state, VALUE, |host| {
            let keys: Vec<Vec<u8>> = slots.iter().map(|&slot| host.key(slot)).collect();
            let found = keys.into_iter().map(|key| match host.staged.get(&(state, key)) {
                Some(Stored::Value(value)) => Some(value.as_slice()),
                _ => None,
            });
            optional(found)
        })
    }

    pub(crate) fn store(state: u32, values: OptionalColumnParam<'_>) {
        call(state, VALUE, |host| {
            let strings = columns(&values.values);
            assert_eq!(strings.len(), host.keys.len(), "store takes a value for each slot");
            assert!(values.missing.is_sorted_by(|a, b| a < b), "missing positions must rise");
            assert!(values.missing.last().is_none_or(|&last| (last as usize) < strings.len()), "no such position");
            for (slot, value) in (0u32..).zip(strings) {
                let place = (state, host.key(slot));
                if values.missing.contains(&slot) {
                    host.staged.remove(&place);
                } else {
                    host.staged.insert(place, Stored::Value(value));
                }
            }
        });
    }

    pub(crate) fn update(state: u32, slots: &[u32], values: ColumnParam<'_>) {
        call(state, VALUE, |host| {
            let strings = columns(&values);
            assert_eq!(strings.len(), slots.len(), "update takes a value for each slot that it names");
            for (&slot, value) in slots.iter().zip(strings) {
                let place = (state, host.key(slot));
                host.staged.insert(place, Stored::Value(value));
            }
        });
    }

    pub(crate) fn clear(state: u32, slots: &[u32]) {
        call(state, ANY, |host| {
            for &slot in slots {
                let place = (state, host.key(slot));
                host.staged.remove(&place);
            }
        });
    }

    fn no_slot_twice(slots: &[u32]) {
        let mut sorted = slots.to_vec();
        sorted.sort_unstable();
        assert!(sorted.is_sorted_by(|a, b| a < b), "a slot is named twice");
    }

    pub(crate) fn load_lists(state: u32, slots: &[u32]) -> ListsResult {
        call(state, LIST, |host| {
            no_slot_twice(slots);
            let (mut bounds, mut items) = (vec![0], Vec::new());
            for &slot in slots {
                if let Some(Stored::List(list)) = host.staged.get(&(state, host.key(slot))) {
                    items.extend(list.iter().map(Vec::as_slice));
                }
                bounds.push(items.len() as u32);
            }
            ListsResult { bounds, items: column(items) }
        })
    }

    pub(crate) fn append(state: u32, slots: &[u32], items: ColumnParam<'_>) {
        call(state, LIST, |host| {
            let items = columns(&items);
            assert_eq!(items.len(), slots.len(), "append takes a slot for each item");
            for (&slot, item) in slots.iter().zip(items) {
                let place = (state, host.key(slot));
                let Stored::List(list) = host.staged.entry(place).or_insert_with(|| Stored::List(Vec::new())) else {
                    unreachable!("the kind of the state was checked");
                };
                list.push(item);
            }
        });
    }

    pub(crate) fn replace_lists(state: u32, slots: &[u32], items: ListsParam<'_>) {
        call(state, LIST, |host| {
            no_slot_twice(slots);
            let strings = columns(&items.items);
            offsets_hold(items.bounds, strings.len());
            assert_eq!(items.bounds.len().saturating_sub(1), slots.len(), "there is a list for each slot");
            for (&slot, bounds) in slots.iter().zip(items.bounds.windows(2)) {
                let place = (state, host.key(slot));
                let list = strings[bounds[0] as usize..bounds[1] as usize].to_vec();
                if list.is_empty() {
                    host.staged.remove(&place);
                } else {
                    host.staged.insert(place, Stored::List(list));
                }
            }
        });
    }

    fn entries(host: &mut Host, state: u32, slot: u32) -> &mut BTreeMap<Vec<u8>, Vec<u8>> {
        let place = (state, host.key(slot));
        match host.staged.entry(place).or_insert_with(|| Stored::Map(BTreeMap::new())) {
            Stored::Map(entries) => entries,
            Stored::Value(_) | Stored::List(_) => unreachable!("the kind of the state was checked"),
        }
    }

    pub(crate) fn get_entries(state: u32, slots: &[u32], keys: ColumnParam<'_>) -> OptionalColumnResult {
        call(state, MAP, |host| {
            let keys = columns(&keys);
            assert_eq!(keys.len(), slots.len(), "there is a slot for each key");
            let found: Vec<Option<Vec<u8>>> =
                slots.iter().zip(&keys).map(|(&slot, key)| entries(host, state, slot).get(key).cloned()).collect();
            optional(found.iter().map(Option::as_deref))
        })
    }

    pub(crate) fn put_entries(state: u32, slots: &[u32], keys: ColumnParam<'_>, values: ColumnParam<'_>) {
        call(state, MAP, |host| {
            let (keys, values) = (columns(&keys), columns(&values));
            assert!(keys.len() == slots.len() && values.len() == slots.len(), "there is a slot for each key and value");
            for ((&slot, key), value) in slots.iter().zip(keys).zip(values) {
                entries(host, state, slot).insert(key, value);
            }
        });
    }

    pub(crate) fn remove_entries(state: u32, slots: &[u32], keys: ColumnParam<'_>) {
        call(state, MAP, |host| {
            let keys = columns(&keys);
            assert_eq!(keys.len(), slots.len(), "there is a slot for each key");
            for (&slot, key) in slots.iter().zip(keys) {
                entries(host, state, slot).remove(&key);
            }
        });
    }

    /// So many entries come at once, whatever the caller asked for: pages must work out.
    const PAGE: usize = 3;

    pub(crate) fn scan_entries(state: u32, what: Scan<'_>, resume: Option<CursorParam<'_>>, limit: u32) -> Page {
        call(state, MAP, |host| {
            assert!(limit > 0, "a page has at least one entry");
            let limit = PAGE.min(limit as usize);
            let (mut positions, mut keys, mut values) = (Vec::new(), Vec::new(), Vec::new());
            let first = resume.as_ref().map_or(0, |cursor| cursor.position as usize);
            for (position, &slot) in what.slots.iter().enumerate().skip(first) {
                let start = match &resume {
                    Some(cursor) if position == first => cursor.key,
                    _ => what.start,
                };
                let end = what.end.map_or(Bound::Unbounded, Bound::Excluded);
                for (key, value) in entries(host, state, slot).range::<[u8], _>((Bound::Included(start), end)) {
                    if positions.len() == limit {
                        let next = Some(CursorResult { position: position as u32, key: key.clone() });
                        let (keys, values) =
                            (column(keys.iter().map(Vec::as_slice)), column(values.iter().map(Vec::as_slice)));
                        return Page { positions, keys, values, next };
                    }
                    positions.push(position as u32);
                    keys.push(key.clone());
                    values.push(value.clone());
                }
            }
            let (keys, values) = (column(keys.iter().map(Vec::as_slice)), column(values.iter().map(Vec::as_slice)));
            Page { positions, keys, values, next: None }
        })
    }
}

pub(crate) mod collector {
    use super::super::host::{Emitted, Rejected};
    use super::{columns, with};
    use crate::bindings::tidegate::operator::types::BatchParam;

    pub(crate) fn emit(output: u32, records: BatchParam<'_>) {
        with(|host| {
            host.host_calls += 1;
            let (keys, values) = (columns(&records.keys), columns(&records.values));
            assert!(keys.is_empty() || keys.len() == values.len(), "there is a key for each value or none at all");
            let timestamps = records.timestamps;
            assert!(timestamps.is_empty() || timestamps.len() == values.len(), "and so with timestamps");
            let name = host.output_name(output);
            let mut keys = keys.into_iter();
            for (index, value) in values.into_iter().enumerate() {
                let (key, timestamp) = (keys.next(), timestamps.get(index).copied());
                host.emitting.push(Emitted { output: name.clone(), key, value, timestamp });
            }
        });
    }

    pub(crate) fn reject(position: u32, reason: &str) {
        with(|host| {
            assert!((position as usize) < host.records, "position {position} is out of range");
            host.rejecting.push(Rejected { position, reason: reason.to_owned() });
        });
    }
}

pub(crate) mod clock {
    use super::with;

    pub(crate) fn processing_time() -> u64 {
        with(|host| host.processing_time)
    }

    pub(crate) fn watermark() -> Option<i64> {
        with(|host| host.watermark)
    }

    pub(crate) fn monotonic_time() -> u64 {
        with(|host| host.processing_time * 1_000_000)
    }
}

pub(crate) mod random {
    use super::with;

    pub(crate) fn get_u64() -> u64 {
        with(|host| {
            // SplitMix64: the same numbers in every run of a test.
            host.random = host.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (host.random ^ (host.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ (mixed >> 31)
        })
    }

    pub(crate) fn get_bytes(count: u32) -> Vec<u8> {
        assert!(count <= 65536, "at most 65536 random bytes come at once");
        (0..count).map(|_| get_u64() as u8).collect()
    }
}

pub(crate) mod log {
    use super::super::host::Logged;
    use super::with;
    use crate::log::Level;

    pub(crate) fn write(level: Level, message: &str) {
        with(|host| host.logged.push(Logged { level, message: message.to_owned() }));
    }
}

pub(crate) mod metrics {
    use super::with;

    pub(crate) fn add_to_counter(name: &str, amount: u32) {
        with(|host| *host.counters.entry(name.to_owned()).or_default() += u64::from(amount));
    }

    pub(crate) fn set_gauge(name: &str, value: f64) {
        with(|host| host.gauges.insert(name.to_owned(), value));
    }

    pub(crate) fn observe(name: &str, values: &[f64]) {
        with(|host| host.observations.entry(name.to_owned()).or_default().extend_from_slice(values));
    }
}

/// Checks offsets or bounds over so many elements.
fn offsets_hold(offsets: &[u32], elements: usize) {
    match (offsets.first(), offsets.last()) {
        (Some(&first), Some(&last)) => {
            assert!(first == 0 && last as usize == elements && offsets.is_sorted(), "malformed offsets {offsets:?}");
        }
        _ => assert_eq!(elements, 0, "offsets are missing"),
    }
}

/// The strings of a column, checked.
fn columns(column: &crate::bindings::tidegate::operator::types::ColumnParam<'_>) -> Vec<Vec<u8>> {
    assert!(column.data.len() <= 16 << 20, "the operator handed over {} bytes at once", column.data.len());
    offsets_hold(column.offsets, column.data.len());
    column.offsets.windows(2).map(|bounds| column.data[bounds[0] as usize..bounds[1] as usize].to_vec()).collect()
}
