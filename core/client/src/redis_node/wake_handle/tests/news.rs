//! Tests places in a server's queues, and the news for them.

use super::*;

#[test]
fn the_first_is_told_by_its_watch_and_the_next_by_a_call() {
    run(async {
        let server = Server::start();
        let handle = handle(&server);
        hold(&server, "r", 60_000);
        let (mut a, mut b) = (Caller::new(1, &["r"]), Caller::new(2, &["r"]));
        let (queued, frees) = a.enqueue(&handle).await;
        assert_eq!(queued, Queued { rank: Some(0), is_free: false, is_told: true });
        let Frees::In(left) = frees else { panic!("{frees:?}") };
        assert!(left > Duration::from_secs(50), "{left:?}");
        assert_eq!(
            b.enqueue(&handle).await.0,
            Queued { rank: Some(1), is_free: false, is_told: true }
        );
        assert_eq!(b.ask(&handle, Action::CountWaiters).await, Ok(Answer::Waiters(2)));
        server.ask().call(&["DEL", "r"]);
        assert_eq!(a.next_news().await, FREED);
        a.leave(&handle).await;
        assert_eq!(b.next_news().await, CALLED);
        let (queued, frees) = b.enqueue(&handle).await;
        assert_eq!(queued, Queued { rank: Some(0), is_free: true, is_told: true });
        assert_eq!(frees, Frees::In(Duration::ZERO));
        b.leave(&handle).await;
        assert_eq!(server.ask().call(&["EXISTS", "quorlock:queue:{r}", "quorlock:alive:{r}"]), "0");
    });
}

#[test]
fn who_becomes_the_first_of_a_held_lock_hears_it() {
    run(async {
        let server = Server::start();
        let handle = handle(&server);
        hold(&server, "a b", 60_000);
        let (mut a, mut b) = (Caller::new(1, &["a b"]), Caller::new(2, &["a b"]));
        a.enqueue(&handle).await;
        b.enqueue(&handle).await;
        a.leave(&handle).await;
        assert_eq!(b.next_news().await, News::First);
    });
}

#[test]
fn who_looks_from_behind_notices_that_the_first_is_gone() {
    run(async {
        let server = Server::start();
        let handle = handle(&server);
        hold(&server, "r", 60_000);
        let (mut a, mut b) = (Caller::new(1, &["r"]), Caller::new(2, &["r"]));
        // One whose process has died.
        let dead = "w00000000000000dd.00000001";
        let mut ask = server.ask();
        a.enqueue(&handle).await;
        let until =
            ask.call(&["ZSCORE", "quorlock:alive:{r}", a.place.waiter.to_string().as_str()]);
        let until = (until.parse::<f64>().unwrap() - 1500.0).to_string();
        ask.call(&["ZADD", "quorlock:queue:{r}", "0", dead]);
        ask.call(&["ZADD", "quorlock:alive:{r}", &until, dead]);
        b.enqueue(&handle).await;
        assert_eq!(a.next_news().await, News::First);
        assert_eq!(a.enqueue(&handle).await.0.rank, Some(0));
        assert_eq!(b.enqueue(&handle).await.0.rank, Some(1));
        server.ask().call(&["DEL", "r"]);
        assert_eq!(a.next_news().await, FREED);
    });
}

#[test]
fn a_free_lock_is_told_to_be_free() {
    run(async {
        let server = Server::start();
        let handle = handle(&server);
        let mut a = Caller::new(1, &["r"]);
        let (queued, _) = a.enqueue(&handle).await;
        assert_eq!(queued, Queued { rank: Some(0), is_free: true, is_told: true });
        assert_eq!(server.ask().call(&["SET", "r", "forever"]), "OK");
        assert_eq!(a.enqueue(&handle).await.1, Frees::Never);
    });
}

