//! The only reader of the operating system's time and randomness.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use quorlock_protocol::{HolderId, Moment, Surroundings};
use tokio::sync::Notify;

/// The lease clock: monotonic, and counting the time that the computer sleeps. A node compares it with
/// [`Command::not_after`](quorlock_protocol::Command::not_after).
///
/// `std::time::Instant` stops while a Linux or macOS machine is suspended, so that a lease would look
/// valid after its keys have expired.
pub fn now() -> Moment {
    Moment::from_epoch(since_boot() + Duration::from_nanos(LOST_NANOS.load(Ordering::Relaxed)))
}

/// Sets the lease clock of this process forward by `lost`: it stood still for so long (a virtual machine
/// was paused), as the clocks of a majority of nodes show that were looked at since `noticed`. Several
/// managers may notice the same; it is lost once.
pub(crate) fn set_forward(lost: Duration, noticed: Moment) {
    let jump = nanos(now().since_epoch());
    let is_news = |before| (nanos(noticed.since_epoch()) >= before).then_some(jump);
    if LAST_JUMP.fetch_update(Ordering::Relaxed, Ordering::Relaxed, is_news).is_err() {
        return;
    }
    let _ = LOST_NANOS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |before| {
        Some(before.saturating_add(nanos(lost)))
    });
}

/// Wakes those who wait for a moment of the lease clock when it is set forward.
///
/// Every engine has its own: a lock that one thread may hold while another forks would stay closed in the
/// child for ever. Who waits on another engine than the one that noticed looks after a nap.
#[derive(Clone, Debug, Default)]
pub(crate) struct Jumps(Arc<Notify>);

impl Jumps {
    pub(crate) async fn next(&self) {
        self.0.notified().await;
    }

    pub(crate) fn tell(&self) {
        self.0.notify_waiters();
    }
}

/// A moment of the lease clock that threads tell each other, or none.
#[derive(Debug, Default)]
pub(crate) struct ToldMoment(AtomicU64);

impl ToldMoment {
    pub(crate) fn tell(&self, moment: Option<Moment>) {
        self.0.store(moment.map_or(0, |moment| nanos(moment.since_epoch())), Ordering::Release);
    }

    pub(crate) fn get(&self) -> Option<Moment> {
        let nanos = self.0.load(Ordering::Acquire);
        (nanos > 0).then(|| Moment::from_epoch(Duration::from_nanos(nanos)))
    }
}

/// How far a node's clock lies ahead of the lease clock, as its connection knows it and tells other threads.
#[derive(Debug)]
pub(crate) struct ToldClock(AtomicI64);

impl ToldClock {
    /// A node shows `micros` microseconds since 1970 at `now`: so far it is ahead.
    pub(crate) fn ahead(micros: u64, now: Moment) -> i64 {
        let own = i64::try_from(now.since_epoch().as_micros()).unwrap_or(i64::MAX);
        i64::try_from(micros).unwrap_or(i64::MAX).saturating_sub(own)
    }

    pub(crate) fn tell(&self, ahead: i64) {
        self.0.store(ahead, Ordering::Relaxed);
    }

    /// What it shows at `now`, in microseconds; `None` if nothing was told yet.
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

pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

// Atomic, and behind no lock: they are there in a forked child, too.
static LOST_NANOS: AtomicU64 = AtomicU64::new(0);
/// When the clock was last set forward, by what it showed before.
static LAST_JUMP: AtomicU64 = AtomicU64::new(0);

#[cfg(any(target_os = "linux", target_os = "android"))]
fn since_boot() -> Duration {
    read(rustix::time::ClockId::Boottime)
}

// Apple's CLOCK_MONOTONIC goes on while the machine is asleep (CLOCK_UPTIME_RAW is what stops).
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

// The performance counter behind Instant goes on through standby and hibernation on Windows.
#[cfg(not(unix))]
fn since_boot() -> Duration {
    use std::sync::OnceLock;
    use std::time::Instant;
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    EPOCH.get_or_init(Instant::now).elapsed()
}

/// The real world at one moment, for what a machine does at once: its clock is not read anew each time.
pub(crate) struct Snapshot {
    now: Moment,
}

impl Snapshot {
    pub(crate) fn take() -> Self {
        Self::at(now())
    }

    pub(crate) const fn at(now: Moment) -> Self {
        Self { now }
    }
}

impl Surroundings for Snapshot {
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

/// The real world, for the protocol's machines.
pub(crate) struct System;

impl Surroundings for System {
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
