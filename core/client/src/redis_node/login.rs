//! Makes a connection ready for locks: log-in, database, role, scripts. Owns what is tolerated there.

use std::future::poll_fn;

use quorlock_protocol::{Fault, FaultKind};
use redis::{Cmd, ServerError, Value};

use super::facts::Facts;
use super::faults;
use super::pipe::Pipe;
use super::scripts::{Digests, Script};
use crate::address::Address;

/// A connection that has logged in.
pub(super) struct Login {
    pub(super) pipe: Pipe,
    /// What the server calls the scripts; `None` if this user may not load them.
    pub(super) digests: Option<Digests>,
    /// How the server calls this connection.
    pub(super) client: Option<ClientId>,
    /// What the server says of itself.
    pub(super) facts: Facts,
}

/// How the server calls a connection: the number and the address of the client's end as it sees it.
///
/// Together they name no other connection, not even after the server has started anew and counts from
/// the beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClientId {
    number: String,
    address: String,
}

impl ClientId {
    /// The call that ends this connection on the server.
    ///
    /// The bytes of a connection that the client gave up may still lie in the server's buffer. Once
    /// this call has been answered, none of its commands will be done any more, so that what is sent
    /// again cannot be followed by a late first copy.
    pub(super) fn kill(&self) -> Cmd {
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
        // The address of a unix socket's client is the socket's: it does not tell clients apart.
        (!address.starts_with('/')).then_some(Self { number, address })
    }
}

/// Logs in to `address` over `pipe`, all in one flight. `predecessor` is a connection of this node
/// that was given up.
pub(super) async fn log_in(
    mut pipe: Pipe,
    address: &Address,
    predecessor: Option<&ClientId>,
) -> Result<Login, Fault> {
    let steps = steps(address, predecessor);
    for (_, call) in &steps {
        pipe.request(call);
    }
    let (mut client, mut digests, mut facts) = (None, Vec::new(), Facts::of(address));
    for (step, _) in steps {
        let value = Value::from(poll_fn(|context| pipe.poll_reply(context)).await?);
        match (step, value) {
            (Step::Authenticate, Value::ServerError(error)) => return Err(refused(&error)),
            (Step::Select, Value::ServerError(error)) => {
                return Err(faults::of_reply(&error, None));
            }
            (Step::Role, value) => facts.learn_master(check_role(&value)?),
            (Step::Info, Value::BulkString(info)) => {
                client = ClientId::parse(&String::from_utf8_lossy(&info));
            }
            (Step::Sync, value) => facts.learn_sync(&value),
            (Step::Facts, value) => facts.renew(&value),
            (Step::LoadScript, Value::BulkString(digest)) => {
                digests.extend(String::from_utf8(digest));
            }
            // What is left is of use, but not needed.
            _ => {}
        }
    }
    if facts.is_loading() {
        return Err(faults::loading());
    }
    if facts.has_cluster() {
        let mut call = redis::cmd("CLUSTER");
        call.arg("NODES");
        pipe.request(&call);
        facts.learn_cluster(&poll_fn(|context| pipe.poll_reply(context)).await?.into());
    }
    Ok(Login { pipe, digests: Digests::new(digests), client, facts })
}

/// The call that gives a script to the server.
pub(super) fn load(script: Script) -> Cmd {
    let mut call = redis::cmd("SCRIPT");
    call.arg("LOAD").arg(script.text());
    call
}

#[derive(Clone, Copy)]
enum Step {
    Authenticate,
    Select,
    Role,
    Info,
    Sync,
    Facts,
    LoadScript,
    Optional,
}

fn steps(address: &Address, predecessor: Option<&ClientId>) -> Vec<(Step, Cmd)> {
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
    steps.push((Step::Role, redis::cmd("ROLE")));
    if let Some(predecessor) = predecessor {
        steps.push((Step::Optional, predecessor.kill()));
    }
    let client = |arguments: &[&str]| {
        let mut call = redis::cmd("CLIENT");
        call.arg(arguments);
        call
    };
    steps.push((Step::Info, client(&["INFO"])));
    // Redis 7.2 and later show it in CLIENT LIST; older ones reply with an error.
    steps.push((Step::Optional, client(&["SETINFO", "LIB-NAME", "quorlock"])));
    steps.push((Step::Optional, client(&["SETINFO", "LIB-VER", env!("CARGO_PKG_VERSION")])));
    let mut sync = redis::cmd("CONFIG");
    sync.arg("GET").arg("appendfsync");
    steps.push((Step::Sync, sync));
    steps.push((Step::Facts, redis::cmd("INFO")));
    steps.extend(Script::ALL.map(|script| (Step::LoadScript, load(script))));
    steps
}

fn refused(error: &ServerError) -> Fault {
    let fault = faults::of_reply(error, None);
    match fault.kind() {
        FaultKind::Other => Fault::new(FaultKind::Unauthenticated, fault.detail()),
        _ => fault,
    }
}

/// Whom the node follows, where it is a replica: what becomes of it is not decided here.
fn check_role(value: &Value) -> Result<Option<(&[u8], i64)>, Fault> {
    let (role, rest) = match value {
        Value::Array(parts) => match parts.split_first() {
            Some((Value::BulkString(role), rest)) => (role.as_slice(), rest),
            _ => return Err(faults::garbled()),
        },
        // Whoever may not ask for the role can still lock; a replica then answers READONLY.
        Value::ServerError(error)
            if faults::is_not_permitted(error) && error.code() == "NOPERM" =>
        {
            return Ok(None);
        }
        Value::ServerError(error) => return Err(faults::of_reply(error, None)),
        _ => return Err(faults::garbled()),
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
        _ => Err(faults::garbled()),
    }
}
