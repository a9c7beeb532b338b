//! The keys of one key group in one state, and how they are frozen for a snapshot.
//!
//! A group is one set of tables most of the time. Freezing puts them behind an `Arc` that the snapshot shares, and
//! what is written from then on goes to fresh tables: a layer over those below. A record of such a layer says what its
//! key holds, that it holds nothing, or what changed in the list or map that lies below. When no snapshot holds the
//! layers any more, the lowest becomes the group again, and the records of the others are moved into it little by
//! little (`merge`); they go on lying over it until then.
//!
//! What always holds: what a key holds is what its newest record says, down to the first that says it whole; a layer
//! that a snapshot holds never changes; only while merging are there layers over the live one, and no write adds to
//! those, so that merging comes to an end.

use std::ops::Bound;
use std::sync::Arc;

use super::entry_map::{EntryPatch, PatchedMap};
use super::merge::{edit, fold, settle};
use super::table::{Content, Handle, Hash, Said, Stored, Table, cost_of_bytes, cost_of_map};
use super::tables::Tables;
use super::{store_flat_map, write_entry};
use crate::state::frame;

/// The most frozen layers of a group, save those that a snapshot needs kept apart. A freeze that finds as many folds
/// the newest two into one, which takes time that grows with what was written. It takes as many freezes without a
/// merge in between to get there.
pub(super) const MOST_FROZEN_LAYERS: usize = 4;

/// Where a record is: its layer from the newest on, its table, itself.
pub(super) type Spot = (u32, u32, Handle);

/// The keys of one key group.
#[derive(Debug, Default)]
pub(super) struct Group {
    /// Where writes go.
    pub(super) live: Tables,
    pub(super) layers: Layers,
    /// How many more keys hold something than there are records in the lowest layer.
    pub(super) surplus: i64,
}

/// What there is besides the live tables.
#[derive(Debug, Default)]
pub(super) enum Layers {
    /// Nothing: the live tables are the group.
    #[default]
    None,
    /// Frozen layers below the live one, the oldest first.
    Below(Vec<Arc<Tables>>),
    /// Layers over the live one, which are being merged into it.
    Above(Patches),
}

/// Layers that are being merged.
#[derive(Debug)]
pub(super) struct Patches {
    /// The oldest first: it is merged first.
    pub(super) layers: Vec<Tables>,
    /// The position of the first table in the oldest one that is not yet merged.
    pub(super) next_table: usize,
}

/// What a key holds, as its layers tell it.
#[derive(Debug, Default)]
pub(super) struct Seen<'a> {
    /// What the newest record says that says it whole.
    pub(super) bottom: Option<Stored<'a>>,
    /// What lies over that: only [`Said::More`] or only [`Said::Patch`], the newest first.
    pub(super) over: Vec<Said<'a>>,
}

impl<'a> Seen<'a> {
    /// What layers say about a key, from the newest on.
    fn through(layers: impl Iterator<Item = &'a Tables>, hash: Hash, key: &[u8]) -> Self {
        let mut over = Vec::new();
        for layer in layers {
            let Some((table, handle)) = layer.find(hash, key) else { continue };
            match layer.tables[table as usize].said(handle).1 {
                Said::Whole(stored) => return Self { bottom: Some(stored), over },
                Said::Nothing => break,
                change @ (Said::More(_) | Said::Patch(_)) => over.push(change),
            }
        }
        assert!(over.is_empty(), "a change lies over nothing");
        Self::default()
    }

    /// What the key costs.
    fn cost(&self, key: &[u8]) -> i64 {
        let cost = match self.bottom {
            None => 0,
            Some(Stored::Bytes(_)) => cost_of_bytes(key.len(), self.byte_len()),
            Some(Stored::Map(map)) => cost_of_map(key.len(), patched(map, &self.over).bytes()),
        };
        cost as i64
    }

