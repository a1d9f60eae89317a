//! The work of a node's task while it has a link: it carries requests and replies, keeps the guards
//! informed, and notices a silent server. Owns the order of this work.

use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use quorlock_protocol::Moment;
use tokio::select;
use tokio::task::yield_now;
use tokio::time::Instant;

use super::{Actor, End, MOST_AT_ONCE, NodeMessage, state_of};
use crate::clock;
use crate::guards::{GuardedNode, News};
use crate::node::NodeState;
use crate::redis_node::faults::closed;
use crate::redis_node::link::{Event, Link};
use crate::redis_node::session::{Arrivals, Gate, Session};
use crate::redis_node::wake_sources::{WakeReason, WakeSources};

/// A second connection that is being made beside a silent one.
type Successor = Option<BoxFuture<'static, Link>>;

impl Actor {
    /// Carries requests and replies over `link` until the link ends.
    pub(super) async fn serve(&mut self, link: &mut Link) -> End {
        link.drive(Session::begin);
        let mut wake_sources = WakeSources::new(self.dialer.guarded_node().cloned());
        let mut successor: Successor = None;
        self.probe_in_time(link, &mut wake_sources);
        loop {
            let is_hung = successor.is_some();
            self.asked_at.tell(link.session().asked_at());
            if let Some(since) = link.session().silent_since().filter(|_| !is_hung) {
                wake_sources.remind(since + self.dialer.settings().hang_after);
            }
            if self.closing && link.session().is_idle() {
                return End::Closed;
            }
            select! {
                biased;
                event = poll_fn(|context| link.poll_event(context)) => match event {
                    Event::Lost(fault) => return End::Lost(fault),
                    event => self.handle_event(link, &event, &mut successor, &mut wake_sources),
                },
                link = ready(&mut successor) => return End::Superseded(Box::new(link)),
                count = self.queue.recv_many(&mut self.taken, MOST_AT_ONCE),
                    if !self.closing && (is_hung || !link.session().is_full()) =>
                {
                    self.closing = count == 0;
                    if count > 1 || link.session().is_busy() {
                        self.gather().await;
                    }
                    self.admit(link, is_hung);
                }
                reason = wake_sources.next() => match reason {
                    WakeReason::News(news) => self.handle_news(link, news, is_hung),
                    WakeReason::Alarm => {
                        link.note_reply();
                        if !is_hung && self.is_silent(link) {
                            if self.closing {
                                return End::Closed;
                            }
                            self.set_state(NodeState::Unresponsive);
                            let silent = Arc::clone(link.connection());
                            successor = Some(Box::pin(self.dialer.clone().supersede(silent)));
                        }
                        self.probe_in_time(link, &mut wake_sources);
                    }
                }
            }
        }
    }

    /// The server has answered: it is not silent any more.
    fn handle_event(
        &self,
        link: &mut Link,
        event: &Event,
        successor: &mut Successor,
        wake_sources: &mut WakeSources,
    ) {
        let was_hung = successor.take().is_some();
        if was_hung {
            link.restore();
        }
        let is_probed = matches!(event, Event::Probed);
        if is_probed {
            self.probe_in_time(link, wake_sources);
        }
        if was_hung || is_probed {
            self.set_state(state_of(link));
        }
    }

    /// Lets all users that have something to send put it into the queue first, so that it goes out
    /// in one write. Costs one poll of the sockets and makes no user wait; worth it with many
    /// users.
    async fn gather(&mut self) {
        yield_now().await;
        while self.taken.len() < MOST_AT_ONCE {
            match self.queue.try_recv() {
                Ok(message) => self.taken.push(message),
                Err(_) => break,
            }
        }
    }

    /// Hands the messages that were taken to the session.
    fn admit(&mut self, link: &mut Link, is_hung: bool) {
        let Self { taken, closing, is_closed, .. } = self;
        link.drive(|session, now| {
            let mut arrivals = Arrivals::new(session, is_hung, now);
            for message in taken.drain(..) {
                match message {
                    NodeMessage::Close => (*closing, *is_closed) = (true, true),
                    NodeMessage::Probe => arrivals.probe(),
                    NodeMessage::Plain(call) => arrivals.plain(call),
                    NodeMessage::Request(request) if *closing => {
                        request.refuse(&closed(), now.boot);
                    }
                    NodeMessage::Request(request) => arrivals.request(request),
                }
            }
            arrivals.finish();
        });
    }

    /// Handles news of the guards: the ruling may have changed, or this machine may have been
    /// paused.
    fn handle_news(&self, link: &mut Link, news: News, is_hung: bool) {
        let is_wanted = || self.dialer.guarded_node().is_some_and(GuardedNode::wants_look);
        let is_undecided = matches!(link.session().gate(), Gate::Undecided);
        if news == News::Jump || is_undecided || is_wanted() {
            link.drive(Session::probe);
        }
        if !is_hung {
            self.set_state(state_of(link));
        }
    }

    /// Probes a guarded node and renews its fences if that is due; sets the alarm for the next
    /// time.
    fn probe_in_time(&self, link: &mut Link, wake_sources: &mut WakeSources) {
        if self.closing {
            return;
        }
        if let Some(due) = link.drive(Session::keep_fences_in_time) {
            wake_sources.remind(after(due));
        }
        if !self.dialer.guarded_node().is_some_and(GuardedNode::looks) {
            return;
        }
        if link.session().probe_at() <= clock::now() {
            link.drive(Session::reexamine);
        }
        wake_sources.remind(after(link.session().probe_at()));
    }

    fn is_silent(&self, link: &Link) -> bool {
        let since = link.session().silent_since();
        since.is_some_and(|since| since.elapsed() >= self.dialer.settings().hang_after)
    }
}

/// The timer for a moment of the boot clock, or an earlier one: timers stop while the computer
/// sleeps.
fn after(moment: Moment) -> Instant {
    Instant::now() + moment.since(clock::now()).min(LONGEST_SLEEP)
}

async fn ready(successor: &mut Successor) -> Link {
    match successor {
        Some(successor) => successor.await,
        None => pending().await,
    }
}

/// A timer is set no further ahead than this, since it stops while the computer sleeps.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);
