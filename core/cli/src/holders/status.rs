//! `status`: what each node says of a lock, and who holds it by quorum.

use std::time::{Duration, UNIX_EPOCH};

use quorlock::Holder;
use quorlock::embed::plain_line;
use serde_json::{Value, json};

use super::asking;
use super::reading::{self, Key, Left, Quorum, Reading};
use super::value::Value as Id;
use crate::arguments::Status;
use crate::context::Context;
use crate::failure::{Failure, code};
use crate::output::{Cell, Table, Tone, rounded};

/// Shows who holds the locks.
pub(crate) fn status(context: &Context, options: &Status) -> Result<u8, Failure> {
    let (mut locks, mut worst) = (Vec::new(), code::DONE);
    let readings = asking::ask(context, &options.names, context.timeout)?;
    for (name, readings) in options.names.iter().zip(readings) {
        let quorum = reading::quorum(&readings);
        let code = match quorum {
            Quorum::Free => code::DONE,
            Quorum::Held(_) | Quorum::Divided => code::NO,
            Quorum::Unknown => code::NO_QUORUM,
        };
        // The numbers grow with how little can be said.
        worst = worst.max(code);
        context.output.line(&text(name, &readings, &quorum));
        locks.push(as_json(name, &readings, &quorum));
    }
    context.output.json(&Value::from(locks));
    Ok(worst)
}

/// A sentence about the lock, and a table of its nodes.
fn text(name: &str, readings: &[Reading], quorum: &Quorum) -> String {
    let mut table = Table::new(&["node", "says", "holder", "left", "fencing token", "waiting"]);
    for reading in readings {
        table.row(row(reading, quorum));
    }
    let mut text = plain_line(&sentence(name, readings, quorum));
    if let Some(owner) = owner(readings, quorum) {
        text = format!("{text}\n{}", plain_line(&introduction(owner)));
    }
    text = format!("{text}\n{}", table.render());
    let mut problems = Table::new(&["node", "problem"]);
    for reading in readings {
        if let Some(problem) = problem(reading) {
            problems.row(vec![Cell::plain(&reading.address), Cell::plain(&problem)]);
        }
    }
    if !problems.is_empty() {
        text = format!("{text}\n\n{}", problems.render());
    }
    text
}

/// What keeps the node from telling, in whole or in part.
fn problem(reading: &Reading) -> Option<String> {
    match &reading.says {
        Err(fault) => Some(fault.to_string()),
        Ok(Some(Key { left: Left::Untold(why), .. })) => {
            Some(format!("it does not tell how long it keeps the key: {why}"))
        }
        Ok(_) => None,
    }
}

fn sentence(name: &str, readings: &[Reading], quorum: &Quorum) -> String {
    let holder = match quorum {
        Quorum::Free => return format!("'{name}' is free"),
        Quorum::Unknown => return format!("too few nodes tell who holds '{name}'"),
        Quorum::Divided => return divided(name, readings),
        Quorum::Held(holder) => holder,
    };
    let own: Vec<&Key> = reading::keys(readings).filter(|key| key.holder == *holder).collect();
    let whose = if is_ours(holder) { " (this command's)" } else { "" };
    let token = own.iter().find_map(|key| key.token);
    let token = token.map_or_else(String::new, |token| format!(", fencing token {token}"));
    let left = match reading::left(readings) {
        Left::In(left) => format!(", for {} more unless renewed", shown(left)),
        Left::Never => ", for ever: its key has no ttl".to_owned(),
        Left::Untold(why) => format!("; for how long cannot be told: {why}"),
    };
    let (count, all) = (own.len(), readings.len());
    format!("'{name}' is held by {holder}{whose} on {count} of {all} nodes{token}{left}")
}

/// A sentence about a lock whose keys are several holders', or on too few nodes.
fn divided(name: &str, readings: &[Reading]) -> String {
    let count = |id: &Id| reading::keys(readings).filter(|key| key.holder == *id).count();
    let holders = reading::holders(readings);
    let holders = holders.iter().map(|id| format!("{id} on {}", count(id)));
    let (holders, all) = (holders.collect::<Vec<_>>().join(", "), readings.len());
    format!("'{name}' has no holder with a quorum, but cannot be had: {holders} of {all} nodes")
}

