//! The life of one node's link: made, used, lost, made again. Owns when; the link owns what is on it.

use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::task::noop_waker_ref;
use quorlock_protocol::{Fault, FaultKind, Moment};
use tokio::select;
use tokio::sync::{mpsc, watch};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep};

use super::batch::{Batch, NodeMessage, Request, unsent};
use super::batcher::Batcher;
use super::dialer::{Backoff, Dialer};
use super::gate::Gate;
use super::link::{Event, Link};
use super::login::ClientId;
use super::wake_sources::{WakeReason, WakeSources};
use crate::clock::{self, ToldMoment};
use crate::node::NodeState;
use crate::sentry::{News, Sentry};

/// The task behind a node: the only one to touch its link.
pub(super) struct Actor {
    dialer: Dialer,
    queue: mpsc::UnboundedReceiver<NodeMessage>,
    state: watch::Sender<NodeState>,
    taken: Vec<NodeMessage>,
    closing: bool,
    /// Somebody has closed it: it was not just dropped.
    is_closed: bool,
    /// When the link's latest call was sent that is not answered, for who sends.
    asked_at: Arc<ToldMoment>,
    /// The last connection that was given up without knowing what the server still does for it.
    abandoned: Option<ClientId>,
    /// Connections lost one after another before they answered anything.
    failed_connects: u32,
    /// When this connection was there: what came too late before that had to wait for it.
    connected: Moment,
}

/// How serving a link ended.
enum End {
    Closed,
    Lost(Fault),
    /// The link is silent, but this new one answers.
    Superseded(Box<Link>),
}

impl Actor {
    pub(super) fn new(
        dialer: Dialer,
        queue: mpsc::UnboundedReceiver<NodeMessage>,
        state: watch::Sender<NodeState>,
        asked_at: Arc<ToldMoment>,
    ) -> Self {
        Self {
            dialer,
            queue,
            state,
            taken: Vec::new(),
            closing: false,
            is_closed: false,
            asked_at,
            abandoned: None,
            failed_connects: 0,
            connected: Moment::default(),
        }
    }

    pub(super) async fn run(mut self) {
        let first = self.dialer.dial(None, None).await;
        let mut link = match first {
            Ok(link) => Some(link),
            Err(fault) => self.wait_while_down(fault).await,
        };
        while let Some(mut current) = link {
            self.set_state(state_of(&current));
            let end = self.serve(&mut current).await;
            self.asked_at.tell(None);
            link = match end {
                End::Closed => {
                    if self.is_closed {
                        current.close();
                    }
                    None
                }
                End::Lost(fault) => self.replace(current, fault).await,
                End::Superseded(candidate) => Some(switch(current, *candidate)),
            };
        }
        self.finish();
    }

    /// Carries commands and replies over `link` until it ends.
    async fn serve(&mut self, link: &mut Link) -> End {
        self.connected = clock::now();
        let mut wake_sources = WakeSources::new(self.dialer.sentry().cloned());
        let mut successor: Option<BoxFuture<'static, Link>> = None;
        self.probe_in_time(link, &mut wake_sources);
        loop {
            let is_hung = successor.is_some();
            self.asked_at.tell(link.asked_at());
            if let Some(since) = link.silent_since().filter(|_| !is_hung) {
                wake_sources.remind(since + self.dialer.settings().hang_after);
            }
            if self.closing && link.unanswered() == 0 {
                return End::Closed;
            }
            select! {
                biased;
                event = poll_fn(|context| link.poll_event(context)) => match event {
                    Event::Lost(fault) => return End::Lost(fault),
                    Event::Answered if is_hung => {
                        successor = None;
                        link.restore();
                        self.set_state(state_of(link));
                    }
                    Event::Answered => {}
                    Event::Probed => {
                        if successor.take().is_some() {
                            link.restore();
                        }
                        self.probe_in_time(link, &mut wake_sources);
                        self.set_state(state_of(link));
                    }
                },
                candidate = next(&mut successor) => return End::Superseded(Box::new(candidate)),
                count = self.queue.recv_many(&mut self.taken, MOST_AT_ONCE),
                    if !self.closing && (is_hung || link.unanswered() < MOST_OUT) =>
                {
                    self.closing = count == 0;
                    if count > 1 || link.unanswered() >= CROWD {
                        self.gather().await;
                    }
                    self.admit(link, is_hung);
                }
                reason = wake_sources.next() => match reason {
                    WakeReason::News(news) => self.handle_news(link, news, is_hung),
                    WakeReason::Alarm => {
                        link.note_heard();
                        if !is_hung && self.is_silent(link) {
                            if self.closing {
                                return End::Closed;
                            }
                            self.set_state(NodeState::Unresponsive);
                            successor = Some(Box::pin(self.dialer.clone().supersede(Arc::clone(link.connection()))));
                        }
                        self.probe_in_time(link, &mut wake_sources);
                    }
                }
            }
        }
    }

