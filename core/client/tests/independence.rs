//! Tests over real servers that nodes which are not independent of each other are refused, in words
//! that name both.

mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use quorlock::{
    ErrorKind, FaultKind, LockError, NodeState, Notice, Policy, Redlock, RestartGuard, Vote,
};
use support::proxy::Proxy;
use support::server::Server;
use support::{run, until};
use tokio::time::{sleep, timeout};

fn client<S: AsRef<str>>(nodes: impl IntoIterator<Item = S>) -> Redlock {
    Redlock::builder().nodes(nodes).build().expect("valid addresses")
}

/// A manager that has refused its nodes, and its error. On a busy machine a quorum may be found well
/// before the others have told who they are; then it is left to the next manager.
async fn refused(nodes: &[String], policy: Policy) -> (Redlock, LockError) {
    for _ in 0..10 {
        let locks = Redlock::builder().nodes(nodes).policy(policy).build().expect("addresses");
        match locks.lock("r").timeout(Duration::from_secs(5)).acquire().await {
            Err(error) if error.kind() == ErrorKind::Config => return (locks, error),
            Err(error) => panic!("{error}"),
            Ok(lease) => drop(lease.release().await),
        }
    }
    panic!("the list of nodes was taken");
}

/// It stays refused, whatever is asked for.
async fn refusal(nodes: &[String], policy: Policy) -> LockError {
    let (locks, error) = refused(nodes, policy).await;
    let again = locks.is_locked(["r"]).await.expect_err("it stands");
    assert_eq!(again.to_string(), error.to_string());
    error
}

async fn assert_refused(nodes: &[String], words: &str) {
    let words = words.to_owned();
    assert_eq!(refusal(nodes, Policy::default()).await.to_string(), words);
}

fn same_server(one: &str, two: &str) -> String {
    format!(
        "{one} and {two} are one and the same server, but a quorum needs servers that fail \
         independently: name each once"
    )
}

#[test]
fn a_server_under_two_addresses_is_refused() {
    run(async {
        let (server, other) = (Server::with(&["--bind", "127.0.0.1", "-::1"]), Server::start());
        let proxy = Proxy::to(server.port()).await;
        let tcp = server.url();
        let second = [
            format!("unix://{}", server.socket().display()),
            format!("redis://[::1]:{}", server.port()),
            proxy.url(),
        ];
        for address in second {
            let nodes = [tcp.clone(), other.url(), address.clone()];
            assert_refused(&nodes, &same_server(&tcp, &address)).await;
            let nodes = [address.clone(), tcp.clone()];
            assert_refused(&nodes, &same_server(&address, &tcp)).await;
        }
        let (one, two) = (format!("{tcp}/1"), format!("{}/2", proxy.url()));
        assert_refused(&[one.clone(), two.clone(), other.url()], &same_server(&one, &two)).await;
    });
}

#[test]
fn it_is_refused_with_every_guard_setting() {
    run(async {
        let (server, other) = (Server::start(), Server::start());
        let socket = format!("unix://{}", server.socket().display());
        let nodes = [server.url(), other.url(), socket.clone()];
        for guard in RestartGuard::ALL {
            for clock in [true, false] {
                let policy = Policy::builder().restart_guard(guard).clock_guard(clock);
                let error = refusal(&nodes, policy.build().unwrap()).await;
                assert_eq!(error.to_string(), same_server(&server.url(), &socket));
            }
        }
    });
}

#[test]
fn no_password_is_told() {
    run(async {
        let login = ["hunter2"];
        let server = Server::with_login(&["--requirepass", "hunter2"], &login);
        let tcp = format!("redis://:hunter2@127.0.0.1:{}", server.port());
        let socket = format!("unix://:hunter2@{}", server.socket().display());
        let error = refusal(&[tcp, socket], Policy::default()).await;
        assert!(!error.to_string().contains("hunter2"), "{error}");
        assert!(!format!("{error:?}").contains("hunter2"));
    });
}

#[test]
fn a_user_who_may_not_ask_for_info_is_served() {
    run(async {
        let servers = [Server::start(), Server::start()];
        for server in &servers {
            let user = ["ACL", "SETUSER", "app", "on", ">pw", "~*", "+@all", "-info"];
            assert_eq!(server.ask().call(&user), "OK");
        }
        let urls = servers.iter().map(|it| format!("redis://app:pw@127.0.0.1:{}", it.port()));
        let locks = client(urls);
        let lease = locks.lock("r").acquire().await.expect("a quorum of both");
        assert_eq!(lease.votes().iter().filter(|it| it.vote == Vote::Granted).count(), 2);
        lease.release().await.expect("released");
    });
}

