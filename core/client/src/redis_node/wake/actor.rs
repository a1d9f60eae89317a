//! The task that holds a wake connection. Owns when it is opened and closed, and what follows for waiters from what
//! happens on it.

use std::future::pending;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use quorlock_protocol::{Action, Answer, Fault, FaultKind, News, Queued, Waiter};
use redis::Value;
use tokio::select;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use super::calls::{self, Failure};
use super::live::{Event, Lacks, Live};
use super::news::Push;
use super::request::Request;
use super::waiters::Waiters;
use super::watches::{KeyState, Watches};
use crate::address::Address;
use crate::redis_node::actor::closed;
use crate::redis_node::dialer::{Backoff, no_answer};
use crate::redis_node::settings::NodeSettings;

/// What nodes send to the task.
pub(super) enum Message {
    Request(Request),
    /// A manager was closed.
    Close,
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
    /// The fault of the last attempt, until another one may be made.
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

    /// Sends a request over the open connection.
    fn send(&mut self, request: Request) {
        let State::Open(live) = &mut self.state else {
            return;
        };
        if request.is_late() {
            return request.refuse_late();
        }
        let Some(waiter) = request.waiter() else {
            return live.send(request);
        };
        if request.is_leave() {
            self.watches.unwatch(waiter, &request.lock_keys);
            if let Some(request) = self.waiters.leave(waiter, request) {
                live.send(request);
            }
            return;
        }
        self.closes_early = false;
        self.waiters.enter(waiter, &request);
        live.subscribe(waiter.process);
        live.send(request);
    }

    fn handle_event(&mut self, event: Event) {
        match event {
            Event::Push(push) => self.handle_push(push),
            Event::Answered(request, result) => self.handle_answer(request, result),
            Event::Read(key, result) => self.handle_read(&key, result),
            Event::Subscribed(process, Err(failure)) => {
                if let State::Open(live) = &mut self.state {
                    live.note_deaf(process, &failure);
                }
            }
            Event::Subscribed(_, Ok(())) | Event::Nothing => {}
            Event::Lost => self.handle_lost(),
        }
    }

    fn handle_push(&mut self, push: Push) {
        let State::Open(live) = &mut self.state else {
            return;
        };
        match push {
            Push::News { waiter, news, lock_key } => {
                if !self.waiters.tell(waiter, news) {
                    live.drop_place(waiter, &lock_key);
                }
            }
            Push::Changed(keys) => {
                let reads = keys.iter().filter_map(|key| self.watches.note_change(key));
                reads.for_each(|key| live.read(key));
            }
            Push::AllChanged => {
                self.watches.note_change_of_all().into_iter().for_each(|key| live.read(key));
            }
        }
    }

    fn handle_answer(&mut self, request: Request, result: Result<Value, Failure>) {
        self.used = Instant::now();
        self.note_silence(&result);
        let action = request.command.action;
        let answer = match result {
            Ok(value) => calls::answer(&action, &value),
            // The place ends by itself.
            Err(Failure::Lost(_)) if request.is_leave() => Ok(Answer::Done),
            Err(failure) => Err(failure.into_fault()),
        };
        let Action::Enqueue { place } = action else {
            return request.answer(answer);
        };
        let leave = self.waiters.note_answer(place.waiter);
        request.answer(answer.map(|answer| self.complete(place.waiter, answer)));
        if let (Some(leave), State::Open(live)) = (leave, &mut self.state) {
            live.send(leave);
        }
    }

    /// Adds to an answer whether the waiter is told, and watches its keys if that is how it is told.
    fn complete(&mut self, waiter: Waiter, answer: Answer) -> Answer {
        let (Answer::Queued { queued, frees }, State::Open(live)) = (answer, &mut self.state)
        else {
            return answer;
        };
        let (can_hear, can_watch) = (live.can_hear(waiter.process), live.can_watch());
        let is_told = match queued.rank {
            // Nobody calls a waiter that has no place.
            None => false,
            Some(0) => can_watch,
            Some(_) => can_hear || can_watch,
        };
        let is_first = queued.rank == Some(0);
        let watches = is_told && !(is_first && queued.is_free) && (is_first || !can_hear);
        if let Some(lock_keys) = self.waiters.lock_keys(waiter) {
            if watches {
                self.watches.watch(waiter, lock_keys).into_iter().for_each(|key| live.read(key));
            } else {
                self.watches.unwatch(waiter, lock_keys);
            }
        }
        Answer::Queued { queued: Queued { is_told, ..queued }, frees }
    }

    fn handle_read(&mut self, key: &Arc<str>, result: Result<KeyState, Failure>) {
        self.note_silence(&result);
        let State::Open(live) = &mut self.state else {
            return;
        };
        match result {
            Ok(state) => {
                let finding = self.watches.note_read(key, state);
                if finding.again {
                    live.read(Arc::clone(key));
                }
                for (waiter, news) in finding.news {
                    self.waiters.tell(waiter, news);
                }
            }
            Err(Failure::Refused(error)) => {
                live.stop_watching(&error);
                // They ask again, and are answered that they are not told.
                for waiter in self.watches.clear() {
                    self.waiters.tell(waiter, News::Gone);
                }
            }
            // The connection ends, and all watches with it.
            Err(Failure::Lost(_) | Failure::NoResp3) => {}
        }
    }

    /// A server that does not answer, or not in its protocol, is no longer waited for.
    fn note_silence<T>(&mut self, result: &Result<T, Failure>) {
        if let (Err(Failure::Lost(fault)), State::Open(live)) = (result, &mut self.state)
            && fault.kind() != FaultKind::Broken
        {
            live.give_up();
        }
    }

    /// The connection has ended. The waiters ask for their places again, which opens another one.
    fn handle_lost(&mut self) {
        let State::Open(live) = &self.state else {
            return;
        };
        let is_short_lived = live.opened.elapsed() < SHORT_LIFE;
        self.short_lived = if is_short_lived { self.short_lived + 1 } else { 0 };
        if !is_short_lived {
            self.backoff = Backoff::new(&self.settings);
        }
        // A server that ends every connection at once is not asked again and again.
        let refusal = (self.short_lived > 1).then(|| {
            let fault = Fault::new(FaultKind::NotSent, "the node ends its wake connections");
            (Instant::now() + self.backoff.next(), fault)
        });
        self.state = State::Closed(refusal);
        self.watches.clear();
        self.waiters.tell_all(News::Gone);
    }

    /// No node is left: lets the calls under way end.
    async fn finish(mut self) {
        self.watches.clear();
        if let State::Opening { backlog, .. } = &mut self.state {
            mem::take(backlog).into_iter().for_each(|request| request.refuse(&closed()));
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
/// A connection that lasts less than this is not made again at once.
const SHORT_LIFE: Duration = Duration::from_secs(1);
