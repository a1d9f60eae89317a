//! Tests the notices that people get although no operation has failed.

mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use quorlock::{Builder, NodeState, NoticeReport, Policy, QuarantineReason, Redlock};
use support::server::Server;
use support::{run, until};
use tokio::time::sleep;

const TTL: Duration = Duration::from_secs(5);

/// What was told.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<NoticeReport>>>);

impl Told {
    fn listen(&self, builder: Builder) -> Builder {
        let told = Arc::clone(&self.0);
        builder.on_notice(move |it| told.lock().unwrap().push(it.clone()))
    }

    /// The node and the sentence of each under that name.
    fn by_name(&self, name: &str) -> Vec<(Option<String>, String)> {
        let told = self.0.lock().unwrap();
        let named = told.iter().filter(|it| it.name() == name);
        named.map(|it| (it.address().map(str::to_owned), it.to_string())).collect()
    }
}

fn manager(servers: &[Server], told: &Told) -> Redlock {
    let policy = Policy::builder().ttl(TTL).build().unwrap();
    let builder = Redlock::builder().nodes(servers.iter().map(Server::url)).policy(policy);
    told.listen(builder).build().expect("valid addresses")
}

async fn lock_and_release(locks: &Redlock) {
    locks.lock("r").acquire().await.expect("a quorum").release().await.expect("released");
}

async fn all_healthy(locks: &Redlock) {
    until("every node is healthy", || {
        locks.nodes().iter().all(|(_, state)| *state == NodeState::Healthy)
    })
    .await;
}

#[test]
fn a_server_that_may_throw_locks_out_is_told_of_once() {
    run(async {
        let mut servers = [
            Server::with(&["--maxmemory", "100mb", "--maxmemory-policy", "volatile-lru"]),
            Server::with(&["--maxmemory", "100mb", "--maxmemory-policy", "noeviction"]),
            Server::with(&["--maxmemory", "0", "--maxmemory-policy", "allkeys-lru"]),
        ];
        let told = Told::default();
        let locks = manager(&servers, &told);
        lock_and_release(&locks).await;
        all_healthy(&locks).await;
        let url = servers[0].url();
        let words = format!(
            "{url}: its maxmemory-policy volatile-lru may throw out the keys of locks while they are \
             held: set it to noeviction, or use a server for locks alone"
        );
        assert_eq!(told.by_name("may-evict"), [(Some(url), words)]);

        servers[0].restart();
        until("it is connected to again", || {
            matches!(locks.nodes()[0].1, NodeState::Quarantined(_))
        })
        .await;
        assert_eq!(told.by_name("may-evict").len(), 1, "once");
        // Another manager may be another person's.
        let (other, told) = (Told::default(), told);
        let others = manager(&servers, &other);
        lock_and_release(&others).await;
        until("the other is told", || other.by_name("may-evict").len() == 1).await;
        assert_eq!(told.by_name("may-evict").len(), 1);
    });
}

#[test]
fn a_listener_that_panics_stops_nothing() {
    run(async {
        let mut servers = [Server::start(), Server::start(), Server::start()];
        let told = Told::default();
        let panics = told.clone();
        let policy = Policy::builder().ttl(TTL).build().unwrap();
        let builder = Redlock::builder().nodes(servers.iter().map(Server::url)).policy(policy);
        let listener = move |it: &NoticeReport| {
            panics.0.lock().unwrap().push(it.clone());
            std::panic::resume_unwind(Box::new("a slip"));
        };
        let locks = builder.on_notice(listener).build().expect("valid addresses");
        lock_and_release(&locks).await;
        all_healthy(&locks).await;
        servers[1].restart();
        until("it is told", || !told.by_name("quarantined").is_empty()).await;
        servers[1].kill();
        until("it is told", || !told.by_name("node-down").is_empty()).await;
        servers[1].restart();
        until("it is told", || !told.by_name("node-up").is_empty()).await;
    });
}

#[test]
fn a_node_that_is_quarantined_is_told_of() {
    run(async {
        let mut servers = [Server::start(), Server::start(), Server::start()];
        let told = Told::default();
        let locks = manager(&servers, &told);
        lock_and_release(&locks).await;
        all_healthy(&locks).await;
        assert!(told.0.lock().unwrap().is_empty(), "{:?}", told.0);
        servers[1].restart();
        until("it is told", || !told.by_name("quarantined").is_empty()).await;
        let url = servers[1].url();
        let words = format!(
            "{url}: {}; its votes do not count until those locks are over",
            QuarantineReason::Restarted.describe()
        );
        all_healthy(&locks).await;
        let [(node, text)] = &told.by_name("quarantined")[..] else { panic!("told once") };
        assert_eq!(*node, Some(url));
        assert!(text.starts_with(&words) && text.ends_with(" s"), "{text}");
    });
}