/// A server that replicas need not wait for.
fn master() -> Server {
    Server::with(&["--repl-diskless-sync-delay", "0"])
}

async fn replica_of(master: &Server) -> Server {
    let replica = Server::with(&["--replicaof", "127.0.0.1", &master.port().to_string()]);
    until("the replica is in step", || {
        replica.ask().call(&["INFO", "replication"]).contains("master_link_status:up")
    })
    .await;
    replica
}

#[test]
fn a_replica_of_a_listed_node_is_refused() {
    run(async {
        let (master, other) = (master(), Server::start());
        let replica = replica_of(&master).await;
        // The replica knows its master by another address: the history tells.
        let proxy = Proxy::to(master.port()).await;
        for listed in [master.url(), proxy.url()] {
            let words = format!(
                "{} is a replica of {listed}, but a quorum needs independent masters: leave the \
                 replica out",
                replica.url()
            );
            assert_refused(&[replica.url(), listed.clone(), other.url()], &words).await;
            assert_refused(&[other.url(), listed, replica.url()], &words).await;
        }
    });
}

/// The first operation over a list whose last node says who it is only once the others have been a
/// quorum for a while.
async fn first_operation(nodes: [String; 3], last: &Server) -> Result<(), LockError> {
    last.pause();
    // With the guards on, new nodes count only once the last one has been heard.
    let policy = Policy::builder().restart_guard(RestartGuard::Off).build().expect("valid");
    let locks = Redlock::builder().nodes(nodes).policy(policy).build().expect("valid addresses");
    let lock = locks.lock("r");
    let operation = tokio::spawn(async move { lock.acquire().await?.release().await });
    until("there is a quorum", || {
        let healthy = |it: &&(_, NodeState)| it.1 == NodeState::Healthy;
        locks.nodes().iter().filter(healthy).count() == 2
    })
    .await;
    last.resume();
    operation.await.expect("no panic").map(drop)
}

#[test]
fn the_first_operation_waits_briefly_for_the_other_nodes() {
    run(async {
        let (master, other) = (master(), Server::start());
        let replica = replica_of(&master).await;
        let nodes = || [master.url(), other.url(), replica.url()];
        // On a busy machine the moment may be over.
        for _ in 0..20 {
            if let Err(error) = first_operation(nodes(), &replica).await {
                return assert_eq!(error.kind(), ErrorKind::Config, "{error}");
            }
        }
        panic!("the list of nodes was taken");
    });
}

