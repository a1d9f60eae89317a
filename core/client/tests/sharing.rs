//! Tests that the managers of one process share one connection to a server for equal settings, and
//! nothing else.

mod support;

use std::time::Duration;

use futures::FutureExt as _;
use futures::future::join_all;
use quorlock::{
    Builder, Engine, ErrorKind, NodeSettings, NodeState, Policy, Redlock, RestartGuard,
};
use support::proxy::Proxy;
use support::server::Server;
use support::*;
use tokio::task::JoinHandle;
use tokio::time::Instant;

#[test]
fn managers_of_equal_settings_share_their_connections() {
    run(async {
        let servers: Vec<_> = (0..3).map(|_| Server::start()).collect();
        let engine = Engine::start().unwrap();
        let mut managers = Vec::new();
        for number in 0..30_u32 {
            // What is not of the connection may differ.
            let suffix = format!("?key_prefix=app{number}:&durable={}", number % 2 == 0);
            let nodes = urls(&servers).into_iter().map(|url| format!("{url}{suffix}"));
            let guard = if number % 3 == 0 { RestartGuard::Off } else { RestartGuard::Auto };
            let policy = Policy::builder().restart_guard(guard).build().unwrap();
            let connect_timeout = Duration::from_secs(5 + u64::from(number));
            let settings = NodeSettings { connect_timeout, ..NodeSettings::default() };
            let builder = builder(&engine, nodes).policy(policy).node_settings(settings);
            managers.push(builder.build().unwrap());
        }
        // All at once, so that none finds what another has made.
        join_all(managers.iter().map(warm_up)).await;
        for server in &servers {
            assert_eq!(connections(server).len(), 1);
        }
        // Prefixes are kept apart.
        let held = join_all(managers.iter().map(async |it| it.lock("r").acquire().await)).await;
        assert!(held.iter().all(Result::is_ok));
        let has = |name: &str| {
            servers.iter().filter(|it| it.ask().number(&["EXISTS", name]) == 1).count()
        };
        // A busy machine may be too late for one of the three.
        let names = ["app0:r", "app1:r", "app29:r"];
        eventually("every key", || names.iter().all(|name| has(name) >= 2)).await;
        assert_eq!(has("r"), 0);
    });
}

#[test]
fn another_login_database_or_engine_has_another_connection() {
    run(async {
        let server = Server::start();
        let mut ask = server.ask();
        for user in ["a", "b"] {
            ask.call(&["ACL", "SETUSER", user, "on", ">one", ">two", "~*", "&*", "+@all"]);
        }
        let at = |login: &str, db| format!("redis://{login}127.0.0.1:{}/{db}", server.port());
        let (engine, own) = (Engine::start().unwrap(), Engine::start().unwrap());
        let managers = [
            (&engine, at("", 0)),
            (&engine, at("", 1)),
            (&engine, at("a:one@", 0)),
            (&engine, at("a:two@", 0)),
            (&engine, at("b:one@", 0)),
            (&engine, format!("unix://{}", server.socket().display())),
            (&own, at("", 0)),
        ];
        for (count, (engine, url)) in managers.iter().enumerate() {
            // Twice, the second of which shares.
            for _ in 0..2 {
                let manager = manager(engine, [url.clone()]);
                warm_up(&manager).await;
                std::mem::forget(manager);
                // The socket is not among those over TCP.
                assert_eq!(connections(&server).len(), (count + 1).min(5 + count / 6), "{url}");
            }
        }
    });
}

