//! What is wrong with the nodes, and what to do about it. Owns the rules and their words.

mod fault;
mod refused_write;

use std::time::Duration;

use quorlock::{Fault, FaultKind, NodeState, Policy, QuarantineReason};
use serde_json::{Value, json};

use super::facts::Facts;
use super::{Node, Survey};
use crate::context::is_silence;
use crate::refusal::is_unknown_command;

/// Something that is wrong.
pub(super) struct Finding {
    pub(super) severity: Severity,
    /// A stable name for programs.
    pub(super) code: &'static str,
    /// The node; `None` for all of them together.
    pub(super) node: Option<String>,
    pub(super) problem: String,
    pub(super) remedy: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Severity {
    /// Locks can be had, but something should be mended.
    Warning,
    /// A lock cannot be had, or is not safe.
    Unfit,
}

impl Finding {
    fn of(node: &Node, code: &'static str, problem: impl Into<String>, remedy: &str) -> Self {
        Self {
            severity: Severity::Warning,
            code,
            node: Some(node.address.clone()),
            problem: problem.into(),
            remedy: remedy.to_owned(),
        }
    }

    pub(super) fn as_json(&self) -> Value {
        let severity = match self.severity {
            Severity::Warning => "warning",
            Severity::Unfit => "unfit",
        };
        json!({
            "severity": severity,
            "code": self.code,
            "node": self.node,
            "problem": self.problem,
            "remedy": self.remedy,
        })
    }
}

/// All that is wrong, the worst first.
pub(super) fn of(survey: &Survey) -> Vec<Finding> {
    let mut findings = Vec::new();
    let (usable, all) = (survey.usable(), survey.nodes.len());
    if let Some(mistake) = &survey.mistake {
        findings.push(Finding {
            severity: Severity::Unfit,
            code: "refused-list",
            node: None,
            problem: format!("the list of nodes is refused: {mistake}"),
            remedy: "name independent servers, each once".to_owned(),
        });
    } else if usable < survey.quorum() {
        findings.push(Finding {
            severity: Severity::Unfit,
            code: "no-quorum",
            node: None,
            problem: format!(
                "no lock can be had now: {usable} of {all} nodes grant any, and {} are needed",
                survey.quorum()
            ),
            remedy: "see what is wrong with each node below".to_owned(),
        });
    }
    let clock = median_offset(survey);
    for node in &survey.nodes {
        findings.extend(of_state(survey, node));
        findings.extend(refused_write::of(node));
        if let Ok(facts) = &node.facts {
            let all = of_facts(node, facts).into_iter().chain(of_clock(node, facts, clock));
            findings.extend(all);
        }
        findings.extend(of_silence(node));
    }
    findings.extend(of_own_clock(clock));
    findings
}

/// What a client that locks makes of the node.
fn of_state(survey: &Survey, node: &Node) -> Option<Finding> {
    match &node.state {
        NodeState::Healthy if node.facts.as_ref().is_ok_and(|facts| facts.is_in_cluster) => {
            let problem = "it belongs to a Redis Cluster, and keeps the keys of some locks only";
            Some(Finding::of(node, CLUSTER_MEMBER.0, problem, CLUSTER_MEMBER.1))
        }
        NodeState::Healthy => None,
        NodeState::Connecting if node.lacks_commands() => None,
        NodeState::Connecting => Some(of_undecided(survey, node)),
        // Commands may just be on their way: another finding tells how long that takes.
        NodeState::Unresponsive if node.is_too_far() => None,
        // Nor is it down if the connections of locks, which take some round trips, are not there in time.
        NodeState::Down(fault) if node.is_too_far() && is_silence(fault) => None,
        NodeState::Unresponsive => {
            Some(Finding::of(node, "hung", "it is connected, but does not answer", OF_A_HUNG_ONE))
        }
        NodeState::Quarantined(quarantine) => {
            let left = node.state.quarantine_left().unwrap_or_default();
            let reason = quarantine.reason.describe();
            Some(Finding::of(
                node,
                "quarantined",
                format!("{reason}; its votes do not count for {} more", seconds(left)),
                match quarantine.reason {
                    QuarantineReason::ClockStepped => {
                        "wait until then; let NTP slew the clock, not step it"
                    }
                    _ => {
                        "wait until then; with appendonly yes and appendfsync always a restart \
                         forgets nothing"
                    }
                },
            ))
        }
        NodeState::Refusing(fault) | NodeState::Down(fault) if is_told_apart(node, fault) => None,
        NodeState::Refusing(fault) | NodeState::Down(fault) => Some(fault::of(survey, node, fault)),
    }
}

/// Whether another finding tells of it: the one about the access list or the commands, which names all that is missing
/// (the guards cannot do without some of these), or the one about refused writes.
fn is_told_apart(node: &Node, fault: &Fault) -> bool {
    match fault.kind() {
        FaultKind::NotPermitted => node.lacks_rights(),
        FaultKind::Other => is_unknown_command(fault.detail()) && node.lacks_commands(),
        FaultKind::Unwritable => true,
        _ => false,
    }
}

fn of_undecided(survey: &Survey, node: &Node) -> Finding {
    let problem = "it is not known yet whether it remembers its locks";
    let (quorum, all) = (survey.quorum(), survey.nodes.len());
    let remedy = if survey.nodes.iter().filter(|node| node.answers_guards()).count() < quorum {
        format!("bring the other nodes back: this is found out once {quorum} of {all} answer")
    } else {
        "ask again in a moment".to_owned()
    };
    Finding::of(node, "undecided", problem, &remedy)
}

/// That a node which is not known to be unfit has told nothing of itself.
fn of_silence(node: &Node) -> Option<Finding> {
    let fault = node.facts.as_ref().err().filter(|_| node.state == NodeState::Healthy)?;
    let problem = format!("it grants locks, but nothing else is known of it: {}", fault.detail());
    let remedy = match fault.kind() {
        FaultKind::TimedOut | FaultKind::NotSent => "ask again with a longer --timeout",
        _ => "ask again, and see the server's log",
    };
    Some(Finding::of(node, "unknown", problem, remedy))
}

fn of_facts(node: &Node, facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut find = |code, problem: String, remedy: &str| {
        findings.push(Finding::of(node, code, problem, remedy));
    };
    let too_old =
        facts.compatible.as_deref().filter(|it| version(it).is_some_and(|it| it < OLDEST));
    if let Some(version) = too_old {
        find(
            "too-old",
            format!("its version {version} is not supported"),
            "use Redis 6.2 or newer, or Valkey",
        );
    }
    if !facts.rights.lacking.is_empty() {
        let rules = facts.rights.lacking.join(" ");
        let problem = format!("the user's access list lacks {rules}");
        find("missing-right", problem, &format!("ACL SETUSER the user with {rules}"));
    }
    if !facts.rights.missing.is_empty() {
        let commands = facts.rights.missing.join(", ");
        find("missing-command", format!("the server does not have {commands}"), HAVE_COMMANDS);
    }
    let policy = facts.eviction.as_deref().unwrap_or("noeviction");
    if policy != "noeviction" {
        let does = if facts.max_memory == Some(0) {
            "would throw out locks while they are held, if maxmemory were set"
        } else {
            "may throw out locks while they are held"
        };
        find(
            "evicts",
            format!("its maxmemory-policy {policy} {does}"),
            "set maxmemory-policy noeviction, or use a server for locks alone",
        );
    }
    if facts.has_log == Some(false) && !node.is_declared_durable {
        find(
            "no-persistence",
            "it keeps no log of its writes, so a restart forgets its locks, and its votes do not count \
             for a while then"
                .to_owned(),
            "set appendonly yes and appendfsync always, or add ?durable=true to the address of a \
             server that loses nothing",
        );
    }
    if let Some((begins, ends)) = facts.certificate {
        if begins > 0 {
            let problem = "its TLS certificate is not valid yet".to_owned();
            find(
                "certificate-begins",
                problem,
                "correct the clock of this machine, or the certificate",
            );
        }
        if ends < CERTIFICATE_ENDS_SOON {
            find("certificate-ends", certificate_ends(ends), "renew the certificate");
        }
    }
    if facts.round_trip > slow() {
        let (trip, limit) = (millis(facts.round_trip), millis(Policy::default().node_timeout()));
        let problem = if facts.is_too_far() {
            format!("a round trip takes {trip}, but locks wait for an answer for {limit}")
        } else {
            format!("a round trip takes {trip}")
        };
        find("slow", problem, "use nodes that are nearer, or a longer ttl");
    }
    findings.extend(of_push(node, facts));
    findings
}

/// What keeps it from telling waiting clients of a free lock.
fn of_push(node: &Node, facts: &Facts) -> Option<Finding> {
    let (mut lacks, mut remedies) = (Vec::new(), Vec::new());
    if !facts.rights.lacking_for_push.is_empty() {
        let rules = facts.rights.lacking_for_push.join(" ");
        lacks.push(format!("the access list lacks {rules}"));
        remedies.push(format!("ACL SETUSER the user with {rules}"));
    }
    if !facts.rights.missing_for_push.is_empty() {
        let commands = facts.rights.missing_for_push.join(", ");
        lacks.push(format!("the server does not have {commands}"));
        remedies.push(HAVE_COMMANDS.to_owned());
    }
    let problem =
        format!("it cannot tell waiting clients that a lock is free: {}", lacks.join("; "));
    let remedy = remedies.join("; ");
    (!lacks.is_empty()).then(|| Finding::of(node, "no-push", problem, &remedy))
}

/// Whether the node's clock differs from the others' by more than locks allow for.
fn of_clock(node: &Node, facts: &Facts, most: Option<Offset>) -> Option<Finding> {
    let (own, most) = facts.clock_offset.zip(most)?;
    let off = difference(own, most)?;
    let side = if off > 0.0 { "ahead" } else { "behind" };
    let problem = format!("its clock is {:.2} s {side}", off.abs());
    let remedy = "let NTP keep it; clocks should be slewed, not stepped";
    Some(Finding::of(node, "clock-off", problem, remedy))
}

/// Whether all nodes agree on another time than this machine's.
fn of_own_clock(most: Option<Offset>) -> Option<Finding> {
    let off = difference(OWN, most?)?;
    let side = if off > 0.0 { "ahead of" } else { "behind" };
    Some(Finding {
        severity: Severity::Warning,
        code: "own-clock-off",
        node: None,
        problem: format!("this machine's clock is {:.2} s {side} the nodes'", off.abs()),
        remedy: "let NTP keep it".to_owned(),
    })
}

/// By how many seconds the one clock is ahead of the other, if that is more than locks allow for,
/// however long the answers were on their way.
fn difference(one: Offset, other: Offset) -> Option<f64> {
    let off = one.0 - other.0;
    (off.abs() > allowance().as_secs_f64() + one.1 + other.1).then_some(off)
}

/// By how much most clocks, this machine's among them, are ahead of this machine's: the median. Of
/// an even number, where the two in the middle may disagree, this machine decides between them.
fn median_offset(survey: &Survey) -> Option<Offset> {
    let offsets = survey.nodes.iter().filter_map(|node| node.facts.as_ref().ok()?.clock_offset);
    let mut offsets: Vec<Offset> = offsets.chain([OWN]).collect();
    offsets.sort_by(|one, other| one.0.total_cmp(&other.0));
    let middle = [offsets[(offsets.len() - 1) / 2], offsets[offsets.len() / 2]];
    let nearest = middle.into_iter().min_by(|one, other| one.0.abs().total_cmp(&other.0.abs()));
    nearest.filter(|_| offsets.len() > 1)
}

/// The allowance for drift of a lock with the default settings.
fn allowance() -> Duration {
    let policy = Policy::default();
    policy.drift().of(policy.ttl())
}

/// With a longer round trip, a renewal has little time left in which a node may answer.
fn slow() -> Duration {
    Policy::default().node_timeout() / 4
}

/// Says when a certificate ends that is valid for `left` more seconds.
fn certificate_ends(left: i64) -> String {
    match left {
        ..=0 => "its TLS certificate has expired".to_owned(),
        1..=DAY => "its TLS certificate ends within a day".to_owned(),
        _ => format!("its TLS certificate ends within {} days", (left + DAY - 1) / DAY),
    }
}

/// The first two numbers of a version.
fn version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

fn millis(time: Duration) -> String {
    format!("{:.0} ms", time.as_secs_f64() * 1e3)
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

/// By how many seconds a clock is ahead of this machine's, and how far off that may be.
type Offset = (f64, f64);

/// This machine's own.
const OWN: Offset = (0.0, 0.0);
/// Code and remedy.
const CLUSTER_MEMBER: (&str, &str) =
    ("cluster-member", "name a server that belongs to no cluster (cluster-enabled no)");
const HAVE_COMMANDS: &str =
    "take rename-command for it out of the server's configuration, or use a server that has it";
const OF_A_HUNG_ONE: &str =
    "see whether its process is stopped, its load, and slow commands (SLOWLOG GET)";
const OLDEST: (u32, u32) = (6, 2);
/// In seconds.
const DAY: i64 = 86_400;
const CERTIFICATE_ENDS_SOON: i64 = 14 * DAY;