    /// Lets everybody who has something to send put it in the queue first, so that it goes out in one
    /// write. Costs one look at the sockets, and nobody a wait; worth it where there are many.
    async fn gather(&mut self) {
        yield_now().await;
        while self.taken.len() < MOST_AT_ONCE {
            match self.queue.try_recv() {
                Ok(message) => self.taken.push(message),
                Err(_) => break,
            }
        }
    }

    /// Sends what has come in, or answers what cannot be sent.
    fn admit(&mut self, link: &mut Link, is_hung: bool) {
        let now = clock::now();
        let mut batcher = Batcher::default();
        for message in self.taken.drain(..) {
            let request = match message {
                NodeMessage::Close => {
                    self.closing = true;
                    self.is_closed = true;
                    continue;
                }
                NodeMessage::Probe => {
                    batcher.finish(link);
                    if !is_hung {
                        link.probe();
                    }
                    continue;
                }
                NodeMessage::Request(request) if self.closing => {
                    refuse(request, &closed());
                    continue;
                }
                NodeMessage::Request(request) => request,
            };
            if request.command.not_after < now {
                let waited = request.command.not_after < self.connected;
                refuse(request, &late(waited));
            } else if is_hung && !(request.is_revoke() && link.unanswered() < MOST_OUT) {
                refuse(request, &Fault::new(FaultKind::NotSent, SILENT));
            } else {
                batcher.add(request, link);
            }
        }
        batcher.finish(link);
    }

    /// The ruling of the guards may be another, or this machine may have stood still.
    fn handle_news(&self, link: &mut Link, news: News, is_hung: bool) {
        let is_wanted = || self.dialer.sentry().is_some_and(Sentry::wants_look);
        let is_open = matches!(link.gate(), Gate::Undecided);
        if news == News::Jump || is_open || is_wanted() {
            link.probe();
        }
        if !is_hung {
            self.set_state(state_of(link));
        }
    }

    /// Looks at a guarded node if that is due, and has it remember its fences; is reminded of the next time.
    fn probe_in_time(&self, link: &mut Link, wake_sources: &mut WakeSources) {
        if self.closing {
            return;
        }
        if let Some(due) = link.keep_fences_in_time() {
            wake_sources.remind(after(due));
        }
        if !self.dialer.sentry().is_some_and(Sentry::looks) {
            return;
        }
        if link.probe_at() <= clock::now() {
            link.reexamine();
        }
        wake_sources.remind(after(link.probe_at()));
    }

    fn is_silent(&self, link: &Link) -> bool {
        let since = link.silent_since();
        since.is_some_and(|since| since.elapsed() >= self.dialer.settings().hang_after)
    }

    /// The link to go on with after `lost` broke: at once if the node can be reached, otherwise when
    /// it can. What was not answered goes out again first, so that nothing newer overtakes it.
    async fn replace(&mut self, lost: Link, fault: Fault) -> Option<Link> {
        self.abandoned = lost.client().cloned().or_else(|| self.abandoned.take());
        self.failed_connects = if lost.has_proved() { 1 } else { self.failed_connects + 1 };
        let unanswered: Vec<_> = lost.into_unanswered().collect();
        if self.closing {
            for batch in unanswered {
                batch.fail(&fault);
            }
            return None;
        }
        // A server that accepts connections and breaks each of them is as good as down.
        let redial = if self.failed_connects > MOST_FAILED_CONNECTS {
            Err(fault.clone())
        } else {
            self.set_state(NodeState::Connecting);
            self.dialer.dial(self.abandoned.as_ref(), None).await
        };
        match redial {
            Ok(mut link) => {
                self.abandoned = None;
                replay_over(unanswered, &mut link, &fault);
                Some(link)
            }
            Err(problem) => {
                for batch in unanswered {
                    let fault = if batch.was_sent() { &fault } else { &problem };
                    batch.fail(fault);
                }
                self.wait_while_down(problem).await
            }
        }
    }

