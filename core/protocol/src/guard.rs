//! The guards decide which nodes' grants count: a node that may have forgotten locks must not vote.
//!
//! Redlock is safe while nodes remember their keys for as long as they were asked to. Two events
//! break that without any error: a node restarts without its keys, or its clock is set forward. The
//! guards detect both from the client's side and ignore the node's grants (*quarantine*) until
//! every lock that it may have forgotten has ended.
//!
//! # A memory has a name, a count and an age
//! Each node carries a *canary*: a key that disappears
//! together with the node's other keys. It names the memory (a random number), the server that it
//! was written on, and how often it was written. Clients rewrite it every few seconds (a *beat*),
//! and record the count on the other nodes. A grant counts only while the canary names the memory
//! that the client relies on, with at least as many beats as the client knows of. So a memory that
//! is lost, or comes back in an older state, is noticed; the node gets a new memory name, and the
//! old one is never accepted again.
//!
//! # Trust is never stored
//! Each client decides at each look whether a node's grants count, from
//! what it has read:
//!
//! - the *age* of the memory: within this time no lock was asked for that the memory does not know;
//! - the *holdings*: which locks may still be held that last longer than the *floor* (ten seconds). A client that asks
//!   for such a lock leaves an entry on the nodes before a grant counts.
//!
//! A node is open when its age is above the floor, and above the length of every lock that may
//! still be held and that the node may have forgotten. Clients join what they know by taking the
//! maximum, so that none can overwrite what another knows.
//!
//! # Clocks
//! Every grant tells the node's time. A clock that jumps ahead of the client's makes its
//! node suspect; then all nodes are asked. If a majority jumped, this client itself was paused,
//! and its leases end sooner; otherwise the node gets a new memory name, as after a restart. On
//! each node clients record how far the other nodes' clocks are ahead of its own, so that a client
//! that starts later notices a step, too.
//!
//! The guards read the operating system's clock, which no correction of the lease clock changes.
//! Time that a client's leases lost while it was paused does not count as waiting for a
//! quarantine to end.
//!
//! # Independence
//! At every connection the server says who it is and from which server it
//! replicates. An address has no vote if it leads to a server that is already listed under another
//! address, to a replica, or to a second member of one Redis Cluster.

mod canary;
mod checkup;
mod clocks;
mod founding;
mod gate;
mod holdings;
mod independence;
mod memory;
mod new_memory;
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
    LONGEST_FORGOTTEN, LOOK_AGAIN, LOOKED_AT_WITHIN, NOT_ASKED_WITHIN, UNREACHABLE_AFTER,
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
    /// The longest time for which any lock may ask nodes to keep keys (`max_ttl`), where it is set.
    limit: Option<Duration>,
    /// How long every client waits at a node that forgot: the longest drift-adjusted floor of any
    /// client.
    floor: Duration,
    /// The shortest time for which this client asks nodes to keep keys, at most the floor (others
    /// may ask for less than this client does). Its drift allowance is how much a clock may be
    /// wrong.
    shortest: Ttl,
    records: Vec<NodeRecord>,
    clocks: Clocks,
    counts: Counts,
    holdings: Holdings,
    own_long_locks: OwnLongLocks,
    founding: Founding,
    suspicion: Option<Suspicion>,
    /// When this client first reached any node,
    contact_since: Option<Moment>,
    /// and when a node last became reachable or unreachable.
    contact_changed: Moment,
    /// Nodes whose last look is older than this are to be looked at now.
    look_since: Moment,
    /// When this client was last found to have been paused.
    paused_until: Moment,
    /// Time that the leases have lost and that the driver has not been told of yet.
    lost_time: Duration,
    notices: Vec<Notice>,
    is_long_told: bool,
    /// Whether the clock of some node's memory may not be recorded on the other nodes yet.
    has_new_clock: bool,
    /// Whether something has changed that the ruling on another node may depend on.
    has_news: bool,
    independence: Independence,
}

impl Guards {
    /// Locks that ask nodes to keep keys for at most this long have ended by the time a node that
    /// forgot is trusted, whatever is known of them.
    pub const FLOOR: Duration = FLOOR;

    /// Guards over the nodes of `quorum`, with no knowledge of any node yet.
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

    /// Whether any guard is turned on.
    pub fn are_on(&self) -> bool {
        self.guards_memory() || self.watches_clocks
    }

    /// Takes note of the settings of locks that will be acquired.
    pub fn handle_policy(&mut self, policy: &Policy) {
        self.shortest = self.shortest.min(policy.ttl());
    }

