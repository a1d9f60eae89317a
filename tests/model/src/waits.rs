//! Checks what must hold of waiting in queues: a free lock is taken soon, fair callers get it in their order, nothing
//! is left behind, and few messages are sent. Owns these checks, and what the world remembers for them.

use crate::client::{Client, Phase, Status};
use crate::print::fingerprint;
use crate::property::{Property, Violation};
use crate::scope::{Budget, Scope};
use crate::site::{Health, Holder, Key, moment};
use crate::step::name;
use crate::world::World;

/// What the world remembers of waiting.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Waits {
    /// The connections, as bits, whose messages come last for now.
    pub(crate) held: u64,
    /// Since when the lock has been free on a quorum, and somebody waits for it.
    idle_since: Option<u64>,
    /// In fair mode, when the user of each client asked last, by its wall clock.
    asked: Vec<u64>,
    /// The clients, as bits, that nobody who came later may overtake.
    due: u64,
    /// How many more messages each node may get or send since a holder released, until the next has had the lock for a
    /// while.
    hand_off: Option<Vec<u8>>,
    /// How often each client has looked at queues since the holder has the lock, and since when it has it.
    looks: Option<(u64, Vec<u8>)>,
}

impl World {
    /// Gives the keys to a holder that knows nothing of queues.
    pub(crate) fn set_up_foreign(&mut self, scope: &Scope) {
        let Some(expires) = scope.foreign else {
            return;
        };
        let holder = Holder { client: FOREIGN, draw: 0 };
        for node in 0..self.nodes.len() {
            self.nodes[node].keys.fill(Some(Key {
                holder,
                expires: self.now + expires,
                in_time: false,
            }));
        }
    }

    pub(crate) fn has_foreign(&self, node: u8) -> bool {
        let mut keys = self.nodes[usize::from(node)].keys.iter().flatten();
        keys.any(|key| key.holder.client == FOREIGN)
    }

    /// Someone deletes the key of that holder.
    pub(crate) fn delete_foreign(&mut self, node: u8) {
        let before = self.nodes[usize::from(node)].keys.clone();
        self.nodes[usize::from(node)].keys.fill(None);
        let view = &mut self.views.0[usize::from(node)];
        *view = fingerprint(&(*view, self.now, FOREIGN));
        self.fire_watches(node, &before);
    }

    pub(crate) fn has_places(&self, node: u8) -> bool {
        self.nodes[usize::from(node)].queues.iter().any(|queue| !queue.is_empty())
    }

    /// A user asks for the lock.
    pub(crate) fn note_arrival(&mut self, scope: &Scope, client: u8) {
        self.waits.hand_off = None;
        if scope.policy.fair() {
            self.waits.asked.resize(self.clients.len(), 0);
            self.waits.asked[usize::from(client)] = scope.wall(client, self.now);
        }
    }

    /// A holder releases.
    pub(crate) fn note_hand_off(&mut self, scope: &Scope) {
        self.waits.looks = None;
        // What is under way belongs to the hand-off before.
        // A caller that was the first once and is not any more watches, too, and costs more.
        let is_plain = self.nodes.iter().all(|node| node.watchers.count_ones() <= 1);
        let is_quiet = scope.counts_messages && is_plain && !self.has_messages();
        self.waits.hand_off = is_quiet.then(|| vec![MOST_MESSAGES; self.nodes.len()]);
    }

    /// A message comes to a node, or its queue says something.
    pub(crate) fn count_message(&mut self, node: u8) {
        if let Some(count) =
            self.waits.hand_off.as_mut().and_then(|it| it.get_mut(usize::from(node)))
        {
            *count = count.wrapping_sub(1);
        }
    }

    /// A client looks at a queue.
    pub(crate) fn count_look(&mut self, client: u8) {
        if !self.clients.iter().any(|it| matches!(it.phase, Phase::Holding(_))) {
            return;
        }
        if let Some(count) =
            self.waits.looks.as_mut().and_then(|it| it.1.get_mut(usize::from(client)))
        {
            *count = count.saturating_add(1);
        }
    }

