//! The task that holds a wake connection. Owns when it is opened and closed, and what follows for waiters from what
//! happens on it.

mod serving;

use std::future::pending;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use quorlock_protocol::{Answer, Fault};
use tokio::select;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use super::lacks::Lacks;
use super::live::{Event, Live};
use super::request::Request;
use super::waiters::Waiters;
use super::watches::Watches;
use crate::address::Address;
use crate::background::BackgroundTicket;
use crate::redis_node::backoff::Backoff;
use crate::redis_node::faults::{closed, no_answer};
use crate::redis_node::settings::NodeSettings;

/// What nodes send to the task.
pub(in crate::redis_node) enum Message {
    Request(Request),
    /// A manager was closed.
    Close,
    /// The process ends: nobody waits any more.
    LeaveAll(BackgroundTicket),
}

/// The task.
pub(super) struct Actor {
    address: Arc<Address>,
    settings: NodeSettings,
    /// How long the connection is kept without a waiter.
    idle: Duration,
    inbox: mpsc::UnboundedReceiver<Message>,
    lacks: Arc<Lacks>,
    waiters: Waiters,
    watches: Watches,
    state: State,
    backoff: Backoff,
    /// How many connections in a row were lost soon after they were made.
    short_lived: u32,
    /// When something was last sent or received.
    used: Instant,
    /// When silent waiters are looked for next.
    next_sweep: Instant,
    /// A manager was closed, so the connection is not kept without a waiter.
    closes_early: bool,
}

enum State {
    /// The fault of the last dial, until another one may begin.
    Closed(Option<(Instant, Fault)>),
    Opening {
        opening: BoxFuture<'static, Result<Live, Fault>>,
        /// What came meanwhile.
        backlog: Vec<Request>,
    },
    Open(Box<Live>),
}

enum Input {
    Message(Option<Message>),
    Opened(Result<Live, Fault>),
    Event(Event),
    Deadline,
}

impl Actor {
    pub(super) fn new(
        address: Arc<Address>,
        settings: NodeSettings,
        idle: Duration,
        inbox: mpsc::UnboundedReceiver<Message>,
        lacks: &Arc<Lacks>,
    ) -> Self {
        let (waiters, watches, state) =
            (Waiters::default(), Watches::default(), State::Closed(None));
        let (backoff, short_lived, used) = (Backoff::new(&settings), 0, Instant::now());
        let (lacks, next_sweep, closes_early) = (Arc::clone(lacks), used + SWEEP_EVERY, false);
        Self {
            address,
            settings,
            idle,
            inbox,
            lacks,
            waiters,
            watches,
            state,
            backoff,
            short_lived,
            used,
            next_sweep,
            closes_early,
        }
    }

    /// Serves the nodes until the last of them is dropped.
    pub(super) async fn run(mut self) {
        loop {
            match self.next().await {
                Input::Message(Some(Message::Request(request))) => self.handle_request(request),
                Input::Message(Some(Message::Close)) => self.closes_early = true,
                Input::Message(Some(Message::LeaveAll(ticket))) => self.leave_all(ticket),
                Input::Message(None) => return self.finish().await,
                Input::Opened(result) => self.handle_opened(result),
                Input::Event(event) => self.handle_event(event),
                Input::Deadline => self.handle_deadline(),
            }
            if self.closes_early && self.is_unused() {
                self.state = State::Closed(None);
            }
        }
    }

    async fn next(&mut self) -> Input {
        let deadline = self.deadline();
        let Self { inbox, state, .. } = self;
        select! {
            biased;
            input = state.next() => input,
            message = inbox.recv() => Input::Message(message),
            () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => Input::Deadline,
        }
    }

    fn deadline(&self) -> Option<Instant> {
        if !self.waiters.is_empty() {
            return Some(self.next_sweep);
        }
        self.is_unused().then_some(self.used + self.idle)
    }

    /// Whether there is a connection, but nobody waits and nothing is under way.
    fn is_unused(&self) -> bool {
        matches!(&self.state, State::Open(live) if live.is_quiet()) && self.waiters.is_empty()
    }

    fn handle_deadline(&mut self) {
        let now = Instant::now();
        if self.is_unused() && now >= self.used + self.idle {
            self.state = State::Closed(None);
        }
        if now >= self.next_sweep {
            self.next_sweep = now + SWEEP_EVERY;
            for (waiter, lock_keys) in self.waiters.drop_silent() {
                self.watches.unwatch(waiter, &lock_keys);
            }
        }
    }

    fn handle_request(&mut self, request: Request) {
        self.used = Instant::now();
        match &mut self.state {
            State::Open(_) => self.send(request),
            State::Opening { backlog, .. } => backlog.push(request),
            State::Closed(_) if request.is_leave() => {
                let waiter = request.waiter();
                let request = waiter.and_then(|waiter| self.waiters.leave(waiter, request));
                if let Some(request) = request {
                    request.answer(Ok(Answer::Done));
                }
            }
            State::Closed(Some((until, fault))) if Instant::now() < *until => request.refuse(fault),
            State::Closed(_) => self.open(request),
        }
    }

    fn open(&mut self, request: Request) {
        let (address, lacks) = (Arc::clone(&self.address), Arc::clone(&self.lacks));
        let limit = self.settings.connect_timeout;
        let opening = async move {
            let opened = timeout(limit, Live::open(&address, lacks)).await;
            opened.unwrap_or_else(|_| Err(no_answer(&address, limit)))
        };
        self.state = State::Opening { opening: opening.boxed(), backlog: vec![request] };
    }

    fn handle_opened(&mut self, result: Result<Live, Fault>) {
        let (state, refusal) = match result {
            Ok(live) => (State::Open(Box::new(live)), None),
            Err(fault) => {
                let until = Instant::now() + self.backoff.next();
                (State::Closed(Some((until, fault.clone()))), Some(fault))
            }
        };
        let before = mem::replace(&mut self.state, state);
        let State::Opening { backlog, .. } = before else {
            return;
        };
        self.used = Instant::now();
        for request in backlog {
            match &refusal {
                Some(fault) => request.refuse(fault),
                None => self.send(request),
            }
        }
    }

    /// No node is left: lets the calls under way end.
    async fn finish(mut self) {
        self.watches.clear();
        if let State::Opening { backlog, .. } = &mut self.state {
            for request in mem::take(backlog) {
                request.refuse(&closed());
            }
            return;
        }
        while matches!(&self.state, State::Open(live) if !live.is_quiet()) {
            if let Input::Event(event) = self.state.next().await {
                self.handle_event(event);
            }
        }
    }
}

impl State {
    async fn next(&mut self) -> Input {
        match self {
            Self::Closed(_) => pending().await,
            Self::Opening { opening, .. } => Input::Opened(opening.await),
            Self::Open(live) => Input::Event(live.next().await),
        }
    }
}

/// How often silent waiters are looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(5);
