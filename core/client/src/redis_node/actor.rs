//! The task behind a node: makes its link, and replaces a link that was lost. Owns when that
//! happens, and the node's state; `serving` is what it does while there is a link.

mod serving;

use std::sync::Arc;
use std::task::{Context, Poll};

use futures::task::noop_waker_ref;
use quorlock_protocol::{Fault, FaultKind};
use tokio::select;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use super::backoff::Backoff;
use super::dialer::Dialer;
use super::faults::closed;
use super::link::{Event, Link};
use super::session::{ClientId, Gate, Now, PlainCall, Request, SILENT};
use crate::clock::{self, AtomicMoment};
use crate::node::NodeState;

/// A message in a node's queue.
pub(super) enum NodeMessage {
    Request(Request),
    /// A call that is no lock command.
    Plain(PlainCall),
    /// The node is to be probed before the requests that follow.
    Probe,
    Close,
}

/// The task behind a node, which alone uses its link.
pub(super) struct Actor {
    dialer: Dialer,
    queue: mpsc::UnboundedReceiver<NodeMessage>,
    state: watch::Sender<NodeState>,
    /// The messages that were taken from the queue together.
    taken: Vec<NodeMessage>,
    /// The task ends as soon as everything is answered.
    closing: bool,
    /// It was closed on purpose, not just dropped.
    is_closed: bool,
    /// When the link's latest unanswered call was sent, for other threads.
    asked_at: Arc<AtomicMoment>,
    /// The last connection that was given up although the server may still carry out what was sent
    /// over it.
    abandoned: Option<ClientId>,
    /// How many connections in a row were lost before they answered anything.
    failed_connects: u32,
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
        asked_at: Arc<AtomicMoment>,
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
        }
    }

    pub(super) async fn run(mut self) {
        let first = self.dialer.dial(None).await;
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
                End::Superseded(successor) => Some(switch(current, *successor)),
            };
        }
        self.finish();
    }

    /// The link that replaces `lost`: at once if the node can be reached, otherwise when it can.
    /// Commands without an answer are sent again first, so that no newer request overtakes them.
    async fn replace(&mut self, lost: Link, fault: Fault) -> Option<Link> {
        self.abandoned = lost.client().cloned().or_else(|| self.abandoned.take());
        let has_proved = lost.session().has_proved(Now::read());
        self.failed_connects = if has_proved { 1 } else { self.failed_connects + 1 };
        let unanswered = lost.into_unanswered();
        if self.closing {
            unanswered.fail(&fault, &fault, Now::read());
            return None;
        }
        // A server that accepts connections and breaks each of them counts as down.
        let redial = if self.failed_connects > MOST_FAILED_CONNECTS {
            Err(fault.clone())
        } else {
            self.set_state(NodeState::Connecting);
            self.dialer.dial(self.abandoned.as_ref()).await
        };
        match redial {
            Ok(mut link) => {
                self.abandoned = None;
                link.drive(|session, now| unanswered.replay(session, now, &fault));
                Some(link)
            }
            Err(problem) => {
                unanswered.fail(&fault, &problem, Now::read());
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
            let mut dialing = std::pin::pin!(async move {
                sleep(delay).await;
                dialer.dial(abandoned.as_ref()).await
            });
            let result = loop {
                select! {
                    biased;
                    result = dialing.as_mut() => break result,
                    count = self.queue.recv_many(&mut self.taken, MOST_AT_ONCE) => {
                        for message in self.taken.drain(..) {
                            match message {
                                NodeMessage::Request(request) => request.refuse(&fault, clock::now()),
                                NodeMessage::Probe | NodeMessage::Plain(_) => {}
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
        // No event tells of it: this says nothing about the server.
        self.handle_down();
        self.state.send_replace(NodeState::Down(closed()));
        self.queue.close();
        while let Ok(message) = self.queue.try_recv() {
            if let NodeMessage::Request(request) = message {
                request.refuse(&closed(), clock::now());
            }
        }
    }

    fn handle_down(&self) {
        if let Some(guarded_node) = self.dialer.guarded_node() {
            guarded_node.handle_down(clock::now());
        }
    }

    fn set_state(&self, state: NodeState) {
        if matches!(state, NodeState::Down(_)) {
            self.handle_down();
        }
        if *self.state.borrow() == state {
            return;
        }
        let now = state.clone();
        let before = self.state.send_replace(state);
        if let Some(guarded_node) = self.dialer.guarded_node() {
            guarded_node.tell_change(&before, &now);
        }
    }
}

/// Moves from a silent link, whose connection the server was told to end, to one that answers.
fn switch(mut silent: Link, mut link: Link) -> Link {
    // Replies that have come in the meantime still count.
    let mut context = Context::from_waker(noop_waker_ref());
    while let Poll::Ready(Event::Answered) = silent.poll_event(&mut context) {}
    let (unanswered, fault) = (silent.into_unanswered(), Fault::new(FaultKind::Broken, SILENT));
    link.drive(|session, now| unanswered.replay(session, now, &fault));
    link
}

/// The state of a node that answers, by its guards' ruling.
fn state_of(link: &Link) -> NodeState {
    if let Some(fault) = link.session().dependence() {
        return NodeState::Refusing(fault);
    }
    match link.session().gate() {
        Gate::Open(_) => NodeState::Healthy,
        Gate::Quarantined(quarantine) => NodeState::Quarantined(*quarantine),
        Gate::Undecided => NodeState::Connecting,
        Gate::Broken(fault) => NodeState::Refusing(fault.clone()),
    }
}

/// How many messages are taken from the queue at once.
const MOST_AT_ONCE: usize = 1024;
/// How many connections in a row may break without an answer before the node counts as down.
const MOST_FAILED_CONNECTS: u32 = 2;
