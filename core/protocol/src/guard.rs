//! The guards: which nodes may have forgotten locks, so that their grants must not count.
//!
//! Redlock is safe while nodes remember their keys for as long as they were asked to. Two things break
//! that without a sign: a node that restarts without its keys, and a clock that is set forward. The
//! guards see both from outside and hold the node's grants back (*quarantine*) until every lock that it
//! may have forgotten is over.
//!
//! # A memory has a name, a count and an age
//! Each node carries a *canary*: a key that goes when its other keys go. It names the memory (a random number), the
//! server that it was written on, and how often it was written. Clients write it anew every few seconds (a *beat*),
//! and leave the count on the other nodes. A grant counts only while the canary names the memory that the client
//! relies on, beaten no less often than is known. So a memory that is lost, or comes back in an older state, is
//! noticed; it gets a new name, and the old one must never come back.
//!
//! # Trust is never written down
//! Whether a node's grants count is worked out by each client at each look, from what it has read:
//!
//! - the *age* of the memory: at least so long ago a lock was asked for that the memory does not know;
//! - the *holdings*: which locks may still be held that last longer than the *floor* (ten seconds). Whoever asks
//!   for such a lock leaves an entry on the nodes before a grant counts.
//!
//! A node is open when its age is above the floor, and above the length of every lock that may be held and that
//! it may have forgotten. What clients know is joined by maximum, so that nobody can overwrite what another knows.
//!
//! # Clocks
//! Every grant tells the node's time. A clock that jumps ahead of the client's makes its node suspect; then all
//! nodes are asked. If a majority jumped, it was this client that stood still (its leases end sooner); otherwise
//! the node gets a new memory as after a restart. Clients leave on each node how the others' clocks stand to its
//! own, so that newcomers notice a step, too.
//!
//! The clock of the guards is the operating system's, which stops for nobody: what a client's leases have lost
//! while it stood still is no waiting, and moves nothing here.
//!
//! # Independence
//! At every connection the server says who it is and whom it follows. An address that leads to a server
//! which is there already under another, to a replica, or to a second member of one Redis Cluster has
//! no vote.

mod canary;
mod checkup;
mod clocks;
mod founding;
mod gate;
mod holdings;
mod independence;
mod memory;
mod notes;
mod notice;
mod own_long_locks;
mod quarantine;
mod record;
mod sightings;
mod store;
mod suspicion;
mod times;

use std::time::Duration;

pub use self::canary::{Canary, NoCanary, Relied};
pub use self::checkup::{CanaryKey, Checkup, Pass, Ruling, Writing};
pub use self::clocks::ClockReading;
use self::clocks::Clocks;
use self::founding::Founding;
use self::holdings::Holdings;
use self::independence::Independence;
pub use self::independence::{Dependence, Identity, Membership};
use self::memory::{Look, Memory};
pub use self::notes::{HoldingNote, LeadNote, Notes, SightingNote};
pub use self::notice::Notice;
use self::own_long_locks::OwnLongLocks;
pub use self::quarantine::{Quarantine, QuarantineReason};
use self::record::{Contact, NodeRecord};
use self::sightings::{Counts, Leads};
pub use self::store::GuardStore;
use self::suspicion::Suspicion;
use self::times::{
    AGES_AGO, BEAT_EVERY, FIRST_CONTACT, FIRST_CONTACT_IF_IDLE, FLOOR, FLOOR_TTL, IDLE, LONG_WAIT,
    LONGEST_FORGOTTEN, LOOK_AGAIN, LOOKED_AT_WITHIN, NOT_ASKED_WITHIN,
};
use crate::identity::NodeId;
use crate::machine::Environment;
use crate::policy::{Policy, RestartGuard};
use crate::quorum::Quorum;
use crate::time::{Moment, Ttl};
use crate::validity::Drift;

/// What one client knows of the memory and the clocks of all its nodes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct Guards {
    quorum: Quorum,
    restart: RestartGuard,
    watches_clocks: bool,
    drift: Drift,
    /// The longest time for which any lock may ask nodes to keep keys, where that was set.
    limit: Option<Duration>,
    /// For so long every client waits at a node that forgot: the longest that is known of any.
    floor: Duration,
    /// The shortest time for which this client asks, at most the floor, as others may ask for less than it does: its
    /// drift allowance is what a clock may be off.
    shortest: Ttl,
    records: Vec<NodeRecord>,
    clocks: Clocks,
    counts: Counts,
    holdings: Holdings,
    own_long_locks: OwnLongLocks,
    founding: Founding,
    suspicion: Option<Suspicion>,
    /// When this client first heard of any node,
    contact_since: Option<Moment>,
    /// and when one came or went last.
    contact_changed: Moment,
    /// Nodes that were not looked at since then are to be looked at now.
    look_since: Moment,
    /// When this client was last found to have stood still.
    paused_until: Moment,
    /// What the leases have lost and the driver was not told of yet.
    lost_time: Duration,
    notices: Vec<Notice>,
    is_long_told: bool,
    /// Whether a node has a memory whose clock the others may not tell of yet.
    has_new_clock: bool,
    /// Whether something has changed that the ruling on another node may depend on.
    has_news: bool,
    independence: Independence,
}

