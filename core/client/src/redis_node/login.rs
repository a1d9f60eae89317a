//! Makes a connection ready for locks: log-in, database, role, scripts. Owns what is tolerated there.

use std::future::poll_fn;

use quorlock_protocol::{Fault, FaultKind};
use redis::{Cmd, ServerError, Value};

use super::connection::{Known, Share};
use super::facts::Facts;
use super::faults;
use super::scripts::{Digests, Script};
use crate::address::Address;

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

/// Logs in to `address` over a connection that nobody else uses yet, all in one flight. `predecessor` is a connection
/// to it that was given up.
pub(super) async fn log_in(
    share: &Share,
    address: &Address,
    predecessor: Option<&ClientId>,
) -> Result<Facts, Fault> {
    let mut steps = credentials(address);
    steps.extend(questions(predecessor));
    steps.extend(preparations());
    let (mut client, mut digests, mut facts) = (None, Vec::new(), Facts::default());
    let hear = |step, value| {
        match (step, value) {
            (Step::Authenticate, Value::ServerError(error)) => return Err(refused(&error)),
            (Step::Select, Value::ServerError(error)) => {
                return Err(faults::of_reply(&error, None));
            }
            (Step::Info, Value::BulkString(info)) => {
                client = ClientId::parse(&String::from_utf8_lossy(&info));
            }
            (Step::LoadScript, Value::BulkString(digest)) => {
                digests.extend(String::from_utf8(digest));
            }
            (step, value) => return learn(&mut facts, step, &value),
        }
        Ok(())
    };
    converse(share, steps, hear).await?;
    share.connection().learn(Known { client, digests: Digests::new(digests) });
    complete(share, facts).await
}

/// Asks the server at the other end of a connection once more who it is; it is to end `predecessor`.
pub(super) async fn ask(share: &Share, predecessor: Option<&ClientId>) -> Result<Facts, Fault> {
    let mut facts = Facts::default();
    let hear = |step, value| learn(&mut facts, step, &value);
    converse(share, questions(predecessor), hear).await?;
    complete(share, facts).await
}

/// Sends all, then hears one after the other, up to the first that will not do.
async fn converse(
    share: &Share,
    steps: Vec<(Step, Cmd)>,
    mut hear: impl FnMut(Step, Value) -> Result<(), Fault>,
) -> Result<(), Fault> {
    for (_, call) in &steps {
        share.request(call);
    }
    for (step, _) in steps {
        let reply = poll_fn(|context| share.poll_reply(context)).await?;
        share.connection().note_heard();
        hear(step, reply.into())?;
    }
    Ok(())
}

/// Learns what a server tells of itself.
fn learn(facts: &mut Facts, step: Step, value: &Value) -> Result<(), Fault> {
    match step {
        Step::Role => facts.learn_master(check_role(value)?),
        Step::Sync => facts.learn_sync(value),
        Step::Facts => facts.renew(value),
        Step::Cluster => facts.learn_cluster(value),
        // What is left is of use, but not needed.
        _ => {}
    }
    Ok(())
}

/// Asks a member of a cluster for the others.
async fn complete(share: &Share, mut facts: Facts) -> Result<Facts, Fault> {
    if facts.is_loading() {
        return Err(faults::loading());
    }
    if facts.has_cluster() {
        let mut call = redis::cmd("CLUSTER");
        call.arg("NODES");
        let hear = |step, value| learn(&mut facts, step, &value);
        converse(share, vec![(Step::Cluster, call)], hear).await?;
    }
    Ok(facts)
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
    Cluster,
    LoadScript,
    Optional,
}

/// Who it is that uses the connection, and where.
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

/// Who the server is. What is to be done no more is ended on the way.
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

/// What is needed once a connection.
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
