//! A held lease as its users see it: the handle to its life (`quorlock_protocol::LeaseLife`), which
//! makes the decisions. Owns who is told what, and the nodes' votes; `operations` acts on it,
//! `renew` renews and watches it, `release` ends it.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use quorlock_protocol::{Claim, FencingToken, LeaseLife, Moment, Policy, Stage, Won};
use tokio::sync::Notify;

use crate::background::BackgroundTicket;
use crate::engine::Engine;
use crate::error::{LockError, NodeReport, name_votes};
use crate::guards::LongLockNote;
use crate::inbox::CompactVotes;
use crate::inbox::{Inbox, OperationId};
use crate::manager::Manager;
use crate::observe::HoldSpan;
use crate::renewal::RenewalScheduler;

mod account;
mod degraded;
mod operations;
mod owner;
mod release;
mod renew;
mod sequencer;
mod votes;

pub use votes::ReleaseVotes;
use votes::{LastVotes, Renewals};

/// A handle to one acquisition's lease. Clones share it; it may be used from any thread.
///
/// Dropping the last handle stops its renewal, and the lease expires. To have it released instead,
/// keep the [`LeaseGuard`](crate::LeaseGuard) that the acquisition returned.
#[derive(Clone)]
pub struct Lease {
    shared: Arc<Shared>,
}

struct Shared {
    manager: Arc<Manager>,
    claim: Arc<Claim>,
    spent: (u32, Duration),
    lost_rounds: Box<[Vec<NodeReport>]>,
    state: Mutex<State>,
}

struct State {
    life: LeaseLife,
    /// Its number in the schedule of renewals; the default one while it is neither renewed nor watched.
    renewal: OperationId,
    votes: LastVotes,
    /// The nodes' answers to the release, once they are asked for it.
    release: Option<ReleaseVotes>,
    extras: Option<Box<Extras>>,
}

/// Fields that only a few leases need.
#[derive(Default)]
struct Extras {
    /// One explicit extension at a time.
    gate: Arc<tokio::sync::Mutex<()>>,
    /// Stops the extension that is under way.
    extending: Option<Arc<Inbox>>,
    told: Arc<Notify>,
    on_lost: Vec<OnLost>,
    on_renewal: Vec<OnRenewal>,
    /// The nodes are told which holder has the fencing token.
    is_recorded: bool,
    renewals: Renewals,
    /// It was lost, and nobody knew before its release.
    is_lost_at_release: bool,
    /// When it was acquired, where others are told who holds it.
    owned_since: Option<SystemTime>,
    /// Covers the time for which it is held.
    hold: HoldSpan,
    /// What kept it from being locked, for a lease that goes on without the lock.
    degraded: Option<LockError>,
    /// For a long lock: they tell other clients of it; the longest comes last.
    notes: Vec<LongLockNote>,
}

type OnLost = Box<dyn FnOnce(LockError) + Send>;
type OnRenewal = Arc<dyn Fn(&[NodeReport]) + Send + Sync>;

impl Lease {
    pub(crate) fn won(
        manager: &Arc<Manager>,
        won: Won,
        policy: Arc<Policy>,
        inbox: &Inbox,
        spent: (u32, Duration),
        lost_rounds: Vec<Vec<NodeReport>>,
    ) -> Self {
        let claim = Arc::clone(won.lease.claim());
        let votes = LastVotes::of(won.round, inbox);
        let now = manager.clock.now();
        let life = LeaseLife::won(now, (won.lease, won.was_queued), policy, manager.quorum);
        let state = State::new(life, votes);
        let lost_rounds = lost_rounds.into();
        let lease = Self::over(Shared {
            manager: Arc::clone(manager),
            claim,
            spent,
            lost_rounds,
            state: Mutex::new(state),
        });
        lease.resume(lease.shared.lock(), now);
        lease
    }