    /// The bytes of a value or a list.
    fn byte_len(&self) -> usize {
        byte_strings(self.bottom, &self.over).map(<[u8]>::len).sum()
    }
}

/// The parts of a value or list in order.
#[inline]
pub(super) fn byte_strings<'a>(
    bottom: Option<Stored<'a>>,
    over: &[Said<'a>],
) -> impl Iterator<Item = &'a [u8]> + Clone {
    let bottom = bottom.map(|stored| match stored {
        Stored::Bytes(bytes) => bytes,
        Stored::Map(_) => panic!("only map state holds maps"),
    });
    bottom.into_iter().chain(over.iter().rev().map(|said| match said {
        Said::More(more) => *more,
        _ => panic!("only more of it lies over a list"),
    }))
}

/// A map with what lies over it.
pub(super) fn patched<'a>(map: &'a super::entry_map::EntryMap, over: &[Said<'a>]) -> PatchedMap<'a> {
    let patches = over.iter().map(|said| match said {
        Said::Patch(patch) => *patch,
        _ => panic!("only patches lie over a map"),
    });
    PatchedMap { map, patches: patches.collect() }
}

impl Group {
    /// Whether the live tables are the group.
    #[inline]
    pub(super) fn is_whole(&self) -> bool {
        matches!(self.layers, Layers::None)
    }

    /// The number of keys that hold something.
    pub(super) fn key_count(&self) -> u64 {
        let lowest = match &self.layers {
            Layers::Below(below) => below[0].len(),
            Layers::None | Layers::Above(_) => self.live.len(),
        };
        u64::try_from(lowest as i64 + self.surplus).expect("no fewer keys than none")
    }

    /// The layers, the newest first.
    fn newest_first(&self) -> impl Iterator<Item = &Tables> {
        let (above, below): (&[Tables], &[Arc<Tables>]) = match &self.layers {
            Layers::None => (&[], &[]),
            Layers::Below(below) => (&[], below),
            Layers::Above(patches) => (&patches.layers, &[]),
        };
        above.iter().rev().chain([&self.live]).chain(below.iter().rev().map(|layer| &**layer))
    }

    /// Layer `position` from the newest on.
    #[inline]
    pub(super) fn layer(&self, position: u32) -> &Tables {
        self.newest_first().nth(position as usize).expect("a probe names a layer that is there")
    }

    /// Where the newest record with a tag is in the newest layer. Touches the index alone.
    #[inline]
    pub(super) fn candidate_on_top(&self, hash: Hash) -> Option<Spot> {
        let newest = match &self.layers {
            Layers::None | Layers::Below(_) => &self.live,
            Layers::Above(patches) => patches.layers.last().unwrap_or(&self.live),
        };
        let table = newest.table_of(hash);
        Some((0, table, newest.tables[table as usize].candidate(hash.tag)?))
    }

    /// The same in the layers below that. Touches indexes alone.
    #[inline]
    pub(super) fn candidate_below(&self, hash: Hash) -> Option<Spot> {
        (1..).zip(self.newest_first().skip(1)).find_map(|(position, layer)| {
            let table = layer.table_of(hash);
            let handle = layer.tables[table as usize].candidate(hash.tag)?;
            Some((position, table, handle))
        })
    }

    /// What a key holds.
    pub(super) fn see(&self, hash: Hash, key: &[u8]) -> Seen<'_> {
        Seen::through(self.newest_first(), hash, key)
    }

    /// Freezes what the group holds and returns its layers, the oldest first: none if it holds nothing.
    pub(super) fn freeze(&mut self) -> Vec<Arc<Tables>> {
        let mut below = match std::mem::take(&mut self.layers) {
            Layers::None => Vec::new(),
            Layers::Below(below) => below,
            Layers::Above(patches) => {
                let base = Arc::new(std::mem::take(&mut self.live));
                let patches = patches.layers.into_iter().filter(|layer| !layer.is_empty());
                [base].into_iter().chain(patches.map(Arc::new)).collect()
            }
        };
        if !self.live.is_empty() {
            let newest = if below.len() < MOST_FROZEN_LAYERS { None } else { below.last_mut() };
            match newest.and_then(Arc::get_mut) {
                Some(newest) => fold(newest, std::mem::take(&mut self.live)),
                None => below.push(Arc::new(std::mem::take(&mut self.live))),
            }
        }
        if below.is_empty() {
            return below;
        }
        self.layers = Layers::Below(below.clone());
        below
    }

    /// Where the newest record of a key is.
    fn newest(&self, hash: Hash, key: &[u8]) -> Option<Spot> {
        (0..).zip(self.newest_first()).find_map(|(position, layer)| {
            let (table, handle) = layer.find(hash, key)?;
            Some((position, table, handle))
        })
    }

    /// Sets a value, or removes what a key of any kind of state holds. `near` is what a probe said about it,
    /// unless records have moved since. Returns by how many bytes the content grew, and whether records moved.
    pub(super) fn put(&mut self, hash: Hash, key: &[u8], value: Option<&[u8]>, near: Option<Spot>) -> (i64, bool) {
        self.shape_live();
        let is_it = |&(layer, table, handle): &Spot| self.layer(layer).tables[table as usize].holds(handle, key);
        let newest = near.filter(is_it).or_else(|| self.newest(hash, key));
        let before =
            newest.map_or(0, |(layer, table, handle)| match self.layer(layer).tables[table as usize].said(handle).1 {
                Said::Whole(Stored::Bytes(bytes)) => cost_of_bytes(key.len(), bytes.len()) as i64,
                Said::Nothing => 0,
                _ => self.see(hash, key).cost(key),
            });
        let (mut found, mut nothing_below) = (None, true);
        if let Some((layer, table, handle)) = newest {
            match &mut self.layers {
                Layers::None => found = Some((table, handle)),
                Layers::Below(below) => {
                    found = (layer == 0).then_some((table, handle));
                    // What lies below matters to a removal alone.
                    nothing_below = value.is_some() || !lies_in(below, hash, key);
                }
                Layers::Above(patches) if layer as usize == patches.layers.len() => found = Some((table, handle)),
                Layers::Above(patches) => {
                    patches.layers.iter_mut().for_each(|layer| layer.forget(hash, key));
                    found = self.live.find(hash, key);
                }
            }
        }
        let at = found.map_or_else(|| self.live.table_of(hash), |found| found.0);
        let (table, found) = (&mut self.live.tables[at as usize], found.map(|found| found.1));
        let records = table.len() as i64;
        match (value, found) {
            (Some(value), _) => drop(table.set(found, hash, key, value)),
            (None, _) if !nothing_below => table.set_nothing(found, hash, key),
            (None, Some(handle)) => drop(table.remove(handle, hash.tag)),
            (None, None) => {}
        }
        let records = table.len() as i64 - records;
        let after = value.map_or(0, |value| cost_of_bytes(key.len(), value.len()) as i64);
        self.count(before, after, records);
        (after - before, self.live.settle(at))
    }

    /// Appends to a list. Returns by how many bytes the content grew.
    pub(super) fn append(&mut self, hash: Hash, key: &[u8], more: &[u8]) -> i64 {
        self.change(hash, key, |live, layers| {
            let mut goes_on = false;
            let mut keys = 0;
            match layers {
                Layers::None => {}
                Layers::Below(below) => goes_on = see_frozen(below, hash, key).bottom.is_some(),
                Layers::Above(patches) => keys += settle(live, patches, hash, key),
            }
            keys + edit(live, hash, key, |table, found| match found.map(|handle| table.said(handle).1) {
                None if goes_on => table.set_more(None, hash, key, more),
                Some(Said::Nothing) => drop(table.set(found, hash, key, more)),
                _ => drop(table.append(found, hash, key, more)),
            })
        })
    }

    /// Sets or removes one entry of a map. Returns by how many bytes the content grew.
    pub(super) fn write_entry(
        &mut self,
        hash: Hash,
        key: &[u8],
        entry: (&[u8], Option<&[u8]>),
        edited: &mut Vec<u8>,
    ) -> i64 {
        self.change(hash, key, |live, layers| match layers {
            Layers::None => edit(live, hash, key, |table, found| write_entry(table, hash, found, key, entry, edited)),
            Layers::Below(below) => {
                edit(live, hash, key, |table, found| write_entry_over(below, table, (hash, key), found, entry, edited))
            }
            Layers::Above(patches) => {
                let keys = settle(live, patches, hash, key);
                if patches.layers.iter().all(|layer| layer.find(hash, key).is_none()) {
                    let write = |table: &mut Table, found| write_entry(table, hash, found, key, entry, edited);
                    return keys + edit(live, hash, key, write);
                }
                keys + write_entry_below(live, &mut patches.layers, (hash, key), entry)
            }
        })
    }

    /// Makes a change to what a key holds, by how many `change` returns the number of live records grew, and returns
    /// by how many bytes the content grew.
    fn change(&mut self, hash: Hash, key: &[u8], change: impl FnOnce(&mut Tables, &mut Layers) -> i64) -> i64 {
        self.shape_live();
        let before = self.see(hash, key).cost(key);
        let records = change(&mut self.live, &mut self.layers);
        let after = self.see(hash, key).cost(key);
        self.count(before, after, records);
        after - before
    }

    /// Before the first write to a layer over frozen ones: gives it the shape of the lowest. Not done by the freeze, which
    /// would have to do it for all groups at once.
    #[inline]
    fn shape_live(&mut self) {
        if self.live.tables.len() == 1
            && let Layers::Below(below) = &self.layers
            && below[0].tables.len() > 1
            && self.live.is_empty()
        {
            self.live = below[0].same_shape();
        }
    }

    /// Takes note that what a key holds came to cost `after`, and that there are so many more live records.
    fn count(&mut self, before: i64, after: i64, records: i64) {
        self.surplus += i64::from(after > 0) - i64::from(before > 0);
        if !matches!(self.layers, Layers::Below(_)) {
            self.surplus -= records;
        }
    }
}

