//! Scans over map entries, page by page: what the backend has, and what the call wrote, in the order of the keys.

use std::cmp::Ordering;

use super::super::{Fault, RuleViolation};
use super::entries::StagedEntries;
use super::scope::Scope;
use super::{Target, check_result};
use crate::record::Column;
use crate::state::MapPage;

/// The bytes that make a page large enough, unless a single result must be smaller.
const PAGE_BYTES: u64 = 256 << 10;

/// Which map entries a scan visits: the maps of `slots` one after the other, each in the order of its keys.
#[derive(Clone, Debug)]
pub struct EntryScan {
    /// The slots, in the order of visiting.
    pub slots: Vec<u32>,
    /// The smallest key to visit; empty for the first of all.
    pub start: Vec<u8>,
    /// The smallest key to visit no more; none for no end.
    pub end: Option<Vec<u8>>,
}

/// Where the next page of a scan begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryCursor {
    /// The position in the slots of the scan.
    pub position: u32,
    /// The key to go on from.
    pub key: Vec<u8>,
}

/// One page of a scan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntryPage {
    /// For each entry, the position in the slots of the scan.
    pub positions: Vec<u32>,
    /// The keys of the entries.
    pub keys: Column,
    /// The values of the entries.
    pub values: Column,
    /// Where to go on; none when the scan is done.
    pub next: Option<EntryCursor>,
}

impl EntryPage {
    fn bytes(&self) -> u64 {
        (self.keys.data().len() + self.values.data().len()) as u64
    }

    fn push(&mut self, position: u32, key: &[u8], value: &[u8]) {
        self.positions.push(position);
        self.keys.push(key);
        self.values.push(value);
    }
}

/// One page of a scan whose slots the scope has.
pub(super) fn scan(
    staged: &StagedEntries,
    target: &mut Target<'_>,
    scope: &Scope,
    what: &EntryScan,
    resume: Option<&EntryCursor>,
    limit: u32,
) -> Result<EntryPage, Fault> {
    if limit == 0 {
        return Err(RuleViolation::Other("scan-entries with limit 0 would never end: use 1 or more".to_owned()).into());
    }
    let (first, mut from) = match resume {
        None => (0, what.start.as_slice()),
        Some(cursor) if (cursor.position as usize) < what.slots.len() && cursor.key >= what.start => {
            (cursor.position as usize, cursor.key.as_slice())
        }
        Some(_) => {
            let message = "scan-entries was given a cursor that is not of this scan: pass on what the page before gave";
            return Err(RuleViolation::Other(message.to_owned()).into());
        }
    };
    let mut page = EntryPage::default();
    for (position, &slot) in what.slots.iter().enumerate().skip(first) {
        let position = position as u32;
        if is_full(&page, target, limit) {
            page.next = Some(EntryCursor { position, key: from.to_vec() });
            break;
        }
        let visit = Visit { position, slot, end: what.end.as_deref() };
        if let Some(key) = visit.fill(&mut page, staged, target, scope, from, limit)? {
            page.next = Some(EntryCursor { position, key });
            break;
        }
        from = &what.start;
    }
    check_result("scan-entries", page.bytes(), target.limit)?;
    Ok(page)
}

fn is_full(page: &EntryPage, target: &Target<'_>, limit: u32) -> bool {
    let len = page.positions.len();
    len >= limit as usize || (len > 0 && page.bytes() >= PAGE_BYTES.min(target.limit))
}

/// The part of a scan that visits one map.
struct Visit<'a> {
    position: u32,
    slot: u32,
    end: Option<&'a [u8]>,
}

impl Visit<'_> {
    /// Adds entries from the key `from` on until the page is full. Returns the key to go on from if entries are left.
    fn fill(
        &self,
        page: &mut EntryPage,
        staged: &StagedEntries,
        target: &mut Target<'_>,
        scope: &Scope,
        from: &[u8],
        limit: u32,
    ) -> Result<Option<Vec<u8>>, Fault> {
        let written = staged.of_slot(self.slot, from, self.end);
        let mut written = written.into_iter().peekable();
        let mut from = from.to_vec();
        loop {
            let held = self.held(page, staged, target, scope, &from, limit)?;
            let mut entries = held.keys.iter().zip(held.values.iter()).peekable();
            // What was written behind the last entry of a part waits for the next part.
            let horizon = held.more.then(|| held.keys.get(held.keys.len() - 1));
            loop {
                let next_written = written.peek().filter(|(key, _)| horizon.is_none_or(|horizon| *key <= horizon));
                let order = match (entries.peek(), next_written) {
                    (None, None) => break,
                    (Some(_), None) => Ordering::Less,
                    (None, Some(_)) => Ordering::Greater,
                    (Some((held, _)), Some((written, _))) => (*held).cmp(written),
                };
                let (key, value) = match order {
                    Ordering::Less => entries.next().map(|(key, value)| (key, Some(value))),
                    Ordering::Equal => entries.next().and_then(|_| written.next()),
                    Ordering::Greater => written.next(),
                }
                .expect("it was peeked at");
                let Some(value) = value else { continue };
                if is_full(page, target, limit) {
                    return Ok(Some(key.to_vec()));
                }
                // One more entry may make the result too large for the guest; the next page then begins with it.
                let bytes = page.bytes() + (key.len() + value.len()) as u64;
                if bytes > target.limit && !page.positions.is_empty() {
                    return Ok(Some(key.to_vec()));
                }
                check_result("scan-entries", bytes, target.limit)?;
                page.push(self.position, key, value);
            }
            match horizon {
                None => return Ok(None),
                // The smallest key behind the last one.
                Some(last) => from = [last, &[0u8][..]].concat(),
            }
        }
    }

    /// A part of what the backend holds.
    fn held(
        &self,
        page: &EntryPage,
        staged: &StagedEntries,
        target: &mut Target<'_>,
        scope: &Scope,
        from: &[u8],
        limit: u32,
    ) -> Result<MapPage, Fault> {
        if staged.is_cleared(self.slot) {
            return Ok(MapPage::default());
        }
        // One entry more than the page has room for tells whether any is left.
        let room = limit as usize - page.positions.len().min(limit as usize) + 1;
        let bytes = PAGE_BYTES.min(target.limit) as usize;
        let position = [scope.position(self.slot)];
        let keys = scope.keys(&position);
        Ok(target.backend.scan_entries(target.state, keys, from, self.end, room, bytes)?)
    }
}