    pub(crate) fn adopt(manager: &Arc<Manager>, claim: Arc<Claim>, policy: Arc<Policy>) -> Self {
        let votes = LastVotes::Closed(CompactVotes::default());
        let now = manager.clock.now();
        let life = LeaseLife::taken_over(now, Arc::clone(&claim), policy, manager.quorum);
        let state = State::new(life, votes);
        Self::over(Shared {
            manager: Arc::clone(manager),
            claim,
            spent: (0, Duration::ZERO),
            lost_rounds: Box::default(),
            state: Mutex::new(state),
        })
    }

    fn over(shared: Shared) -> Self {
        Self { shared: Arc::new(shared) }
    }

    /// The number that the protected resource checks; `None` where fencing is off, or for a lease
    /// taken over that no [`Self::check`] or [`Self::extend`] has confirmed yet. After that it is
    /// no less than the token of the acquisition or of an earlier take-over (more, if others have
    /// asked for the lock since), and less than that of every later holder. If too few nodes would
    /// store it, it stays `None`.
    pub fn fencing_token(&self) -> Option<u64> {
        let token = self.shared.lock().life.fencing_token();
        token.map(|FencingToken(token)| token)
    }

    /// The holder id, the value of the keys: a client that knows it can take the lease over.
    pub fn token(&self) -> &str {
        self.shared.claim.holder.as_str()
    }

    /// Keeps `note` until the keys are gone, so that other clients know of the lease until then.
    pub(crate) fn keep_note(&self, note: Option<Box<LongLockNote>>) {
        let Some(note) = note else {
            return;
        };
        let mut state = self.shared.lock();
        let known = &mut state.extras().notes;
        if known.last().is_none_or(|longest| longest.key_ttl() < note.key_ttl()) {
            known.push(*note);
            return;
        }
        drop(state);
        note.finish();
    }

    /// The names of the locked resources.
    pub fn resources(&self) -> impl Iterator<Item = &str> {
        self.shared.claim.resources.names()
    }

    /// How much longer the lease may be trusted; zero once it is lost or released.
    pub fn validity(&self) -> Duration {
        self.shared.lock().life.validity(self.shared.now())
    }

    /// Whether the lease may be trusted at this moment.
    pub fn is_valid(&self) -> bool {
        !self.validity().is_zero()
    }

    /// Whether renewal has failed and less than a third of the ttl is left: an early warning.
    pub fn is_at_risk(&self) -> bool {
        self.shared.lock().life.is_at_risk()
    }

    /// Whether it was released through this handle or a clone of it.
    pub fn is_released(&self) -> bool {
        self.shared.lock().life.stage() == Stage::Released
    }

    /// Whether it was lost: its validity ended before it was released, or the nodes have reported
    /// that another has it, at the latest in answer to the release.
    pub fn is_lost(&self) -> bool {
        let state = self.shared.lock();
        let was_lost = state.life.lost().is_some()
            || state.extras.as_ref().is_some_and(|extras| extras.is_lost_at_release);
        was_lost || state.life.stage() == Stage::Held && state.life.is_over(self.shared.now())
    }

    /// Whether the end of its validity is told by itself: it is renewed, or somebody waits for its
    /// loss. A lease that was lost is told as well.
    pub fn is_watched(&self) -> bool {
        let state = self.shared.lock();
        state.renewal != OperationId::default() || state.life.lost().is_some()
    }

    /// [`Manager::need_nodes`](crate::manager::Manager::need_nodes) of its manager.
    pub(crate) fn need_nodes(&self) -> BackgroundTicket {
        self.shared.manager.need_nodes()
    }

    /// The engine whose thread does the work.
    pub fn engine(&self) -> &Engine {
        &self.shared.manager.engine
    }

    /// The ttl from which the validity was last computed: what the nodes were asked for, without
    /// the lock-delay.
    pub fn ttl(&self) -> Duration {
        self.shared.ttl()
    }

    /// How many rounds the acquisition took.
    pub fn attempts(&self) -> u32 {
        self.shared.spent.0
    }

    /// How long the acquisition took.
    pub fn elapsed(&self) -> Duration {
        self.shared.spent.1
    }

    /// The rounds that were lost before the one that was won, oldest first; the latest 16.
    pub fn lost_rounds(&self) -> &[Vec<NodeReport>] {
        &self.shared.lost_rounds
    }

