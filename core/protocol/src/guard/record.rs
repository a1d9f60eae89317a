//! One client's knowledge of one node, as the guards use it. Owns the fields; decides nothing.

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
    /// When the last try to reach it began that has failed.
    pub(super) failed_at: Moment,
    /// The memory that its canary named at the last look.
    pub(super) memory: Option<Memory>,
    /// The last memory name that this client gave to the node.
    pub(super) begun: Option<u64>,
    /// When this client learned that the memory is young, or that there is none.
    pub(super) forgot: Option<Moment>,
    /// When this client first found that there is no memory,
    pub(super) empty_since: Option<Moment>,
    /// and when the last look that found none was sent.
    pub(super) empty_at: Option<Moment>,
    /// When a look was sent that found the node unused for a while.
    pub(super) idle: Option<Moment>,
    /// The run of the server at the last look.
    pub(super) run: Option<Arc<str>>,
    /// When the last look was sent.
    pub(super) looked_at: Moment,
    /// The holdings that the node certainly knows since then.
    pub(super) sure: Holdings,
    /// What its notes say of other nodes' clocks.
    pub(super) leads: Leads,
    /// Whether those notes must be replaced, as the node's own clock was set back,
    pub(super) notes_anew: bool,
    /// and whether replacing them is under way.
    pub(super) is_noted_anew: bool,
    /// Its clock was stepped forward, and no new memory has begun since.
    pub(super) alarm: Option<Alarm>,
    /// Whether this client knows that the memory has every long lock.
    pub(super) is_vouched: bool,
    /// Whether it must be looked at for another reason.
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
