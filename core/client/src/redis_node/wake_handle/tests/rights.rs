//! Tests users and servers that lack a part of what wakes waiters.

use super::*;

/// The handle of a user with these rights on top of what places need.
fn user(server: &Server, more: &[&str]) -> WakeHandle {
    let mut rules = vec!["ACL", "SETUSER", "me", "reset", "on", ">x", "~r*", "~quorlock:*"];
    rules.extend(PLACES);
    // It can be added, but not every server can remove it.
    rules.extend((!more.contains(&"-evalsha")).then_some("+script|load"));
    rules.extend(more);
    assert_eq!(server.ask().call(&rules), "OK");
    handle_of(&connections(), &format!("redis://me:x@127.0.0.1:{}", server.port()))
}

const PLACES: [&str; 16] = [
    "resetchannels",
    "+eval",
    "+evalsha",
    "+time",
    "+pttl",
    "+pexpire",
    "+exists",
    "+zadd",
    "+zcard",
    "+zcount",
    "+zrange",
    "+zrangebyscore",
    "+zrank",
    "+zrem",
    "+zscore",
    "+hello",
];
const HEARS: [&str; 3] = ["&quorlock:wake:*", "+subscribe", "+publish"];
const WATCHES: [&str; 2] = ["+client|tracking", "+client|caching"];

/// Whether the first and the second of a held lock are told.
async fn told(server: &Server, handle: &WakeHandle) -> (Caller, Caller, [bool; 2]) {
    hold(server, "r", 60_000);
    let (mut a, mut b) = (Caller::new(1, &["r"]), Caller::new(2, &["r"]));
    let first = a.enqueue(handle).await.0;
    let second = b.enqueue(handle).await.0;
    assert_eq!([first.rank, second.rank], [Some(0), Some(1)]);
    (a, b, [first.is_told, second.is_told])
}

#[test]
fn the_recommended_rights_are_enough() {
    run(async {
        let server = Server::start();
        let handle = user(&server, &[&HEARS[..], &WATCHES].concat());
        let (mut a, mut b, is_told) = told(&server, &handle).await;
        assert_eq!(is_told, [true, true]);
        assert_eq!(handle.lacks(), None);
        server.ask().call(&["DEL", "r"]);
        assert_eq!(a.next_news().await, FREED);
        a.leave(&handle).await;
        assert_eq!(b.next_news().await, CALLED);
        assert_eq!(b.ask(&handle, Action::CountWaiters).await, Ok(Answer::Waiters(1)));
        assert_eq!(server.ask().call(&["ACL", "LOG"]), "", "the server refused nothing");
    });
}

#[test]
fn who_may_only_hear_is_told_unless_it_is_the_first() {
    run(async {
        let server = Server::start();
        for more in [&HEARS[..], &[HEARS[0], HEARS[1], HEARS[2], WATCHES[0]]] {
            let handle = user(&server, more);
            let (mut a, mut b, is_told) = told(&server, &handle).await;
            assert_eq!(is_told, [false, true]);
            let lacks = handle.lacks().unwrap();
            assert!(
                lacks.contains("CLIENT TRACKING is not permitted: add +client|tracking"),
                "{lacks}"
            );
            a.leave(&handle).await;
            assert_eq!(b.next_news().await, News::First);
            b.leave(&handle).await;
        }
    });
}

#[test]
fn who_may_only_watch_watches_in_every_place() {
    run(async {
        let server = Server::start();
        for (lacks, command) in
            [("-subscribe", "SUBSCRIBE"), ("-publish", "PUBLISH"), ("resetchannels", "SUBSCRIBE")]
        {
            let handle = user(&server, &[&HEARS[..], &WATCHES, &[lacks]].concat());
            let (mut a, mut b, is_told) = told(&server, &handle).await;
            assert_eq!(is_told, [true, true]);
            let lacks = handle.lacks().unwrap();
            let words =
                format!("{command} is not permitted: add &quorlock:wake:* +subscribe +publish");
            assert!(lacks.starts_with(&words), "{lacks}");
            server.ask().call(&["DEL", "r"]);
            assert_eq!(a.next_news().await, FREED);
            assert_eq!(b.next_news().await, FREED);
            a.leave(&handle).await;
            b.leave(&handle).await;
        }
    });
}

