//! What one client knows of one node.

use std::sync::Arc;

use super::holdings::Holdings;
use super::memory::Memory;
use super::sightings::Leads;
use super::suspicion::Alarm;
use crate::time::Moment;

/// What is known of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(super) struct NodeRecord {
    pub(super) contact: Contact,
    /// The memory that its canary named when it was looked at last.
    pub(super) memory: Option<Memory>,
    /// The name that this client has last given to a memory of the node.
    pub(super) begun: Option<u64>,
    /// When this client heard that the memory is a young one, or that there is none.
    pub(super) forgot: Option<Moment>,
    /// When this client first found that there is none,
    pub(super) empty_since: Option<Moment>,
    /// and when a look was sent that found so last.
    pub(super) empty_at: Option<Moment>,
    /// When a look was sent that found that nobody has used the node for a while.
    pub(super) idle: Option<Moment>,
    /// The run of the server at the last look.
    pub(super) run: Option<Arc<str>>,
    /// When the last look was sent.
    pub(super) looked_at: Moment,
    /// The holdings that the node is sure to know since then.
    pub(super) sure: Holdings,
    /// What it tells of the clocks of others.
    pub(super) leads: Leads,
    /// Whether that is to be noted anew, as its own was set back,
    pub(super) notes_anew: bool,
    /// and whether it is being noted so.
    pub(super) is_noted_anew: bool,
    /// Its clock was stepped forward, and no new memory has begun since.
    pub(super) alarm: Option<Alarm>,
    /// Whether this client knows that the memory tells of every long lock.
    pub(super) is_vouched: bool,
    /// Whether it is to be looked at for another reason.
    pub(super) recheck: bool,
    pub(super) is_told: bool,
    pub(super) is_told_long: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Contact {
    #[default]
    Unknown,
    Down,
    Heard,
}

impl NodeRecord {
    pub(super) fn is_heard(&self) -> bool {
        self.contact == Contact::Heard
    }
}