#[test]
fn a_manager_that_is_closed_leaves_the_others_alone() {
    run(async {
        let servers: Vec<_> = (0..3).map(|_| Server::start()).collect();
        let engine = Engine::start().unwrap();
        let (one, two) = (manager(&engine, urls(&servers)), manager(&engine, urls(&servers)));
        let held = two.lock("r").ttl(Duration::from_secs(20)).acquire().await.unwrap();
        warm_up(&one).await;
        let before = connections(&servers[0]);
        servers.iter().for_each(Server::pause);
        // Both have commands under way on the same connections.
        let lock = one.lock("r").timeout(Duration::from_secs(30));
        let waiting = tokio::spawn(async move { lock.acquire().await });
        let mut release = std::pin::pin!(held.release());
        assert!(release.as_mut().now_or_never().is_none());
        one.close();
        servers.iter().for_each(Server::resume);
        let error = waiting.await.unwrap().unwrap_err();
        assert_ne!(error.kind(), ErrorKind::Config, "{error}");
        release.await.unwrap();
        assert_eq!(one.lock("r").acquire().await.unwrap_err().kind(), ErrorKind::Closed);
        two.lock("r").acquire().await.unwrap().release().await.unwrap();
        assert_eq!(connections(&servers[0]), before);
    });
}

#[test]
fn the_last_to_close_ends_the_connection_at_once() {
    run(async {
        let server = Server::start();
        let engine = Engine::start().unwrap();
        let managers: Vec<_> = (0..3).map(|_| manager(&engine, [server.url()])).collect();
        for manager in &managers {
            warm_up(manager).await;
        }
        managers[0].close();
        managers[1].close();
        managers[2].lock("r").acquire().await.unwrap().release().await.unwrap();
        let since = Instant::now();
        managers[2].close();
        eventually("no connection", || connections(&server).is_empty()).await;
        assert!(since.elapsed() < Duration::from_secs(4), "it was kept for a while");
    });
}

#[test]
fn a_connection_outlives_dropped_managers_by_five_seconds() {
    run(async {
        let server = Server::start();
        let engine = Engine::start().unwrap();
        warm_up(&manager(&engine, [server.url()])).await;
        let before = connections(&server);
        assert_eq!(before.len(), 1);
        for _ in 0..50 {
            // It is found again, each time.
            warm_up(&manager(&engine, [server.url()])).await;
            assert_eq!(connections(&server), before);
        }
        let since = Instant::now();
        eventually("no connection", || connections(&server).is_empty()).await;
        assert!(since.elapsed() > Duration::from_secs(4), "after {:?}", since.elapsed());
        // And made anew.
        warm_up(&manager(&engine, [server.url()])).await;
        assert_ne!(connections(&server), before);
    });
}

#[test]
fn a_connection_that_has_ended_unused_is_no_trouble() {
    run(async {
        let server = Server::start();
        let proxy = Proxy::to(server.port()).await;
        let engine = Engine::start().unwrap();
        for round in 1..=2 {
            warm_up(&manager(&engine, [proxy.url()])).await;
            assert_eq!(proxy.accepted(), round);
            // Nobody uses it now.
            proxy.cut();
        }
        warm_up(&manager(&engine, [proxy.url()])).await;
        // It ends when somebody comes, who must not suffer for it.
        proxy.cut_after(1);
        let locks = manager(&engine, [proxy.url()]);
        locks.lock("r").try_once().acquire().await.unwrap().release().await.unwrap();
    });
}

#[test]
fn all_go_on_over_one_new_connection_when_theirs_is_lost() {
    run(async {
        let server = Server::start();
        let proxy = Proxy::to(server.port()).await;
        let engine = Engine::start().unwrap();
        let managers: Vec<_> = (0..20).map(|_| manager(&engine, [proxy.url()])).collect();
        for manager in &managers {
            warm_up(manager).await;
        }
        assert_eq!(proxy.accepted(), 1);
        // What they say is not answered any more, and then cut.
        proxy.lose_replies();
        let leases = join_all(managers.iter().enumerate().map(async |(number, manager)| {
            let lock = manager.lock(&format!("r{number}")).ttl(Duration::from_secs(20));
            lock.timeout(Duration::from_secs(15)).acquire().await
        }));
        let cut = async {
            eventually("all are under way", || {
                server.ask().call(&["DBSIZE"]).parse::<usize>().unwrap() >= managers.len()
            })
            .await;
            proxy.cut();
        };
        let (leases, ()) = tokio::join!(leases, cut);
        for lease in leases {
            lease.unwrap().release().await.unwrap();
        }
        assert_eq!(proxy.accepted(), 2);
        assert_eq!(connections(&server).len(), 1);
    });
}