impl Guards {
    /// Locks that ask nodes to keep keys for at most so long are over at a node that forgot, whatever is known of them.
    pub const FLOOR: Duration = FLOOR;

    /// Guards over the nodes of `quorum` that know nothing yet.
    pub fn new(policy: &Policy, quorum: Quorum) -> Self {
        let nodes = quorum.nodes();
        let restart = match policy.restart_guard() {
            RestartGuard::Auto if nodes == 1 => RestartGuard::Off,
            other => other,
        };
        let limit = policy.max_ttl().map(Ttl::as_duration);
        Self {
            quorum,
            restart,
            watches_clocks: policy.clock_guard() && nodes > 1,
            drift: policy.drift(),
            limit,
            floor: limit.unwrap_or(FLOOR).min(FLOOR),
            shortest: policy.ttl().min(FLOOR_TTL),
            records: vec![NodeRecord::default(); nodes],
            clocks: Clocks::new(nodes),
            counts: Counts::default(),
            holdings: Holdings::default(),
            own_long_locks: OwnLongLocks::default(),
            founding: Founding::No,
            suspicion: None,
            contact_since: None,
            contact_changed: Moment::default(),
            look_since: Moment::default(),
            paused_until: Moment::default(),
            lost_time: Duration::ZERO,
            notices: Vec::new(),
            is_long_told: false,
            has_new_clock: false,
            has_news: false,
            independence: Independence::new(quorum),
        }
    }

    /// Whether there is anything to guard.
    pub fn are_on(&self) -> bool {
        self.guards_memory() || self.watches_clocks
    }

    /// Learns that locks of `policy` will be asked for.
    pub fn handle_policy(&mut self, policy: &Policy) {
        self.shortest = self.shortest.min(policy.ttl());
    }

    /// A lock is about to be asked for that asks nodes to keep its keys for `key_ttl`; whether all nodes are to be
    /// looked at first. Each such call is followed by one of [`Self::end_long_lock`].
    pub fn begin_long_lock(&mut self, env: &mut dyn Environment, key_ttl: Duration) -> bool {
        if key_ttl <= FLOOR || !self.are_on() {
            return false;
        }
        let now = env.now();
        let is_long = key_ttl > LONGEST_FORGOTTEN && self.limit.is_none();
        if is_long && !std::mem::replace(&mut self.is_long_told, true) {
            self.notices.push(Notice::LongLock(key_ttl));
        }
        self.own_long_locks.begin(key_ttl, || memory::number(env));
        let nodes = NodeId::all(self.records.len());
        let covered = nodes.filter(|node| self.covers(*node, key_ttl, now)).count();
        covered < self.records.iter().filter(|record| record.is_heard()).count()
    }

    /// Keys that nodes were asked to keep for `key_ttl` are gone at the moment `at`, at the latest.
    pub fn end_long_lock(&mut self, key_ttl: Duration, at: Moment, now: Moment) {
        if key_ttl > FLOOR && self.are_on() && self.own_long_locks.end(key_ttl, at, now) {
            self.look_around(now);
        }
    }

    /// Whether a grant that asks a node to keep a key for `key_ttl` counts there, as far as other clients need to
    /// know of it: the node has told so at a look that is not old.
    pub fn covers(&self, node: NodeId, key_ttl: Duration, now: Moment) -> bool {
        let record = &self.records[node.index()];
        let is_recent = now.since(record.looked_at) < LOOKED_AT_WITHIN;
        is_recent && self.own_long_locks.are_covered(key_ttl, (&record.sure, &self.holdings), now)
    }

    /// A node cannot be reached.
    pub fn handle_down(&mut self, node: NodeId, now: Moment) {
        self.note_contact(node, Contact::Down, now);
    }

    fn note_contact(&mut self, node: NodeId, contact: Contact, now: Moment) {
        self.contact_since.get_or_insert(now);
        let known = std::mem::replace(&mut self.records[node.index()].contact, contact);
        if known != contact {
            (self.has_news, self.contact_changed) = (true, now);
        }
    }