#[test]
fn who_may_neither_hear_nor_watch_still_has_a_place() {
    run(async {
        let server = Server::start();
        let handle = user(&server, &[]);
        let (_, _, is_told) = told(&server, &handle).await;
        assert_eq!(is_told, [false, false]);
        let lacks = handle.lacks().unwrap();
        assert!(lacks.contains("SUBSCRIBE") && lacks.contains("; CLIENT TRACKING"), "{lacks}");
    });
}

#[test]
fn a_server_without_resp3_still_gives_places() {
    run(async {
        let without = ["--rename-command", "HELLO", ""];
        let with_password = [&without[..], &["--requirepass", "x"]].concat();
        for (options, login, user) in [(&without[..], &[][..], ""), (&with_password, &["x"], ":x@")]
        {
            let server = Server::with_login(options, login);
            let handle =
                handle_of(&connections(), &format!("redis://{user}127.0.0.1:{}", server.port()));
            let (mut a, _, is_told) = told(&server, &handle).await;
            assert_eq!(is_told, [false, false]);
            assert_eq!(a.ask(&handle, Action::CountWaiters).await, Ok(Answer::Waiters(2)));
            let lacks = handle.lacks().unwrap();
            assert!(lacks.starts_with("HELLO 3 (RESP3) is not"), "{lacks}");
        }
    });
}

#[test]
fn a_user_who_may_not_load_scripts_sends_them_whole() {
    run(async {
        let server = Server::start();
        let handle = user(&server, &[&HEARS[..], &WATCHES, &["-evalsha"]].concat());
        assert_eq!(told(&server, &handle).await.2, [true, true]);
    });
}

/// What a place takes, also the rights that are used only when it is given up.
const LACKING: [&[&str]; 7] = [
    &["-eval", "-evalsha"],
    &["-zadd"],
    &["-zrange"],
    &["-zrem"],
    &["-zscore"],
    &["-exists"],
    &["resetkeys", "~r*"],
];

#[test]
fn a_user_who_may_not_use_queues_is_told_what_to_add() {
    run(async {
        let server = Server::start();
        for lacks in LACKING {
            let handle = user(&server, &[&HEARS[..], &WATCHES, lacks].concat());
            let fault = Caller::new(1, &["r"]).fault(&handle).await;
            assert_eq!(fault.kind(), FaultKind::NotPermitted, "{fault}");
            assert!(fault.detail().contains("~quorlock:* &quorlock:wake:* +eval"), "{fault}");
        }
    });
}

#[test]
fn a_watch_that_is_forbidden_later_is_told() {
    run(async {
        let server = Server::start();
        let handle = user(&server, &[&HEARS[..], &WATCHES].concat());
        let (mut a, _b, is_told) = told(&server, &handle).await;
        assert_eq!(is_told, [true, true]);
        server.ask().call(&["ACL", "SETUSER", "me", "-client"]);
        server.ask().call(&["PEXPIRE", "r", "50000"]);
        assert_eq!(a.next_news().await, News::Gone);
        assert!(!a.enqueue(&handle).await.0.is_told);
        assert!(handle.lacks().unwrap().starts_with("CLIENT TRACKING is not permitted"));
    });
}

#[test]
fn a_replica_takes_no_places() {
    run(async {
        let server = Server::start();
        server.ask().call(&["REPLICAOF", "127.0.0.1", "1"]);
        let fault = Caller::new(1, &["r"]).fault(&handle(&server)).await;
        assert_eq!(fault.kind(), FaultKind::Replica, "{fault}");
    });
}
