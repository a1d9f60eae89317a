//! A node inside this process (`memory://name` or `memory://`), for demos and tests. Owns its keys; the same contract
//! and the same meaning as the Lua scripts, without a server.

mod queues;

use std::collections::HashMap;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use quorlock_protocol::{
    Action, Answer, Claim, Command, Environment as _, Fault, FaultKind, Fence, FencingToken, Frees,
    Moment, Reply, Ttl, WaitQueue,
};

use self::queues::Queues;
use crate::clock;
use crate::inbox::ReplyTo;
use crate::keys::{bucket, lock_key};
use crate::node::{Node, NodeState};

/// A node inside this process.
///
/// Nodes of the same name share their keys, until the process ends; one without a name has its own. It
/// protects against nothing beyond the process: use it in demonstrations and unit tests.
///
/// ```
/// use quorlock::{MemoryNode, Node as _};
///
/// assert_eq!(MemoryNode::named("a").address(), "memory://a");
/// ```
pub struct MemoryNode {
    address: String,
    prefix: String,
    store: Arc<Mutex<Store>>,
}

impl MemoryNode {
    /// The node called `name`; made now if nobody in the process has it.
    pub fn named(name: &str) -> Self {
        Self::with_key_prefix(name, "")
    }

    /// The node called `name`, with every key behind `prefix`.
    pub fn with_key_prefix(name: &str, prefix: &str) -> Self {
        let address = format!("memory://{name}");
        Self { address, prefix: prefix.to_owned(), store: registered(name) }
    }

    /// A node that shares its keys with none, with every key behind `prefix`.
    pub fn own(prefix: &str) -> Self {
        let store = Arc::default();
        Self { address: "memory://".to_owned(), prefix: prefix.to_owned(), store }
    }
}

impl Node for MemoryNode {
    fn address(&self) -> &str {
        &self.address
    }

    fn send(&self, command: Command, reply_to: ReplyTo) {
        let now = clock::now();
        let answer = if command.not_after < now {
            Err(Fault::new(FaultKind::Late, "this process came to it too late to send it"))
        } else {
            let mut store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
            Ok(store.run(now, &self.prefix, &command, &reply_to))
        };
        reply_to.deliver(Reply { ticket: command.ticket, answer, repeated: false });
    }

    fn state(&self) -> NodeState {
        NodeState::Healthy
    }

    fn settled(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(ready(()))
    }

    fn close(&self) {}
}

/// The keys of one node.
#[derive(Default)]
struct Store {
    keys: HashMap<String, Entry>,
    /// The highest token of each bucket; what ends with the process needs no other end.
    fences: HashMap<u64, FencingToken>,
    queues: Queues,
    /// The number of keys at which the expired ones are removed.
    sweep_at: usize,
}

struct Entry {
    holder: String,
    expires: Moment,
}

/// What stands in the lock keys of a claim.
struct Found {
    all_ours: bool,
    any_gone: bool,
    /// The latest end of those that are another's.
    theirs: Option<Moment>,
    /// The soonest end of those that are ours.
    ours: Moment,
}

impl Store {
    fn run(&mut self, now: Moment, prefix: &str, command: &Command, reply_to: &ReplyTo) -> Answer {
        let claim = &*command.claim;
        let locks: Vec<String> =
            claim.resources.as_slice().iter().map(|it| lock_key(prefix, it).into_owned()).collect();
        let found = self.look(now, &locks, claim);
        match command.action {
            Action::Grant { place: Some(place), .. }
                if found.any_gone && self.queues.is_behind(now, &locks, place) =>
            {
                let frees = Frees::In(WaitQueue::TURN);
                Answer::Theirs { floor: self.highest_fence(&locks), frees }
            }
            Action::Grant { key_ttl, fence, .. } => {
                self.grant(now, &locks, claim, (key_ttl, fence), &found)
            }
            Action::Restore { key_ttl } => self.grant(now, &locks, claim, (key_ttl, None), &found),
            Action::Extend { key_ttl, may_shorten } => {
                if found.all_ours {
                    self.extend(now, &locks, key_ttl, may_shorten);
                }
                found.answer(None)
            }
            Action::Revoke { calls, max_remaining } => {
                self.revoke(now, &locks, claim, (calls, max_remaining));
                found.answer(None)
            }
            Action::RaiseFence { token, .. } => {
                if !found.all_ours {
                    return found.answer(None);
                }
                self.raise(&locks, token);
                found.answer(self.highest_fence(&locks))
            }
            Action::Inspect => found.inspected(now, self.highest_fence(&locks)),
            Action::Enqueue { place } => {
                let ends: Vec<_> =
                    locks.iter().map(|lock| self.live(now, lock).map(|it| it.expires)).collect();
                let queued = self.queues.enqueue(now, &locks, &ends, place, reply_to);
                let last = Found { theirs: ends.into_iter().flatten().max(), ..found };
                Answer::Queued { queued, frees: last.frees(now) }
            }
            Action::Leave { place } => {
                let free: Vec<_> =
                    locks.iter().map(|lock| self.live(now, lock).is_none()).collect();
                self.queues.leave(now, &locks, &free, place);
                Answer::Done
            }
            Action::CountWaiters => Answer::Waiters(self.queues.count(now, &locks)),
        }
    }

