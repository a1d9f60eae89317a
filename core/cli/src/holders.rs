//! Who holds a lock, and giving it back or keeping it in the holder's place: `status`, `release`,
//! `extend`, `verify`. Owns their outcomes; the locks' rules are the crate `quorlock`'s.

mod asking;
mod reading;
mod status;
mod value;

use std::time::Duration;

use quorlock::{
    Address, ErrorKind, Lock, LockError, Redlock, ReleaseOutcome, Sequencer, ServerConnection,
};
use serde_json::{Value as Json, json};

use self::asking::Asking;
use self::reading::Quorum;
pub(crate) use self::status::status;
use self::value::Value;
use crate::arguments::{Command, Extend, Release, Verify};
use crate::context::Context;
use crate::failure::{Failure, NodeFault, because, code, faults, unconfirmed};

/// Gives a lock back.
pub(crate) fn release(context: &Context, options: &Release) -> Result<u8, Failure> {
    let (asking, locks) = (Asking::new(context), context.locks()?);
    let released = match &options.token {
        Some(token) => by_token(&asking, &locks, &options.name, token),
        None => by_force(&asking, &locks, &options.name),
    };
    context.tell_the_rest();
    released
}

fn by_token(asking: &Asking<'_>, locks: &Redlock, name: &str, token: &str) -> Result<u8, Failure> {
    let (context, lease) = (asking.context, locks.lease([name], token)?);
    held(asking, name, token, &context.engine.block_on(lease.check()))?;
    let (outcome, votes) = context.engine.block_on(lease.release_told())?;
    match outcome {
        ReleaseOutcome::Released => {
            context.output.json(&json!({"name": name, "outcome": "released"}));
            context.output.words(&format!("released '{name}'"));
            Ok(code::DONE)
        }
        ReleaseOutcome::Taken => Err(held_by_another(context, name)),
        ReleaseOutcome::Expired => Err(not_held(context, name)),
        ReleaseOutcome::Unknown => {
            let message = unconfirmed(&format!("'{name}'"), &votes.now());
            Err(Failure::new(code::NO_QUORUM, message))
        }
    }
}

/// Takes the keys from every holder that has one.
fn by_force(asking: &Asking<'_>, locks: &Redlock, name: &str) -> Result<u8, Failure> {
    let (context, readings) = (asking.context, reading::of(asking, name)?);
    let holders = reading::holders(&readings);
    if holders.is_empty() {
        return match reading::quorum(&readings) {
            Quorum::Unknown => Err(reading::unknown(name, &readings)),
            _ => Err(not_done(context, name, NOT_HELD, format!("'{name}' is not held"))),
        };
    }
    let named: Vec<_> = holders.iter().map(|it| reading::named(&readings, it)).collect();
    let named = named.join(" and ");
    let mut faults = Vec::new();
    for holder in &holders {
        faults.extend(take(asking, locks, name, holder)?);
    }
    let after = reading::of(asking, name)?;
    match reading::quorum(&after) {
        // Somebody who waited may have it by now.
        _ if holders.iter().all(|holder| reading::is_rid_of(&after, holder)) => {}
        Quorum::Unknown => return Err(reading::unknown(name, &after)),
        _ => {
            let message = because(&format!("'{name}' is still held by {named}"), &faults);
            return Err(not_done(context, name, STILL_HELD, message));
        }
    }
    let ids: Vec<_> = holders.iter().map(Value::for_programs).collect();
    let told = json!({"name": name, "outcome": "released", "holders": ids});
    context.output.json(&told);
    context.output.words(&format!("released '{name}', which was held by {named}"));
    Ok(code::DONE)
}

/// Deletes the holder's keys; returns what has kept nodes from it.
fn take(
    asking: &Asking<'_>,
    locks: &Redlock,
    name: &str,
    holder: &Value,
) -> Result<Vec<NodeFault>, Failure> {
    if let Some(lease) = holder.text().and_then(|token| locks.lease([name], token).ok()) {
        let (_, votes) = asking.context.engine.block_on(lease.release_told())?;
        return Ok(faults(&votes.now()));
    }
    // The value of another program, which is no token.
    let visit = async |connection: &mut ServerConnection, address: &Address| {
        holder.delete(connection, &format!("{}{name}", address.key_prefix())).await
    };
    let nodes = asking.context.addresses.iter().zip(asking.each_node(&visit));
    Ok(nodes.filter_map(|(node, it)| Some((node.to_string(), it.err()?))).collect())
}