    /// Answers every command with `fault` until the node can be reached; `None` if closed before.
    async fn wait_while_down(&mut self, mut fault: Fault) -> Option<Link> {
        let mut backoff = Backoff::new(self.dialer.settings());
        loop {
            self.set_state(NodeState::Down(fault.clone()));
            let dialer = self.dialer.clone();
            let abandoned = self.abandoned.clone();
            let delay = backoff.next();
            let mut attempt = std::pin::pin!(async move {
                sleep(delay).await;
                dialer.dial(abandoned.as_ref(), None).await
            });
            let result = loop {
                select! {
                    biased;
                    result = attempt.as_mut() => break result,
                    count = self.queue.recv_many(&mut self.taken, MOST_AT_ONCE) => {
                        for message in self.taken.drain(..) {
                            match message {
                                NodeMessage::Request(request) => refuse(request, &fault),
                                NodeMessage::Probe => {}
                                NodeMessage::Close => self.closing = true,
                            }
                        }
                        if self.closing || count == 0 {
                            return None;
                        }
                    }
                }
            };
            match result {
                Ok(link) => {
                    self.abandoned = None;
                    return Some(link);
                }
                Err(problem) => fault = problem,
            }
        }
    }

    fn finish(mut self) {
        self.set_state(NodeState::Down(closed()));
        self.queue.close();
        while let Ok(message) = self.queue.try_recv() {
            if let NodeMessage::Request(request) = message {
                refuse(request, &closed());
            }
        }
    }

    fn set_state(&self, state: NodeState) {
        if let (NodeState::Down(_), Some(sentry)) = (&state, self.dialer.sentry()) {
            sentry.handle_down();
        }
        self.state.send_if_modified(|current| {
            let is_new = *current != state;
            *current = state;
            is_new
        });
    }
}

/// The fault of a command that was got to too late, because the node was not connected to or this process did not come
/// to it.
fn late(is_nodes: bool) -> Fault {
    if is_nodes {
        Fault::new(FaultKind::NotSent, "it was connected to too late")
    } else {
        Fault::new(FaultKind::Late, "this process came to it too late to send it")
    }
}

/// Moves from a link that is silent, and that the server was told to end, to one that answers.
fn switch(mut silent: Link, mut link: Link) -> Link {
    // What has come in the meantime still counts.
    let mut context = Context::from_waker(noop_waker_ref());
    while let Poll::Ready(Event::Answered) = silent.poll_event(&mut context) {}
    let unanswered = silent.into_unanswered().collect();
    replay_over(unanswered, &mut link, &Fault::new(FaultKind::Broken, SILENT));
    link
}

/// Sends what a lost link has left over, in its order; what may not go out again is answered with
/// `fault`.
fn replay_over(unanswered: Vec<Batch>, link: &mut Link, fault: &Fault) {
    let now = clock::now();
    for batch in unanswered {
        if let Some(batch) = batch.still_wanted(now, fault) {
            link.send(batch);
        }
    }
}

/// What the guards make of a node that answers.
fn state_of(link: &Link) -> NodeState {
    if let Some(fault) = link.dependence() {
        return NodeState::Refusing(fault);
    }
    match link.gate() {
        Gate::Open(_) => NodeState::Healthy,
        Gate::Quarantined(quarantine) => NodeState::Quarantined(*quarantine),
        Gate::Undecided => NodeState::Connecting,
        Gate::Broken(fault) => NodeState::Refusing(fault.clone()),
    }
}

/// When a moment of the boot clock comes, or sooner: timers stop while the computer sleeps.
fn after(moment: Moment) -> Instant {
    Instant::now() + moment.since(clock::now()).min(LONGEST_NAP)
}

async fn next(successor: &mut Option<BoxFuture<'static, Link>>) -> Link {
    match successor {
        Some(successor) => successor.await,
        None => pending().await,
    }
}

pub(super) fn closed() -> Fault {
    Fault::new(FaultKind::NotSent, "the lock manager was closed")
}

pub(super) fn refuse(request: Request, fault: &Fault) {
    request.answer(Err(unsent(fault)), false);
}

const SILENT: &str = "the node is connected, but does not answer";
const LONGEST_NAP: Duration = Duration::from_secs(1);
/// With so many batches unanswered there are others who may have something to send.
const CROWD: usize = 3;
/// How many requests are taken from the queue at once.
const MOST_AT_ONCE: usize = 1024;
/// With so many batches unanswered the rest waits in the queue; a silent node gets no further revokes.
const MOST_OUT: usize = 16 * 1024;
/// How many connections in a row may break without an answer before the node counts as down.
const MOST_FAILED_CONNECTS: u32 = 2;
