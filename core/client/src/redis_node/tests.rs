//! Searches every order of requests, replies, lost connections and lost scripts, on sessions over a
//! shared connection as they ship. Only the server, the socket, the dialer's waits and the clock
//! belong to the tests.
//!
//! A schedule is a list of steps. The search tries each step that is possible in each state that it reaches, once for each
//! state, and checks after every step what `promises` says of requests. A failure prints the schedule that led to it.

mod requests;
mod scope;
mod search;
mod server;
mod stream;
mod world;

use self::requests::Kind::{Extend, Grant, Revoke};
use self::requests::{Asked, Kind, Plan, fenced, first, later, queued};
use self::scope::Scope;
use self::search::search;

/// One lease that is asked for by script.
#[test]
fn scripts_of_one_lease() {
    let plan = turns([later("a", Grant), later("a", Revoke)]);
    let scope = Scope { cuts: 1, flushes: 1, is_late: true, ..Scope::of([plan]) };
    search(&scope);
}

/// A fair lease, and its revoke, which calls the first waiter.
#[test]
fn scripts_beside_a_queue() {
    let plan = turns([queued("a", Grant), queued("a", Revoke)]);
    let scope = Scope { cuts: 1, flushes: 1, has_deletion: true, ..Scope::of([plan]) };
    search(&scope);
}

#[test]
fn scripts_that_are_lost_while_a_lease_is_extended() {
    let plan = turns([later("a", Grant), later("a", Extend), later("a", Revoke)]);
    let scope = Scope { flushes: 1, loads: 1, ..Scope::of([plan]) };
    search(&scope);
}

#[test]
fn connections_that_end_twice() {
    let plan = turns([later("a", Grant), later("a", Revoke)]);
    let scope = Scope { cuts: 2, ..Scope::of([plan]) };
    search(&scope);
}

/// A server that deletes a key by its own command, which does not say why it deleted nothing.
#[test]
fn deletions_of_one_lease() {
    let plan = vec![vec![later("a", Grant), first("a", Revoke)]];
    let scope = Scope { has_deletion: true, cuts: 1, flushes: 1, loads: 1, ..Scope::of([plan]) };
    search(&scope);
}

/// A first grant with a token: several commands, between which the connection may end.
#[test]
fn native_grants() {
    let plan = turns([fenced("a", Grant), first("a", Revoke)]);
    let scope = Scope { cuts: 1, is_late: true, ..Scope::of([plan]) };
    search(&scope);
}

/// Two managers on one connection that want different locks.
#[test]
fn two_users_of_one_connection() {
    let users = ["a", "b"].map(|name| vec![vec![later(name, Grant), later(name, Revoke)]]);
    search(&Scope { cuts: 1, ..Scope::of(users.clone()) });
    search(&Scope { flushes: 1, ..Scope::of(users) });
}

/// Two managers on one connection that want the same lock: the second is refused by a command that does not say why.
#[test]
fn two_users_of_one_lock() {
    let one = turns([fenced("a", Grant), first("a", Revoke)].map(on_x));
    let other = vec![vec![on_x(first("b", Grant))], vec![on_x(first("b", Revoke))]];
    search(&Scope { has_deletion: true, ..Scope::of([one.clone(), other.clone()]) });
    search(&Scope::of([one, other.clone()]));
    search(&Scope { cuts: 1, ..Scope::of([other, vec![vec![on_x(first("c", Grant))]]]) });
}

/// Two leases of one manager whose requests come together, so that they share calls.
#[test]
fn requests_that_share_a_call() {
    let scripts =
        vec![["a", "b"].map(|name| later(name, Grant)).into(), both(Extend), both(Revoke)];
    search(&Scope { cuts: 1, ..Scope::of([scripts.clone()]) });
    search(&Scope { flushes: 1, loads: 1, ..Scope::of([scripts]) });
    let native = vec![["a", "b"].map(|name| first(name, Grant)).into(), both(Revoke)];
    let scope = Scope { cuts: 1, is_late: true, ..Scope::of([native]) };
    search(&scope);
}

/// All of the above at once takes some minutes:
/// `cargo test --profile model -p quorlock --lib redis_node::tests -- --ignored --nocapture`.
#[test]
#[ignore = "takes some minutes"]
fn everything_at_once() {
    let all = Scope { cuts: 2, flushes: 1, loads: 1, is_late: true, ..Scope::of([]) };
    let one = turns([later("a", Grant), later("a", Extend), later("a", Revoke)]);
    search(&Scope { users: vec![one], ..all.clone() });
    let one = turns([fenced("a", Grant), first("a", Revoke)]);
    search(&Scope { users: vec![one], has_deletion: true, ..all.clone() });
    let users = ["a", "b"].map(|name| turns([first(name, Grant), first(name, Revoke)].map(on_x)));
    search(&Scope { users: users.into(), has_deletion: true, cuts: 1, loads: 0, ..all.clone() });
    let together =
        vec![["a", "b"].map(|name| first(name, Grant)).into(), both(Extend), both(Revoke)];
    search(&Scope { users: vec![together], ..all });
}

/// Each request by itself, one after another.
fn turns<const N: usize>(requests: [Asked; N]) -> Plan {
    requests.map(|request| vec![request]).into()
}

/// The same for a resource that others want as well.
fn on_x(asked: Asked) -> Asked {
    asked.on("x")
}

/// The requests of two leases in one turn.
fn both(kind: Kind) -> Vec<Asked> {
    ["a", "b"].map(|name| later(name, kind)).into()
}
