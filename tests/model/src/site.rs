//! One node of the world: its keys, its fences, its clock. Owns this state and how it changes with
//! time; `serving` carries out commands. Knows nothing of clients or connections.

mod queueing;
mod serving;

use std::time::Duration;

use quorlock_protocol::{CanaryKey, GuardStore, HolderId, News, Notes, WaitQueue, Waiter, Writing};

use crate::clock::Rate;

pub(crate) use queueing::moment;
pub(crate) use serving::{Flaw, Request, buckets};

/// Who made a key: the holder id in short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Holder {
    /// Which client.
    pub(crate) client: u8,
    /// Which of its draws of randomness.
    pub(crate) draw: u32,
}

impl Holder {
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
    pub(crate) holder: Holder,
    /// When it goes, by the node's clock in milliseconds.
    pub(crate) expires: u64,
    /// Whether the command that last set it was done in the time that the client allowed for it.
    pub(crate) in_time: bool,
}

impl Key {
    /// Whether no more than `most` is left of it.
    fn ends_within(&self, most: Duration, clock: u64) -> bool {
        u128::from(self.expires.saturating_sub(clock)) <= most.as_millis()
    }
}

/// One node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Site {
    /// The lock key of each resource.
    pub(crate) keys: Vec<Option<Key>>,
    /// Who waits for each resource.
    pub(crate) queues: Vec<WaitQueue>,
    /// What the queues have just told, for the world to deliver.
    pub(crate) told: Vec<(Waiter, News)>,
    /// The clients, as bits, that are told of the next change of a key.
    pub(crate) watchers: u64,
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
    /// Counts how often it took its keys from elsewhere in one run.
    pub(crate) lineage: u32,
    /// The keys for the guards.
    pub(crate) store: GuardStore,
    /// The same as they were one beat ago, before any lock.
    pub(crate) old: GuardStore,
    /// What stood there when it was struck last, where that may come back.
    pub(crate) past: Option<GuardStore>,
    /// Whether it has lost its memory, and no client has begun a new one since.
    pub(crate) is_lost: bool,
    /// The true time at which its memory began.
    pub(crate) born: u64,
    /// The memories that were replaced by new ones.
    pub(crate) ended: Vec<u64>,
    /// Whether a grant has counted that relied on one of these.
    pub(crate) is_misled: bool,
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
            queues: vec![WaitQueue::default(); resources],
            told: Vec::new(),
            watchers: 0,
            fences: vec![0; resources],
            fences_end: u64::MAX,
            stepped: 0,
            struck_at: None,
            health: Health::Up,
            run: 0,
            lineage: 0,
            store: GuardStore::default(),
            old: GuardStore::default(),
            past: None,
            is_lost: false,
            born: 0,
            ended: Vec::new(),
            is_misled: false,
        }
    }

    /// The node's clock at true time `now`, in whole milliseconds.
    pub(crate) const fn clock(&self, rate: Rate, now: u64) -> u64 {
        rate.millis(now) + self.stepped
    }

    /// Whether a key or the table of fences has expired by the node's clock.
    pub(crate) fn has_expired(&self, clock: u64) -> bool {
        self.fences_end <= clock || self.keys.iter().flatten().any(|key| key.expires <= clock)
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
        (self.store, self.is_lost) = (GuardStore::default(), true);
        self.keys.fill(None);
        self.lose_queues();
        self.lose_fences();
    }

    /// The table of fences goes, and nothing else.
    pub(crate) fn lose_fences(&mut self) {
        self.fences.fill(0);
        self.fences_end = u64::MAX;
    }

    /// The queues go, and nothing else.
    pub(crate) fn lose_queues(&mut self) {
        self.queues.fill(WaitQueue::default());
    }

    /// Whether the guards may have something to do with it yet.
    pub(crate) fn is_struck(&self, now: u64) -> bool {
        let is_recent = self.struck_at.is_some_and(|at| now < at + STRUCK_MILLIS);
        let is_young = self.born > 0 && now < self.born + STRUCK_MILLIS;
        is_recent || self.is_lost || is_young
    }

    /// What stood there one beat ago is there again, and no key.
    pub(crate) fn take_back(&mut self) {
        let old = self.old.clone();
        self.forget();
        self.store = old;
    }

    /// Whether what stood there one beat ago is told from what stands there now: every client has looked since.
    pub(crate) fn can_come_back(&self) -> bool {
        let canary = |store: &GuardStore| match CanaryKey::read(store.canary.as_deref()) {
            CanaryKey::Present(canary) => Some((canary.id, canary.count)),
            CanaryKey::Absent | CanaryKey::Unreadable(_) => None,
        };
        let (old, now) = (canary(&self.old), canary(&self.store));
        old.zip(now).is_some_and(|(old, now)| old.0 == now.0 && old.1 < now.1)
    }

    /// Keeps what stands there, before it is struck.
    pub(crate) fn put_aside(&mut self) {
        if memory_in(&self.store).is_some() {
            self.past = Some(self.store.clone());
        }
    }

    /// Whether that shows a memory which was replaced by another.
    pub(crate) fn can_return(&self) -> bool {
        self.past.as_ref().and_then(memory_in).is_some_and(|id| self.ended.contains(&id))
    }

    /// It is there again, and no key.
    pub(crate) fn bring_back(&mut self) {
        let past = self.past.take().unwrap_or_default();
        self.forget();
        self.store = past;
    }

    /// One look at it at true time `now`, when its clock shows `micros`.
    pub(crate) fn check_up(
        &mut self,
        writing: Option<&Writing>,
        left: &Notes,
        (now, micros): (u64, u64),
    ) -> (CanaryKey, Notes) {
        let before = self.memory();
        let told = self.store.look(writing, left, micros);
        let after = self.memory();
        if before != after {
            (self.is_lost, self.born) = (false, now);
            self.ended.extend(before);
        }
        told
    }

    /// The name of the memory that its canary shows.
    pub(crate) fn memory(&self) -> Option<u64> {
        memory_in(&self.store)
    }

    /// Whether every key of the resources is `holder`'s.
    pub(crate) fn stands_for(&self, holder: Holder, resources: &[u8]) -> bool {
        resources.iter().all(|resource| {
            self.keys[usize::from(*resource)].is_some_and(|key| key.holder == holder)
        })
    }

    /// Whether a key of the resources is another's.
    pub(crate) fn has_another(&self, holder: Holder, resources: &[u8]) -> bool {
        let mut keys = resources.iter().filter_map(|resource| self.keys[usize::from(*resource)]);
        keys.any(|key| key.holder != holder)
    }

    /// Whether the fence of every bucket is at `token` or above.
    pub(crate) fn knows(&self, token: u64, mut buckets: impl Iterator<Item = usize>) -> bool {
        buckets.all(|bucket| self.fences[bucket] >= token)
    }
}

fn memory_in(store: &GuardStore) -> Option<u64> {
    match CanaryKey::read(store.canary.as_deref()) {
        CanaryKey::Present(canary) => Some(canary.id),
        CanaryKey::Absent | CanaryKey::Unreadable(_) => None,
    }
}

/// For how long a node counts as struck, whatever its canary says: until every client has looked at it.
const STRUCK_MILLIS: u64 = 3000;
