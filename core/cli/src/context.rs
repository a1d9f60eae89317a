//! The nodes that a command uses, and the manager over them. Owns where the addresses come from;
//! their messages never repeat a password.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use quorlock::{
    Address, Builder, Engine, Fault, FaultKind, NodeSettings, NodeState, Policy, Redlock,
    ServerConnection,
};

use crate::arguments::Common;
use crate::failure::{Failure, because, code};
use crate::output::Output;

/// What all commands that talk to nodes share.
pub(crate) struct Context {
    pub(crate) addresses: Vec<Address>,
    pub(crate) engine: Engine,
    pub(crate) output: Output,
    /// How long nodes have to connect and to answer before they count as unreachable.
    pub(crate) timeout: Duration,
    began: Instant,
    /// For each address, why it is no node of the manager's, if so: another leads to the same server.
    pub(crate) left_out: Vec<Option<Fault>>,
}

impl Context {
    pub(crate) fn new(common: &Common, output: Output) -> Result<Self, Failure> {
        Self::with(common, output, |addresses| vec![None; addresses.len()])
    }

    /// For commands that show what each node is: an address that leads to the server of another is
    /// left out of the manager, but shown. One that is repeated word for word is a slip, and refused.
    pub(crate) fn of_all(common: &Common, output: Output) -> Result<Self, Failure> {
        Self::with(common, output, left_out_addresses)
    }

    fn with(
        common: &Common,
        output: Output,
        left_out: impl FnOnce(&[Address]) -> Vec<Option<Fault>>,
    ) -> Result<Self, Failure> {
        let engine = Engine::shared().map_err(|error| {
            Failure::new(code::INTERNAL, format!("the lock thread could not be started: {error}"))
        })?;
        let addresses = addresses(common)?;
        let left_out = left_out(&addresses);
        let (timeout, began) = (common.timeout, Instant::now());
        let context = Self { addresses, engine, output, timeout, began, left_out };
        // What is wrong with the list is told before anything else is begun.
        context.builder().check()?;
        Ok(context)
    }

    /// A manager over the nodes.
    pub(crate) fn locks(&self) -> Result<Redlock, Failure> {
        Ok(self.manager()?.build()?)
    }

    /// A manager over the nodes that is not built yet.
    pub(crate) fn manager(&self) -> Result<Builder, Failure> {
        let policy = Policy::builder().unreachable_timeout(self.timeout).build()?;
        Ok(self.builder().policy(policy))
    }

    /// A manager for a command that asks once, and is in no hurry: a node that has connected may take as long to answer
    /// as the command may take.
    pub(crate) fn patient(&self) -> Result<Redlock, Failure> {
        let policy = Policy::builder().node_timeout(self.timeout).build()?;
        let settings = NodeSettings { hang_after: self.timeout, ..self.settings() };
        Ok(self.builder().policy(policy).node_settings(settings).build()?)
    }

    /// The result of an operation on the nodes of `locks` that ends before the timeout is over.
    pub(crate) fn within<T>(
        &self,
        locks: &Redlock,
        operation: impl Future<Output = T>,
    ) -> Result<T, Failure> {
        let timeout = humantime::format_duration(self.timeout);
        let message = format!("too few nodes have answered within {timeout}");
        let too_late = || unanswered(locks, &message);
        self.engine.block_on_for(self.left(), operation).ok_or_else(too_late)
    }

    /// How much is left of the timeout, and a little more: for what is asked of near nodes once others were waited for.
    pub(crate) fn left(&self) -> Duration {
        (self.timeout + OF_NEAR_NODES).saturating_sub(self.began.elapsed())
    }

    /// How much of the timeout there is to connect, and to learn what is to be done then.
    pub(crate) fn to_connect(&self) -> Duration {
        self.timeout * 4 / 5
    }

    /// Asks every node at once over a connection of its own, within the limit; the answers in the
    /// order of the nodes.
    pub(crate) async fn each_node<T>(
        &self,
        limit: Duration,
        visit: &impl AsyncFn(&mut ServerConnection, &Address) -> Result<T, Fault>,
    ) -> Vec<Result<T, Fault>> {
        let addresses = self.addresses.iter();
        join_all(addresses.map(|address| visit_within(limit, address, visit))).await
    }

    /// Waits briefly for the nodes that an outcome did not need, and no longer than `limit`. One that is dead or hangs
    /// must not keep a script waiting.
    pub(crate) fn tell_the_rest(&self, limit: Duration) {
        self.engine.drain(TO_HEAR.min(limit));
    }

    fn settings(&self) -> NodeSettings {
        // A quarter more than that is waited for a first connection.
        NodeSettings { connect_timeout: self.to_connect(), ..NodeSettings::default() }
    }

    fn builder(&self) -> Builder {
        let builder = Redlock::builder().engine(self.engine.clone()).node_settings(self.settings());
        let kept = self.addresses.iter().zip(&self.left_out).filter(|(_, fault)| fault.is_none());
        kept.fold(builder, |builder, (address, _)| builder.address(address.clone()))
    }
}