#[test]
fn a_mistake_that_is_mended_is_forgotten() {
    run(async {
        let (master, other) = (master(), Server::start());
        let replica = replica_of(&master).await;
        let nodes = [master.url(), other.url(), replica.url()];
        let (locks, _) = refused(&nodes, Policy::default()).await;
        assert_eq!(replica.ask().call(&["REPLICAOF", "NO", "ONE"]), "OK");
        let mended = async {
            while let Err(error) = locks.lock("r").try_once().acquire().await {
                // It is not certain by then that the whole cluster is new.
                let is_quarantined = error.to_string().contains("quarantine");
                assert!(error.kind() == ErrorKind::Config || is_quarantined, "{error}");
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(Duration::from_secs(30), mended).await.expect("the nodes are taken");
    });
}

#[test]
fn a_lone_replica_is_a_fault_of_its_node_that_names_its_master() {
    run(async {
        let (master, one, two) = (master(), Server::start(), Server::start());
        let replica = replica_of(&master).await;
        let locks = client([one.url(), replica.url(), two.url()]);
        locks.lock("r").acquire().await.expect("the masters are a quorum").release().await.unwrap();
        until("the replica is known", || matches!(locks.nodes()[1].1, NodeState::Down(_))).await;
        let NodeState::Down(fault) = &locks.nodes()[1].1 else { panic!() };
        let words = format!(
            "{} is a replica of 127.0.0.1:{} and takes no writes: give the address of its master",
            replica.url(),
            master.port()
        );
        assert_eq!((fault.kind(), fault.detail()), (FaultKind::Replica, words.as_str()));
    });
}

#[test]
fn two_members_of_one_redis_cluster_are_refused() {
    run(async {
        let servers: Vec<_> = (0..3).map(|_| Server::with(&["--cluster-enabled", "yes"])).collect();
        let slots: Vec<_> = (0..16_384).map(|slot| slot.to_string()).collect();
        let all = |server: &Server, command: &str| {
            let slots = slots.iter().map(String::as_str);
            let words: Vec<_> = ["CLUSTER", command].into_iter().chain(slots).collect();
            assert_eq!(server.ask().call(&words), "OK");
        };
        for server in &servers {
            all(server, "ADDSLOTS");
        }
        let urls: Vec<_> = servers.iter().map(Server::url).collect();
        until("each is a cluster of its own", || {
            servers.iter().all(|it| it.ask().call(&["CLUSTER", "INFO"]).contains("state:ok"))
        })
        .await;
        let locks = client(&urls);
        locks.lock("r").acquire().await.expect("independent").release().await.expect("released");
        locks.close();

        all(&servers[2], "DELSLOTS");
        let port = servers[2].port().to_string();
        let meet = ["CLUSTER", "MEET", "127.0.0.1", &port];
        assert_eq!(servers[1].ask().call(&meet), "OK");
        until("they have met", || {
            let known = |server: &Server| server.ask().call(&["CLUSTER", "NODES"]);
            [&servers[1], &servers[2]]
                .iter()
                .all(|it| known(it).lines().count() == 2 && !known(it).contains("handshake"))
        })
        .await;
        let words = format!(
            "{} and {} belong to one Redis Cluster, but a quorum needs independent masters: name \
             servers that know nothing of each other",
            urls[1], urls[2]
        );
        assert_refused(&urls, &words).await;
    });
}

/// A node whose address leads to another node's server later on, and who was told.
struct Moved {
    servers: Vec<Server>,
    proxy: Proxy,
    locks: Redlock,
    told: Arc<Mutex<Vec<(Notice, String)>>>,
}

impl Moved {
    async fn set() -> Self {
        let servers: Vec<_> = (0..3).map(|_| Server::start()).collect();
        let proxy = Proxy::to(servers[0].port()).await;
        let told = Arc::new(Mutex::new(Vec::new()));
        let hears = Arc::clone(&told);
        let locks = Redlock::builder()
            .nodes([proxy.url(), servers[1].url(), servers[2].url()])
            .on_notice(move |it| hears.lock().unwrap().push((it.notice().clone(), it.to_string())))
            .build()
            .unwrap();
        locks.lock("warm").acquire().await.expect("a quorum").release().await.expect("released");
        until("every node is healthy", || {
            locks.nodes().iter().all(|(_, state)| *state == NodeState::Healthy)
        })
        .await;
        Self { servers, proxy, locks, told }
    }

    async fn lead_astray(&self) {
        self.proxy.lead_to(self.servers[1].port());
        self.proxy.cut();
        until("the double is found out", || {
            matches!(&self.locks.nodes()[0].1, NodeState::Refusing(fault)
                if fault.kind() == FaultKind::NotIndependent)
        })
        .await;
    }
}

#[test]
fn a_double_found_later_has_no_vote() {
    run(async {
        let scene = Moved::set().await;
        scene.lead_astray().await;
        let words = same_server(&scene.proxy.url(), &scene.servers[1].url());
        assert_eq!(scene.locks.nodes()[0].1.detail(), Some(words.as_str()));
        let told = scene.told.lock().unwrap().clone();
        assert_eq!(told.iter().filter(|(_, it)| *it == words).count(), 1, "{told:?}");

        let lease = scene.locks.lock("r").acquire().await.expect("two of three are left");
        assert_eq!(lease.votes()[0].vote, Vote::Failed);
        lease.release().await.expect("released");

        scene.proxy.lead_to(scene.servers[0].port());
        scene.proxy.cut();
        until("it is back", || scene.locks.nodes()[0].1 == NodeState::Healthy).await;
    });
}

#[test]
fn a_double_does_not_vote_for_an_extension_either() {
    run(async {
        let mut scene = Moved::set().await;
        let lease = scene.locks.lock("r").ttl(Duration::from_secs(30)).acquire().await.unwrap();
        scene.lead_astray().await;
        scene.servers[2].kill();
        // One server is left, under two addresses.
        let error = lease.extend(None).await.expect_err("one server is no quorum");
        assert_eq!(error.kind(), ErrorKind::QuorumUnreachable, "{error}");
    });
}