/// Whether frozen layers have a record of a key.
fn lies_in(below: &[Arc<Tables>], hash: Hash, key: &[u8]) -> bool {
    below.iter().any(|layer| layer.find(hash, key).is_some())
}

/// What frozen layers say about a key.
fn see_frozen<'a>(below: &'a [Arc<Tables>], hash: Hash, key: &[u8]) -> Seen<'a> {
    Seen::through(below.iter().rev().map(|layer| &**layer), hash, key)
}

/// Writes an entry to the live layer over frozen ones.
fn write_entry_over(
    below: &[Arc<Tables>],
    table: &mut Table,
    (hash, key): (Hash, &[u8]),
    found: Option<Handle>,
    (entry_key, value): (&[u8], Option<&[u8]>),
    edited: &mut Vec<u8>,
) {
    let seen = see_frozen(below, hash, key);
    // The flat map to edit, or else the map that gets the entry where it is.
    let flat = match found.map(|handle| (handle, table.said(handle).1)) {
        Some((_, Said::Whole(Stored::Bytes(map)))) => map,
        Some((_, Said::Nothing)) => &[],
        Some((_, Said::More(_))) => panic!("a map is written like a list"),
        Some((handle, Said::Whole(Stored::Map(_)))) => {
            let map = table.map_mut(handle);
            map.write(entry_key, value);
            if map.len() == 0 {
                remove_over(below, table, (hash, key), found);
            }
            return;
        }
        Some((handle, Said::Patch(patch))) => {
            let map = with_patch(&seen, Some(patch));
            let before = map.get(entry_key).map(<[u8]>::len);
            change_patch(table, (hash, key), handle, before, (entry_key, value));
            return;
        }
        None => match seen.bottom {
            None => &[],
            Some(Stored::Bytes(map)) => map,
            Some(Stored::Map(_)) => {
                let map = with_patch(&seen, None);
                let before = map.get(entry_key).map(<[u8]>::len);
                table.set_large(None, hash, key, Content::Patch(EntryPatch::over(&map)));
                let handle = table.find(hash.tag, key).expect("it was just set");
                change_patch(table, (hash, key), handle, before, (entry_key, value));
                return;
            }
        },
    };
    frame::edit(flat, entry_key, value, edited);
    if edited.is_empty() {
        remove_over(below, table, (hash, key), found);
    } else {
        store_flat_map(table, hash, found, key, edited);
    }
}

