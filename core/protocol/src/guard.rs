//! The guards: which nodes may have forgotten locks, so that their grants must not count.
//!
//! Redlock is safe while nodes remember their keys for as long as they were asked to. Two things break
//! that without a sign: a node that restarts without its keys, and a clock that is set forward. The
//! guards see both from outside and hold the node's grants back (*quarantine*) until every lock that it
//! may have forgotten is over.
//!
//! # Memory
//! Each node carries a *canary*: a key that goes when the other keys go, and that names the run of the
//! server that it was written in. A grant is done only while the canary stands as the client has seen
//! it. Where it does not, the first client to notice writes down that it waits; whoever has seen the
//! longest ttl of the cluster pass by a clock of its own writes the node's new canary, for all.
//!
//! ```text
//!             canary of this run                            waited for the longest ttl
//!   Unheard ────────────────────▶ Trusted ──canary gone──▶ Quarantined ─────────▶ Trusted
//!      │                             ▲       or of another run   ▲
//!      └──no canary──▶ Undecided ────┴──no node has one          │
//!                          └──────────── others have one ────────┘
//! ```
//!
//! # Clocks
//! Every grant tells the node's time. A clock that jumps ahead of this client's makes its node
//! suspect; then all nodes are asked. If a majority jumped, it was this client that stood still (its
//! lease clock is to be set forward by the time lost); otherwise the node is quarantined as after a restart.
//!
//! The guards themselves go by a clock that is never corrected (see [`Surroundings::now`]): what was lost is no
//! waiting, and what one client's nodes show moves no wait, its own or another's.
//!
//! # Independence
//! At every connection the server says who it is and whom it follows. An address that leads to a server
//! which is there already under another, to a replica, or to a second member of one Redis Cluster has
//! no vote.

mod canary;
mod checkup;
mod clocks;
mod independence;
mod memory;
mod rates;
mod settings;
mod suspicion;

use std::sync::Arc;
use std::time::Duration;

pub use self::canary::{Canary, CanaryState, NoCanary};
pub use self::checkup::{CanaryKey, Checkup, Notes, Quarantine, QuarantineReason, Ruling, Skew};
pub use self::clocks::ClockReading;
use self::clocks::Clocks;
use self::independence::Independence;
pub use self::independence::{Dependence, Identity, Membership};
use self::rates::Rates;
pub use self::settings::RestartGuard;
use self::suspicion::Suspicion;
use crate::identity::NodeId;
use crate::machine::Surroundings;
use crate::policy::Policy;
use crate::quorum::Quorum;
use crate::time::{Moment, Ttl};
use crate::validity::Drift;

/// What one client knows of the memory and the clocks of all its nodes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Guards {
    quorum: Quorum,
    restart: RestartGuard,
    watches_clocks: bool,
    drift: Drift,
    /// The longest time for which any lock may ask nodes to keep keys, where that was set.
    limit: Duration,
    /// The longest time for which this client asks nodes to keep keys.
    longest: Duration,
    /// The shortest such time: its drift allowance is what a clock may be off.
    shortest: Ttl,
    seats: Vec<Seat>,
    clocks: Clocks,
    suspicion: Option<Suspicion>,
    /// Since when all nodes are to be asked how long locks may last, before a quarantine ends.
    asks_around: Option<Moment>,
    /// When this client was last found to have stood still.
    paused_until: Moment,
    /// What this client has lost, and its lease clock was not set forward by yet.
    lost_time: Duration,
    notices: Vec<Notice>,
    rates: Rates,
    /// Whether something has changed that the ruling on another node may depend on.
    has_news: bool,
    independence: Independence,
}

/// What is known of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Seat {
    contact: Contact,
    /// The memory that this client has relied on.
    memory: Option<u64>,
    /// The run of the server at the last look.
    run: Option<Arc<str>>,
    /// Whether anything stood in the canary key.
    has_history: bool,
    /// When this client found that the cluster is new and set about to write the node's canary.
    founded: Option<Moment>,
    /// When the canary was written that is trusted, by the node's clock in microseconds.
    born: u64,
    /// When the node was last looked at.
    looked_at: Moment,
    notes: Notes,
    /// Since when its grants are held back, with the memory number of the canary that says so.
    waits: Option<Waits>,
    /// A clock step that no canary tells yet.
    alarm: Option<Moment>,
    /// Whether its clock was compared with those of the other nodes.
    is_compared: bool,
    /// The memory (by [`Self::born`]) for which this client has set about to note the clock.
    noting: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Contact {
    #[default]
    Unheard,
    Down,
    Heard,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Waits {
    memory: u64,
    since: Moment,
}

/// Something that a person should hear of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Notice {
    /// A node's grants are held back, and why.
    Quarantined(NodeId, QuarantineReason),
    /// A node's clock was set back by at least so much: its keys stay longer than they should.
    ClockSetBack(NodeId, Duration),
    /// This client's clock lost up to so much time against all nodes: its machine stood still.
    Paused(Duration),
    /// A node's clock runs at another rate than this client's, by at least so many parts per million:
    /// more than the drift allowance.
    ClockRate(NodeId, i64),
    /// A node's server throws keys out by this policy when memory runs short, keys of locks among them.
    MayEvict(NodeId, Arc<str>),
    /// A node has no vote of its own, which is a mistake in the list of nodes.
    NotIndependent(Dependence),
}

