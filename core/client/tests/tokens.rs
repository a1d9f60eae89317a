//! Tests fencing tokens on real servers: what they store there, and that they grow whatever a
//! client's clock shows and whichever client takes a lease over.

mod support;

use std::time::Duration;

use futures::future::join_all;
use quorlock::{Policy, Redlock, RestartGuard};
use quorlock_protocol::Action;
use support::proxy::Proxy;
use support::server::Server;
use support::*;

fn locks_over(servers: &[Server]) -> Redlock {
    let policy = Policy::builder().restart_guard(RestartGuard::Off).clock_guard(false);
    let policy = policy.build().expect("a valid policy");
    Redlock::builder().nodes(urls(servers)).policy(policy).build().expect("valid addresses")
}

async fn token_of(locks: &Redlock, name: &str) -> u64 {
    let lease = locks.lock(name).acquire().await.expect("it is free");
    let token = lease.fencing_token().expect("a token");
    lease.release().await.expect("held until now");
    token
}

/// They leave nothing of their own, and the table that all of them share is bounded.
#[test]
fn twenty_thousand_fresh_names_leave_one_key() {
    run(async {
        let server = Server::start();
        let locks = locks_over(std::slice::from_ref(&server));
        for batch in 0..200 {
            let names: Vec<_> = (0..100).map(|n| format!("fresh {batch} {n}")).collect();
            join_all(names.iter().map(|name| token_of(&locks, name))).await;
        }
        let mut ask = server.ask();
        eventually("the last release", || ask.number(&["DBSIZE"]) == 1).await;
        let (buckets, bytes) = (
            ask.number(&["ZCARD", FENCES]),
            ask.number(&["MEMORY", "USAGE", FENCES, "SAMPLES", "0"]),
        );
        assert!((10_000..=16_384).contains(&buckets), "{buckets} buckets");
        assert!(bytes < 2_000_000, "{bytes} bytes");
        assert!((1..=120_000).contains(&ask.number(&["PTTL", FENCES])));
    });
}

#[test]
fn the_longest_retention_asked_for_counts() {
    run(async {
        let servers = [Server::start()];
        let (short, long) = (locks_over(&servers), locks_over(&servers));
        let hour = long.lock("a").set(|it| it.fence_retention(Duration::from_secs(3_600)));
        hour.acquire().await.expect("free").release().await.expect("held");
        token_of(&short, "b").await;
        let mut ask = servers[0].ask();
        assert!(ask.number(&["PTTL", FENCES]) > 3_500_000, "never put nearer");
        let brief = short.lock("c").set(|it| it.fence_retention(Duration::from_millis(1)));
        ask.call(&["DEL", FENCES]);
        let own =
            locks_over(&servers).lock("c").set(|it| it.fence_retention(Duration::from_millis(1)));
        for lock in [brief, own] {
            lock.acquire().await.expect("free").release().await.expect("held");
        }
        let left = ask.number(&["PTTL", FENCES]);
        assert!((20_000..=30_000).contains(&left), "{left} ms: never too short for the clocks");
    });
}

#[test]
fn a_table_that_is_deleted_alone_has_an_end_again() {
    run(async {
        let servers = [Server::start()];
        let locks = locks_over(&servers);
        token_of(&locks, "r").await;
        let mut ask = servers[0].ask();
        assert_eq!(ask.call(&["DEL", FENCES]), "1");
        token_of(&locks, "r").await;
        assert_eq!(ask.number(&["PTTL", FENCES]), -1, "nothing on the way of a lock sees to it");
        until("an end", || ask.number(&["PTTL", FENCES]) > 100_000).await;
    });
}

/// Whenever the client ends: what it raises has an end, or is not there.
#[test]
fn a_client_that_dies_leaves_no_fence_without_an_end() {
    run(async {
        let server = Server::start();
        let mut ask = server.ask();
        for bytes in (0..2_000).step_by(97) {
            let proxy = Proxy::to(server.port()).await;
            let mut client = node_at(&proxy.url());
            assert_eq!(client.grant(&claim(&[&format!("warm {bytes}")], "a"), 1_000).await, OURS);
            ask.call(&["DEL", FENCES]);
            proxy.cut_after(bytes);
            client.send(&claim(&[&format!("r{bytes}")], "a"), fenced(60_000, 5));
            client.reply_within(Duration::from_millis(50)).await;
            client.node.close();
            assert_ne!(ask.number(&["PTTL", FENCES]), -1, "after {bytes} bytes");
        }
    });
}

