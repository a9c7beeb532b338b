//! Moving what a layer says into the one below it.
//!
//! Record by record, so that it can be done a little at a time. Below may be the lowest layer, in which records say
//! what keys hold, or another that lies over frozen ones itself.

use std::sync::Arc;

use super::group::{Group, Layers, Patches};
use super::table::{Content, Form, Handle, Hash, Said, Table};
use super::tables::Tables;

/// So many bytes take about as long to move as a small record does.
const BYTES_PER_ENTRY: usize = 256;

/// The lowest layer or another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Below {
    Lowest,
    Over,
}

/// Changes the record of a key; what `change` returns is of no interest. Returns by how many records the tables grew.
pub(super) fn edit<T>(
    tables: &mut Tables,
    hash: Hash,
    key: &[u8],
    change: impl FnOnce(&mut Table, Option<Handle>) -> T,
) -> i64 {
    let position = tables.table_of(hash);
    let table = &mut tables.tables[position as usize];
    let before = table.len() as i64;
    let found = table.find(hash.tag, key);
    change(table, found);
    let grown = table.len() as i64 - before;
    tables.settle(position);
    grown
}

/// Moves all that a layer says into the frozen one below it, which nothing else holds.
pub(super) fn fold(below: &mut Tables, mut above: Tables) {
    let mut pulled = Vec::new();
    for table in &mut above.tables {
        table.pull(usize::MAX, &mut pulled);
        for (tag, handle) in pulled.drain(..) {
            absorb(below, Below::Over, table, tag, handle);
        }
    }
}

/// Moves what the layers over the live one say about a key into it, save changes to a large map. Returns by how many
/// records the live layer grew.
pub(super) fn settle(live: &mut Tables, patches: &mut Patches, hash: Hash, key: &[u8]) -> i64 {
    let said = |layer: &Tables| {
        let (table, handle) = layer.find(hash, key)?;
        Some(matches!(layer.tables[table as usize].said(handle).1, Said::Whole(_) | Said::Nothing))
    };
    let whole = patches.layers.iter().rposition(|layer| said(layer) == Some(true));
    let mut grown = 0;
    for (position, layer) in patches.layers.iter_mut().enumerate() {
        if whole.is_some_and(|whole| position < whole) {
            layer.forget(hash, key);
            continue;
        }
        let Some((table, handle)) = layer.find(hash, key) else { continue };
        let table = &mut layer.tables[table as usize];
        if !matches!(table.said(handle).1, Said::Patch(_)) {
            table.unlink(handle, hash.tag);
            grown += absorb(live, Below::Lowest, table, hash.tag, handle);
        }
    }
    grown
}

/// Moves a record out of a table, the index of which does not have it any more. Returns by how many records those
/// below grew.
fn absorb(below: &mut Tables, kind: Below, above: &mut Table, tag: u32, handle: Handle) -> i64 {
    if let Some(large) = above.take_large(handle) {
        let hash = Hash { tag, side: large.side };
        let key = &*large.key;
        return match large.content {
            Content::More(more) => absorb_more(below, kind, hash, key, &more),
            Content::Nothing => absorb_nothing(below, kind, hash, key),
            content @ (Content::Bytes(_) | Content::Map(_)) => {
                edit(below, hash, key, |table, found| table.set_large(found, hash, key, content))
            }
            Content::Patch(mut patch) => edit(below, hash, key, |table, found| match found {
                Some(handle) if matches!(table.said(handle).1, Said::Patch(_)) => table.patch_mut(handle).absorb(patch),
                Some(handle) => drop(patch.drain_into(table.map_mut(handle), usize::MAX)),
                None => drop(table.set_large(None, hash, key, Content::Patch(patch))),
            }),
        };
    }
    let (hash, form, key, bytes) = above.small_parts(tag, handle);
    match form {
        Form::Whole => edit(below, hash, key, |table, found| table.set(found, hash, key, bytes)),
        Form::More => absorb_more(below, kind, hash, key, bytes),
        Form::Nothing => absorb_nothing(below, kind, hash, key),
    }
}

