//! One state of a schedule: users with their sessions, the connection they share, the server. Owns the steps that are
//! possible, and what must hold after each of them:
//!
//! - Each request is answered once.
//! - On one connection a request takes effect once, and the requests of one holder take effect in their order. (An
//!   extension that found nothing may come before its grant; a revoke never does.) Over all connections a request takes
//!   effect twice at most, and nothing that came over a lost connection takes effect after something that came over a
//!   later one.
//! - A request that is answered as not sent, or as late, has had no effect and will have none.
//! - An answer says that it is repeated if the request took effect more than once. One that found nothing to do, without
//!   saying so, has done nothing.
//! - When a revoke is answered, or a grant refused, no key of its holder is left or will come. A grant that is answered as
//!   granted had its key.
//! - A request is not sent for the first time, nor again, after its deadline.

use std::cell::Cell;
use std::collections::VecDeque;
use std::mem;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use futures_util::task::noop_waker_ref;
use quorlock_protocol::{Answer, Fault, FaultKind, Moment};
use tokio::time::Instant;

use super::requests::{Asked, Kind, PATIENCE, Plan, Submitted, fenced};
use super::server::{Effect, Run, Server, kind_of, take_calls};
use super::stream::Wire;
use crate::redis_node::connection::{Connection, Owner, Share};
use crate::redis_node::link::{Event, Link};
use crate::redis_node::session::{
    ClientId, GuardProbe, Handshake, Now, Request, Told, Turn, Unanswered,
};
use crate::redis_node::transport::{Outgoing, Pipe};

/// What there is in a world, and what may go wrong.
#[derive(Clone, Debug)]
pub(super) struct Scope {
    /// What each user asks.
    pub(super) users: Vec<Plan>,
    /// How often a connection may end.
    pub(super) cuts: u8,
    /// How often the server may forget the scripts.
    pub(super) flushes: u8,
    /// How often another process may load them again.
    pub(super) loads: u8,
    /// Whether the deadlines may pass.
    pub(super) is_late: bool,
    /// Whether the server deletes keys by a command of its own.
    pub(super) has_deletion: bool,
}

impl Scope {
    pub(super) fn of<const N: usize>(users: [Plan; N]) -> Self {
        let users = users.into();
        let (cuts, flushes, loads, is_late, has_deletion) = (0, 0, 0, false, false);
        Self { users, cuts, flushes, loads, is_late, has_deletion }
    }
}

/// What can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A user hands over its next turn of requests.
    Submit(usize),
    /// The server does the next call that came over a connection.
    Execute(usize),
    /// The next reply arrives.
    Deliver,
    /// The connection ends, after the first half of the next reply or without it.
    Cut { in_reply: bool },
    /// A user whose connection has ended is connected again, and sends what was not answered.
    Reconnect(usize),
    /// The server forgets the scripts.
    Flush,
    /// Another process loads them.
    Load,
    /// The deadlines pass.
    Late,
}

pub(super) struct World {
    scope: Scope,
    server: Server,
    /// All connections that were made; the last is the one that is used.
    lines: Vec<Line>,
    users: Vec<User>,
    /// In the order in which they were handed over.
    submitted: Vec<Submitted>,
    is_late: bool,
}

/// The server's side of a connection.
struct Line {
    wire: Wire,
    /// What the server has read and not done.
    calls: VecDeque<Vec<String>>,
    /// What it replied that has not arrived.
    replies: VecDeque<String>,
    /// How it calls the connection.
    client: Option<ClientId>,
}

struct User {
    plan: VecDeque<Vec<Asked>>,
    way: Way,
    /// The connection that it uses, or used last.
    line: usize,
}

enum Way {
    Up(Box<Link>),
    /// The connection has ended, and left this without an answer.
    Down(Unanswered, Fault),
    /// Only while a step is done.
    Moving,
}

impl World {
    pub(super) fn new(scope: &Scope) -> Self {
        set_clock(Moment::from_millis(0));
        let mut world = Self {
            server: Server::new(scope.has_deletion),
            lines: Vec::new(),
            users: Vec::new(),
            submitted: Vec::new(),
            is_late: false,
            scope: scope.clone(),
        };
        for plan in &scope.users {
            let way = Way::Up(Box::new(world.connect(None)));
            let line = world.lines.len() - 1;
            world.users.push(User { plan: plan.clone().into(), way, line });
        }
        if scope.users.iter().flatten().flatten().any(|asked| asked.is_fenced) {
            world.learn_clock();
        }
        world
    }

