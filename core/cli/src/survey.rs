//! What each node is, and whether locks are safe on them: `nodes` and `doctor`. Owns how a survey
//! is made; `facts` and `rights` ask one server, `findings` judges, `shown` presents.

mod facts;
mod findings;
mod rights;
mod shown;

use std::time::{Duration, Instant};

use futures::future::join;
use quorlock::{Address, Fault, FaultKind, NodeState, ServerConnection};
use serde_json::{Value, json};
use tokio::time::timeout;

use self::facts::Facts;
use self::findings::{Finding, Severity};
use crate::arguments::Nodes;
use crate::context::{Context, is_silence};
use crate::failure::{Failure, code};
use crate::output::unwritten;

/// What is known of all nodes at one time.
struct Survey {
    nodes: Vec<Node>,
    /// Why the list of nodes is refused as a whole, if it is.
    mistake: Option<String>,
}

/// What is known of one node.
struct Node {
    address: String,
    /// Where the address leads.
    endpoint: String,
    /// What a client that locks makes of it.
    state: NodeState,
    has_tls: bool,
    /// Whether the user says that the server loses nothing in a restart.
    is_declared_durable: bool,
    /// What the server says of itself.
    facts: Result<Facts, Fault>,
}

impl Survey {
    fn of(context: &Context) -> Result<Self, Failure> {
        let locks = context.locks()?;
        let began = Instant::now();
        let facts = async |connection: &mut ServerConnection, address: &Address| {
            facts::ask(connection, address.key_prefix()).await
        };
        // Both at once, and the timeout is for both: it has passed when nodes do not answer.
        let looking = async { timeout(context.timeout, locks.is_locked([UNUSED_NAME])).await };
        let (looked, facts) =
            context.engine.block_on(join(looking, context.each_node(context.timeout, &facts)));
        let refused = looked.ok().and_then(Result::err);
        let mistake = refused.filter(|error| error.kind() == quorlock::ErrorKind::Config);
        // A node that answers is decided about soon, unless the others are silent.
        let is_awaited = |(facts, state): (&Result<Facts, Fault>, NodeState)| {
            facts.is_ok() && state == NodeState::Connecting
        };
        let asked = began.elapsed();
        let in_all = if asked < context.timeout { DECIDED_AFTER } else { Duration::ZERO };
        let in_all = in_all.max(context.timeout);
        // Without a majority nothing is decided about any, once they have connected.
        let answering = facts.iter().filter(|it| it.is_ok()).count();
        let has_majority = 2 * answering > facts.len();
        let in_all = if has_majority { in_all } else { in_all.min(2 * asked + TO_CONNECT) };
        let limit = in_all.saturating_sub(asked);
        context.engine.block_on_for(limit, async {
            let states = || locks.nodes().into_iter().map(|(_, state)| state);
            // Of fewer than a majority none is decided about.
            let is_out = |it: &NodeState| matches!(it, NodeState::Down(_) | NodeState::Refusing(_));
            let may_decide = || 2 * states().filter(|it| !is_out(it)).count() > states().count();
            let kept = || facts.iter().zip(&context.left_out).filter(|(_, left)| left.is_none());
            while may_decide() && kept().map(|(facts, _)| facts).zip(states()).any(is_awaited) {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        });
        let mut states = locks.nodes().into_iter().map(|(_, state)| state);
        let listed = context.addresses.iter().zip(&context.left_out).zip(facts);
        let nodes = listed.map(|((address, left_out), facts)| Node {
            address: address.to_string(),
            endpoint: address.endpoint(),
            state: match left_out {
                Some(fault) => NodeState::Refusing(fault.clone()),
                None => {
                    refusing(told(states.next().unwrap_or(NodeState::Connecting), &facts), &facts)
                }
            },
            has_tls: address.has_tls(),
            is_declared_durable: address.is_durable(),
            facts,
        });
        let nodes = nodes.collect();
        let mistake = mistake.map(|error| error.to_string());
        let left_out = || context.left_out.iter().flatten().next();
        let mistake = mistake.or_else(|| left_out().map(|fault| fault.detail().to_owned()));
        locks.close();
        Ok(Self { nodes, mistake })
    }

    /// How many nodes grant locks.
    fn usable(&self) -> usize {
        self.nodes.iter().filter(|node| node.grants_locks()).count()
    }

    fn quorum(&self) -> usize {
        self.nodes.len() / 2 + 1
    }

    fn as_json(&self) -> Value {
        self.nodes.iter().map(shown::as_json).collect()
    }
}

impl Node {
    /// Whether it takes part in locks, and the user may do there what locks need.
    fn grants_locks(&self) -> bool {
        let is_kept_out = self.facts.as_ref().is_ok_and(|facts| facts.rights.keep_locks_out());
        let takes_writes = self.refused_write().is_none();
        self.state == NodeState::Healthy && !is_kept_out && takes_writes && !self.is_too_far()
    }

