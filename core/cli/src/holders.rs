//! Who holds a lock, and giving it back or keeping it in the holder's place: `status`, `release`,
//! `extend`, `verify`. Owns their outcomes; the locks' rules are the crate `quorlock`'s.

mod asking;
mod force;
mod reading;
mod status;
mod value;

use std::time::Duration;

use quorlock::{Answer, ErrorKind, Lease, Lock, LockError, Redlock, ReleaseOutcome, Sequencer};
use serde_json::{Value as Json, json};

pub(crate) use self::status::status;
use crate::arguments::{Command, Extend, Release, Verify};
use crate::context::Context;
use crate::failure::{Failure, code, unconfirmed};
use crate::output::shell_word;

/// Gives a lock back.
pub(crate) fn release(context: &Context, options: &Release) -> Result<u8, Failure> {
    let released = match &options.token {
        Some(token) => by_token(context, &options.name, token),
        None => force::release(context, &options.name),
    };
    context.tell_the_rest(context.left());
    released
}

fn by_token(context: &Context, name: &str, token: &str) -> Result<u8, Failure> {
    // What is only released needs no fencing token.
    let locks = context.patient()?;
    let lock = locks.lock(name).set(|policy| policy.fencing(false));
    let lease = take_over(context, name, (&locks, &lock), token)?;
    let (outcome, votes) = context.within(&locks, lease.release_told())??;
    if let Some(ended) = lease.loss(outcome) {
        return Err(not_kept(context, name, ended));
    }
    if outcome != ReleaseOutcome::Released {
        let message = unconfirmed(&format!("'{name}'"), &votes.now());
        return Err(Failure::new(code::NO_QUORUM, message));
    }
    context.output.json(&json!({"name": name, "outcome": "released"}));
    context.output.words(&format!("released '{name}'"));
    Ok(code::DONE)
}

/// Keeps a lock in its holder's place.
pub(crate) fn extend(context: &Context, options: &Extend) -> Result<u8, Failure> {
    let name = &options.name;
    let token = options.token.as_deref().expect("the command line was checked");
    let locks = context.patient()?;
    let lock = locks.lock(name).ttl(options.ttl).timeout(context.timeout);
    let lease = take_over(context, name, (&locks, &lock), token)?;
    let validity = prolong(context, name, (&locks, &lease), options.ttl)?;
    let seconds = validity.as_secs_f64();
    let told = json!({"name": name, "outcome": "extended", "validity_seconds": seconds});
    context.output.json(&told);
    context.output.words(&format!("extended '{name}': it is held for {seconds:.2} s more"));
    Ok(code::DONE)
}

/// For how long the lock is held after this. What a quorum keeps for longer than `ttl` is told as it is.
fn prolong(
    context: &Context,
    name: &str,
    (locks, lease): (&Redlock, &Lease),
    ttl: Duration,
) -> Result<Duration, Failure> {
    let proved = lease.validity();
    if proved >= ttl {
        return Ok(proved);
    }
    let extended = context.within(locks, lease.extend(Some(ttl)))?;
    let validity = extended.map_err(|error| not_kept(context, name, error))?;
    // Sent behind the records that its holder has made, on each node's connection: once it is answered, these are kept,
    // too. They prove nothing, so the lock is extended also without an answer.
    let _ = context.within(locks, lease.check());
    Ok(validity)
}

/// The lease with this token, once a quorum has told that it is held.
fn take_over(
    context: &Context,
    name: &str,
    (locks, lock): (&Redlock, &Lock),
    token: &str,
) -> Result<Lease, Failure> {
    let lease = lock.lease(token)?;
    match context.within(locks, lease.check())? {
        Ok(_) => Ok(lease),
        Err(error) => Err(not_kept(context, name, error)),
    }
}

/// Tells whether a lease is still the one that is held.
pub(crate) fn verify(context: &Context, options: &Verify) -> Result<u8, Failure> {
    let sequencer: Sequencer = options.sequencer.parse()?;
    let locks = context.patient()?;
    let is_current = context.within(&locks, locks.verify(&sequencer))??;
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

/// The failure of an operation on a lease, by what the nodes said last.
fn not_kept(context: &Context, name: &str, error: LockError) -> Failure {
    let is_lost = match error.kind() {
        ErrorKind::LeaseLost => true,
        ErrorKind::QuorumUnreachable => false,
        _ => return error.into(),
    };
    let votes = error.votes();
    let count = |is: fn(&Answer) -> bool| {
        votes.iter().filter(|vote| matches!(&vote.answer, Some(Ok(it)) if is(it))).count()
    };
    let is_half = |count: usize| count > 0 && 2 * count >= votes.len();
    let others = count(|it| matches!(it, Answer::Theirs { .. }));
    let free = count(|it| matches!(it, Answer::Absent));
    // With this number of keys, nobody else can get it.
    if is_half(others) {
        held_by_another(context, name)
    } else if is_lost || is_half(others + free) {
        // The other nodes are too few for a quorum, whatever they have.
        not_held(context, name)
    } else {
        error.into()
    }
}

fn held_by_another(context: &Context, name: &str) -> Failure {
    let word = shell_word(name);
    let message = format!("'{name}' is held by another: quorlock status {word} tells whom");
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