    /// A lease was won.
    pub(crate) fn check_turn(&mut self, scope: &Scope, client: u8) -> Result<(), Violation> {
        if scope.counts_messages {
            self.waits.looks = Some((self.now, vec![0; self.clients.len()]));
        }
        if !scope.policy.fair() {
            return Ok(());
        }
        let asked = |client: u8| self.waits.asked.get(usize::from(client)).copied();
        let is_passed = |other: &&Client| {
            let is_due = self.waits.due >> other.id & 1 == 1;
            let waits = matches!(other.phase, Phase::Acquiring(_));
            is_due && waits && other.id != client && asked(other.id) < asked(client)
        };
        self.clients.iter().find(is_passed).map_or(Ok(()), |other| {
            let text = format!("{} gets the lock ahead of {}", name(client), name(other.id));
            Err(Violation::new(Property::Fifo, text))
        })
    }

    /// Notes whose turn it is, where that matters.
    pub(crate) fn note_turns(&mut self, scope: &Scope) {
        if !scope.policy.fair() || self.wakes.is_empty() {
            return;
        }
        for client in (0..u8::MAX).take(self.clients.len()) {
            let waiter = self.waiter(client);
            let has_place = |node: &usize| {
                let now = moment(self.node_clock(scope, *node));
                let mut places = self.nodes[*node].queues.iter().flat_map(|it| it.places(now));
                places.any(|place| Some(place.waiter) == waiter)
            };
            let is_free = |node: &usize| self.nodes[*node].keys.iter().all(Option::is_none);
            let places: Vec<_> = (0..self.nodes.len()).filter(has_place).collect();
            if places.len() < scope.quorum() {
                self.waits.due &= !(1 << client);
            } else if places.iter().filter(|node| is_free(node)).count() >= scope.quorum() {
                self.waits.due |= 1 << client;
            }
        }
    }

    /// Notes since when the lock waits to be taken, before time passes.
    pub(crate) fn note_idleness(&mut self, scope: &Scope) {
        if self.wakes.is_empty() {
            return;
        }
        let since = self.waits.idle_since.unwrap_or(self.now);
        self.waits.idle_since = self.is_idle(scope).then_some(since);
        if self.clients.iter().any(|it| matches!(it.phase, Phase::Holding(_))) {
            self.waits.hand_off = None;
        }
    }

    /// Whether a quorum of nodes is free for somebody who waits.
    fn is_idle(&self, scope: &Scope) -> bool {
        let waits = |client: &&Client| {
            client.status == Status::Running && matches!(client.phase, Phase::Acquiring(_))
        };
        self.clients.iter().filter(waits).any(|client| {
            let is_free = |node: &&u8| {
                let site = &self.nodes[usize::from(**node)];
                let mut keys =
                    scope.wants_of(client.id).iter().map(|it| site.keys[usize::from(*it)]);
                let is_there =
                    site.health == Health::Up && !scope.cuts.contains(&(client.id, **node));
                is_there && keys.all(|key| key.is_none())
            };
            let nodes: Vec<u8> = self.node_ids().collect();
            nodes.iter().filter(is_free).count() >= scope.quorum()
        })
    }

    pub(crate) fn check_idleness(&self, scope: &Scope) -> Result<(), Violation> {
        let Some(since) = self.waits.idle_since else {
            return Ok(());
        };
        let idle = self.now.saturating_sub(since);
        if idle <= longest_idleness(scope) || !self.is_idle(scope) {
            return Ok(());
        }
        let text = format!("the lock has been free for {idle} ms, and somebody waits for it");
        Err(Violation::new(Property::Woken, text))
    }