/// Keeps a lock in its holder's place.
pub(crate) fn extend(context: &Context, options: &Extend) -> Result<u8, Failure> {
    let (asking, locks, name) = (Asking::new(context), context.locks()?, &options.name);
    let token = options.token.as_deref().expect("the command line was checked");
    let extended = prolong(&asking, locks.lock(name).ttl(options.ttl), token);
    let validity = held(&asking, name, token, &context.engine.block_on(extended))?;
    let seconds = validity.as_secs_f64();
    let told = json!({"name": name, "outcome": "extended", "validity_seconds": seconds});
    context.output.json(&told);
    context.output.words(&format!("extended '{name}': it is held for {seconds:.2} s more"));
    Ok(code::DONE)
}

/// Extends the lease, and the records that its holder has made of its sequencer and of itself.
async fn prolong(asking: &Asking<'_>, lock: Lock, token: &str) -> Result<Duration, LockError> {
    // It tells at once of a lease that has ended, where an extension tries again for want of a quorum.
    let checked = lock.clone().lease(token)?.check().await;
    let left = asking.left();
    let may_extend =
        |error: &LockError| error.kind() == ErrorKind::QuorumUnreachable && !left.is_zero();
    if let Err(error) = checked
        && !may_extend(&error)
    {
        return Err(error);
    }
    let lease = lock.timeout(left).lease(token)?;
    let validity = lease.extend(None).await?;
    // Sent behind the records on each node's connection: once it is answered, these are kept, too.
    lease.check().await?;
    Ok(validity)
}

/// Tells whether a lease is still the one that is held.
pub(crate) fn verify(context: &Context, options: &Verify) -> Result<u8, Failure> {
    let sequencer: Sequencer = options.sequencer.parse()?;
    let is_current = context.engine.block_on(context.locks()?.verify(&sequencer))?;
    context.output.json(&json!({"sequencer": sequencer.to_string(), "current": is_current}));
    let said = if is_current { "is the one that is held" } else { "is not held any more" };
    context.output.words(&format!("{sequencer} {said}"));
    Ok(if is_current { code::DONE } else { code::NO })
}

/// What programs are told of a command whose outcome is not known, if it has one.
pub(crate) fn unknown(command: &Command) -> Option<Json> {
    match command {
        Command::Release(Release { name, .. }) | Command::Extend(Extend { name, .. }) => {
            Some(json!({"name": name, "outcome": "unknown"}))
        }
        Command::Verify(options) => {
            let sequencer: Sequencer = options.sequencer.parse().ok()?;
            Some(json!({"sequencer": sequencer.to_string(), "current": null}))
        }
        _ => None,
    }
}

/// The result of an operation on the lease with this token, with what the nodes say if they have not done it.
fn held<T: Copy>(
    asking: &Asking<'_>,
    name: &str,
    token: &str,
    result: &Result<T, LockError>,
) -> Result<T, Failure> {
    let error = match result {
        Ok(value) => return Ok(*value),
        Err(error) => error,
    };
    let is_lost = error.kind() == ErrorKind::LeaseLost;
    let may_tell = error.kind() == ErrorKind::QuorumUnreachable && !asking.left().is_zero();
    if !is_lost && !may_tell {
        return Err(error.clone().into());
    }
    // All nodes are asked: the votes are those of the nodes that answered before the error was certain.
    let readings = reading::of(asking, name)?;
    let is_half = |count: usize| 2 * count >= readings.len();
    let others = reading::keys(&readings).filter(|key| key.holder.text() != Some(token)).count();
    // With this number of keys, nobody else can get it.
    if is_half(others) {
        return Err(held_by_another(asking.context, name));
    }
    // The other nodes are too few for a quorum, whatever they have.
    if is_lost || is_half(others + reading::free(&readings)) {
        return Err(not_held(asking.context, name));
    }
    Err(error.clone().into())
}

fn held_by_another(context: &Context, name: &str) -> Failure {
    let message = format!("'{name}' is held by another: quorlock status {name} tells whom");
    not_done(context, name, STILL_HELD, message)
}

fn not_held(context: &Context, name: &str) -> Failure {
    let message = format!("'{name}' is not held with this token");
    not_done(context, name, NOT_HELD, message)
}

/// The failure of an outcome that is told to programs as well, as one of success is.
fn not_done(
    context: &Context,
    name: &str,
    (code, outcome): (u8, &str),
    message: String,
) -> Failure {
    context.output.json(&json!({"name": name, "outcome": outcome}));
    Failure::outcome(code, message)
}

/// The status of an outcome, and its name for programs.
const NOT_HELD: (u8, &str) = (code::NO, "not-held");
const STILL_HELD: (u8, &str) = (code::HELD_BY_ANOTHER, "held-by-another");
