//! Tests what a Redis node reports when its server refuses a command, and which keys are on the
//! server.

mod rights;
#[path = "../support/mod.rs"]
mod support;

use std::time::Duration;

use quorlock::{Address, NodeSettings, NodeState, connect};
use quorlock_protocol::{Action, Answer, FaultKind, Frees};
use rights::whole_life;
use support::server::Server;
use support::*;
use tokio::runtime::Handle;

const PASSWORD: &str = "hunter2";

#[test]
fn keys_look_as_every_redlock_library_expects() {
    run(async {
        let server = Server::start();
        let mut client = node_at(&server.url());
        let mut ask = server.ask();
        for (name, action) in [("plain", grant(60_000)), ("fenced", fenced(60_000, 5))] {
            assert_eq!(ask.call(&["EXISTS", FENCES]), "0", "nobody has asked for a token");
            let mine = claim(&[name], "holder-of-it");
            let answer = client.ask(&mine, action).await;
            if name == "fenced" {
                assert_eq!(fence(&server, name), token(&answer).to_string());
            } else {
                assert_eq!(answer, OURS);
            }
            assert_eq!(ask.call(&["TYPE", name]), "string");
            assert_eq!(ask.call(&["GET", name]), "holder-of-it");
            let left = ask.number(&["PTTL", name]);
            assert!(left > 50_000 && left <= 60_000, "{left}");
        }
        assert_eq!(ask.call(&["DBSIZE"]), "3", "two locks and the table of fences");
        // Others' locks are respected, and told as theirs.
        assert_eq!(ask.call(&["SET", "theirs", "uuid", "NX", "PX", "60000"]), "OK");
        assert_eq!(ask.call(&["SET", "for ever", "uuid", "NX"]), "OK");
        let refused = client.ask(&claim(&["theirs"], "a"), fenced(1_000, 5)).await;
        assert!(matches!(refused, Ok(Answer::Theirs { frees: Frees::In(_), .. })), "{refused:?}");
        for names in [&["for ever"][..], &["theirs", "for ever"], &["for ever", "theirs"]] {
            let refused = client.ask(&claim(names, "a"), fenced(1_000, 5)).await;
            assert!(
                matches!(refused, Ok(Answer::Theirs { frees: Frees::Never, .. })),
                "{refused:?}"
            );
            let looked = client.ask(&claim(names, "a"), Action::Inspect).await;
            assert!(matches!(looked, Ok(Answer::Theirs { frees: Frees::Never, .. })), "{looked:?}");
        }
        let looked = client.ask(&claim(&["for ever"], "uuid"), Action::Inspect).await;
        assert_eq!(looked, OURS);
        // The fast path of the first round does not ask how long, or what is in the way; the next does.
        let mut client = node_at(&server.url());
        let refused = client.grant(&claim(&["theirs"], "a"), 1_000).await;
        assert!(matches!(refused, Ok(Answer::Theirs { frees: Frees::Unknown, floor: None })));
        let refused = client.grant(&claim(&["theirs"], "b"), 1_000).await;
        assert!(matches!(refused, Ok(Answer::Theirs { frees: Frees::In(_), floor: None })));
    });
}

#[test]
fn database_prefix_and_unix_socket_are_used() {
    run(async {
        let server = Server::start();
        let socket = server.socket();
        let mut client = node_at(&format!("unix://{}?db=2&key_prefix=app:", socket.display()));
        let own = token(&client.ask(&claim(&["r", "{t}s"], "a"), fenced(60_000, 5)).await);
        let mut ask = server.ask();
        assert_eq!(ask.call(&["DBSIZE"]), "0");
        assert_eq!(ask.call(&["SELECT", "2"]), "OK");
        assert_eq!(ask.call(&["GET", "app:r"]), "a");
        for name in ["app:r", "app:{t}s"] {
            let score = ask.call(&["ZSCORE", FENCES, &bucket(name).to_string()]);
            assert_eq!(
                score,
                own.to_string(),
                "the prefix counts, and stands before no key of ours"
            );
        }
        let mut second = node_at(&format!("{}/2?key_prefix=app:", server.url()));
        assert!(is_theirs(&second.grant(&claim(&["r"], "b"), 1_000).await));
    });
}

#[test]
fn a_missing_database_is_told() {
    run(async {
        let server = Server::start();
        let fault = refusal(&format!("{}/16", server.url())).await;
        assert_eq!(fault.0, FaultKind::NoDatabase);
        assert!(fault.1.contains("DB index"), "{}", fault.1);
    });
}

#[test]
fn a_missing_socket_is_told() {
    run(async {
        let fault = refusal("unix:///no/such/socket").await;
        assert_eq!(fault, (FaultKind::NotSent, "cannot connect: no such file".to_owned()));
    });
}

