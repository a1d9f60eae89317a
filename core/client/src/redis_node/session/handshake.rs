//! Makes a connection ready for locks: log-in, database, role, scripts. Owns which servers are
//! accepted.

use std::collections::VecDeque;
use std::mem;

use quorlock_protocol::{Fault, FaultKind};
use redis::{Cmd, ServerError, Value};

use super::facts::Facts;
use super::faults;
use super::scripts::{self, Digests, Script};
use crate::address::Address;
use crate::redis_node::transport::{Outgoing, Reply, garbled};

/// The server's name for a connection: its number, and the address of the client's end as the
/// server sees it.
///
/// Together they never name another connection, not even after the server was restarted and counts
/// from the beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientId {
    number: String,
    address: String,
}

impl ClientId {
    /// The call that ends this connection on the server.
    ///
    /// The bytes of a connection that the client gave up may still be in the server's buffer. Once
    /// this call has been answered, none of its commands will be carried out any more, so a command
    /// that is sent again cannot be followed by a late first copy.
    pub(crate) fn kill(&self) -> Cmd {
        let mut call = redis::cmd("CLIENT");
        call.arg("KILL").arg("ID").arg(&self.number).arg("ADDR").arg(&self.address);
        call
    }

    fn parse(info: &str) -> Option<Self> {
        let field = |name: &str| {
            let mut fields = info.split_ascii_whitespace().filter_map(|it| it.split_once('='));
            fields.find(|(it, _)| *it == name).map(|(_, value)| value.to_owned())
        };
        let (number, address) = (field("id")?, field("addr")?);
        number.parse::<u64>().ok()?;
        // For a unix socket the address is the socket's path, which does not tell clients apart.
        (!address.starts_with('/')).then_some(Self { number, address })
    }
}

/// What the log-in has told of a connection.
#[derive(Clone)]
pub(crate) struct Known {
    /// The server's name for it.
    pub(crate) client: Option<ClientId>,
    /// The digests of the scripts; `None` if this user may not load them.
    pub(crate) digests: Option<Digests>,
}

/// What a server has told in a handshake.
pub(crate) struct Told {
    pub(crate) facts: Facts,
    /// What the log-in has told; empty if only the facts were asked for.
    pub(crate) known: Known,
}

/// A log-in, or the questions about the server's identity, until all replies are there.
pub(crate) struct Handshake {
    /// What is in flight, in order.
    steps: VecDeque<Step>,
    facts: Facts,
    client: Option<ClientId>,
    digests: Vec<String>,
    has_asked_cluster: bool,
}

impl Handshake {
    /// Logs in to `address` over a new connection with one write. The server ends the connection
    /// `predecessor`, which was given up.
    pub(crate) fn log_in(
        address: &Address,
        predecessor: Option<&ClientId>,
        outgoing: &mut Outgoing,
    ) -> Self {
        let mut steps = credentials(address);
        steps.extend(questions(predecessor));
        steps.extend(preparations());
        Self::of(steps, outgoing)
    }

    /// Asks the server at the other end of a logged-in connection who it is. It also ends
    /// `predecessor`.
    pub(crate) fn ask(predecessor: Option<&ClientId>, outgoing: &mut Outgoing) -> Self {
        Self::of(questions(predecessor), outgoing)
    }

    fn of(steps: Vec<(Step, Cmd)>, outgoing: &mut Outgoing) -> Self {
        let (facts, client, digests) = (Facts::default(), None, Vec::new());
        let has_asked_cluster = false;
        let mut shake = Self { steps: VecDeque::new(), facts, client, digests, has_asked_cluster };
        for (step, call) in steps {
            outgoing.command(&call);
            shake.steps.push_back(step);
        }
        shake
    }

    /// Takes the next reply. Returns what the server has told once all replies are there; fails at
    /// the first reply that rules the server out.
    pub(crate) fn handle_reply(
        &mut self,
        reply: Reply,
        outgoing: &mut Outgoing,
    ) -> Result<Option<Told>, Fault> {
        let step = self.steps.pop_front().ok_or_else(garbled)?;
        self.learn(step, &reply.into())?;
        if !self.steps.is_empty() {
            return Ok(None);
        }
        if self.facts.is_loading() {
            return Err(faults::loading());
        }
        if self.facts.has_cluster() && !mem::replace(&mut self.has_asked_cluster, true) {
            outgoing.command(redis::cmd("CLUSTER").arg("NODES"));
            self.steps.push_back(Step::Cluster);
            return Ok(None);
        }
        let digests = Digests::new(mem::take(&mut self.digests));
        let known = Known { client: self.client.take(), digests };
        Ok(Some(Told { facts: mem::take(&mut self.facts), known }))
    }

