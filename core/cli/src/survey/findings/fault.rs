//! Says what to do about a node that takes no part in locks, by the kind of its fault.

use quorlock::{Fault, FaultKind};

use super::{CLUSTER_MEMBER, Finding, Node, OF_A_HUNG_ONE, Survey};
use crate::refusal::is_protected;

/// The fault for which it takes no part in locks.
pub(super) fn of(survey: &Survey, node: &Node, fault: &Fault) -> Finding {
    let (code, remedy) = match fault.kind() {
        FaultKind::TimedOut if node.has_tls => (
            "hung",
            "see whether the address should begin with redis://, without TLS; or else whether the \
             server's process is stopped",
        ),
        FaultKind::TimedOut => ("hung", OF_A_HUNG_ONE),
        FaultKind::NotSent if fault.detail().contains(UNRESOLVED) => (
            "unreachable",
            "correct the host in the address, or see what tells addresses of names here (DNS, /etc/hosts)",
        ),
        FaultKind::NotSent | FaultKind::Broken | FaultKind::Late => {
            ("unreachable", "start the server, or correct its address, firewall or TLS settings")
        }
        FaultKind::Unauthenticated => {
            ("wrong-password", "correct the user name and password in the address")
        }
        FaultKind::NotPermitted if is_protected(fault.detail()) => ("unreachable", LET_OTHERS_IN),
        FaultKind::NotPermitted => ("missing-right", "add what is missing with ACL SETUSER"),
        FaultKind::Replica => ("replica", "give the address of its master, or leave it out"),
        FaultKind::NotIndependent if shares_its_server(survey, node) => {
            ("same-server", "name each server once, under one address")
        }
        FaultKind::NotIndependent => {
            ("same-cluster", "name servers that know nothing of each other")
        }
        FaultKind::Tls => ("tls", "correct the certificate, or the TLS settings in the address"),
        FaultKind::TooManyClients => (
            "too-many-clients",
            "raise maxclients, or see which clients keep so many connections (CLIENT LIST)",
        ),
        FaultKind::Clustered => CLUSTER_MEMBER,
        FaultKind::NoDatabase => {
            ("no-database", "correct the number of the database at the end of the address")
        }
        FaultKind::Busy => ("busy", "wait until it has started, or see its slow scripts"),
        FaultKind::WrongType
        | FaultKind::Garbled
        | FaultKind::Quarantined
        | FaultKind::Unwritable
        | FaultKind::Other => ("fault", "see the server's log"),
    };
    Finding::of(node, code, fault.detail(), remedy)
}

/// Whether another address leads to the same server.
fn shares_its_server(survey: &Survey, node: &Node) -> bool {
    let run = |node: &Node| node.facts.as_ref().ok()?.run_id.clone();
    let own = run(node);
    let mut others = survey.nodes.iter().filter(|other| !std::ptr::eq(*other, node));
    others.any(|other| other.endpoint == node.endpoint || own.is_some() && run(other) == own)
}

const LET_OTHERS_IN: &str = "set a password and put it into the address, set bind, or turn protected mode off (protected-mode no)";
/// In the words of a system that knows no address of a host.
const UNRESOLVED: &str = "lookup address";
