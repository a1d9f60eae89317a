//! Counts, and tells events to those that listen. Owns the listeners; an event that nobody wants is
//! never made.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::events::{Event, EventKind, EventName};
use super::figures::Figures;

/// Which events a listener wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interest(u32);

impl Interest {
    /// Every event.
    pub const ALL: Self = Self(u32::MAX);
    /// None.
    pub const NONE: Self = Self(0);

    /// What a log warns of: losses, and work without its lock.
    pub const WARNINGS: Self = Self(bit(EventName::Lost) | bit(EventName::Degraded));

    /// These, without others.
    #[must_use]
    pub const fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    /// These, and the events of that name.
    #[must_use]
    pub const fn and(self, name: EventName) -> Self {
        Self(self.0 | bit(name))
    }
}

const fn bit(name: EventName) -> u32 {
    1 << name as u32
}

/// Called with an event.
pub(crate) type EventListener = Arc<dyn Fn(&Event) + Send + Sync>;

/// The figures and the listeners of one manager.
pub(crate) struct Telemetry {
    figures: Figures,
    /// The events that any listener wants.
    wanted: AtomicU32,
    listeners: Mutex<Listeners>,
}

#[derive(Default)]
struct Listeners {
    next: u64,
    list: Vec<(u64, Interest, EventListener)>,
}

/// A listener that is called until this is dropped or [kept](Self::keep).
#[must_use = "dropping it ends the listening"]
pub struct Subscription {
    telemetry: Option<Arc<Telemetry>>,
    number: u64,
}

impl Telemetry {
    pub(crate) fn of(nodes: usize) -> Self {
        let (wanted, listeners) = (AtomicU32::new(0), Mutex::default());
        Self { figures: Figures::of(nodes), wanted, listeners }
    }

    #[inline]
    pub(crate) const fn figures(&self) -> &Figures {
        &self.figures
    }

    #[inline]
    pub(crate) fn wants(&self, name: EventName) -> bool {
        self.wanted.load(Ordering::Relaxed) & bit(name) != 0 || traced(name)
    }

    /// Tells an event, which is made only if somebody wants those of that name. Must not be called
    /// with a lock that a listener may need.
    #[inline]
    pub(crate) fn emit(&self, name: EventName, make: impl FnOnce() -> EventKind) {
        if self.wants(name) {
            self.tell(&Event::now(make()));
        }
    }

    #[cold]
    fn tell(&self, event: &Event) {
        trace(event);
        let name = event.kind().name();
        let wants = |it: &&(u64, Interest, EventListener)| it.1.0 & bit(name) != 0;
        let told: Vec<_> =
            self.lock().list.iter().filter(wants).map(|it| Arc::clone(&it.2)).collect();
        for listener in told {
            // A listener that panics (which is printed on standard error) stops nothing.
            let _ = catch_unwind(AssertUnwindSafe(|| listener(event)));
        }
    }

    pub(crate) fn add(&self, interest: Interest, listener: EventListener) -> u64 {
        let mut listeners = self.lock();
        let number = listeners.next;
        listeners.next += 1;
        listeners.list.push((number, interest, listener));
        self.refresh(&listeners);
        number
    }

    fn remove(&self, number: u64) {
        let mut listeners = self.lock();
        let removed: Vec<_> = listeners.list.extract_if(.., |it| it.0 == number).collect();
        self.refresh(&listeners);
        drop(listeners);
        drop(removed);
    }

    fn refresh(&self, listeners: &Listeners) {
        let wanted = listeners.list.iter().fold(0, |wanted, it| wanted | it.1.0);
        self.wanted.store(wanted, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Listeners> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Subscription {
    pub(crate) fn new(
        telemetry: &Arc<Telemetry>,
        interest: Interest,
        listener: EventListener,
    ) -> Self {
        let number = telemetry.add(interest, listener);
        Self { telemetry: Some(Arc::clone(telemetry)), number }
    }

    /// Goes on for as long as the manager exists.
    pub fn keep(mut self) {
        self.telemetry = None;
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Some(telemetry) = &self.telemetry {
            telemetry.remove(self.number);
        }
    }
}

#[cfg(feature = "tracing")]
use super::traces::{trace, traced};

#[cfg(not(feature = "tracing"))]
const fn traced(_name: EventName) -> bool {
    false
}

#[cfg(not(feature = "tracing"))]
const fn trace(_event: &Event) {}