    /// A node was looked at: what to do about it.
    pub fn handle_checkup(
        &mut self,
        env: &mut dyn Environment,
        node: NodeId,
        checkup: &Checkup,
    ) -> Ruling {
        let (now, look) = (env.now(), Look { node, checkup });
        self.note_contact(node, Contact::Heard, now);
        self.read(look, now);
        self.note_founding(look, now);
        self.handle_clock(node, checkup.clock);
        let ruling = if self.guards_memory() {
            self.rule_memory(env, look)
        } else {
            self.rule_alarm(node, now)
        };
        self.spread_leads(now);
        match ruling {
            // Its clock is not known by this, and grants go by it.
            Ruling::Open(_) if self.spans_pause(checkup.clock) => {
                Ruling::Undecided(now + LOOK_AGAIN)
            }
            ruling => ruling,
        }
    }

    /// Takes in what a look has told.
    fn read(&mut self, look: Look<'_>, now: Moment) {
        let Checkup { clock, notes, .. } = look.checkup;
        let record = &mut self.records[look.node.index()];
        record.recheck = false;
        record.empty_at = (look.checkup.canary == CanaryKey::Absent).then_some(clock.sent);
        record.looked_at = clock.sent;
        record.run.clone_from(&look.checkup.run);
        record.sure = Holdings::read_sure(&notes.holdings, *clock);
        if std::mem::take(&mut record.is_noted_anew) {
            record.notes_anew = false;
        }
        if !record.notes_anew {
            record.leads = Leads::read(&notes.sightings, now);
        }
        let told = Holdings::read(&notes.holdings, *clock);
        let was_set_back = look.checkup.canary.is_ahead_of(clock.micros);
        let told = if was_set_back { told.of_unknown_age(&self.holdings) } else { told };
        self.holdings.join(&told);
        self.holdings.expire(now);
        for sighting in &notes.sightings {
            self.counts.raise(sighting.id, sighting.count, now);
        }
        self.recheck_older_states();
        self.own_long_locks.note(&mut self.holdings, now);
    }

    /// Has nodes looked at whose memory was seen to be beaten more often than it was when it was looked at.
    fn recheck_older_states(&mut self) {
        for record in &mut self.records {
            let counts = &self.counts;
            let is_older =
                |memory: &Memory| memory.canary.count < counts.of(memory.id) && record.is_heard();
            if record.memory.as_ref().is_some_and(is_older) && !record.recheck {
                (record.recheck, self.has_news) = (true, true);
            }
        }
    }

    /// What to leave on a node at the next look, for other clients.
    pub fn notes_for(&mut self, node: NodeId, now: Moment) -> Notes {
        self.own_long_locks.note(&mut self.holdings, now);
        let sightings = self.sightings_for(node, now);
        let record = &mut self.records[node.index()];
        record.is_noted_anew = record.notes_anew && sightings.iter().any(|it| it.lead.is_some());
        Notes { holdings: self.holdings.missing_in(&record.sure, now), sightings }
    }

    /// Whether other nodes are to be looked at again that are not decided on, since this was last asked.
    pub fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.has_news)
    }

    /// Takes what people should hear of.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    /// Whether a node is to be looked at now, although its ruling may stand.
    pub fn wants_look(&self, node: NodeId) -> bool {
        let record = &self.records[node.index()];
        let is_asked = record.is_heard() && record.looked_at < self.look_since;
        is_asked || record.alarm.is_some() || record.recheck || self.suspicion.is_some()
    }

    fn guards_memory(&self) -> bool {
        self.restart != RestartGuard::Off
    }

    /// Has every node looked at that was not since then.
    fn look_around(&mut self, since: Moment) {
        self.has_news |= since > self.look_since;
        self.look_since = self.look_since.max(since);
    }

    /// Whether every node was tried, or has had `patience` for it.
    fn has_contacted_all(&self, patience: Duration, now: Moment) -> bool {
        let all = self.records.iter().all(|record| record.contact != Contact::Unknown);
        all || self.contact_since.is_some_and(|since| now.since(since) >= patience)
    }

    /// Without canaries a clock step is this client's own affair.
    fn rule_alarm(&mut self, node: NodeId, now: Moment) -> Ruling {
        let pass = Pass { relied: Relied::anything(), longest: Duration::MAX };
        if let Some(until) = self.clock_undecided(now, node)
            && self.records[node.index()].alarm.is_none()
        {
            return Ruling::Undecided(until);
        }
        let Some(alarm) = self.records[node.index()].alarm else {
            return Ruling::Open(pass);
        };
        let longest =
            self.holdings.all().map(|entry| entry.key_ttl).fold(self.floor, Duration::max);
        let until = alarm.since + self.with_drift(self.limit.unwrap_or(longest));
        if now < until {
            let reason = QuarantineReason::ClockStepped;
            return Ruling::Quarantined(Quarantine { until, reason });
        }
        self.records[node.index()].alarm = None;
        Ruling::Open(pass)
    }
}
