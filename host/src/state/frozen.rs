//! What a snapshot sees: the content of a backend as it was when it was frozen.

use super::StateIndex;
use super::frame::Framed;

/// What a key holds, or a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload<'a> {
    /// The value.
    Value(&'a [u8]),
    /// Items of the list, in order.
    Items(Framed<'a>),
    /// Keys and values of the map in turn, in the order of the keys.
    Entries(Framed<'a>),
}

/// Where keys belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The state.
    pub state: StateIndex,
    /// The key group.
    pub group: u32,
}

/// The content of a backend as it was when it was frozen, whatever happened to it since. Read once, from front to back,
/// by another thread as a rule.
pub trait FrozenState: Send {
    /// Goes on reading: calls `each` with a place, a key and what it holds, until about `most_bytes` were handed out,
    /// all of one place. Places rise from call to call or stay the same. A long list or map comes in several pieces, one
    /// behind the other. Returns whether there was something left to read.
    ///
    /// What was read is let go of place by place, so that the backend need not keep it apart any longer.
    fn next(&mut self, most_bytes: usize, each: &mut dyn FnMut(Place, &[u8], Payload<'_>)) -> bool;
}