#[test]
fn logins_work_and_their_refusals_are_told() {
    run(async {
        let server = Server::with_login(&["--requirepass", PASSWORD], &[PASSWORD]);
        let acl = ["ACL", "SETUSER", "app", "on", ">s3cret/", "~*", "&*", "+@all"];
        assert_eq!(server.ask().call(&acl), "OK");
        for login in [":hunter2", "default:hunter2", "app:s3cret%2F"] {
            let mut client = node_at(&format!("redis://{login}@127.0.0.1:{}", server.port()));
            let granted = client.ask(&claim(&[login], "a"), fenced(1_000, 5)).await;
            token(&granted);
        }
        for (login, words) in [
            (":wrong-pw@", "does not accept this user name and password"),
            ("nobody:wrong-pw@", "does not accept this user name and password"),
            ("app@", "does not accept this user name and password"),
            ("", "wants a password, but the address has none"),
        ] {
            let (kind, detail) =
                refusal(&format!("redis://{login}127.0.0.1:{}", server.port())).await;
            assert_eq!(kind, FaultKind::Unauthenticated, "{login}");
            assert!(detail.contains(words), "{login}: {detail}");
            assert!(!detail.contains("wrong-pw") && !detail.contains(PASSWORD), "{detail}");
        }
    });
}

#[test]
fn a_password_for_a_server_without_one_is_told() {
    run(async {
        let server = Server::start();
        let (kind, detail) =
            refusal(&format!("redis://:hunter2@127.0.0.1:{}", server.port())).await;
        assert_eq!(kind, FaultKind::Unauthenticated);
        assert!(detail.contains("no password set, but the address has one"), "{detail}");
    });
}

#[test]
fn a_login_that_becomes_valid_is_used_without_help() {
    run(async {
        let server = Server::with_login(&["--requirepass", PASSWORD], &[PASSWORD]);
        let client = node_at(&format!("redis://late:pw@127.0.0.1:{}", server.port()));
        client.node.settled().await;
        assert!(matches!(client.node.state(), NodeState::Down(_)));
        let acl = ["ACL", "SETUSER", "late", "on", ">pw", "~*", "&*", "+@all"];
        assert_eq!(server.ask().call(&acl), "OK");
        client.until(|state| *state == NodeState::Healthy).await;
    });
}

#[test]
fn a_key_of_another_type_is_told() {
    run(async {
        let server = Server::start();
        let mut client = node_at(&server.url());
        let mut ask = server.ask();
        assert_eq!(ask.call(&["RPUSH", "list", "x"]), "1");
        let (both, free) = (claim(&["free", "list"], "a"), claim(&["free"], "a"));
        for action in [grant(1_000), fenced(1_000, 5), extend(1_000), raise(5), Action::Inspect] {
            let fault = client.fault(&both, action).await;
            assert_eq!(fault.kind(), FaultKind::WrongType, "{action:?}");
            assert!(fault.detail().contains("'free', 'list'"), "{fault}");
            assert_eq!(client.ask(&free, Action::Inspect).await, ABSENT, "{action:?}");
        }
        // What can be deleted is, whichever comes first.
        for names in [["free", "list"], ["list", "free"]] {
            assert_eq!(client.grant(&free, 60_000).await, OURS);
            let fault = client.fault(&claim(&names, "a"), Action::REVOKE).await;
            assert_eq!(fault.kind(), FaultKind::WrongType);
            assert_eq!(ask.call(&["EXISTS", "free"]), "0");
        }
        assert_eq!(ask.call(&["TYPE", "list"]), "list");
        // A batch fails for the one lease alone.
        let good = claim(&["good"], "a");
        assert_eq!(client.grant(&good, 60_000).await, OURS);
        let bad = claim(&["list"], "a");
        let tickets = [&good, &bad, &good].map(|it| client.send(it, extend(60_000)));
        let replies = client.replies_to(&tickets).await;
        assert_eq!(replies[0].answer, OURS);
        assert_eq!(kind(&replies[1].answer), Some(FaultKind::WrongType));
        assert_eq!(replies[2].answer, OURS);
        // A fence of another type must not leave a lock behind.
        ask.call(&["DEL", FENCES]);
        assert_eq!(ask.call(&["RPUSH", FENCES, "x"]), "1");
        let fenced_off = claim(&["f"], "a");
        let fault = client.fault(&fenced_off, fenced(1_000, 5)).await;
        assert_eq!(fault.kind(), FaultKind::WrongType);
        assert!(fault.detail().contains("'f': look at it and at the table of fences"), "{fault}");
        assert_eq!(ask.call(&["EXISTS", "f"]), "0");
    });
}

#[test]
fn a_replica_is_refused_until_it_is_a_master() {
    run(async {
        let master = Server::start();
        let port = master.port().to_string();
        let replica = Server::with(&["--replicaof", "127.0.0.1", &port]);
        let mut client = node_at(&replica.url());
        client.node.settled().await;
        for action in [grant(1_000), Action::REVOKE, Action::Inspect] {
            let fault = client.fault(&claim(&["r"], "a"), action).await;
            assert_eq!(fault.kind(), FaultKind::Replica);
            assert!(fault.detail().contains("give the address of its master"), "{fault}");
        }
        assert_eq!(replica.ask().call(&["REPLICAOF", "NO", "ONE"]), "OK");
        client.until(|state| *state == NodeState::Healthy).await;
        assert_eq!(client.grant(&claim(&["r"], "a"), 60_000).await, OURS);
        // And back, while it is connected.
        assert_eq!(replica.ask().call(&["REPLICAOF", "127.0.0.1", &port]), "OK");
        let fault = client.fault(&claim(&["s"], "a"), fenced(1_000, 5)).await;
        assert_eq!(fault.kind(), FaultKind::Replica);
    });
}