impl Guards {
    /// Guards over the nodes of `quorum` that know nothing yet.
    pub fn new(policy: &Policy, quorum: Quorum) -> Self {
        let nodes = quorum.nodes();
        let restart = match policy.restart_guard() {
            RestartGuard::Auto if nodes == 1 => RestartGuard::Off,
            other => other,
        };
        Self {
            quorum,
            restart,
            watches_clocks: policy.clock_guard() && nodes > 1,
            drift: policy.drift(),
            limit: policy.max_ttl().map_or(Duration::ZERO, Ttl::as_duration),
            longest: policy.max_ttl().map_or(Duration::ZERO, Ttl::as_duration),
            shortest: policy.ttl(),
            seats: vec![Seat::default(); nodes],
            clocks: Clocks::new(nodes),
            suspicion: None,
            asks_around: None,
            paused_until: Moment::default(),
            lost_time: Duration::ZERO,
            notices: Vec::new(),
            rates: Rates::new(nodes),
            has_news: false,
            independence: Independence::new(quorum),
        }
    }

    /// Whether there is anything to guard.
    pub fn are_on(&self) -> bool {
        self.guards_memory() || self.watches_clocks
    }

    /// Learns that locks of `policy` will be asked for; whether the nodes are to be told, by their
    /// notes, before the first grant.
    pub fn handle_policy(&mut self, policy: &Policy) -> bool {
        self.shortest = self.shortest.min(policy.ttl());
        let kept = policy.longest_keep();
        let grows = kept > self.longest;
        self.longest = self.longest.max(kept);
        grows
    }

    /// A node cannot be reached.
    pub fn handle_down(&mut self, node: NodeId) {
        let contact = &mut self.seats[node.index()].contact;
        self.has_news |= *contact != Contact::Down;
        *contact = Contact::Down;
    }

    /// A node was looked at: what to do about it.
    pub fn handle_checkup(
        &mut self,
        env: &mut dyn Surroundings,
        node: NodeId,
        checkup: &Checkup,
    ) -> Ruling {
        let seat = &mut self.seats[node.index()];
        let has_history = checkup.canary != CanaryKey::Absent;
        self.has_news |= seat.contact != Contact::Heard || seat.has_history != has_history;
        // Whoever waits for this answer is waiting itself.
        self.has_news |= self.asks_around.is_some() && seat.waits.is_none();
        seat.contact = Contact::Heard;
        if seat.run.as_ref() != Some(&checkup.run) {
            // It is not the server that was found new.
            seat.founded = None;
        }
        seat.notes = checkup.notes;
        seat.looked_at = checkup.clock.sent;
        seat.has_history = has_history;
        self.handle_clock(node, checkup.clock);
        let ruling = if self.guards_memory() {
            self.rule_memory(env, node, checkup)
        } else {
            self.rule_alarm(env, node)
        };
        self.seats[node.index()].run = Some(Arc::clone(&checkup.run));
        let ruling = match ruling {
            // Its clock is not known by this, and grants go by it.
            Ruling::Trusted(_) if self.spans_pause(checkup.clock) => {
                Ruling::Undecided(env.now() + LOOK_AGAIN)
            }
            Ruling::Trusted(_) => self.rule_clock(env.now(), node).unwrap_or(ruling),
            other => other,
        };
        self.set_about_noting(env.now());
        ruling
    }

    /// What to leave on a node at the next look, for clients that come later.
    pub fn notes_for(&self, node: NodeId, now: Moment) -> Notes {
        Notes { longest: self.longest, skew: self.skew_of(node, now) }
    }

    /// Whether other nodes are to be looked at again that are not decided on, since this was last asked.
    pub fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.has_news)
    }

    /// Takes what people should hear of.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    fn guards_memory(&self) -> bool {
        self.restart != RestartGuard::Off
    }

    /// For how long a node that may have forgotten locks is held back: for as long as anyone who is
    /// known asks nodes to keep keys.
    fn term(&self) -> Duration {
        let noted = self.seats.iter().map(|seat| seat.notes.longest);
        noted.fold(self.longest, Duration::max).min(LONGEST_LEARNED).max(self.limit)
    }

    /// The end of a quarantine of `length`, by the slowest clock that is allowed.
    fn end_of(&self, since: Moment, length: Duration) -> Moment {
        let drift = Ttl::from_duration(length).map_or(Drift::CONSTANT, |ttl| self.drift.of(ttl));
        since + length + drift
    }

    /// Whether a node is to be looked at now, although its ruling may stand.
    pub fn wants_look(&self, node: NodeId) -> bool {
        let seat = &self.seats[node.index()];
        let is_asked = self.asks_around.is_some_and(|since| seat.looked_at < since);
        is_asked || seat.alarm.is_some() || self.suspicion.is_some() || self.notes(node)
    }

    fn all_contacted(&self) -> bool {
        self.seats.iter().all(|seat| seat.contact != Contact::Unheard)
    }
}

/// One lock with the ttl of a century must not hold a node back for so long, unless `max_ttl` says so.
const LONGEST_LEARNED: Duration = Duration::from_secs(86_400);
/// When to look again at a node that could not be decided on, at the latest.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