#[test]
fn a_place_is_not_given_up_before_it_was_taken() {
    run(async {
        let server = Server::start();
        let handle = handle(&server);
        hold(&server, "r", 60_000);
        let mut a = Caller::new(1, &["r"]);
        a.enqueue(&handle).await;
        a.leave(&handle).await;
        for _ in 0..20 {
            // The server has to be given the script again before it can take the place.
            assert_eq!(server.ask().call(&["SCRIPT", "FLUSH"]), "OK");
            a.ask(&handle, Action::Leave { place: a.place }).await.unwrap();
            a.send(&handle, Action::Enqueue { place: a.place }, Moment::FAR_FUTURE);
            a.send(&handle, Action::Leave { place: a.place }, Moment::FAR_FUTURE);
            assert!(matches!(a.reply().await, Ok(Answer::Queued { .. })));
            assert_eq!(a.reply().await, Ok(Answer::Done));
            assert_eq!(a.ask(&handle, Action::CountWaiters).await, Ok(Answer::Waiters(0)));
        }
    });
}

#[test]
fn places_of_waiters_that_are_gone_are_given_up() {
    run(async {
        let server = Server::start();
        let handle = handle(&server);
        hold(&server, "r", 60_000);
        let (mut gone, mut a) = (Caller::new(1, &["r"]), Caller::new(2, &["r"]));
        let mut next = Caller::new(3, &["r"]);
        // The process has forgotten the first, as it was asked over a connection that ended.
        let other = connections();
        gone.enqueue(&handle_of(&other, &server.url())).await;
        drop(other);
        until_connections(&server, 0).await;
        assert_eq!(a.enqueue(&handle).await.0.rank, Some(1));
        server.ask().call(&["DEL", "r"]);
        // It looks, and by that calls the one that is gone.
        assert!(!next.enqueue(&handle).await.0.is_turn());
        loop {
            match a.next_news().await {
                News::Next => {}
                news => break assert_eq!(news, CALLED),
            }
        }
    });
}

#[test]
fn a_command_that_is_read_too_late_is_not_carried_out() {
    run(async {
        let server = Server::start();
        let handle = handle(&server);
        let mut a = Caller::new(1, &["r"]);
        for _ in 0..2 {
            a.send(&handle, Action::Enqueue { place: a.place }, Moment::default());
            assert_eq!(a.reply().await.unwrap_err().kind(), FaultKind::Late);
        }
        assert_eq!(a.ask(&handle, Action::CountWaiters).await, Ok(Answer::Waiters(0)));
    });
}

#[test]
fn user_password_database_and_prefix_are_those_of_the_address() {
    run(async {
        let server = Server::start();
        server.ask().call(&["ACL", "SETUSER", "me", "on", ">p:w", "~*", "&*", "+@all"]);
        let port = server.port();
        let connections = connections();
        let handle = handle_of(
            &connections,
            &format!("redis://me:p%3Aw@127.0.0.1:{port}/3?key_prefix=app:"),
        );
        let mut a = Caller::new(1, &["r"]);
        a.enqueue(&handle).await;
        let mut ask = server.ask();
        ask.call(&["SELECT", "3"]);
        assert_eq!(ask.call(&["KEYS", "quorlock:queue:*"]), "quorlock:queue:{app:r}");
        let wrong = handle_of(&connections, &format!("redis://me:wrong@127.0.0.1:{port}"));
        assert_eq!(a.fault(&wrong).await.kind(), FaultKind::Unauthenticated);
        let number = format!("redis://me:p%3Aw@127.0.0.1:{port}/999");
        let fault = a.fault(&handle_of(&connections, &number)).await;
        assert!(fault.detail().contains("database"), "{fault}");
    });
}

#[test]
fn a_key_of_another_type_is_named() {
    run(async {
        let server = Server::start();
        server.ask().call(&["SET", "quorlock:queue:{r}", "x"]);
        let fault = Caller::new(1, &["r"]).fault(&handle(&server)).await;
        assert_eq!(fault.kind(), FaultKind::WrongType);
        assert!(fault.detail().contains("quorlock:queue:*"), "{fault}");
    });
}