/// A sentence about the holder, as it has told of itself.
fn introduction(owner: &Holder) -> String {
    let is_in_words = |name: &str| ["service", "host", "pid"].contains(&name);
    let words = owner.owner.iter().filter(|(name, _)| !is_in_words(name));
    let words: Vec<String> = words.map(|(name, value)| format!("{name}={value}")).collect();
    let words = if words.is_empty() { String::new() } else { format!(" ({})", words.join(", ")) };
    format!("the holder is {owner}{words}")
}

fn owner<'a>(readings: &'a [Reading], quorum: &Quorum) -> Option<&'a Holder> {
    match quorum {
        Quorum::Held(holder) => reading::owner(readings, holder),
        _ => None,
    }
}

fn row(reading: &Reading, quorum: &Quorum) -> Vec<Cell> {
    let node = Cell::plain(&reading.address);
    match &reading.says {
        Ok(None) => vec![node, Cell::new("free", Tone::Good)],
        Err(_) => vec![node, Cell::new("cannot tell", Tone::Bad)],
        Ok(Some(key)) => {
            let tone = match quorum {
                Quorum::Divided => Tone::Bad,
                Quorum::Held(holder) if *holder != key.holder => Tone::Bad,
                _ => Tone::Notable,
            };
            vec![
                node,
                Cell::new("held", tone),
                Cell::plain(&key.holder.shortened(SHORT)),
                Cell::plain(&match &key.left {
                    Left::In(left) => shown(*left),
                    Left::Never => "for ever".to_owned(),
                    Left::Untold(_) => "not told".to_owned(),
                }),
                Cell::plain(&key.token.map_or_else(String::new, |token| token.to_string())),
                Cell::plain(&key.waiters.map_or_else(String::new, |count| count.to_string())),
            ]
        }
    }
}

fn as_json(name: &str, readings: &[Reading], quorum: &Quorum) -> Value {
    let node = |reading: &Reading| {
        let (key, fault) = match &reading.says {
            Ok(key) => (key.as_ref(), None),
            Err(fault) => (None, Some(fault)),
        };
        let (left, untold) = match key.map(|key| &key.left) {
            Some(Left::In(left)) => (Some(rounded(left.as_secs_f64())), None),
            Some(Left::Untold(why)) => (None, Some(why)),
            Some(Left::Never) | None => (None, None),
        };
        let held = if key.is_some() { "held" } else { "free" };
        json!({
            "node": reading.address,
            "says": fault.map_or(held, |_| "error"),
            "holder": key.map(|key| key.holder.for_programs()),
            "owner": key.and_then(|key| key.owner.as_ref()).map(|owner| &owner.owner),
            "left_seconds": left,
            "left_error": untold,
            "fencing_token": key.and_then(|key| key.token),
            "waiters": key.and_then(|key| key.waiters),
            "code": fault.map(|fault| fault.kind().code()),
            "error": fault.map(ToString::to_string),
        })
    };
    let (state, holder) = match quorum {
        Quorum::Free => ("free", None),
        Quorum::Held(holder) => ("held", Some(holder)),
        Quorum::Divided => ("held", None),
        Quorum::Unknown => ("unknown", None),
    };
    let owner = owner(readings, quorum);
    let since = owner.and_then(|owner| owner.since?.duration_since(UNIX_EPOCH).ok());
    let own = |key: &&Key| Some(&key.holder) == holder;
    let token = reading::keys(readings).filter(own).find_map(|key| key.token);
    json!({
        "name": name,
        "state": state,
        "holder": holder.map(Id::for_programs),
        "ours": holder.is_some_and(is_ours),
        "owner": owner.map(|owner| &owner.owner),
        "held_since": since.map(|since| rounded(since.as_secs_f64())),
        "fencing_token": token,
        "nodes": readings.iter().map(node).collect::<Vec<_>>(),
    })
}

/// Whether the holder is the `run` under which this command was started.
fn is_ours(holder: &Id) -> bool {
    std::env::var("QUORLOCK_TOKEN").is_ok_and(|own| holder.text() == Some(&own))
}

fn shown(left: Duration) -> String {
    format!("{:.1} s", left.as_secs_f64())
}

/// How many characters of an id are in the table, which tell holders apart; the sentence above it has all.
const SHORT: usize = 10;