/// The map of frozen layers with a patch of the live one.
fn with_patch<'a>(seen: &Seen<'a>, newest: Option<&'a EntryPatch>) -> PatchedMap<'a> {
    let Some(Stored::Map(map)) = seen.bottom else { panic!("a patch lies over a map") };
    let mut patched = patched(map, &seen.over);
    if let Some(newest) = newest {
        patched.patches.insert(0, newest);
    }
    patched
}

/// Keeps a change in the patch of the live layer. `before` is the length of the entry's value.
fn change_patch(
    table: &mut Table,
    (hash, key): (Hash, &[u8]),
    handle: Handle,
    before: Option<usize>,
    (entry_key, value): (&[u8], Option<&[u8]>),
) {
    let patch = table.patch_mut(handle);
    if before.is_some() || value.is_some() {
        patch.count(entry_key, before, value);
        patch.change(entry_key, value);
    }
    if patch.leaves_nothing() {
        table.set_nothing(Some(handle), hash, key);
    }
}

/// Removes what a key holds from the live layer over frozen ones.
fn remove_over(below: &[Arc<Tables>], table: &mut Table, (hash, key): (Hash, &[u8]), found: Option<Handle>) {
    if lies_in(below, hash, key) {
        table.set_nothing(found, hash, key);
    } else if let Some(handle) = found {
        table.remove(handle, hash.tag);
    }
}

