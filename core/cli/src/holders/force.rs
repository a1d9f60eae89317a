//! `release --force`: takes a lock's keys from every holder that has one. Owns what was done on which
//! node, and what that adds up to.

use futures::future::join_all;
use quorlock::{Address, FaultKind, ServerConnection};
use serde_json::{Map, Value as Json, json};

use super::reading::{self, Quorum, Reading};
use super::value::Value;
use super::{NOT_HELD, STILL_HELD, asking, not_done};
use crate::context::{Context, visit_within};
use crate::failure::{Failure, NodeFault, because, code, list};

/// Takes the keys, and tells whose they were.
pub(super) fn release(context: &Context, name: &String) -> Result<u8, Failure> {
    let names = std::slice::from_ref(name);
    let before = asking::ask(context, names, context.to_connect())?.remove(0);
    let holders = reading::holders(&before);
    if holders.is_empty() {
        return Err(match reading::quorum(&before) {
            Quorum::Unknown => Failure::new(code::NO_QUORUM, reading::unknown(name, &before)),
            _ => not_done(context, name, NOT_HELD, format!("'{name}' is not held")),
        });
    }
    let whose: Vec<_> = holders.iter().map(|it| reading::named(&before, it)).collect();
    let deleted = context.engine.block_on(delete(context, name, before));
    tell(context, name, &holders, &whose.join(" and "), &deleted)
}

/// Tells what was done, and what was not.
fn tell(
    context: &Context,
    name: &str,
    holders: &[Value],
    whose: &str,
    Deleted { after, on, faults, has_failed }: &Deleted,
) -> Result<u8, Failure> {
    let told = |outcome| {
        let ids: Vec<_> = holders.iter().map(Value::for_programs).collect();
        let failed = faults.iter().map(|(node, fault)| (node.clone(), fault.to_string().into()));
        let failed: Map<String, Json> = failed.collect();
        json!({"name": name, "outcome": outcome, "holders": ids, "deleted_on": on, "failed": failed})
    };
    if holders.iter().all(|holder| reading::is_rid_of(after, holder)) {
        if *has_failed && on.is_empty() {
            let message = format!(
                "'{name}' was not released: no key of {whose} was deleted: {}",
                list(faults)
            );
            if reading::keys(after).next().is_none() {
                return Err(Failure::new(code::NO_QUORUM, message).telling(told("unknown")));
            }
            let (code, outcome) = STILL_HELD;
            context.output.json(&told(outcome));
            return Err(Failure::outcome(code, message));
        }
        let but = if faults.is_empty() { "" } else { ", but not on " };
        let but = format!("{but}{}", list(faults));
        context.output.json(&told("released"));
        let done = match &on[..] {
            [] => format!("'{name}' is not held by {whose} any more: nothing was left to delete"),
            _ => format!("released '{name}', which was held by {whose}"),
        };
        context.output.words(&format!("{done}{but}"));
        return Ok(code::DONE);
    }
    let done = match &on[..] {
        [] => String::new(),
        on => format!("deleted the key of {whose} on {}, but ", on.join(", ")),
    };
    if matches!(reading::quorum(after), Quorum::Unknown) {
        let message = format!("{done}{}", reading::unknown(name, after));
        return Err(Failure::new(code::NO_QUORUM, message).telling(told("unknown")));
    }
    let message = because(&format!("'{name}' is still held by {whose}"), faults);
    let (code, outcome) = STILL_HELD;
    context.output.json(&told(outcome));
    Err(Failure::outcome(code, format!("{done}{message}")))
}

/// What was done.
struct Deleted {
    /// What each node says afterwards, as far as its answers tell.
    after: Vec<Reading>,
    /// The nodes on which a key was deleted.
    on: Vec<String>,
    /// What has kept other nodes from it, or from telling whether they have a key.
    faults: Vec<NodeFault>,
    /// Whether a node that has a key did not delete it, or has not told.
    has_failed: bool,
}

/// Deletes each node's key, unless it has changed since.
async fn delete(context: &Context, name: &str, before: Vec<Reading>) -> Deleted {
    let delete = async |(address, reading): (&Address, &Reading)| {
        let Ok(Some(key)) = &reading.says else { return None };
        let visit = async |connection: &mut ServerConnection, address: &Address| {
            key.holder.delete(connection, &format!("{}{name}", address.key_prefix())).await
        };
        Some(visit_within(context.left(), address, &visit).await)
    };
    let deletions = join_all(context.addresses.iter().zip(&before).map(delete)).await;
    let has_failed = deletions.iter().flatten().any(Result::is_err);
    let mut done = Deleted { after: Vec::new(), on: Vec::new(), faults: Vec::new(), has_failed };
    for (reading, deletion) in before.into_iter().zip(deletions) {
        let Reading { address, says } = reading;
        let says = match deletion {
            Some(Ok(is_deleted)) => {
                done.on.extend(is_deleted.then(|| address.clone()));
                Ok(None)
            }
            // The server has answered, so that the key is there.
            Some(Err(fault)) if fault.kind() == FaultKind::Other => {
                done.faults.push((address.clone(), fault));
                says
            }
            Some(Err(fault)) => Err(fault),
            None => says,
        };
        done.faults.extend(says.as_ref().err().map(|fault| (address.clone(), fault.clone())));
        done.after.push(Reading { address, says });
    }
    done
}
