//! A survey for people, as tables, and for programs. Owns the layout.

use std::io::{IsTerminal as _, stdout};
use std::time::Duration;

use quorlock::NodeState;
use serde_json::{Value, json};

use super::facts::Facts;
use super::findings::{Finding, Severity};
use super::{Node, Survey};
use crate::failure::code;
use crate::output::{Cell, Table, Tone, print, rounded};

/// One row for each node, and why nodes cannot be used.
pub(super) fn overview(survey: &Survey) -> String {
    let mut problems = Table::new(&["node", "problem"]);
    for node in &survey.nodes {
        if let Some(detail) = node.state.detail() {
            problems.row(vec![Cell::plain(&node.address), Cell::plain(detail)]);
        }
    }
    if problems.is_empty() {
        return table(survey);
    }
    format!("{}\n\n{}", table(survey), problems.render())
}

/// One row for each node.
fn table(survey: &Survey) -> String {
    let mut table = Table::new(&["node", "state", "server", "data", "times", "rights"]);
    for node in &survey.nodes {
        let mut row = vec![Cell::plain(&node.address), state(node)];
        if let Ok(facts) = &node.facts {
            row.extend([server(facts), data(facts), times(facts), rights(facts)]);
        }
        table.row(row);
    }
    table.render()
}

/// The table, what is wrong, and what that means for locks.
pub(super) fn report(survey: &Survey, findings: &[Finding], status: u8) -> String {
    let mut lines = vec![table(survey)];
    if !findings.is_empty() {
        let mut table = Table::new(&["about", "problem", "what to do"]);
        for finding in findings {
            let tone = match finding.severity {
                Severity::Warning => Tone::Notable,
                Severity::Unfit => Tone::Bad,
            };
            table.row(vec![
                Cell::plain(finding.node.as_deref().unwrap_or("all nodes")),
                Cell::new(&finding.problem, tone),
                Cell::plain(&finding.remedy),
            ]);
        }
        lines.push(table.render());
    }
    let verdict = match status {
        code::DONE => "Healthy.".to_owned(),
        code::UNFIT => "A lock cannot be had now, or is not safe.".to_owned(),
        _ => format!(
            "Locks can be had: {} of {} nodes grant them, and {} are needed.",
            survey.usable(),
            survey.nodes.len(),
            survey.quorum()
        ),
    };
    let is_untold = status != code::UNFIT && survey.nodes.iter().any(Node::has_untold_keys);
    lines.push(if is_untold { format!("{verdict} {UNTOLD_KEYS}") } else { verdict });
    lines.join("\n\n")
}

/// For a view that is drawn again and again.
pub(super) fn clear_screen() {
    if stdout().is_terminal() {
        print("\x1b[H\x1b[2J");
    }
}

fn state(node: &Node) -> Cell {
    let name = node.state.name();
    match node.state.quarantine_left() {
        _ if node.state == NodeState::Healthy => Cell::new(name, Tone::Good),
        Some(left) => Cell::new(&format!("{name} {:.1} s", left.as_secs_f64()), Tone::Notable),
        None => Cell::new(name, Tone::Bad),
    }
}

fn server(facts: &Facts) -> Cell {
    let mut words = Vec::new();
    words.extend(facts.product.clone());
    words.extend(facts.version.clone());
    words.extend(facts.role.as_ref().map(|role| match role.as_str() {
        "slave" => "replica".to_owned(),
        role => role.to_owned(),
    }));
    words.extend(facts.is_in_cluster.then(|| "in a cluster".to_owned()));
    words.extend(facts.run_id.as_ref().map(|run| format!("run {}", &run[..run.len().min(8)])));
    words.extend(facts.uptime.map(|time| format!("up {}", uptime(time))));
    Cell::plain(&words.join(" "))
}

fn data(facts: &Facts) -> Cell {
    let log = match (facts.has_log, &facts.fsync) {
        (Some(true), Some(fsync)) => Some(format!("log, fsync {fsync}")),
        (Some(true), None) => Some("log".to_owned()),
        (Some(false), _) => Some("no log".to_owned()),
        (None, _) => None,
    };
    let memory = facts.used_memory.map(|used| match facts.max_memory.filter(|limit| *limit > 0) {
        Some(limit) => format!("{} of {}", bytes(used), bytes(limit)),
        None => bytes(used),
    });
    let words: Vec<String> = log.into_iter().chain(facts.eviction.clone()).chain(memory).collect();
    Cell::plain(&words.join(", "))
}