#[test]
fn a_server_that_takes_no_writes_is_told() {
    run(async {
        let server = Server::with(&["--min-replicas-to-write", "1"]);
        let mut client = node_at(&server.url());
        for action in [grant(1_000), fenced(1_000, 5)] {
            let fault = client.fault(&claim(&["r"], "a"), action).await;
            assert_eq!(fault.kind(), FaultKind::Unwritable, "{fault}");
        }
        let server = Server::start();
        let mut client = node_at(&server.url());
        let held = claim(&["held"], "a");
        assert_eq!(client.grant(&held, 60_000).await, OURS);
        let mut ask = server.ask();
        assert_eq!(ask.call(&["CONFIG", "SET", "maxmemory", "1"]), "OK");
        for action in [grant(1_000), fenced(1_000, 5)] {
            let fault = client.fault(&claim(&["r"], "a"), action).await;
            assert_eq!(fault.kind(), FaultKind::Unwritable, "{fault}");
            assert!(fault.detail().starts_with("the node's memory is full (maxmemory)"), "{fault}");
            assert!(!fault.detail().contains("script"), "{fault}");
        }
        assert_eq!(ask.call(&["EXISTS", "r"]), "0");
        // What needs no memory works all the same.
        assert_eq!(client.ask(&held, extend(60_000)).await, OURS);
        assert_eq!(client.ask(&held, Action::REVOKE).await, OURS);
    });
}

#[test]
fn a_server_that_is_busy_with_a_script_is_told() {
    run(async {
        let server = Server::with(&["--lua-time-limit", "1"]);
        let settings =
            NodeSettings { hang_after: Duration::from_secs(30), ..NodeSettings::default() };
        let mut client = node_with(&server.url(), settings);
        assert_eq!(client.grant(&claim(&["warm"], "a"), 1_000).await, OURS);
        let mut ask = server.ask();
        let endless = std::thread::spawn(move || ask.call(&["EVAL", "while true do end", "0"]));
        let mut other = server.ask();
        eventually("the script", || other.call(&["PING"]).starts_with("BUSY")).await;
        let fault = client.fault(&claim(&["r"], "a"), fenced(1_000, 5)).await;
        assert_eq!(fault.kind(), FaultKind::Busy);
        assert!(fault.detail().starts_with("the node is busy: "), "{fault}");
        assert_eq!(other.call(&["SCRIPT", "KILL"]), "OK");
        endless.join().expect("the script was ended");
        token(&client.ask(&claim(&["r"], "a"), fenced(1_000, 5)).await);
    });
}

#[test]
fn too_many_clients_are_told() {
    run(async {
        let server = Server::with(&["--maxclients", "1"]);
        // The client that waited for the server to start may still be connected.
        let mut only = server.ask();
        while !only.is_alive() {
            only = server.ask();
        }
        let (kind, detail) = refusal(&server.url()).await;
        assert_eq!(kind, FaultKind::NotSent);
        assert!(detail.contains("max number of clients reached"), "{detail}");
    });
}

#[test]
fn a_cluster_takes_single_locks_and_refuses_the_rest_in_words() {
    run(async {
        let server = Server::with(&["--cluster-enabled", "yes"]);
        let mut client = node_at(&server.url());
        let fault = client.fault(&claim(&["r"], "a"), fenced(1_000, 5)).await;
        assert!(fault.detail().contains("part of a Redis Cluster"), "{fault}");
        give_all_slots_to(&server).await;
        whole_life(&mut client, "r").await;
        whole_life(&mut client, "{tag}r").await;
        let fault = client.fault(&claim(&["r", "s"], "a"), grant(1_000)).await;
        assert!(fault.detail().contains("part of a Redis Cluster"), "{fault}");
        assert_eq!(client.grant(&claim(&["{t}r", "{t}s"], "a"), 1_000).await, OURS);
        // Merged extensions would span slots.
        let claims: Vec<_> = (0..10).map(|n| claim(&[&format!("r{n}")], "a")).collect();
        for claim in &claims {
            assert_eq!(client.grant(claim, 60_000).await, OURS);
        }
        for _ in 0..2 {
            let tickets: Vec<_> = claims.iter().map(|it| client.send(it, extend(60_000))).collect();
            for reply in client.replies_in_any_order(&tickets).await {
                assert_eq!((reply.answer, reply.repeated), (OURS, false));
            }
        }
    });
}

/// The fault of a node that cannot be used.
async fn refusal(url: &str) -> (FaultKind, String) {
    let address: Address = url.parse().expect("an address");
    let node = connect(&address, &NodeSettings::default(), &Handle::current());
    node.settled().await;
    assert!(matches!(node.state(), NodeState::Down(_)), "{url}");
    let fault = Client::new(node).fault(&claim(&["r"], "a"), grant(1_000)).await;
    (fault.kind(), fault.detail().to_owned())
}
