//! What a client reads when it looks at a node for the guards (canary, notes, clock), and what it is
//! to do about that node then. Owns these types, which the guards and the code of nodes exchange;
//! knows no wire format.

use std::sync::Arc;
use std::time::Duration;

use super::canary::{Canary, Relied};
use super::clocks::ClockReading;
use super::notes::{GRAIN, Notes};
use super::quarantine::Quarantine;
use crate::time::Moment;

/// What a client reads from a node at every connection, and from time to time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Checkup {
    /// The run of the server: a new one with each start of it. `None` if this user may not ask.
    pub run: Option<Arc<str>>,
    /// Where the server took its keys from in this run: it changes when they come from elsewhere. `None` if this user
    /// may not ask.
    pub lineage: Option<Arc<str>>,
    /// Whether it writes every change to disk before it answers.
    pub durable: bool,
    /// What stands in its canary key.
    pub canary: CanaryKey,
    /// Its clock.
    pub clock: ClockReading,
    /// What other clients have left there.
    pub notes: Notes,
}

/// What stands in a canary key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CanaryKey {
    /// Nothing.
    Absent,
    /// A canary.
    Present(Box<Canary>),
    /// Something that this version cannot read.
    Unreadable(Arc<str>),
}

impl CanaryKey {
    /// Reads the text of the key.
    pub fn read(text: Option<&str>) -> Self {
        let Some(text) = text else {
            return Self::Absent;
        };
        let canary = text.parse().map(Box::new);
        canary.map_or_else(|_| Self::Unreadable(text.into()), Self::Present)
    }

    /// Whether it was written at a later time than the node's clock shows now: the clock was set
    /// back since.
    pub(super) fn is_ahead_of(&self, micros: u64) -> bool {
        let margin = u64::try_from(GRAIN.as_micros()).unwrap_or(u64::MAX);
        matches!(self, Self::Present(it) if it.node_micros > micros.saturating_add(margin))
    }

    /// The text of the key.
    pub fn text(&self) -> Option<Arc<str>> {
        match self {
            Self::Absent => None,
            Self::Present(canary) => Some(canary.to_string().into()),
            Self::Unreadable(text) => Some(Arc::clone(text)),
        }
    }
}

/// What to do after a [`Checkup`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Ruling {
    /// Grants count.
    Open(Pass),
    /// Leave the notes there, and write the canary if the key still holds what was found; then look
    /// again.
    Write(Writing),
    /// Grants do not count before `until`; look again then, and every second before.
    Quarantined(Quarantine),
    /// The decision depends on other nodes. Grants do not count; look again when more is known of
    /// them, at this moment at the latest.
    Undecided(Moment),
}

/// The conditions under which a node's grants count.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pass {
    /// What must stand in the canary key.
    pub relied: Relied,
    /// The longest time for which a grant may ask the node to keep a key.
    pub longest: Duration,
}

/// A canary to write in the place of the value that was found.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Writing {
    /// What was found in the canary key.
    pub expected: Option<Arc<str>>,
    /// The new value, without the node's clock, which the node appends.
    pub canary: Arc<str>,
}
