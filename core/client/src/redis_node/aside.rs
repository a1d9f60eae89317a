//! What a connection waits for beside its commands: a moment, and news of the guards. Owns when each is polled: only
//! once it has stirred, since the task wakes with every command, and for these seldom. Never knows what they are for.

use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::future::BoxFuture;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::sentry::Sentry;

/// What has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Occasion {
    /// The moment that was to be reminded of.
    Alarm,
    /// The ruling of the guards may have changed.
    News,
}

/// One alarm, and what tells of news.
pub(super) struct Aside {
    alarm: Pin<Box<Sleep>>,
    /// What the alarm is set to; `None` once it has rung.
    alarm_at: Option<Instant>,
    /// Ends with the next news; gives the sentry back that told them.
    news: BoxFuture<'static, Option<Sentry>>,
    bell: Arc<Bell>,
    /// Rings the bell.
    ringer: Waker,
    /// Whom the bell wakes: spares its lock at each poll.
    task: Option<Waker>,
}

impl Aside {
    pub(super) fn new(sentry: Option<Sentry>) -> Self {
        // Rung, so that the first poll begins to wait for news.
        let bell = Arc::new(Bell { has_rung: AtomicBool::new(true), task: Mutex::default() });
        Self {
            alarm: Box::pin(sleep_until(Instant::now())),
            alarm_at: None,
            news: Box::pin(change(sentry)),
            ringer: Waker::from(Arc::clone(&bell)),
            bell,
            task: None,
        }
    }

    /// Has the alarm ring at `moment`, unless it does so sooner.
    pub(super) fn remind(&mut self, moment: Instant) {
        if self.alarm_at.is_none_or(|set| moment < set) {
            self.alarm.as_mut().reset(moment);
            self.alarm_at = Some(moment);
            self.bell.has_rung.store(true, Ordering::Release);
        }
    }

    /// What has come, one at a time; costs next to nothing while nothing has stirred.
    pub(super) fn poll_occasion(&mut self, context: &mut Context<'_>) -> Poll<Occasion> {
        if !self.task.as_ref().is_some_and(|task| task.will_wake(context.waker())) {
            self.task = Some(context.waker().clone());
            *self.bell.task() = Some(context.waker().clone());
        }
        if !self.bell.has_rung.swap(false, Ordering::AcqRel) {
            return Poll::Pending;
        }
        let occasion = self.poll_stirred();
        if occasion.is_ready() {
            // The other one may have rung as well.
            self.bell.has_rung.store(true, Ordering::Release);
        }
        occasion
    }

    fn poll_stirred(&mut self) -> Poll<Occasion> {
        let mut context = Context::from_waker(&self.ringer);
        if self.alarm_at.is_some() && self.alarm.as_mut().poll(&mut context).is_ready() {
            self.alarm_at = None;
            return Poll::Ready(Occasion::Alarm);
        }
        self.news.as_mut().poll(&mut context).map(|sentry| {
            self.news = Box::pin(change(sentry));
            Occasion::News
        })
    }
}

/// Remembers that it was rung, and passes it on.
struct Bell {
    has_rung: AtomicBool,
    task: Mutex<Option<Waker>>,
}

impl Bell {
    fn task(&self) -> MutexGuard<'_, Option<Waker>> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // First of all: whoever begins to listen meanwhile finds it rung.
        self.has_rung.store(true, Ordering::Release);
        let task = self.task().clone();
        if let Some(task) = task {
            task.wake();
        }
    }
}

/// Waits for what may change the ruling of the guards.
async fn change(mut sentry: Option<Sentry>) -> Option<Sentry> {
    match &mut sentry {
        Some(sentry) => sentry.changed().await,
        None => pending().await,
    }
    sentry
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::time::Duration;

    use futures_util::FutureExt as _;
    use futures_util::task::noop_waker_ref;
    use quorlock_protocol::{NodeId, Policy, Quorum};
    use tokio::time::timeout;

    use super::*;
    use crate::clock::Jumps;
    use crate::observe::Observer;
    use crate::sentry::Watch;

    #[tokio::test]
    async fn the_soonest_reminder_rings_once() {
        let mut aside = Aside::new(None);
        let start = Instant::now();
        for wait in [HOUR, Duration::from_millis(10), HOUR / 2] {
            aside.remind(start + wait);
        }
        let rung = timeout(PATIENCE, poll_fn(|context| aside.poll_occasion(context))).await;
        assert_eq!(rung, Ok(Occasion::Alarm));
        assert!(start.elapsed() >= Duration::from_millis(10));
        let more = poll_fn(|context| aside.poll_occasion(context));
        assert!(more.now_or_never().is_none());
    }

    #[tokio::test]
    async fn it_rings_again_and_for_whom_asked_last() {
        let mut aside = Aside::new(None);
        for _ in 0..2 {
            aside.remind(Instant::now() + Duration::from_millis(10));
            let mut nobody = Context::from_waker(noop_waker_ref());
            assert!(aside.poll_occasion(&mut nobody).is_pending());
            let rung = timeout(PATIENCE, poll_fn(|context| aside.poll_occasion(context))).await;
            assert_eq!(rung, Ok(Occasion::Alarm));
        }
    }

    #[tokio::test]
    async fn news_come_without_a_reminder() {
        let (policy, jumps) = (Policy::default(), Jumps::default());
        let watch = Watch::new(&policy, Quorum::of(3), Observer::default(), &jumps);
        let mut aside = Aside::new(Some(watch.sentry(NodeId(0))));
        let news = async {
            let occasion = poll_fn(|context| aside.poll_occasion(context));
            let down = async { watch.sentry(NodeId(1)).handle_down() };
            tokio::join!(occasion, down).0
        };
        assert_eq!(timeout(PATIENCE, news).await, Ok(Occasion::News));
    }

    #[tokio::test]
    async fn an_alarm_does_not_hide_news() {
        let (policy, jumps) = (Policy::default(), Jumps::default());
        let watch = Watch::new(&policy, Quorum::of(3), Observer::default(), &jumps);
        let mut aside = Aside::new(Some(watch.sentry(NodeId(0))));
        for node in [1, 2] {
            let soon = Instant::now() + Duration::from_millis(10);
            aside.remind(soon);
            assert!(poll_fn(|context| aside.poll_occasion(context)).now_or_never().is_none());
            // Both stir before it is asked again.
            sleep_until(soon).await;
            watch.sentry(NodeId(node)).handle_down();
            for expected in [Some(Occasion::Alarm), Some(Occasion::News), None] {
                let rung = poll_fn(|context| aside.poll_occasion(context)).now_or_never();
                assert_eq!(rung, expected);
            }
        }
    }

    const HOUR: Duration = Duration::from_secs(3600);
    const PATIENCE: Duration = Duration::from_secs(20);
}