/// The clock of the client is an hour behind that of the node, or ahead of it.
#[test]
fn tokens_grow_for_a_client_an_hour_off_and_a_node_that_forgot() {
    for ahead in [3_600, -3_600] {
        run(async {
            let server = Server::with_clock();
            server.set_clock(ahead);
            let clock = || wall().saturating_add_signed(i64::from(ahead) * 1_000_000);
            // By somebody whose clock is right.
            let mut right = node_at(&server.url());
            let mine = claim(&["r"], "a");
            let before = token(&right.ask(&mine, proposing(60_000, 5)).await);
            assert_eq!(right.ask(&mine, Action::REVOKE).await, OURS);
            assert_eq!(server.ask().call(&["FLUSHALL"]), "OK");
            let locks = locks_over(std::slice::from_ref(&server));
            let mut last = before;
            for _ in 0..3 {
                let token = token_of(&locks, "r").await;
                assert!(token > last, "{token} after {last}");
                assert!(token.abs_diff(clock()) < 30_000_000, "{token} at {}", clock());
                last = token;
            }
        });
    }
}

/// Sets the fence of `name` on a server, as another that was refused or a late grant leaves it.
fn set_fence(server: &Server, name: &str, token: u64) {
    server.ask().call(&["ZADD", FENCES, &token.to_string(), &bucket(name).to_string()]);
}

#[test]
fn a_take_over_gets_no_lower_token_and_later_ones_are_higher() {
    run(async {
        let mut servers = [Server::start(), Server::start(), Server::start()];
        let (holder, second) = (locks_over(&servers), locks_over(&servers));
        let lease = holder.lock("r").ttl(Duration::from_secs(60)).acquire().await.expect("free");
        let own = lease.fencing_token().expect("a token");
        for server in &servers {
            until("the grants", || server.ask().call(&["EXISTS", "r"]) == "1").await;
        }
        let claimed = lease.token().to_owned();
        // A late grant that was never told of the token; and who knows it is gone.
        set_fence(&servers[0], "r", own - 7);
        set_fence(&servers[2], "r", own);
        servers[1].kill();
        let adopted = second.lease(["r"], &claimed).expect("a lease");
        assert_eq!(adopted.fencing_token(), None, "nothing is proved yet");
        adopted.check().await.expect("it stands on two nodes");
        assert_eq!(adopted.fencing_token(), Some(own));
        assert_eq!(fence(&servers[0], "r"), own.to_string(), "it was written back");
        // Somebody else who was refused has raised one of them since.
        set_fence(&servers[0], "r", own + 90_000_000);
        let again = locks_over(&servers).lease(["r"], &claimed).expect("a lease");
        again.extend(None).await.expect("it stands on two nodes");
        let token = again.fencing_token().expect("a token");
        assert_eq!(token, own + 90_000_000, "the highest");
        assert_eq!(fence(&servers[2], "r"), token.to_string(), "which a quorum knows now");
        set_fence(&servers[0], "r", own);
        again.release().await.expect("held until now");
        assert!(token_of(&holder, "r").await > token);
    });
}

#[test]
fn a_taken_over_token_that_cannot_be_written_back_is_not_told() {
    run(async {
        let mut servers = [Server::start(), Server::start(), Server::start()];
        let holder = locks_over(&servers);
        let lease = holder.lock("r").ttl(Duration::from_secs(60)).acquire().await.expect("free");
        let own = lease.fencing_token().expect("a token");
        for server in &servers {
            until("the grants", || server.ask().call(&["EXISTS", "r"]) == "1").await;
            let rules = ["ACL", "SETUSER", "taker", "on", ">pw", "~*", "+@all", "-zadd"];
            assert_eq!(server.ask().call(&rules), "OK");
        }
        set_fence(&servers[0], "r", own + 5);
        set_fence(&servers[1], "r", own + 6);
        servers[2].kill();
        let url = |server: &Server| format!("redis://taker:pw@127.0.0.1:{}", server.port());
        let policy = Policy::builder().restart_guard(RestartGuard::Off).clock_guard(false);
        let second = Redlock::builder().nodes(servers.iter().map(url));
        let second = second.policy(policy.build().unwrap()).build().expect("valid addresses");
        let adopted = second.lease(["r"], lease.token()).expect("a lease");
        assert!(adopted.check().await.expect("it stands").as_secs() > 30);
        assert_eq!(adopted.fencing_token(), None);
        for server in &servers[..2] {
            assert_eq!(server.ask().call(&["ACL", "SETUSER", "taker", "+zadd"]), "OK");
        }
        adopted.check().await.expect("it stands");
        assert_eq!(adopted.fencing_token(), Some(own + 6));
    });
}
