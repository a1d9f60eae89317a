//! One node of the world: its keys, its fences, its clock. Owns what is in a node and what of it passes with time;
//! `serving` does what it is told. Knows nothing of clients or connections.

mod serving;

use std::sync::Arc;

use quorlock_protocol::{Canary, CanaryState, HolderId, Notes};

use crate::clock::Rate;

pub(crate) use serving::{Flaw, Request, buckets};

/// Who made a key: the holder id in short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Owner {
    /// Which client.
    pub(crate) client: u8,
    /// Which of its draws of randomness.
    pub(crate) draw: u32,
}

impl Owner {
    /// Reads what [`Env`](crate::client::Env) wrote into the random bytes.
    pub(crate) fn of(holder: &HolderId) -> Self {
        let number = |from, to| u32::from_str_radix(&holder.as_str()[from..to], 16).unwrap_or(0);
        let client = u8::try_from(number(8, 10)).unwrap_or(0);
        Self { client, draw: number(10, 18) }
    }
}

/// A key of the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    /// Its value.
    pub(crate) owner: Owner,
    /// When it goes, by the node's clock in milliseconds.
    pub(crate) expires: u64,
    /// Whether the command that last set it was done in the time that the client allowed for it.
    pub(crate) in_time: bool,
}

/// One node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Site {
    /// The lock key of each resource.
    pub(crate) keys: Vec<Option<Key>>,
    /// The fence of each bucket; zero for none.
    pub(crate) fences: Vec<u64>,
    /// When their table goes, by the node's clock.
    pub(crate) fences_end: u64,
    /// How far its clock was stepped forward, in milliseconds.
    pub(crate) stepped: u64,
    /// When it last forgot or had its clock set, where there are guards against that.
    pub(crate) struck_at: Option<u64>,
    /// Whether it answers.
    pub(crate) health: Health,
    /// The run of the server: a new one with each start.
    pub(crate) run: u32,
    /// What stands in its canary key.
    pub(crate) canary: Option<Arc<str>>,
    /// What clients have left there for the guards.
    pub(crate) notes: Notes,
}

/// Whether a node answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Health {
    /// It does.
    Up,
    /// It is connected, but does nothing.
    Hung,
    /// It is gone.
    Down,
}

impl Site {
    pub(crate) fn new(resources: usize) -> Self {
        Self {
            keys: vec![None; resources],
            fences: vec![0; resources],
            fences_end: u64::MAX,
            stepped: 0,
            struck_at: None,
            health: Health::Up,
            run: 0,
            canary: None,
            notes: Notes::default(),
        }
    }

    /// The node's clock at true time `now`, in whole milliseconds.
    pub(crate) const fn clock(&self, rate: Rate, now: u64) -> u64 {
        rate.millis(now) + self.stepped
    }

    /// Throws out what is over by the node's clock.
    pub(crate) fn expire(&mut self, clock: u64) {
        for key in &mut self.keys {
            if key.is_some_and(|key| key.expires <= clock) {
                *key = None;
            }
        }
        if self.fences_end <= clock {
            self.lose_fences();
        }
    }

    /// Forgets everything: a restart without persistence, or all keys deleted.
    pub(crate) fn forget(&mut self) {
        (self.canary, self.notes) = (None, Notes::default());
        self.keys.fill(None);
        self.lose_fences();
    }

    /// The table of fences goes, and nothing else.
    pub(crate) fn lose_fences(&mut self) {
        self.fences.fill(0);
        self.fences_end = u64::MAX;
    }

    /// Whether the guards may have something to do with it yet.
    pub(crate) fn is_struck(&self, now: u64) -> bool {
        let is_recent = self.struck_at.is_some_and(|at| now < at + STRUCK_MILLIS);
        let canary = self.canary.as_deref().and_then(|text| text.parse::<Canary>().ok());
        let is_trusted = canary.is_some_and(|canary| {
            *canary.run == *self.run.to_string()
                && matches!(canary.state, CanaryState::Trusted { .. })
        });
        is_recent || !is_trusted
    }

    /// Whether every key of the resources is `owner`'s.
    pub(crate) fn stands_for(&self, owner: Owner, resources: &[u8]) -> bool {
        resources
            .iter()
            .all(|resource| self.keys[usize::from(*resource)].is_some_and(|key| key.owner == owner))
    }

    /// Whether a key of the resources is another's.
    pub(crate) fn has_another(&self, owner: Owner, resources: &[u8]) -> bool {
        let mut keys = resources.iter().filter_map(|resource| self.keys[usize::from(*resource)]);
        keys.any(|key| key.owner != owner)
    }

    /// Whether the fence of every bucket is at `token` or above.
    pub(crate) fn knows(&self, token: u64, mut buckets: impl Iterator<Item = usize>) -> bool {
        buckets.all(|bucket| self.fences[bucket] >= token)
    }
}

/// For how long a node counts as struck, whatever its canary says: until every client has looked at it.
const STRUCK_MILLIS: u64 = 3000;