fn times(facts: &Facts) -> Cell {
    let clock = facts.clock_offset.map(|(offset, _)| format!("clock {}, ", signed(offset)));
    let trip = facts.round_trip.as_secs_f64() * 1e3;
    Cell::plain(&format!("{}trip {trip:.1} ms", clock.unwrap_or_default()))
}

fn rights(facts: &Facts) -> Cell {
    let push = if facts.rights.has_push() { "push" } else { "no push" };
    let lacking = facts.rights.lacking.iter().chain(&facts.rights.missing);
    let lacking: Vec<_> = lacking.map(String::as_str).collect();
    if lacking.is_empty() {
        let all = if facts.rights.has_lock_keys.is_some() { "all" } else { "keys not known" };
        return Cell::plain(&format!("{all}, {push}"));
    }
    let lacking = lacking.join(" ");
    Cell::new(&format!("lacks {lacking}, {push}"), Tone::Bad)
}

/// Everything that is known of a node; `null` for what is not.
pub(super) fn as_json(node: &Node) -> Value {
    let facts = node.facts.as_ref().ok();
    let told = |read: fn(&Facts) -> Value| facts.map_or(Value::Null, read);
    json!({
        "node": node.address,
        "state": node.state.name(),
        "detail": node.state.detail(),
        "quarantine_left_seconds": node.state.quarantine_left().map(|left| rounded(left.as_secs_f64())),
        "reachable": facts.is_some(),
        "server": told(|it| json!(it.product)),
        "version": told(|it| json!(it.version)),
        "role": told(|it| json!(it.role)),
        "run_id": told(|it| json!(it.run_id)),
        "uptime_seconds": told(|it| json!(it.uptime.map(|time| time.as_secs()))),
        "append_only": told(|it| json!(it.has_log)),
        "fsync": told(|it| json!(it.fsync)),
        "eviction_policy": told(|it| json!(it.eviction)),
        "used_memory_bytes": told(|it| json!(it.used_memory)),
        "max_memory_bytes": told(|it| json!(it.max_memory)),
        "in_cluster": told(|it| json!(it.is_in_cluster)),
        "clock_offset_seconds": told(|it| json!(it.clock_offset.map(|(offset, _)| rounded(offset)))),
        "round_trip_seconds": told(|it| json!(rounded(it.round_trip.as_secs_f64()))),
        "lacking_rights": told(|it| json!(it.rights.lacking)),
        "lock_keys_permitted": told(|it| json!(it.rights.has_lock_keys)),
        "push": told(|it| json!(it.rights.has_push())),
        "lacking_rights_for_push": told(|it| json!(it.rights.lacking_for_push)),
        "missing_commands": told(|it| json!(it.rights.missing)),
        "missing_commands_for_push": told(|it| json!(it.rights.missing_for_push)),
        "certificate_left_seconds": told(|it| json!(it.certificate.map(|(_, ends)| ends))),
    })
}

/// In its two largest units.
fn uptime(time: Duration) -> String {
    let text = humantime::format_duration(Duration::from_secs(time.as_secs())).to_string();
    text.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

fn signed(seconds: f64) -> String {
    if seconds.abs() < 1.0 {
        // Zero has no sign of its own.
        format!("{:+.1} ms", (seconds * 1e4).round() / 10.0 + 0.0)
    } else {
        format!("{seconds:+.1} s")
    }
}

fn bytes(count: u64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB"];
    let mut unit = 0;
    #[expect(clippy::cast_precision_loss, reason = "it is shown with one digit")]
    let mut amount = count as f64;
    while amount >= 1000.0 && unit + 1 < units.len() {
        amount /= 1000.0;
        unit += 1;
    }
    if unit == 0 { format!("{count} B") } else { format!("{amount:.1} {}", units[unit]) }
}

const UNTOLD_KEYS: &str = "Whether the access list covers the keys of a lock depends on its name: \
    it needs a pattern for the names that are used.";
