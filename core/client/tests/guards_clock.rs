//! Tests the guards over real servers whose clocks are set while locks are held. Only on Linux,
//! where the clock of one process can be set.
#![cfg(target_os = "linux")]

mod support;

use std::time::{Duration, Instant};

use quorlock::{LeaseGuard, LockError, NodeState, Policy, Redlock};
use support::proxy::Proxy;
use support::server::Server;
use support::{run, until, urls, warm_up};

/// Of locks that must outlast a schedule, however slow the machine is.
const TTL: Duration = Duration::from_secs(20);
/// Of locks whose end is waited for.
const SHORT: Duration = Duration::from_secs(4);
/// How long a second client tries to get in.
const PATIENCE: Duration = Duration::from_millis(1500);

fn servers() -> Vec<Server> {
    (0..3).map(|_| Server::with_clock()).collect()
}

fn client<S: AsRef<str>>(urls: impl IntoIterator<Item = S>, guarded: bool) -> Redlock {
    client_of(TTL, urls, guarded)
}

fn client_of<S: AsRef<str>>(
    ttl: Duration,
    urls: impl IntoIterator<Item = S>,
    guarded: bool,
) -> Redlock {
    let policy = Policy::builder().ttl(ttl).clock_guard(guarded).build().unwrap();
    Redlock::builder().nodes(urls).policy(policy).build().expect("valid addresses")
}

/// Kleppmann's schedule: a lock on A and C, whose clock is then set forward beyond the lock's end. B was
/// free all along.
async fn clock_jump(
    second: impl AsyncFnOnce(&[Server]) -> Redlock,
) -> Result<LeaseGuard, LockError> {
    let servers = servers();
    let to_b = Proxy::to(servers[1].port()).await;
    let locks = client([&servers[0].url(), &to_b.url(), &servers[2].url()], true);
    warm_up(&locks).await;
    to_b.refuse(true);
    to_b.cut();
    until("B is out of reach", || matches!(locks.nodes()[1].1, NodeState::Down(_))).await;
    let holder = locks.lock("r").acquire().await.expect("A and C are a quorum");
    let locks = second(&servers).await;
    let result = locks.lock("r").timeout(PATIENCE).acquire().await;
    assert!(holder.is_valid(), "the schedule took too long to mean anything");
    result
}

fn assert_quarantined(result: Result<LeaseGuard, LockError>) {
    let Err(error) = result else { panic!("a second holder") };
    let words = error.to_string();
    assert!(words.contains("its clock was set forward"), "{words}");
}

#[test]
fn an_old_client_does_not_rely_on_a_stepped_clock() {
    run(async {
        let result = clock_jump(async |servers| {
            let locks = client(urls(servers), true);
            warm_up(&locks).await;
            servers[2].set_clock(40);
            locks
        });
        assert_quarantined(result.await);
    });
}

#[test]
fn a_new_client_does_not_count_on_it_either() {
    run(async {
        let result = clock_jump(async |servers| {
            // Some client has looked at all clocks before.
            warm_up(&client(urls(servers), true)).await;
            servers[2].set_clock(40);
            client(urls(servers), true)
        });
        assert_quarantined(result.await);
    });
}

#[test]
fn without_the_guard_there_are_two_holders() {
    run(async {
        let result = clock_jump(async |servers| {
            servers[2].set_clock(40);
            client(urls(servers), false)
        });
        result.await.map(drop).expect("B and C are a quorum");
    });
}

#[test]
fn a_clock_that_is_set_back_costs_nothing() {
    run(async {
        let servers = servers();
        let locks = client(urls(&servers), true);
        warm_up(&locks).await;
        servers[2].set_clock(-40);
        locks.lock("r").try_once().acquire().await.expect("at once").release().await.unwrap();
        until("all are healthy", || {
            locks.nodes().iter().all(|(_, state)| *state == NodeState::Healthy)
        })
        .await;
    });
}

#[test]
fn a_node_with_a_stepped_clock_comes_back_after_quarantine() {
    run(async {
        let servers = servers();
        let locks = client_of(SHORT, urls(&servers), true);
        warm_up(&locks).await;
        let begun = Instant::now();
        servers[2].set_clock(40);
        until("it is seen", || {
            drop(locks.lock("x"));
            matches!(locks.nodes()[2].1, NodeState::Quarantined(_))
        })
        .await;
        until("it takes part again", || locks.nodes()[2].1 == NodeState::Healthy).await;
        assert!(begun.elapsed() >= SHORT, "{:?}", begun.elapsed());
        let newcomer = client_of(SHORT, urls(&servers), true);
        warm_up(&newcomer).await;
    });
}
