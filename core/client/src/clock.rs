//! Reads the operating system's clocks and random source for the whole client, and keeps each
//! manager's lease clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use quorlock_protocol::{Environment, HolderId, Moment};
use tokio::sync::{Notify, watch};

/// The boot clock: monotonic, counting the time in which the computer sleeps, and never corrected.
/// Nodes compare it with [`Command::not_after`](quorlock_protocol::Command::not_after); guards,
/// connections and waits use it.
///
/// `std::time::Instant` stops while a Linux or macOS machine is suspended, so that a lease would look
/// valid after its keys have expired.
pub fn now() -> Moment {
    Moment::from_epoch(since_boot())
}

/// The clock of one manager's leases: the boot clock plus the time that this machine has lost
/// (while its virtual machine was paused), as far as the manager's own nodes have shown it. Clones
/// are the same clock.
///
/// One manager's nodes say nothing about another manager's leases, and lost time is no waiting:
/// everything that must not end early uses [`now`].
#[derive(Clone, Debug, Default)]
pub(crate) struct LeaseClock(Arc<Losses>);

#[derive(Debug, Default)]
struct Losses {
    // Atomic and without a lock, so that it can be read in a forked child, too.
    nanos: AtomicU64,
    /// Only for tasks of the engine: a lock inside it that another thread holds during a fork would
    /// never be released in the child.
    jump: Notify,
}

impl LeaseClock {
    pub(crate) fn now(&self) -> Moment {
        self.at(now())
    }

    /// What this clock shows when the boot clock shows `boot`, as far as lost time is known.
    pub(crate) fn at(&self, boot: Moment) -> Moment {
        boot + self.lost()
    }

    /// What the boot clock shows when this one shows `moment`.
    pub(crate) fn to_boot(&self, moment: Moment) -> Moment {
        if moment == Moment::FAR_FUTURE { moment } else { moment.before(self.lost()) }
    }

    /// The clocks and the randomness for machines, with this clock read now.
    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot::at(self.now())
    }

    /// Sets it forward by the time that its manager's guards have found to be lost, and wakes every
    /// task that waits for a moment of it.
    pub(crate) fn set_forward(&self, lost: Duration) {
        let _ = self.0.nanos.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |before| {
            Some(before.saturating_add(nanos(lost)))
        });
        self.0.jump.notify_waiters();
    }

    /// Waits until it is set forward.
    pub(crate) async fn jump(&self) {
        self.0.jump.notified().await;
    }

    fn lost(&self) -> Duration {
        Duration::from_nanos(self.0.nanos.load(Ordering::Relaxed))
    }
}

/// Tells all managers of one engine that one of them has found lost time: the machine may have been
/// paused for all of them, but each learns that only from its own nodes. Managers of another engine
/// learn it at their next look.
///
/// Several signals before the next wait count as one.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClockJumps(Arc<watch::Sender<()>>);

impl ClockJumps {
    pub(crate) fn listen(&self) -> watch::Receiver<()> {
        self.0.subscribe()
    }

    pub(crate) fn tell(&self) {
        self.0.send_replace(());
    }
}

/// A moment of the boot clock that threads tell each other, or none.
#[derive(Debug, Default)]
pub(crate) struct AtomicMoment(AtomicU64);

impl AtomicMoment {
    pub(crate) fn tell(&self, moment: Option<Moment>) {
        self.0.store(moment.map_or(0, |moment| nanos(moment.since_epoch())), Ordering::Release);
    }

    pub(crate) fn get(&self) -> Option<Moment> {
        let nanos = self.0.load(Ordering::Acquire);
        (nanos > 0).then(|| Moment::from_epoch(Duration::from_nanos(nanos)))
    }
}

/// How far a node's clock is ahead of the lease clock, as its connection measures it for other
/// threads.
#[derive(Debug)]
pub(crate) struct ToldClock(AtomicI64);

impl ToldClock {
    /// How far the clock is ahead if it shows `micros` microseconds since 1970 at `now`.
    pub(crate) fn ahead(micros: u64, now: Moment) -> i64 {
        let own = i64::try_from(now.since_epoch().as_micros()).unwrap_or(i64::MAX);
        i64::try_from(micros).unwrap_or(i64::MAX).saturating_sub(own)
    }

    pub(crate) fn tell(&self, ahead: i64) {
        self.0.store(ahead, Ordering::Relaxed);
    }

    /// What the node's clock shows at `now`, in microseconds; `None` if it is not known yet.
    pub(crate) fn shows_at(&self, now: Moment) -> Option<u64> {
        let ahead = self.0.load(Ordering::Relaxed);
        let own = u64::try_from(now.since_epoch().as_micros()).unwrap_or(u64::MAX);
        (ahead != Self::UNTOLD).then(|| own.saturating_add_signed(ahead))
    }

    const UNTOLD: i64 = i64::MIN;
}

impl Default for ToldClock {
    fn default() -> Self {
        Self(AtomicI64::new(Self::UNTOLD))
    }
}

/// In 64 bits: called for every answer of a node.
pub(crate) const fn nanos(duration: Duration) -> u64 {
    let whole = duration.as_secs().saturating_mul(1_000_000_000);
    whole.saturating_add(duration.subsec_nanos() as u64)
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn since_boot() -> Duration {
    read(rustix::time::ClockId::Boottime)
}

// Apple's CLOCK_MONOTONIC counts the time in which the machine sleeps (CLOCK_UPTIME_RAW stops).
#[cfg(all(unix, not(any(target_os = "linux", target_os = "android"))))]
fn since_boot() -> Duration {
    read(rustix::time::ClockId::Monotonic)
}

#[cfg(unix)]
fn read(clock: rustix::time::ClockId) -> Duration {
    let time = rustix::time::clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(seconds, nanos)
}

// The performance counter behind Instant counts standby and hibernation on Windows.
#[cfg(not(unix))]
fn since_boot() -> Duration {
    use std::sync::OnceLock;
    use std::time::Instant;
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    EPOCH.get_or_init(Instant::now).elapsed()
}

/// The environment of machines with the lease clock read once, for steps that happen at the same
/// time.
pub(crate) struct Snapshot {
    now: Moment,
}

impl Snapshot {
    pub(crate) const fn at(now: Moment) -> Self {
        Self { now }
    }
}

impl Environment for Snapshot {
    fn now(&self) -> Moment {
        self.now
    }

    fn wall_micros(&self) -> u64 {
        System.wall_micros()
    }

    fn random(&mut self) -> [u8; HolderId::RANDOM_BYTES] {
        System.random()
    }
}

/// The environment by the boot clock, for the guards.
pub(crate) struct System;

impl Environment for System {
    fn now(&self) -> Moment {
        now()
    }

    fn wall_micros(&self) -> u64 {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |elapsed| u64::try_from(elapsed.as_micros()).unwrap_or(0))
    }

    fn random(&mut self) -> [u8; HolderId::RANDOM_BYTES] {
        let mut bytes = [0; HolderId::RANDOM_BYTES];
        getrandom::fill(&mut bytes).expect("the operating system has a source of randomness");
        bytes
    }
}