    /// Checks that nothing is left of callers that have ended, and that few messages were sent.
    pub(crate) fn check_places(&self, scope: &Scope) -> Result<(), Violation> {
        if self.wakes.is_empty() {
            return Ok(());
        }
        self.check_few()?;
        let has_ended = |client: &Client| {
            let is_idle = matches!(client.phase, Phase::Idle) && client.background.is_empty();
            client.status == Status::Dead || (is_idle && client.locks == 0)
        };
        if !self.clients.iter().all(has_ended) || self.has_messages() || loses(scope, self.budget) {
            return Ok(());
        }
        for (place, node) in self.nodes.iter().enumerate() {
            let now = moment(self.node_clock(scope, place));
            let is_dead = |process: u64| {
                let client = usize::try_from(process).ok().and_then(|it| self.clients.get(it));
                client.is_some_and(|client| client.status == Status::Dead)
            };
            let mut left = node.queues.iter().flat_map(|queue| queue.places(now));
            if let Some(place_left) = left.find(|it| !is_dead(it.waiter.process)) {
                let text =
                    format!("{} has a place on node {place}, and has ended", place_left.waiter);
                return Err(Violation::new(Property::Tidy, text));
            }
        }
        if self.wakes.iter().any(|wake| wake.watches) {
            return Err(Violation::new(Property::Tidy, "a key is watched, and all have ended"));
        }
        Ok(())
    }

    fn check_few(&self) -> Result<(), Violation> {
        let mut left = self.waits.hand_off.iter().flatten();
        if left.any(|left| *left > u8::MAX / 2) {
            let text = "a hand-off took more messages of one node than it needs";
            return Err(Violation::new(Property::Few, text));
        }
        let Some((since, looks)) = &self.waits.looks else {
            return Ok(());
        };
        // As it begins to wait, as it becomes the first, and after a round that met the holder's.
        let rounds = 5 + self.now.saturating_sub(*since) / REFRESH;
        let most = rounds * u64::try_from(self.nodes.len()).unwrap_or(u64::MAX);
        if looks.iter().any(|count| u64::from(*count) > most) {
            let text = "who waits looks more often than a place must be kept";
            return Err(Violation::new(Property::Few, text));
        }
        Ok(())
    }
}

/// Whether something was lost that may have been a word to a queue.
fn loses(scope: &Scope, left: Budget) -> bool {
    let kept = |it: Budget| (it.crashes, it.pauses, it.lost_news, it.queue_losses);
    let lost = scope.budget.faults - left.faults;
    let (before, after) = (kept(scope.budget), kept(left));
    let harmless = (before.0 - after.0) + (before.1 - after.1);
    lost > harmless + (before.2 - after.2) + (before.3 - after.3)
}

/// For how long a lock may be free although somebody waits, in milliseconds: for some turns, or while a client that
/// stopped waits before it tries again. Where something is lost, up to the next refresh; also where the only one that
/// watches the key may be gone, which does not happen in fair mode: there every release calls.
fn longest_idleness(scope: &Scope) -> u64 {
    let Budget { cancels, abandons, crashes, pauses, .. } = scope.budget;
    let sound = Budget { faults: 0, deviations: 0, ..scope.budget };
    let loses = sound != Budget { pauses, crashes, cancels, abandons, ..Budget::default() };
    let is_blind = crashes + pauses > 0 && !scope.policy.fair();
    let turns = LONGEST_TURNS + if pauses > 0 { RETRY } else { 0 };
    if loses || is_blind { REFRESH + turns } else { turns }
}

/// The client that knows nothing of queues.
pub(crate) const FOREIGN: u8 = u8::MAX;
/// The most messages of a hand-off on one node: a revoke; two messages to the waiters, and one to each client that watches the key;
/// a look at the key, a grant, and one more word of the change; the winner's leave, a word to the next one, and its
/// looks at the queue and at the key.
const MOST_MESSAGES: u8 = 11;
/// How often a place is kept, in milliseconds.
const REFRESH: u64 = 3000;
/// How long a client waits after a round that failed, in milliseconds.
const RETRY: u64 = 100;
/// Two turns, and the grains of the clocks.
const LONGEST_TURNS: u64 = 120;