    /// Call before asking for a lock whose keys nodes are to keep for `key_ttl`. Tells whether all
    /// nodes must be looked at first. Each such call is followed by one of [`Self::end_long_lock`].
    pub fn begin_long_lock(&mut self, env: &mut dyn Environment, key_ttl: Duration) -> bool {
        if key_ttl <= FLOOR || !self.are_on() {
            return false;
        }
        let now = env.now();
        let is_long = key_ttl > LONGEST_FORGOTTEN && self.limit.is_none();
        if is_long && !std::mem::replace(&mut self.is_long_told, true) {
            self.notices.push(Notice::LongLock(key_ttl));
        }
        self.own_long_locks.begin(key_ttl, || new_memory::number(env));
        let nodes = NodeId::all(self.records.len());
        let covered = nodes.filter(|node| self.covers(*node, key_ttl, now)).count();
        covered < self.records.iter().filter(|record| record.is_heard()).count()
    }

    /// Keys that nodes were asked to keep for `key_ttl` are gone by the moment `at`.
    pub fn end_long_lock(&mut self, key_ttl: Duration, at: Moment, now: Moment) {
        if key_ttl > FLOOR && self.are_on() && self.own_long_locks.end(key_ttl, at, now) {
            self.look_around(now);
        }
    }

    /// Whether a grant with this `key_ttl` counts on the node as far as other clients must know of
    /// the lock: at a recent look the node reported that it knows.
    pub fn covers(&self, node: NodeId, key_ttl: Duration, now: Moment) -> bool {
        let record = &self.records[node.index()];
        let is_recent = now.since(record.looked_at) < LOOKED_AT_WITHIN;
        is_recent && self.own_long_locks.are_covered(key_ttl, (&record.sure, &self.holdings), now)
    }

    /// A node cannot be reached, or its looks fail.
    pub fn handle_down(&mut self, node: NodeId, now: Moment) {
        self.note_contact(node, Contact::Down, now);
    }

    /// A try to reach a node has failed that began at the moment `began`.
    pub fn handle_failed_try(&mut self, node: NodeId, began: Moment) {
        self.records[node.index()].failed_at = began;
    }

    fn note_contact(&mut self, node: NodeId, contact: Contact, now: Moment) {
        self.contact_since.get_or_insert(now);
        let known = std::mem::replace(&mut self.records[node.index()].contact, contact);
        if known != contact {
            (self.has_news, self.contact_changed) = (true, now);
        }
    }

    /// Takes the result of a look at a node; tells what to do about it.
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
            // The reading is too old to tell where the node's clock stands now, and grants depend
            // on that clock.
            Ruling::Open(_) if self.spans_pause(checkup.clock) => {
                Ruling::Undecided(now + LOOK_AGAIN)
            }
            ruling => ruling,
        }
    }

    /// Records what a look has told.
    fn read(&mut self, look: Look<'_>, now: Moment) {
        let Checkup { clock, notes, .. } = look.checkup;
        let record = &mut self.records[look.node.index()];
        if let Some(memory) = &mut record.memory {
            memory.watched += clock.sent.since(record.looked_at).min(LOOK_AGAIN);
        }
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

    /// Requests another look at nodes whose memory has been seen with more beats than their last
    /// look showed.
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

    /// Whether nodes without a decision should be looked at again because something changed since
    /// the last call.
    pub fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.has_news)
    }

    /// Takes the notices that people should be told.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    /// Whether a node should be looked at now, although its ruling may still hold.
    pub fn wants_look(&self, node: NodeId) -> bool {
        let record = &self.records[node.index()];
        let is_asked = record.is_heard() && record.looked_at < self.look_since;
        is_asked || record.alarm.is_some() || record.recheck || self.suspicion.is_some()
    }

    fn guards_memory(&self) -> bool {
        self.restart != RestartGuard::Off
    }

    /// Requests a look at every node that was not looked at since then.
    fn look_around(&mut self, since: Moment) {
        self.has_news |= since > self.look_since;
        self.look_since = self.look_since.max(since);
    }

    /// What is known of every node but this one.
    fn others(&self, node: NodeId) -> impl Iterator<Item = &NodeRecord> {
        let others = self.records.iter().enumerate().filter(move |(it, _)| *it != node.index());
        others.map(|(_, record)| record)
    }

    /// Whether every node has answered, or could not be reached.
    fn has_tried_all(&self) -> bool {
        self.records.iter().all(|record| record.contact != Contact::Unknown)
    }

    /// Whether all nodes had been given `patience` to be reached when the look was sent that is
    /// answered now. (If this process was paused since, other answers are still to be read.)
    fn has_waited(&self, patience: Duration, sent: Moment) -> bool {
        self.contact_since.is_some_and(|since| sent.since(since) >= patience)
    }

    /// Without canaries a clock step concerns only this client.
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
