//! What wakes a node's task besides commands and replies: an alarm, and news of the guards. Owns
//! when each is polled: only after its own waker was called, since the task wakes with every
//! command. Does not know their purpose.

use std::future::{Future, pending, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures::future::BoxFuture;
use futures::task::AtomicWaker;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::guards::{GuardedNode, News};

/// Why the task woke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WakeReason {
    /// The moment that the alarm was set to.
    Alarm,
    /// The guards have news.
    News(News),
}

/// One alarm, and the news of the guards.
pub(super) struct WakeSources {
    alarm: Pin<Box<Sleep>>,
    /// What the alarm is set to; `None` once it has gone off.
    alarm_at: Option<Instant>,
    /// Ready with the next news, and with the `GuardedNode` that they came from.
    news: BoxFuture<'static, (News, GuardedNode)>,
    flag: Arc<WakeFlag>,
    /// Sets the flag.
    waker: Waker,
}

impl WakeSources {
    pub(super) fn new(guarded_node: Option<GuardedNode>) -> Self {
        // Set, so that the first poll begins to wait for news.
        let flag = Arc::new(WakeFlag { is_set: AtomicBool::new(true), task: AtomicWaker::new() });
        Self {
            alarm: Box::pin(sleep_until(Instant::now())),
            alarm_at: None,
            news: Box::pin(next_news(guarded_node)),
            waker: Waker::from(Arc::clone(&flag)),
            flag,
        }
    }

    /// Sets the alarm to `moment`, unless it goes off sooner anyway.
    pub(super) fn remind(&mut self, moment: Instant) {
        if self.alarm_at.is_none_or(|set| moment < set) {
            self.alarm.as_mut().reset(moment);
            self.alarm_at = Some(moment);
            self.flag.is_set.store(true, Ordering::Release);
        }
    }

    /// Waits for the next reason to wake; costs next to nothing while neither source has called its waker.
    pub(super) async fn next(&mut self) -> WakeReason {
        poll_fn(|context| self.poll_next(context)).await
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<WakeReason> {
        self.flag.task.register(context.waker());
        if !self.flag.is_set.swap(false, Ordering::AcqRel) {
            return Poll::Pending;
        }
        let reason = self.poll_stirred();
        if reason.is_ready() {
            // The other source may be ready as well.
            self.flag.is_set.store(true, Ordering::Release);
        }
        reason
    }

    fn poll_stirred(&mut self) -> Poll<WakeReason> {
        let mut context = Context::from_waker(&self.waker);
        if self.alarm_at.is_some() && self.alarm.as_mut().poll(&mut context).is_ready() {
            self.alarm_at = None;
            return Poll::Ready(WakeReason::Alarm);
        }
        self.news.as_mut().poll(&mut context).map(|(news, guarded_node)| {
            self.news = Box::pin(next_news(Some(guarded_node)));
            WakeReason::News(news)
        })
    }
}

/// A waker that remembers that it was called, and wakes the task.
struct WakeFlag {
    is_set: AtomicBool,
    task: AtomicWaker,
}

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Set first, so that a task that registers in between finds it set.
        self.is_set.store(true, Ordering::Release);
        self.task.wake();
    }
}

/// Waits for news of the guards, if there are any.
async fn next_news(guarded_node: Option<GuardedNode>) -> (News, GuardedNode) {
    match guarded_node {
        Some(mut guarded_node) => (guarded_node.news().await, guarded_node),
        None => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt as _;
    use quorlock_protocol::{NodeId, Policy, Quorum};
    use tokio::select;
    use tokio::time::sleep;

    use super::*;
    use crate::clock::{self, ClockJumps};
    use crate::guards::GuardsHandle;
    use crate::observe::Observer;

    #[tokio::test]
    async fn the_soonest_reminder_rings_once() {
        let mut wake_sources = WakeSources::new(None);
        let start = Instant::now();
        for wait in [HOUR, Duration::from_millis(10), HOUR / 2] {
            wake_sources.remind(start + wait);
        }
        let rung = in_time(wake_sources.next()).await;
        assert_eq!(rung, Some(WakeReason::Alarm));
        assert!(start.elapsed() >= Duration::from_millis(10));
        assert!(wake_sources.next().now_or_never().is_none());
    }

    #[tokio::test]
    async fn it_rings_again_and_for_whom_asked_last() {
        let mut wake_sources = WakeSources::new(None);
        for _ in 0..2 {
            wake_sources.remind(Instant::now() + Duration::from_millis(10));
            // Polled once by a waker that wakes nobody.
            assert!(wake_sources.next().now_or_never().is_none());
            let rung = in_time(wake_sources.next()).await;
            assert_eq!(rung, Some(WakeReason::Alarm));
        }
    }

    #[tokio::test]
    async fn news_come_without_a_reminder() {
        let (guards, mut wake_sources) = guarded();
        let news = async {
            let down = async { guards.guarded_node(NodeId(1)).handle_down(clock::now()) };
            tokio::join!(wake_sources.next(), down).0
        };
        assert_eq!(in_time(news).await, Some(RULING));
    }

    #[tokio::test]
    async fn an_alarm_does_not_hide_news() {
        let (guards, mut wake_sources) = guarded();
        for node in [1, 2] {
            let soon = Instant::now() + Duration::from_millis(10);
            wake_sources.remind(soon);
            assert!(wake_sources.next().now_or_never().is_none());
            // Both become ready before the next poll.
            sleep_until(soon).await;
            guards.guarded_node(NodeId(node)).handle_down(clock::now());
            for expected in [Some(WakeReason::Alarm), Some(RULING), None] {
                let rung = wake_sources.next().now_or_never();
                assert_eq!(rung, expected);
            }
        }
    }

    /// Beside a connection of the first of three nodes.
    fn guarded() -> (GuardsHandle, WakeSources) {
        let (policy, jumps) = (Policy::default(), ClockJumps::default());
        let guards =
            GuardsHandle::new(&policy, Quorum::of(3), Observer::new(Arc::default(), None), &jumps);
        let wake_sources = WakeSources::new(Some(guards.guarded_node(NodeId(0))));
        (guards, wake_sources)
    }

    /// The reason, if it wakes the task: `timeout` would poll once more at its end, and find a reason without a wake.
    async fn in_time(reason: impl Future<Output = WakeReason>) -> Option<WakeReason> {
        select! {
            biased;
            () = sleep(PATIENCE) => None,
            reason = reason => Some(reason),
        }
    }

    const RULING: WakeReason = WakeReason::News(News::Ruling);
    const HOUR: Duration = Duration::from_secs(3600);
    const PATIENCE: Duration = Duration::from_secs(20);
}
