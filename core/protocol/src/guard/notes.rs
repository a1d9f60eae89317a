//! What clients leave on a node for each other. Owns the words; who reads and joins them stands elsewhere.

use std::sync::Arc;
use std::time::Duration;

/// What clients leave on a node for each other. All times are told from the moment of the look, so that
/// nobody needs another's clock to read them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Notes {
    /// For how long locks may be held that last longer than the floor.
    pub holdings: Vec<HoldingNote>,
    /// What was seen of the memories and the clocks of other nodes.
    pub sightings: Vec<SightingNote>,
}

/// One entry about locks that last longer than the floor.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HoldingNote {
    /// Whose entry: a manager's, or a length that many managers share.
    pub name: Arc<str>,
    /// A higher one replaces a lower one.
    pub version: u64,
    /// The longest time for which nodes are asked to keep a key; zero if such locks have ended.
    pub key_ttl: Duration,
    /// No lock of the entry was asked for longer ago than this.
    pub began: Duration,
    /// After so long the entry says nothing any more.
    pub left: Duration,
}

/// What was seen of another node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SightingNote {
    /// Its memory.
    pub id: u64,
    /// The highest number of beats that was seen of it; [`SightingNote::ENDED`] if it must not come back.
    pub count: u64,
    /// How its clock stood to that of the node that the note is left on.
    pub lead: Option<LeadNote>,
}

impl SightingNote {
    /// The count of a memory that was replaced by a new one. The largest number that Lua keeps exactly.
    pub const ENDED: u64 = (1 << 53) - 1;
}

/// How far the clock of one node was ahead of another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeadNote {
    /// At most so many microseconds ahead (below zero: at least so many behind)
    pub most_micros: i64,
    /// so many microseconds ago.
    pub age_micros: u64,
    /// Whether it replaces what was noted before, however much it is: the node that it is left on was seen to have
    /// its clock set back.
    pub anew: bool,
}

/// Whether an entry has a place on a node also when there are too many: there are few of these.
pub(super) fn is_shared(name: &str) -> bool {
    name.starts_with(SHARED)
}

/// With this begin the names of the entries that all clients share.
pub(super) const SHARED: &str = "all:";
/// By how much two accounts of one moment may differ and still say the same: more than a look takes.
pub(super) const GRAIN: Duration = Duration::from_secs(1);
/// How many entries of either kind a node keeps, beside those holdings that clients share.
pub(super) const MOST: usize = 64;
