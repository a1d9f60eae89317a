//! The notes that clients leave on a node for each other. Owns their form; other files read and
//! join them.

use std::sync::Arc;
use std::time::Duration;

/// The notes that clients leave on a node for each other. All times count from the moment of the
/// look, so that a reader needs no other machine's clock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Notes {
    /// How long locks may be held that last longer than the floor.
    pub holdings: Vec<HoldingNote>,
    /// What was seen of the memories and clocks of other nodes.
    pub sightings: Vec<SightingNote>,
}

/// One entry about locks that last longer than the floor.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HoldingNote {
    /// Who owns the entry: one manager, or all managers that use locks of one length.
    pub name: Arc<str>,
    /// A higher one replaces a lower one.
    pub version: u64,
    /// The longest time for which nodes are asked to keep a key; zero if such locks have ended.
    pub key_ttl: Duration,
    /// No lock of the entry was asked for longer ago than this.
    pub began: Duration,
    /// After this time the entry has no meaning.
    pub left: Duration,
}

/// What was seen of another node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SightingNote {
    /// Its memory.
    pub id: u64,
    /// The highest number of beats that was seen of it; [`SightingNote::ENDED`] if it must not be
    /// accepted again.
    pub count: u64,
    /// How far its clock was ahead of the clock of the node that carries the note.
    pub lead: Option<LeadNote>,
}

impl SightingNote {
    /// The count of a memory that was replaced by a new one. The largest number that Lua keeps exactly.
    pub const ENDED: u64 = (1 << 53) - 1;
}

/// How far the clock of one node was ahead of another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeadNote {
    /// The clock was at most this many microseconds ahead (below zero: at least so far behind),
    pub most_micros: i64,
    /// by readings that were this many microseconds old.
    pub age_micros: u64,
    /// Whether it replaces the earlier note even with a larger value: the clock of the node that
    /// carries it was set back.
    pub anew: bool,
}

/// Whether an entry is stored on a node even if the node has too many: there are only a few shared
/// names.
pub(super) fn is_shared(name: &str) -> bool {
    name.starts_with(SHARED)
}

/// The prefix of the names of entries that all clients share.
pub(super) const SHARED: &str = "all:";
/// Two statements about one moment may differ by this much and still mean the same: longer than a
/// look takes.
pub(super) const GRAIN: Duration = Duration::from_secs(1);
/// How many entries of either kind a node keeps, not counting holdings that clients share.
pub(super) const MOST: usize = 64;