#[test]
fn a_node_is_reported_once_when_it_goes_and_when_it_is_back() {
    run(async {
        let mut servers = [Server::start(), Server::start(), Server::start()];
        let told = Told::default();
        let locks = manager(&servers, &told);
        lock_and_release(&locks).await;
        all_healthy(&locks).await;

        // Back at once: nothing to tell.
        servers[2].restart();
        until("it has come back", || !told.by_name("quarantined").is_empty()).await;

        let url = servers[1].url();
        servers[1].kill();
        until("it is told", || !told.by_name("node-down").is_empty()).await;
        all_but(&locks, 1).await;
        for _ in 0..20 {
            lock_and_release(&locks).await;
        }
        let words = format!(
            "{url}: it takes no part in locks, which go on as long as a majority of the nodes does: \
             cannot connect: connection refused"
        );
        let [(node, text)] = &told.by_name("node-down")[..] else { panic!("once: {:?}", told.0) };
        assert_eq!(node.as_deref(), Some(&*url));
        assert!(text.starts_with(&words), "{text}");
        assert!(told.by_name("node-up").is_empty());

        servers[1].restart();
        until("it is told", || !told.by_name("node-up").is_empty()).await;
        let [(node, text)] = &told.by_name("node-up")[..] else { panic!("once: {:?}", told.0) };
        assert_eq!(node.as_deref(), Some(&*url));
        assert!(text.starts_with(&format!("{url}: it answers again, after ")), "{text}");
        assert_eq!(told.by_name("node-down").len(), 1);
    });
}

#[test]
fn every_manager_tells_an_outage_and_one_of_them_first() {
    run(async {
        let mut servers = [Server::start(), Server::start(), Server::start()];
        let (one, two) = (Told::default(), Told::default());
        let managers = [manager(&servers, &one), manager(&servers, &two)];
        for locks in &managers {
            lock_and_release(locks).await;
            all_healthy(locks).await;
        }
        servers[1].kill();
        let both = |name| !one.by_name(name).is_empty() && !two.by_name(name).is_empty();
        until("both tell it", || both("node-down")).await;
        servers[1].restart();
        until("both tell its end", || both("node-up")).await;
        let every = [&one, &two].map(|told| told.0.lock().unwrap().clone()).concat();
        for name in ["node-down", "node-up"] {
            let named = every.iter().filter(|it| it.name() == name);
            let (first, repeats) = named.partition::<Vec<_>, _>(|it| !it.is_repeat());
            assert_eq!((first.len(), repeats.len()), (1, 1), "{name}");
            assert_eq!(first[0].to_string(), repeats[0].to_string());
        }
    });
}

#[test]
fn a_manager_that_is_closed_has_seen_no_outage() {
    run(async {
        let mut servers = [Server::start(), Server::start(), Server::start()];
        let told = Told::default();
        let (locks, short_lived) = (manager(&servers, &told), manager(&servers, &told));
        for locks in [&locks, &short_lived] {
            lock_and_release(locks).await;
            all_healthy(locks).await;
        }
        drop(short_lived);
        sleep(Duration::from_millis(2500)).await;
        // Back within two seconds: nothing to tell.
        servers[1].kill();
        until("it is seen", || matches!(locks.nodes()[1].1, NodeState::Down(_))).await;
        servers[1].restart();
        until("it has come back", || !told.by_name("quarantined").is_empty()).await;
        assert!(told.by_name("node-down").is_empty(), "{:?}", told.0);
    });
}

async fn all_but(locks: &Redlock, down: usize) {
    until("the others are healthy", || {
        let nodes = locks.nodes();
        let mut others = nodes.iter().enumerate().filter(|(node, _)| *node != down);
        others.all(|(_, (_, state))| *state == NodeState::Healthy)
    })
    .await;
}

#[test]
fn a_node_that_hangs_is_told_of() {
    run(async {
        let servers = [Server::start(), Server::start(), Server::start()];
        let told = Told::default();
        let locks = manager(&servers, &told);
        lock_and_release(&locks).await;
        all_healthy(&locks).await;
        servers[0].pause();
        // Also where nobody asks for locks: each node is looked at every ten seconds.
        until("it is told", || !told.by_name("node-down").is_empty()).await;
        let (node, text) = told.by_name("node-down").remove(0);
        assert_eq!(node, Some(servers[0].url()));
        assert!(
            text.contains("a majority of the nodes does: it is connected, but does not answer"),
            "{text}"
        );
        servers[0].resume();
        until("it is back", || !told.by_name("node-up").is_empty()).await;
    });
}
