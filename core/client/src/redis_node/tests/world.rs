//! One state of a schedule: users with their sessions, the connection they share, the server. Owns
//! which steps are possible and what each does; `promises` checks what must hold after it.

mod dialing;
mod promises;

use std::cell::Cell;
use std::collections::VecDeque;
use std::mem;
use std::task::{Context, Poll};

use futures::task::noop_waker_ref;
use quorlock_protocol::{Fault, FaultKind, Moment};
use tokio::time::Instant;

use super::requests::{Asked, Kind, PATIENCE, Submitted, fenced};
use super::scope::{Scope, Step};
use super::server::{Server, kind_of, take_calls};
use super::stream::Wire;
use crate::redis_node::link::{Event, Link};
use crate::redis_node::session::{Arrivals, ClientId, Now, Request, Unanswered};

pub(super) struct World {
    scope: Scope,
    server: Server,
    /// All connections that were made; the last one is in use.
    connections: Vec<ServerSide>,
    users: Vec<User>,
    /// In the order in which they were handed over.
    submitted: Vec<Submitted>,
    is_late: bool,
}

/// The server's side of a connection.
struct ServerSide {
    wire: Wire,
    /// Calls that the server has read and not executed.
    calls: VecDeque<Vec<String>>,
    /// Replies that have not arrived.
    replies: VecDeque<String>,
    /// The server's name for it.
    client: Option<ClientId>,
}

struct User {
    plan: VecDeque<Vec<Asked>>,
    way: Way,
    /// The connection that it uses, or used last.
    connection: usize,
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
            connections: Vec::new(),
            users: Vec::new(),
            submitted: Vec::new(),
            is_late: false,
            scope: scope.clone(),
        };
        for plan in &scope.users {
            let way = Way::Up(Box::new(world.connect(None)));
            let connection = world.connections.len() - 1;
            world.users.push(User { plan: plan.clone().into(), way, connection });
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

    /// The steps that are possible now, faults included; none once everything is done.
    pub(super) fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        let connection = self.connections.last().expect("a connection");
        let is_cut = connection.wire.lock().is_cut;
        for (number, user) in self.users.iter().enumerate() {
            match user.way {
                Way::Up(_) if !user.plan.is_empty() => steps.push(Step::Submit(number)),
                Way::Down(..) => steps.push(Step::Reconnect(number)),
                Way::Up(_) | Way::Moving => {}
            }
        }
        if !connection.calls.is_empty() && !is_cut {
            steps.push(Step::Execute(self.connections.len() - 1));
        }
        if !connection.replies.is_empty() && !is_cut {
            steps.push(Step::Deliver);
        }
        if steps.is_empty() {
            return steps;
        }
        let is_waiting = self.submitted.iter().any(|it| it.answers.is_empty());
        for (number, connection) in self.connections.iter().enumerate() {
            let is_lost = connection.wire.lock().is_cut;
            if is_lost && !connection.calls.is_empty() && !self.server.killed.contains(&number) {
                steps.push(Step::Execute(number));
            }
        }
        if self.scope.cuts > 0 && !is_cut && is_waiting {
            let length = connection.replies.front().map_or(1, String::len);
            steps.extend((0..length).map(|after| Step::Cut { after }));
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
            Step::Execute(connection) => self.execute(connection),
            Step::Deliver => self.deliver(),
            Step::Cut { after } => {
                self.scope.cuts -= 1;
                let connection = self.connections.last_mut().expect("a connection");
                let mut bytes = connection.wire.lock();
                if let Some(reply) = connection.replies.pop_front() {
                    bytes.to_client.extend(&reply.as_bytes()[..after]);
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
            let mut arrivals = Arrivals::new(session, false, now);
            for request in requests {
                arrivals.request(request);
            }
            arrivals.finish();
        });
    }

    fn execute(&mut self, number: usize) {
        let connection = &mut self.connections[number];
        let call = connection.calls.pop_front().expect("a call");
        let before = self.server.runs.len();
        connection.replies.push_back(self.server.run(number, &call));
        for place in before..self.server.runs.len() {
            self.check_run(place);
        }
    }

    fn deliver(&mut self) {
        let connection = self.connections.last_mut().expect("a connection");
        let reply = connection.replies.pop_front().expect("a reply");
        connection.wire.lock().to_client.extend(reply.as_bytes());
    }

    fn reconnect(&mut self, number: usize) {
        let way = mem::replace(&mut self.users[number].way, Way::Moving);
        let Way::Down(unanswered, fault) = way else { panic!("a user without a connection") };
        let mut link = self.connect(Some(self.users[number].connection));
        self.users[number].connection = self.connections.len() - 1;
        link.drive(|session, now| unanswered.replay(session, now, &fault));
        self.users[number].way = Way::Up(Box::new(link));
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
        for connection in &mut self.connections {
            let calls = take_calls(&mut connection.wire.lock().to_server);
            for call in &calls {
                let is_bound = matches!(kind_of(call), Some(Kind::Grant | Kind::Extend));
                assert!(!(is_bound && self.is_late), "sent after its deadline: {call:?}");
            }
            connection.calls.extend(calls);
        }
    }

    /// Equal for states that cannot be told apart.
    pub(super) fn fingerprint(&self) -> String {
        let connections: Vec<_> = self
            .connections
            .iter()
            .map(|connection| {
                let bytes = connection.wire.lock();
                (&connection.calls, &connection.replies, bytes.is_cut, bytes.to_client.len())
            })
            .map(|connection| format!("{connection:?}"))
            .collect();
        let users: Vec<_> = self
            .users
            .iter()
            .map(|user| match &user.way {
                Way::Up(link) => (user.plan.len(), user.connection, link.session().fingerprint()),
                Way::Down(unanswered, _) => {
                    (user.plan.len(), user.connection, format!("{unanswered:?}"))
                }
                Way::Moving => unreachable!("a user is moving only while a step is done"),
            })
            .collect();
        let answers: Vec<_> =
            self.submitted.iter().map(|it| (it.asked.holder, it.asked.kind, &it.answers)).collect();
        let Scope { cuts, flushes, loads, .. } = self.scope;
        format!(
            "{:?}",
            (&self.server, connections, users, answers, (cuts, flushes, loads, self.is_late))
        )
    }
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