    /// Native grants with a token are sent only once the clock of the server is known.
    fn learn_clock(&mut self) {
        let asked = fenced("before", Kind::Grant);
        self.users[0].plan.push_front(vec![asked]);
        self.step(Step::Submit(0));
        while self.submitted[0].answers.is_empty() {
            let steps = self.steps();
            let is_work = |step: &&Step| matches!(step, Step::Execute(_) | Step::Deliver);
            self.step(*steps.iter().find(is_work).expect("something to do"));
        }
        self.server.keys.clear();
        self.submitted.clear();
        self.server.runs.clear();
    }

    /// What can happen now, the faults included. Nothing, once all is done.
    pub(super) fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        let line = self.lines.last().expect("a connection");
        let is_cut = line.wire.lock().is_cut;
        for (number, user) in self.users.iter().enumerate() {
            match user.way {
                Way::Up(_) if !user.plan.is_empty() => steps.push(Step::Submit(number)),
                Way::Down(..) => steps.push(Step::Reconnect(number)),
                Way::Up(_) | Way::Moving => {}
            }
        }
        if !line.calls.is_empty() && !is_cut {
            steps.push(Step::Execute(self.lines.len() - 1));
        }
        if !line.replies.is_empty() && !is_cut {
            steps.push(Step::Deliver);
        }
        if steps.is_empty() {
            return steps;
        }
        let is_waiting = self.submitted.iter().any(|it| it.answers.is_empty());
        for (number, line) in self.lines.iter().enumerate() {
            let is_lost = line.wire.lock().is_cut;
            if is_lost && !line.calls.is_empty() && !self.server.killed.contains(&number) {
                steps.push(Step::Execute(number));
            }
        }
        if self.scope.cuts > 0 && !is_cut && is_waiting {
            steps.push(Step::Cut { in_reply: false });
            if !line.replies.is_empty() {
                steps.push(Step::Cut { in_reply: true });
            }
        }
        if self.scope.flushes > 0 && self.server.knows_scripts {
            steps.push(Step::Flush);
        }
        if self.scope.loads > 0 && !self.server.knows_scripts {
            steps.push(Step::Load);
        }
        if self.scope.is_late && !self.is_late && is_waiting {
            steps.push(Step::Late);
        }
        steps
    }

    pub(super) fn step(&mut self, step: Step) {
        match step {
            Step::Submit(user) => self.submit(user),
            Step::Execute(line) => self.execute(line),
            Step::Deliver => self.deliver(),
            Step::Cut { in_reply } => {
                self.scope.cuts -= 1;
                let line = self.lines.last_mut().expect("a connection");
                let mut bytes = line.wire.lock();
                if let Some(reply) = line.replies.pop_front().filter(|_| in_reply) {
                    bytes.to_client.extend(&reply.as_bytes()[..reply.len() / 2]);
                }
                bytes.is_cut = true;
            }
            Step::Reconnect(user) => self.reconnect(user),
            Step::Flush => {
                self.scope.flushes -= 1;
                self.server.knows_scripts = false;
            }
            Step::Load => {
                self.scope.loads -= 1;
                self.server.knows_scripts = true;
            }
            Step::Late => {
                self.is_late = true;
                set_clock(Moment::from_millis(0) + PATIENCE * 2);
            }
        }
        self.settle();
        self.check();
    }

    fn submit(&mut self, number: usize) {
        let turn = self.users[number].plan.pop_front().expect("a turn");
        let deadline = Moment::from_millis(0) + PATIENCE;
        let (submitted, requests): (Vec<_>, Vec<Request>) =
            turn.into_iter().map(|asked| Submitted::new(asked, deadline)).unzip();
        self.submitted.extend(submitted);
        let Way::Up(link) = &mut self.users[number].way else { panic!("a user that is connected") };
        link.drive(|session, now| {
            let mut turn = Turn::new(session, false, now);
            for request in requests {
                turn.request(request);
            }
            turn.finish();
        });
    }

    fn execute(&mut self, number: usize) {
        let line = &mut self.lines[number];
        let call = line.calls.pop_front().expect("a call");
        let before = self.server.runs.len();
        line.replies.push_back(self.server.run(number, &call));
        for place in before..self.server.runs.len() {
            self.check_run(place);
        }
    }

    fn deliver(&mut self) {
        let line = self.lines.last_mut().expect("a connection");
        let reply = line.replies.pop_front().expect("a reply");
        line.wire.lock().to_client.extend(reply.as_bytes());
    }

    fn reconnect(&mut self, number: usize) {
        let way = mem::replace(&mut self.users[number].way, Way::Moving);
        let Way::Down(unanswered, fault) = way else { panic!("a user without a connection") };
        let mut link = self.connect(Some(self.users[number].line));
        self.users[number].line = self.lines.len() - 1;
        link.drive(|session, now| unanswered.replay(session, now, &fault));
        self.users[number].way = Way::Up(Box::new(link));
    }

    /// A link over the connection that there is, or a new one, as the dialer makes it. The server ends connection `lost`.
    fn connect(&mut self, lost: Option<usize>) -> Link {
        let predecessor = lost.and_then(|lost| self.lines[lost].client.clone());
        let mut outgoing = Outgoing::default();
        let current = self.users.iter().find_map(|user| match &user.way {
            Way::Up(link) => Some(Arc::clone(link.connection())),
            Way::Down(..) | Way::Moving => None,
        });
        let current = current.filter(|connection| !connection.has_ended());
        let (share, handshake) = if let Some(connection) = current {
            let handshake = Handshake::ask(predecessor.as_ref(), &mut outgoing);
            (connection.share(), handshake)
        } else {
            let wire = Wire::default();
            let address = Arc::new("redis://test".parse().expect("an address"));
            let pipe = Pipe::new(Box::new(wire.clone()));
            let share = Connection::over(pipe, &address, Weak::<Nobody>::new());
            let (calls, replies) = (VecDeque::new(), VecDeque::new());
            self.lines.push(Line { wire, calls, replies, client: None });
            let handshake = Handshake::log_in(&address, predecessor.as_ref(), &mut outgoing);
            (share, handshake)
        };
        let told = self.converse(&share, handshake, outgoing);
        let line = self.lines.last_mut().expect("a connection");
        if line.client.is_none() {
            line.client.clone_from(&told.known.client);
            share.connection().learn(told.known);
        }
        Link::new(share, told.facts, "", GuardProbe::new(None, Arc::default()), clock)
    }

    /// Does everything on the connection until the handshake has ended.
    fn converse(
        &mut self,
        share: &Share,
        mut handshake: Handshake,
        mut outgoing: Outgoing,
    ) -> Told {
        let mut context = Context::from_waker(noop_waker_ref());
        loop {
            share.request(&mut outgoing);
            match share.poll_reply(&mut context) {
                Poll::Ready(reply) => {
                    let reply = reply.expect("a connection that stands");
                    if let Some(told) = handshake.hear(reply, &mut outgoing).expect("a server") {
                        return told;
                    }
                }
                Poll::Pending => {
                    self.read_calls();
                    let line = self.lines.last_mut().expect("a connection");
                    if line.replies.is_empty() {
                        self.execute(self.lines.len() - 1);
                    }
                    self.deliver();
                }
            }
        }
    }

    /// Lets every user read and write what it can.
    fn settle(&mut self) {
        let mut context = Context::from_waker(noop_waker_ref());
        loop {
            let mut has_changed = false;
            for number in 0..self.users.len() {
                has_changed |= self.poll_user(number, &mut context);
            }
            if !has_changed {
                break;
            }
        }
        self.read_calls();
        self.submitted.iter_mut().for_each(Submitted::collect);
    }

    fn poll_user(&mut self, number: usize, context: &mut Context<'_>) -> bool {
        let user = &mut self.users[number];
        let Way::Up(link) = &mut user.way else { return false };
        match link.poll_event(context) {
            Poll::Pending => false,
            Poll::Ready(Event::Answered | Event::Probed) => true,
            Poll::Ready(Event::Lost(fault)) => {
                let Way::Up(link) = mem::replace(&mut user.way, Way::Moving) else {
                    return false;
                };
                assert_eq!(fault.kind(), FaultKind::Broken, "{fault}");
                user.way = Way::Down(link.into_unanswered(), fault);
                true
            }
        }
    }

    fn read_calls(&mut self) {
        for line in &mut self.lines {
            let calls = take_calls(&mut line.wire.lock().to_server);
            for call in &calls {
                let is_bound = matches!(kind_of(call), Some(Kind::Grant | Kind::Extend));
                assert!(!(is_bound && self.is_late), "sent after its deadline: {call:?}");
            }
            line.calls.extend(calls);
        }
    }

    /// What must hold of what the server has just done for a request.
    fn check_run(&self, place: usize) {
        let (run, before) = (&self.server.runs[place], &self.server.runs[..place]);
        let index = self.index_of(run);
        for other in before.iter().filter(|other| other.holder == run.holder) {
            assert!(other.connection <= run.connection, "done over a connection that was ended");
            if other.connection < run.connection || !other.counts() {
                continue;
            }
            let order = self.index_of(other).cmp(&index);
            let is_late = order.is_gt() && other.bars_what_came_before();
            assert!(!is_late || run.effect == Effect::Nothing, "an earlier request came later");
            assert!(order.is_ne() || !other.is_script, "done twice over one connection");
        }
        let mut copies: Vec<_> = self.runs_of(run.holder.as_str(), run.kind).collect();
        copies.retain(|copy| copy.counts());
        copies.dedup_by_key(|copy| copy.connection);
        assert!(copies.len() <= 2, "done more than twice");
    }

    /// What must hold of all answers, now and later.
    fn check(&self) {
        for submitted in &self.submitted {
            let asked = submitted.asked;
            assert!(submitted.answers.len() <= 1, "{asked:?} is answered twice");
            let Some(reply) = submitted.answers.first() else { continue };
            let mut runs: Vec<_> = self.runs_of(asked.holder, asked.kind).collect();
            runs.retain(|run| run.counts());
            let is_done = runs.iter().any(|run| run.effect == Effect::Done);
            match &reply.answer {
                Err(fault) => {
                    let is_sure = matches!(fault.kind(), FaultKind::NotSent | FaultKind::Late);
                    assert!(!(is_sure && is_done), "{asked:?} is done, and answered with {fault}");
                }
                Ok(answer) => {
                    let is_ours = matches!(answer, Answer::Ours { .. });
                    let is_first = runs.iter().all(|run| run.connection == runs[0].connection);
                    assert!(is_first || reply.repeated, "{asked:?} was done before");
                    assert!(is_done || !is_ours, "{asked:?} is not done");
                    let is_told = is_ours || reply.repeated;
                    assert!(is_told || !is_done, "{asked:?} is done, and found nothing");
                    if asked.kind == Kind::Revoke || (asked.kind == Kind::Grant && !is_ours) {
                        let is_left = self.server.keys.values().any(|it| it == asked.holder);
                        assert!(!is_left, "a key is left of {asked:?}");
                    }
                }
            }
        }
    }

    /// What must hold when all is done: also of what the server may still do over connections that were lost.
    pub(super) fn check_end(mut self) {
        for submitted in &self.submitted {
            assert_eq!(submitted.answers.len(), 1, "{:?} is answered", submitted.asked);
        }
        for number in 0..self.lines.len() {
            while !self.lines[number].calls.is_empty() && !self.server.killed.contains(&number) {
                self.execute(number);
            }
        }
        self.check();
    }

    fn runs_of(&self, holder: &str, kind: Kind) -> impl Iterator<Item = &Run> {
        self.server.runs.iter().filter(move |run| run.holder == holder && run.kind == kind)
    }

    /// The place of a run's request among those that were handed over.
    fn index_of(&self, run: &Run) -> Option<usize> {
        let is_of = |it: &Submitted| it.asked.holder == run.holder && it.asked.kind == run.kind;
        self.submitted.iter().position(is_of)
    }

    /// Equal for states that nobody can tell apart.
    pub(super) fn fingerprint(&self) -> String {
        let lines: Vec<_> = self
            .lines
            .iter()
            .map(|line| {
                let bytes = line.wire.lock();
                (&line.calls, &line.replies, bytes.is_cut, bytes.to_client.len())
            })
            .map(|line| format!("{line:?}"))
            .collect();
        let users: Vec<_> = self
            .users
            .iter()
            .map(|user| match &user.way {
                Way::Up(link) => (user.plan.len(), user.line, link.session().fingerprint()),
                Way::Down(unanswered, _) => (user.plan.len(), user.line, format!("{unanswered:?}")),
                Way::Moving => unreachable!("a user is moving only while a step is done"),
            })
            .collect();
        let answers: Vec<_> =
            self.submitted.iter().map(|it| (it.asked.holder, it.asked.kind, &it.answers)).collect();
        let Scope { cuts, flushes, loads, .. } = self.scope;
        format!("{:?}", (&self.server, lines, users, answers, (cuts, flushes, loads, self.is_late)))
    }
}

/// Nobody keeps the connections of these worlds.
struct Nobody;

impl Owner for Nobody {
    fn handle_unused(self: Arc<Self>, _: &Arc<Connection>, _: u64, _: bool) {}
    fn dismiss(&self, _: &Arc<Connection>) {}
    fn restore(&self, _: &Arc<Connection>) {}
}

thread_local! {
    static CLOCK: Cell<(Moment, Option<Instant>)> = const { Cell::new((Moment::FAR_FUTURE, None)) };
}

/// The clock of the links.
fn clock() -> Now {
    let (boot, awake) = CLOCK.get();
    Now { boot, awake: awake.expect("the clock was set") }
}

fn set_clock(boot: Moment) {
    CLOCK.set((boot, Some(Instant::now())));
}
