//! Tests what a watch tells of a lock key that others change.

use super::*;

/// A caller that is the first to wait for `r`, which is held.
async fn first(server: &Server, handle: &WakeHandle) -> Caller {
    hold(server, "r", 60_000);
    let mut caller = Caller::new(1, &["r"]);
    let (queued, _) = caller.enqueue(handle).await;
    assert!(queued.is_told && !queued.is_turn(), "{queued:?}");
    until_watched(server, 1).await;
    caller
}

/// Waits until the server would tell of changes of this number of keys.
async fn until_watched(server: &Server, keys: usize) {
    let (mut ask, shown) = (server.ask(), format!("tracking_total_keys:{keys}\r\n"));
    while !ask.call(&["INFO", "stats"]).contains(&shown) {
        sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn a_key_that_ends_is_told_however_it_ends() {
    run(async {
        for end in [
            &["DEL", "r"][..],
            &["PEXPIRE", "r", "20"],
            &["FLUSHALL"],
            &["FLUSHDB"],
            &["RENAME", "r", "s"],
            &["EVAL", "return redis.call('DEL', KEYS[1])", "1", "r"],
        ] {
            // A server that tells of no earlier change.
            let server = Server::start();
            let handle = handle(&server);
            let mut a = first(&server, &handle).await;
            server.ask().call(end);
            while a.next_news().await != FREED {}
        }
    });
}

#[test]
fn a_key_that_was_gone_before_the_watch_is_told() {
    run(async {
        let server = Server::start();
        let handle = handle(&server);
        for _ in 0..50 {
            hold(&server, "r", 60_000);
            let mut a = Caller::new(1, &["r"]);
            a.send(&handle, Action::Enqueue { place: a.place }, Moment::FAR_FUTURE);
            let deleted = server.ask().call(&["DEL", "r"]);
            assert_eq!(deleted, "1");
            match a.reply().await {
                Ok(Answer::Queued { queued, .. }) if queued.is_turn() => {}
                Ok(Answer::Queued { .. }) => while a.next_news().await != FREED {},
                other => panic!("{other:?}"),
            }
            a.leave(&handle).await;
        }
    });
}

#[test]
fn a_key_that_is_held_longer_is_told_each_time() {
    run(async {
        let server = Server::start();
        let handle = handle(&server);
        let mut a = first(&server, &handle).await;
        let mut ask = server.ask();
        ask.call(&["PEXPIRE", "r", "30000"]);
        let left = a.held().await;
        assert!(left > Duration::from_secs(25) && left <= Duration::from_secs(30), "{left:?}");
        ask.call(&["SET", "r", "third", "PX", "90000"]);
        assert!(a.held().await > Duration::from_secs(80));
        // A key without an end says nothing; the next change does.
        ask.call(&["PERSIST", "r"]);
        ask.call(&["PEXPIRE", "r", "50000"]);
        assert!(a.held().await > Duration::from_secs(40));
        ask.call(&["DEL", "r"]);
        assert_eq!(a.next_news().await, FREED);
        // Somebody else takes it, and lets it go again.
        hold(&server, "r", 60_000);
        a.held().await;
        ask.call(&["DEL", "r"]);
        assert_eq!(a.next_news().await, FREED);
    });
}

#[test]
fn however_often_a_key_changes_it_is_read_seldom() {
    run(async {
        let server = Server::start();
        let handle = handle(&server);
        let mut a = first(&server, &handle).await;
        let mut ask = server.ask();
        ask.call(&["CONFIG", "RESETSTAT"]);
        let changes = "for i = 1, 500 do redis.call('PEXPIRE', KEYS[1], 60000) end";
        for _ in 0..20 {
            ask.call(&["EVAL", changes, "1", "r"]);
        }
        a.held().await;
        let stats = ask.call(&["INFO", "commandstats"]);
        let reads = stats.split("cmdstat_pttl:calls=").nth(1).unwrap();
        let reads: u32 = reads.split(',').next().unwrap().parse().unwrap();
        assert!(reads <= 21, "{reads} reads");
    });
}

#[test]
fn of_several_keys_all_must_be_free() {
    run(async {
        let server = Server::start();
        let handle = handle(&server);
        hold(&server, "a", 60_000);
        hold(&server, "b", 50_000);
        let mut both = Caller::new(1, &["a", "b"]);
        assert!(both.enqueue(&handle).await.0.is_told);
        until_watched(&server, 2).await;
        server.ask().call(&["DEL", "a"]);
        assert!(both.held().await <= Duration::from_secs(50));
        server.ask().call(&["DEL", "b"]);
        assert_eq!(both.next_news().await, FREED);
    });
}

#[test]
fn nothing_is_read_once_the_waiter_has_left() {
    run(async {
        let server = Server::start();
        let handle = handle(&server);
        let (mut a, mut ask) = (first(&server, &handle).await, server.ask());
        a.leave(&handle).await;
        ask.call(&["CONFIG", "RESETSTAT"]);
        ask.call(&["PEXPIRE", "r", "30000"]);
        assert_eq!(a.ask(&handle, Action::CountWaiters).await, Ok(Answer::Waiters(0)));
        assert_eq!(a.ask(&handle, Action::CountWaiters).await, Ok(Answer::Waiters(0)));
        assert!(!ask.call(&["INFO", "commandstats"]).contains("cmdstat_pttl"));
        assert!(a.news.is_empty());
    });
}