/// Writes an entry of a map in the live layer while patches lie over that map. Returns by how many records the live
/// layer grew.
fn write_entry_below(
    live: &mut Tables,
    layers: &mut [Tables],
    (hash, key): (Hash, &[u8]),
    (entry_key, value): (&[u8], Option<&[u8]>),
) -> i64 {
    let seen = Seen::through(layers.iter().rev().chain([&*live]), hash, key);
    let before = with_patch(&seen, None).get(entry_key).map(<[u8]>::len);
    if before.is_none() && value.is_none() {
        return 0;
    }
    let mut counted = false;
    let mut leaves_nothing = false;
    for layer in layers.iter_mut().rev() {
        let Some((table, handle)) = layer.find(hash, key) else { continue };
        let patch = layer.tables[table as usize].patch_mut(handle);
        patch.forget(entry_key);
        if !counted {
            patch.count(entry_key, before, value);
            (counted, leaves_nothing) = (true, patch.leaves_nothing());
        }
    }
    if leaves_nothing {
        layers.iter_mut().for_each(|layer| layer.forget(hash, key));
    }
    edit(live, hash, key, |table, found| {
        let handle = found.expect("a patch lies over a map");
        if leaves_nothing {
            table.remove(handle, hash.tag);
        } else {
            table.map_mut(handle).write(entry_key, value);
        }
    })
}

/// The entries of a map from `start` up to `end`, the latter not included.
pub(super) fn entries_between<'a>(
    map: &PatchedMap<'a>,
    start: &[u8],
    end: Option<&[u8]>,
) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
    map.range(Bound::Included(start), end.map_or(Bound::Unbounded, Bound::Excluded))
}