    fn learn(&mut self, step: Step, value: &Value) -> Result<(), Fault> {
        match (step, value) {
            (Step::Authenticate, Value::ServerError(error)) => return Err(refused(error)),
            (Step::Select, Value::ServerError(error)) => return Err(faults::of_reply(error, None)),
            (Step::Info, Value::BulkString(info)) => {
                self.client = ClientId::parse(&String::from_utf8_lossy(info));
            }
            (Step::LoadScript, Value::BulkString(digest)) => {
                self.digests.extend(String::from_utf8(digest.clone()));
            }
            (Step::Role, value) => self.facts.learn_master(check_role(value)?),
            (Step::Sync, value) => self.facts.learn_sync(value),
            (Step::Facts, value) => self.facts.renew(value),
            (Step::Cluster, value) => self.facts.learn_cluster(value),
            // The other steps are optional: a server that refuses them is accepted.
            _ => {}
        }
        Ok(())
    }
}

#[derive(Clone, Copy)]
enum Step {
    Authenticate,
    Select,
    Role,
    Info,
    Sync,
    Facts,
    Cluster,
    LoadScript,
    Optional,
}

/// User and password, and the database.
fn credentials(address: &Address) -> Vec<(Step, Cmd)> {
    let mut steps = Vec::new();
    if address.username().is_some() || address.password().is_some() {
        let mut call = redis::cmd("AUTH");
        if let Some(username) = address.username() {
            call.arg(username);
        }
        call.arg(address.password().unwrap_or_default());
        steps.push((Step::Authenticate, call));
    }
    if address.db() != 0 {
        let mut call = redis::cmd("SELECT");
        call.arg(address.db());
        steps.push((Step::Select, call));
    }
    steps
}

/// The calls by which a connection without a session logs in.
pub(crate) fn log_in_calls(address: &Address) -> impl Iterator<Item = Cmd> {
    credentials(address).into_iter().map(|(_, call)| call)
}

/// The questions which server it is; they also end the connection that was given up.
fn questions(predecessor: Option<&ClientId>) -> Vec<(Step, Cmd)> {
    let mut steps = vec![(Step::Role, redis::cmd("ROLE"))];
    if let Some(predecessor) = predecessor {
        steps.push((Step::Optional, predecessor.kill()));
    }
    let mut sync = redis::cmd("CONFIG");
    sync.arg("GET").arg("appendfsync");
    steps.push((Step::Sync, sync));
    steps.push((Step::Facts, redis::cmd("INFO")));
    steps
}

/// What a connection needs once.
fn preparations() -> Vec<(Step, Cmd)> {
    let client = |arguments: &[&str]| {
        let mut call = redis::cmd("CLIENT");
        call.arg(arguments);
        call
    };
    let mut steps = vec![(Step::Info, client(&["INFO"]))];
    // Redis 7.2 and later show it in CLIENT LIST; older ones reply with an error.
    steps.push((Step::Optional, client(&["SETINFO", "LIB-NAME", "quorlock"])));
    steps.push((Step::Optional, client(&["SETINFO", "LIB-VER", env!("CARGO_PKG_VERSION")])));
    steps.extend(Script::ALL.map(|script| (Step::LoadScript, scripts::load(script))));
    steps
}

/// The fault behind an error that the server replied to a log-in.
pub(crate) fn refused(error: &ServerError) -> Fault {
    let fault = faults::of_reply(error, None);
    match fault.kind() {
        FaultKind::Other => Fault::new(FaultKind::Unauthenticated, fault.detail()),
        _ => fault,
    }
}

/// The master that a replica follows; what becomes of a replica is decided elsewhere.
fn check_role(value: &Value) -> Result<Option<(&[u8], i64)>, Fault> {
    let (role, rest) = match value {
        Value::Array(parts) => match parts.split_first() {
            Some((Value::BulkString(role), rest)) => (role.as_slice(), rest),
            _ => return Err(garbled()),
        },
        // A user who may not ask for the role can still lock; a replica then answers READONLY.
        Value::ServerError(error)
            if faults::is_not_permitted(error) && error.code() == "NOPERM" =>
        {
            return Ok(None);
        }
        Value::ServerError(error) => return Err(faults::of_reply(error, None)),
        _ => return Err(garbled()),
    };
    match role {
        b"master" => Ok(None),
        b"slave" => match rest {
            [Value::BulkString(host), Value::Int(port), ..] => Ok(Some((host, *port))),
            _ => Err(faults::replica(None)),
        },
        b"sentinel" => Err(Fault::new(
            FaultKind::Other,
            "this is a Sentinel, not a node: give the addresses of independent masters",
        )),
        _ => Err(garbled()),
    }
}