    /// What every node did in the last round for the lease, with the votes that came after the
    /// decision: the round of its acquisition, or the latest of its extensions and renewals, failed
    /// ones included.
    ///
    /// A round counts once it has ended. The nodes' answers to a release are returned by
    /// [`Self::release_told`].
    pub fn votes(&self) -> Vec<NodeReport> {
        if let Some(error) = self.why_degraded() {
            return error.votes().to_vec();
        }
        let votes = self.shared.lock().votes.now();
        name_votes(&votes, &self.shared.manager.addresses)
    }
}

impl Shared {
    /// Whether it was acquired here, and not taken over by its token.
    const fn is_acquired(&self) -> bool {
        self.spent.0 > 0
    }

    fn ttl(&self) -> Duration {
        self.lock().life.policy().ttl().as_duration()
    }

    fn now(&self) -> Moment {
        self.manager.clock.now()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    const fn new(life: LeaseLife, votes: LastVotes) -> Self {
        Self { life, renewal: OperationId(0), votes, release: None, extras: None }
    }

    fn extras(&mut self) -> &mut Extras {
        self.extras.get_or_insert_default()
    }

    /// Leaves the schedule, and stops a running extension, if the life of the lease does not want
    /// them any more.
    fn settle(&mut self, renewals: &RenewalScheduler) {
        if !self.life.is_kept() {
            self.leave(renewals);
        }
        if !self.life.is_extending()
            && let Some(inbox) = self.extras.as_mut().and_then(|extras| extras.extending.take())
        {
            inbox.cancel();
        }
    }

    fn leave(&mut self, renewals: &RenewalScheduler) {
        let operation = std::mem::take(&mut self.renewal);
        if operation != OperationId::default() {
            renewals.remove(operation);
        }
    }
}

impl Drop for Shared {
    /// An abandoned lease is no longer renewed.
    fn drop(&mut self) {
        self.state.get_mut().unwrap_or_else(PoisonError::into_inner).leave(&self.manager.renewals);
        self.account_dropped(&mut self.lock());
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Lease")
            .field("resources", &self.shared.claim.resources.to_string())
            .field("validity", &self.validity())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::mem::size_of;

    use quorlock_protocol::Hold;

    use super::*;
    use crate::manager::Redlock;

    #[tokio::test]
    async fn only_renewed_or_watched_leases_are_scheduled() {
        let names = ["memory://schedule-a", "memory://schedule-b", "memory://schedule-c"];
        let locks = Redlock::builder().nodes(names).build().expect("three nodes");
        let lock = |name, renewed| locks.lock(name).auto_extend(renewed);
        let scheduled = || locks.manager.renewals.len();
        let bare = lock("bare", false).acquire().await.expect("it is free").into_lease();
        assert_eq!(scheduled(), 0, "nobody waits for its loss");
        assert!(!bare.is_watched());
        let released = lock("released", true).acquire().await.expect("it is free").into_lease();
        let dropped = lock("dropped", true).acquire().await.expect("it is free").into_lease();
        assert_eq!(scheduled(), 2);
        bare.on_lost(|_| {});
        assert!(bare.is_watched());
        assert_eq!(scheduled(), 3);
        released.extend(None).await.expect("it is held");
        assert_eq!(scheduled(), 3, "once, also after an extension");
        released.release().await.expect("it is held");
        assert_eq!(scheduled(), 2);
        drop(dropped);
        assert_eq!(scheduled(), 1);
    }

    #[cfg(target_pointer_width = "64")]
    /// Including its names, its holder id and its number in the schedule: below 1 KiB.
    #[test]
    fn a_lease_that_is_held_takes_little_memory() {
        let all = size_of::<Shared>() + size_of::<Hold>() + size_of::<Claim>();
        eprintln!(
            "{all} bytes: {} {} {} {}",
            size_of::<Shared>(),
            size_of::<Hold>(),
            size_of::<Claim>(),
            size_of::<LeaseLife>()
        );
        assert!(all <= 408, "{all} bytes");
    }
}