#[test]
fn nobody_waits_for_a_connection_that_leads_nowhere() {
    run(async {
        let server = Server::start();
        let proxy = Proxy::to(server.port()).await;
        let engine = Engine::start().unwrap();
        let old = manager(&engine, [proxy.url()]);
        warm_up(&old).await;
        proxy.stall();
        let since = Instant::now();
        warm_up(&manager(&engine, [proxy.url()])).await;
        assert!(since.elapsed() < Duration::from_secs(1), "after {:?}", since.elapsed());
        assert_eq!(proxy.accepted(), 2);
        // The old one comes to the new connection as well.
        warm_up(&old).await;
        assert_eq!(proxy.accepted(), 2);
        eventually("one connection", || connections(&server).len() == 1).await;
    });
}

#[test]
fn nobody_waits_for_a_dial_that_leads_nowhere() {
    run(async {
        let server = Server::start();
        let proxy = Proxy::to(server.port()).await;
        let engine = Engine::start().unwrap();
        server.pause();
        let first = manager(&engine, [proxy.url()]);
        let waiting = tokio::spawn(async move { first.lock("first").acquire().await });
        eventually("a dial", || proxy.accepted() == 1).await;
        proxy.lose_replies();
        server.resume();
        let since = Instant::now();
        warm_up(&manager(&engine, [proxy.url()])).await;
        // The dial would have had twenty.
        assert!(since.elapsed() < Duration::from_secs(10));
        assert_eq!(proxy.accepted(), 2);
        waiting.abort();
    });
}

#[test]
fn dials_that_succeed_late_leave_one_connection() {
    run(async {
        let server = Server::start();
        let proxy = Proxy::to(server.port()).await;
        let engine = Engine::start().unwrap();
        server.pause();
        let mut held = Vec::new();
        for count in 1..=4 {
            let lock = after(MOMENT, &engine, &proxy).lock(&format!("r{count}"));
            held.push(tokio::spawn(async move { lock.acquire().await }));
            eventually("a dial of its own", || proxy.accepted() == count).await;
        }
        server.resume();
        let held = join_all(held).await;
        eventually("one connection", || connections(&server).len() == 1).await;
        for guard in held {
            guard.unwrap().unwrap().release().await.unwrap();
        }
    });
}

#[test]
fn a_server_that_hung_goes_on_with_one_connection() {
    run(async {
        let server = Server::start();
        let engine = Engine::start().unwrap();
        // They give up soon.
        let make = || builder(&engine, [server.url()]).policy(Policy::default()).build().unwrap();
        let managers: Vec<_> = (0..5).map(|_| make()).collect();
        for manager in &managers {
            warm_up(manager).await;
        }
        let before = connections(&server);
        server.pause();
        for manager in &managers[1..] {
            // Nothing is sent by the first one.
            manager.lock("r").try_once().acquire().await.unwrap_err();
        }
        let late = make();
        late.lock("r").try_once().acquire().await.unwrap_err();
        server.resume();
        for manager in managers.iter().chain([&late]) {
            warm_up(manager).await;
        }
        eventually("the old connection alone", || connections(&server) == before).await;
    });
}

#[test]
fn managers_made_while_a_server_hangs_share_its_connection() {
    run(async {
        let server = Server::start();
        let proxy = Proxy::to(server.port()).await;
        let engine = Engine::start().unwrap();
        let old = after(HOUR, &engine, &proxy);
        warm_up(&old).await;
        let before = connections(&server);
        server.pause();
        let waiting = old.lock("r").ttl(Duration::from_secs(60));
        let waiting = tokio::spawn(async move { waiting.acquire().await });
        let new = after(Duration::from_millis(30), &engine, &proxy);
        let warmed = new.clone();
        let warming = tokio::spawn(async move { warm_up(&warmed).await });
        // It has begun to make another, which the server answers as soon as the first.
        eventually("another connection", || proxy.accepted() == 2).await;
        server.resume();
        warming.await.unwrap();
        waiting.await.unwrap().unwrap().into_lease();
        eventually("the old connection alone", || connections(&server) == before).await;
    });
}