    /// Why its server takes no writes now, in its own words.
    fn refused_write(&self) -> Option<&str> {
        self.facts.as_ref().ok()?.refused_write.as_deref()
    }

    /// Whether it tells the guards what it remembers, as a majority has to before they decide about any.
    fn answers_guards(&self) -> bool {
        match self.state {
            NodeState::Healthy | NodeState::Quarantined(_) => true,
            NodeState::Connecting => !self.lacks_commands(),
            NodeState::Unresponsive | NodeState::Refusing(_) | NodeState::Down(_) => false,
        }
    }

    /// Whether it answers, but later than locks wait for it.
    fn is_too_far(&self) -> bool {
        self.facts.as_ref().is_ok_and(Facts::is_too_far)
    }

    /// Whether its access list is known to lack what locks need.
    fn lacks_rights(&self) -> bool {
        self.facts.as_ref().is_ok_and(|facts| !facts.rights.lacking.is_empty())
    }

    /// Whether its server is known not to have what locks need.
    fn lacks_commands(&self) -> bool {
        self.facts.as_ref().is_ok_and(|facts| facts.rights.miss_vital())
    }

    /// Whether it depends on a lock's name whether the access list covers its key.
    fn has_untold_keys(&self) -> bool {
        self.facts.as_ref().is_ok_and(|facts| facts.rights.has_lock_keys.is_none())
    }
}

/// The state of a node; for one that does not answer, with the fault that tells whether it could be
/// connected to.
fn told(state: NodeState, facts: &Result<Facts, Fault>) -> NodeState {
    match (state, facts) {
        (NodeState::Connecting, Err(fault)) => NodeState::Down(fault.clone()),
        (NodeState::Down(_), Err(fault)) if is_silence(fault) => NodeState::Down(fault.clone()),
        (state, _) => state,
    }
}

/// The state of a node, also if its server refuses writes and the guards, which write seldom, have not seen that.
fn refusing(state: NodeState, facts: &Result<Facts, Fault>) -> NodeState {
    let words = facts.as_ref().ok().and_then(|facts| facts.refused_write.as_ref());
    match (state, words) {
        (NodeState::Healthy | NodeState::Connecting, Some(words)) => {
            let words = format!("it takes no writes now: {words}");
            NodeState::Refusing(Fault::new(FaultKind::Unwritable, words))
        }
        (state, _) => state,
    }
}

/// Shows what each node is.
pub(crate) fn nodes(context: &Context, options: &Nodes) -> Result<u8, Failure> {
    loop {
        let survey = Survey::of(context)?;
        if options.watch && !context.output.is_json {
            shown::clear_screen();
        }
        context.output.table(&shown::overview(&survey));
        context.output.json(&survey.as_json());
        if !options.watch || unwritten().is_some() {
            return Ok(code::DONE);
        }
        std::thread::sleep(WATCH_EVERY);
    }
}

/// Shows what each node is, what is wrong, and what to do about it.
pub(crate) fn doctor(context: &Context) -> Result<u8, Failure> {
    let survey = Survey::of(context)?;
    let findings = findings::of(&survey);
    let status = if findings.iter().any(|finding| finding.severity == Severity::Unfit) {
        code::UNFIT
    } else if findings.is_empty() {
        code::DONE
    } else {
        code::NO
    };
    context.output.json(&json!({
        "healthy": status == code::DONE,
        "usable_nodes": survey.usable(),
        "quorum": survey.quorum(),
        "findings": findings.iter().map(Finding::as_json).collect::<Vec<_>>(),
        "nodes": survey.as_json(),
    }));
    context.output.table(&shown::report(&survey, &findings, status));
    Ok(status)
}

/// The name of a lock that nobody uses, which is looked at to connect to the nodes.
const UNUSED_NAME: &str = "quorlock-doctor";
/// Beyond the time in which a node has told what it is.
const TO_CONNECT: Duration = Duration::from_millis(100);
/// The guards take up to three seconds to decide about a node that has forgotten.
const DECIDED_AFTER: Duration = Duration::from_secs(4);
const LOOK_EVERY: Duration = Duration::from_millis(5);
const WATCH_EVERY: Duration = Duration::from_secs(2);