    fn extend(&mut self, now: Moment, locks: &[String], key_ttl: Ttl, most: Option<Duration>) {
        let least = now + key_ttl.as_duration();
        for lock in locks {
            if let Some(entry) = self.keys.get_mut(lock) {
                let shortens = most.is_some_and(|most| entry.expires.since(now) <= most);
                entry.expires = if shortens { least } else { entry.expires.max(least) };
                self.queues.show(lock, Some(entry.expires.since(now)));
            }
        }
    }

    fn revoke(
        &mut self,
        now: Moment,
        locks: &[String],
        claim: &Claim,
        (calls, max_remaining): (bool, Option<Duration>),
    ) {
        let is_ended = |entry: &mut Entry| {
            let is_ours = entry.holder == claim.holder.as_str();
            is_ours && max_remaining.is_none_or(|most| entry.expires.since(now) <= most)
        };
        for lock in locks {
            if self.live(now, lock).is_some_and(is_ended) {
                self.keys.remove(lock);
            }
            match self.live(now, lock) {
                Some(_) => {}
                None if calls => self.queues.call(now, lock),
                None => self.queues.show(lock, None),
            }
        }
    }

    fn grant(
        &mut self,
        now: Moment,
        locks: &[String],
        claim: &Claim,
        (key_ttl, fence): (Ttl, Option<Fence>),
        found: &Found,
    ) -> Answer {
        let highest = fence.and_then(|_| self.highest_fence(locks));
        if found.theirs.is_some() {
            return Answer::Theirs { floor: highest, frees: found.frees(now) };
        }
        let until = now + key_ttl.as_duration();
        for lock in locks {
            if let Some(entry) = self.live(now, lock) {
                entry.expires = entry.expires.max(until);
            } else {
                self.put(now, lock.clone(), claim.holder.as_str().to_owned(), key_ttl);
            }
        }
        let Some(fence) = fence else {
            return Answer::Ours { token: None, remaining: None };
        };
        let time = clock::System.wall_micros();
        let (least, most) = (time.saturating_sub(Fence::SLACK_MICROS), time + Fence::SLACK_MICROS);
        let floor = highest.map_or(1, |token| token.0 + 1);
        let token = FencingToken(fence.proposal.0.clamp(least, most).max(floor));
        self.raise(locks, token);
        Answer::Ours { token: Some(token), remaining: None }
    }

    fn look(&mut self, now: Moment, locks: &[String], claim: &Claim) -> Found {
        let mut found =
            Found { all_ours: true, any_gone: false, theirs: None, ours: Moment::FAR_FUTURE };
        for lock in locks {
            match self.live(now, lock) {
                Some(Entry { holder, expires }) if holder == claim.holder.as_str() => {
                    found.ours = found.ours.min(*expires);
                }
                Some(Entry { expires, .. }) => {
                    found.all_ours = false;
                    found.theirs = found.theirs.max(Some(*expires));
                }
                None => {
                    found.all_ours = false;
                    found.any_gone = true;
                }
            }
        }
        found
    }

    fn highest_fence(&self, locks: &[String]) -> Option<FencingToken> {
        locks.iter().filter_map(|lock| self.fences.get(&bucket(lock))).max().copied()
    }

    fn raise(&mut self, locks: &[String], token: FencingToken) {
        for lock in locks {
            let fence = self.fences.entry(bucket(lock)).or_default();
            *fence = token.max(*fence);
        }
    }

    /// The entry under `key`, unless it is gone by `now`.
    fn live(&mut self, now: Moment, key: &str) -> Option<&mut Entry> {
        self.keys.get_mut(key).filter(|entry| entry.expires > now)
    }

    fn put(&mut self, now: Moment, key: String, holder: String, key_ttl: Ttl) {
        if self.keys.len() >= self.sweep_at {
            self.keys.retain(|_, entry| entry.expires > now);
            self.sweep_at = SWEEP_FIRST_AT.max(2 * self.keys.len());
        }
        self.keys.insert(key, Entry { holder, expires: now + key_ttl.as_duration() });
    }
}

impl Found {
    fn answer(&self, token: Option<FencingToken>) -> Answer {
        if self.theirs.is_some() {
            Answer::Theirs { floor: token, frees: Frees::Unknown }
        } else if self.any_gone {
            Answer::Absent
        } else {
            Answer::Ours { token, remaining: None }
        }
    }

    /// The answer to a look, which tells also for how long the keys stay.
    fn inspected(&self, now: Moment, token: Option<FencingToken>) -> Answer {
        match self.answer(token) {
            Answer::Ours { token, .. } => {
                Answer::Ours { token, remaining: Some(self.ours.since(now)) }
            }
            Answer::Theirs { floor, .. } => Answer::Theirs { floor, frees: self.frees(now) },
            answer => answer,
        }
    }

    fn frees(&self, now: Moment) -> Frees {
        // Rounded up to the grain of the other nodes: the key is free then, and not before.
        self.theirs.map_or(Frees::Unknown, |until| {
            let micros = until.since(now).as_micros();
            let millis = u64::try_from(micros.div_ceil(1000)).unwrap_or(u64::MAX);
            Frees::In(Duration::from_millis(millis))
        })
    }
}

/// The keys of the node called `name`, shared by all of this process.
fn registered(name: &str) -> Arc<Mutex<Store>> {
    static NODES: OnceLock<Mutex<HashMap<String, Arc<Mutex<Store>>>>> = OnceLock::new();
    let nodes = NODES.get_or_init(Mutex::default);
    let mut nodes = nodes.lock().unwrap_or_else(PoisonError::into_inner);
    Arc::clone(nodes.entry(name.to_owned()).or_default())
}

const SWEEP_FIRST_AT: usize = 1024;