/// The failure that `message` tells, with the nodes of `locks` that have not answered.
pub(crate) fn unanswered(locks: &Redlock, message: &str) -> Failure {
    let fault = |(address, state): (Arc<str>, NodeState)| {
        let fault = match state {
            NodeState::Healthy | NodeState::Quarantined(_) => return None,
            NodeState::Connecting | NodeState::Unresponsive => {
                Fault::new(FaultKind::TimedOut, "no answer in time")
            }
            NodeState::Refusing(fault) | NodeState::Down(fault) => fault,
        };
        Some((address.to_string(), fault))
    };
    let faults: Vec<_> = locks.nodes().into_iter().filter_map(fault).collect();
    Failure::new(code::NO_QUORUM, because(message, &faults))
}

/// Asks one node over a connection of its own, within the limit.
pub(crate) async fn visit_within<T>(
    limit: Duration,
    address: &Address,
    visit: &impl AsyncFn(&mut ServerConnection, &Address) -> Result<T, Fault>,
) -> Result<T, Fault> {
    let visit = async |connection: &mut ServerConnection| visit(connection, address).await;
    ServerConnection::visit(address, limit, visit).await
}

/// Whether nothing has come from the node.
pub(crate) fn is_silence(fault: &Fault) -> bool {
    matches!(fault.kind(), FaultKind::TimedOut | FaultKind::NotSent)
}

/// The words for two addresses that lead to one server.
pub(crate) fn are_one_server(one: &Address, two: &Address) -> String {
    format!(
        "{one} and {two} are one and the same server, but a quorum needs servers that fail \
         independently: name each once"
    )
}

/// For each address, the fault if one before it leads to the same place in other words.
fn left_out_addresses(addresses: &[Address]) -> Vec<Option<Fault>> {
    let left_out = |(index, address): (usize, &Address)| {
        let before = &addresses[..index];
        let is_same = |other: &Address| other.to_string() == address.to_string();
        let leads_there = |other: &&Address| other.endpoint() == address.endpoint();
        let other = before.iter().find(leads_there).filter(|_| !before.iter().any(is_same))?;
        Some(Fault::new(FaultKind::NotIndependent, are_one_server(other, address)))
    };
    addresses.iter().enumerate().map(left_out).collect()
}

fn addresses(common: &Common) -> Result<Vec<Address>, Failure> {
    let texts = texts(common)?;
    if texts.split([',', '\n', '\r']).any(has_blank_inside) {
        return Err(Failure::usage(
            "a node address has a blank in it: write %20 for one in a user name or password",
        ));
    }
    let texts = texts.split(|letter: char| letter == ',' || letter.is_whitespace());
    let mut addresses = Vec::new();
    for text in texts.filter(|text| !text.is_empty()) {
        let address: Address = text.parse()?;
        if address.to_string().starts_with("memory:") {
            return Err(Failure::usage(format!(
                "the node {address} is inside this process, and its locks would keep nobody else \
                 out: name servers"
            )));
        }
        addresses.push(match &common.user_prefix {
            Some(prefix) => address.with_key_prefix(prefix),
            None => address,
        });
    }
    if addresses.is_empty() {
        return Err(Failure::usage(
            "no nodes were given: name them with --nodes redis://a,redis://b,redis://c or in the \
             environment variable QUORLOCK_NODES, or in a file with --nodes-file",
        ));
    }
    Ok(addresses)
}

/// Whether a blank divides an address before its @, rather than two addresses.
fn has_blank_inside(texts: &str) -> bool {
    texts.split_whitespace().skip(1).any(|text| text.contains('@') && !text.contains("://"))
}

/// The addresses, separated by commas or blanks: from the options, or else from the environment.
fn texts(common: &Common) -> Result<String, Failure> {
    let mut texts = common.nodes.join(",");
    if let Some(path) = &common.nodes_file {
        let file = read(path).map_err(|error| {
            Failure::usage(format!("cannot read the nodes file '{}': {error}", path.display()))
        })?;
        // Some editors begin a file with a byte order mark.
        let file = file.strip_prefix('\u{feff}').unwrap_or(&file);
        for line in file.lines() {
            texts = format!("{texts},{}", without_comment(line));
        }
    }
    if common.nodes.is_empty() && common.nodes_file.is_none() {
        match std::env::var("QUORLOCK_NODES") {
            Ok(nodes) => return Ok(nodes),
            Err(std::env::VarError::NotPresent) => {}
            Err(std::env::VarError::NotUnicode(_)) => {
                return Err(Failure::usage("the variable QUORLOCK_NODES is not UTF-8"));
            }
        }
    }
    Ok(texts)
}

/// The text of a nodes file; some files have no end.
fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(LONGEST_FILE + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LONGEST_FILE {
        return Err(io::Error::other("it is longer than a list of nodes can be"));
    }
    Ok(text)
}

/// A line of the nodes file. A `#` in an address has no blank before it.
fn without_comment(line: &str) -> &str {
    let is_comment =
        |(at, _): &(usize, &str)| line[..*at].chars().next_back().is_none_or(char::is_whitespace);
    let comment = line.match_indices('#').find(is_comment);
    comment.map_or(line, |(at, _)| &line[..at])
}

/// In bytes.
const LONGEST_FILE: u64 = 1 << 20;
const TO_HEAR: Duration = Duration::from_millis(250);
const OF_NEAR_NODES: Duration = Duration::from_millis(200);