fn absorb_more(below: &mut Tables, kind: Below, hash: Hash, key: &[u8], more: &[u8]) -> i64 {
    edit(below, hash, key, |table, found| match found {
        Some(_) => drop(table.append(found, hash, key, more)),
        None => {
            assert_eq!(kind, Below::Over, "more of a list lies over nothing");
            table.set_more(None, hash, key, more);
        }
    })
}

fn absorb_nothing(below: &mut Tables, kind: Below, hash: Hash, key: &[u8]) -> i64 {
    edit(below, hash, key, |table, found| match (kind, found) {
        (Below::Over, _) => table.set_nothing(found, hash, key),
        (Below::Lowest, Some(handle)) => drop(table.remove(handle, hash.tag)),
        (Below::Lowest, None) => {}
    })
}

impl Group {
    /// Goes on merging with a budget of about so many records, which is used up when it could do more. Returns whether
    /// the group is whole; when it is not and the budget is not used up, a snapshot holds it.
    pub(super) fn merge(&mut self, budget: &mut usize, pulled: &mut Vec<(u32, Handle)>) -> bool {
        self.thaw();
        let patches = match &mut self.layers {
            Layers::None => return true,
            Layers::Below(_) => return false,
            Layers::Above(patches) => patches,
        };
        while let Some(oldest) = patches.layers.first_mut() {
            let Some(table) = oldest.tables.get_mut(patches.next_table) else {
                patches.layers.remove(0);
                patches.next_table = 0;
                continue;
            };
            if *budget == 0 {
                return false;
            }
            table.pull(*budget, pulled);
            if pulled.is_empty() {
                *table = Table::default();
                patches.next_table += 1;
                *budget -= 1;
                continue;
            }
            touch(&self.live, table, pulled);
            for (tag, handle) in pulled.drain(..) {
                if *budget == 0 {
                    table.push_back((tag, handle));
                    continue;
                }
                self.surplus -= merge_record(&mut self.live, table, tag, handle, budget);
            }
        }
        assert_eq!(self.surplus, 0, "every record of a whole group is that of a key that holds something");
        self.layers = Layers::None;
        true
    }

    /// Makes the lowest layer the live one, if no snapshot holds any.
    fn thaw(&mut self) {
        let Layers::Below(below) = &mut self.layers else { return };
        if below.iter_mut().any(|layer| Arc::get_mut(layer).is_none()) {
            return;
        }
        let mut layers =
            std::mem::take(below).into_iter().map(|layer| Arc::into_inner(layer).expect("nobody holds it"));
        let lowest = layers.next().expect("a frozen group has a layer");
        let newest = std::mem::replace(&mut self.live, lowest);
        self.layers = Layers::Above(Patches { layers: layers.chain([newest]).collect(), next_table: 0 });
    }
}

/// Reads from the live records of the keys of pulled ones for no other purpose than to have them in the cache soon: many
/// of them are on their way at a time.
fn touch(live: &Tables, above: &Table, pulled: &[(u32, Handle)]) {
    let mut touched = 0;
    for &(tag, handle) in pulled {
        let table = &live.tables[live.table_of(Hash { tag, side: above.side_of(handle) }) as usize];
        touched |= table.candidate(tag).map_or(0, |handle| table.touch(handle));
    }
    std::hint::black_box(touched);
}

/// Moves a pulled record into the live layer, or puts it back with what is left of it. Returns by how many records the
/// live layer grew.
fn merge_record(live: &mut Tables, above: &mut Table, tag: u32, handle: Handle, budget: &mut usize) -> i64 {
    let (key, said) = above.said(handle);
    match said {
        Said::Patch(_) => {
            let hash = Hash { tag, side: above.side_of(handle) };
            let (table, map) = live.find(hash, key).expect("a patch lies over a map");
            let map = live.tables[table as usize].map_mut(map);
            let patch = above.patch_mut(handle);
            *budget -= patch.drain_into(map, *budget).max(1);
            if !patch.is_spent() {
                above.push_back((tag, handle));
            }
            0
        }
        Said::More(bytes) => {
            *budget = budget.saturating_sub(1 + bytes.len() / BYTES_PER_ENTRY);
            absorb(live, Below::Lowest, above, tag, handle)
        }
        Said::Whole(_) | Said::Nothing => {
            *budget -= 1;
            absorb(live, Below::Lowest, above, tag, handle)
        }
    }
}