#[test]
fn commands_of_others_do_not_make_a_node_look_hung() {
    run(async {
        let server = Server::start();
        let proxy = Proxy::to(server.port()).await;
        let engine = Engine::start().unwrap();
        let (busy, other) = (after(HOUR, &engine, &proxy), after(MOMENT, &engine, &proxy));
        warm_up(&busy).await;
        warm_up(&other).await;
        proxy.slow_down();
        let many = begin_many(&busy);
        eventually("all are sent", || server.ask().number(&["DBSIZE"]) >= MANY).await;
        let since = Instant::now();
        let lock = other.lock("r").ttl(Duration::from_secs(60)).try_once();
        lock.acquire().await.unwrap().into_lease();
        assert!(since.elapsed() > 2 * MOMENT, "nothing lay before it");
        many.await.unwrap();
        assert_eq!(proxy.accepted(), 1);
    });
}

#[test]
fn a_connection_that_answers_others_is_not_ended() {
    run(async {
        let server = Server::start();
        let proxy = Proxy::to(server.port()).await;
        let engine = Engine::start().unwrap();
        let busy = after(HOUR, &engine, &proxy);
        // Time for the test between the two moments when it finds the node hung and does something about it.
        let settings = NodeSettings { hang_after: MOMENT, backoff_min: HOUR, ..patient() };
        let settings = NodeSettings { backoff_max: Duration::from_secs(1), ..settings };
        let other = builder(&engine, [proxy.url()]).node_settings(settings).build().unwrap();
        warm_up(&busy).await;
        warm_up(&other).await;
        let before = connections(&server);
        proxy.hold();
        let many = begin_many(&busy);
        // Another has made another connection meanwhile.
        warm_up(&after(MOMENT / 4, &engine, &proxy)).await;
        assert_eq!(proxy.accepted(), 2);
        let lock = other.lock("r").ttl(Duration::from_secs(60));
        let waiting = tokio::spawn(async move { lock.acquire().await });
        let is_hung = || other.nodes().iter().all(|(_, state)| *state == NodeState::Unresponsive);
        eventually("it is found hung", is_hung).await;
        proxy.slow_down();
        proxy.release();
        waiting.await.unwrap().unwrap().into_lease();
        many.await.unwrap();
        assert!(connections(&server).starts_with(&before), "the old connection was ended");
    });
}

/// Takes locks that nobody else wants.
fn begin_many(locks: &Redlock) -> JoinHandle<()> {
    let locks: Vec<_> = (0..MANY).map(|number| locks.lock(&format!("many{number}"))).collect();
    let grants = locks.into_iter().map(|lock| async move {
        let lock = lock.ttl(Duration::from_secs(60)).timeout(Duration::from_secs(50));
        lock.acquire().await.unwrap().into_lease();
    });
    tokio::spawn(join_all(grants).map(|_| ()))
}

/// A manager that finds a node hung after that time.
fn after(hang_after: Duration, engine: &Engine, proxy: &Proxy) -> Redlock {
    let settings = NodeSettings { hang_after, ..patient() };
    builder(engine, [proxy.url()]).node_settings(settings).build().unwrap()
}

fn manager<S: AsRef<str>>(engine: &Engine, nodes: impl IntoIterator<Item = S>) -> Redlock {
    builder(engine, nodes).build().unwrap()
}

fn builder<S: AsRef<str>>(engine: &Engine, nodes: impl IntoIterator<Item = S>) -> Builder {
    let policy = Policy::builder().node_timeout(Duration::from_secs(10)).build().unwrap();
    Redlock::builder().engine(engine.clone()).nodes(nodes).policy(policy)
}

const MANY: i64 = 1_000;
const MOMENT: Duration = Duration::from_millis(100);
const HOUR: Duration = Duration::from_secs(3600);
