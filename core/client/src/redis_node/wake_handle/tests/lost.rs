//! Tests wake connections that break, and servers that cannot be reached or do not answer.

use std::time::Instant;

use super::*;

#[test]
fn a_lost_connection_is_told_and_the_next_command_makes_another() {
    run(async {
        let server = Server::start();
        let handle = handle(&server);
        let (mut a, mut b) = (Caller::new(1, &["r"]), Caller::new(2, &["r"]));
        for _ in 0..2 {
            hold(&server, "r", 60_000);
            a.enqueue(&handle).await;
            b.enqueue(&handle).await;
            server.ask().call(&["CLIENT", "KILL", "TYPE", "pubsub"]);
            // It may have been told of older changes before.
            while a.next_news().await != News::Gone {}
            assert_eq!(b.next_news().await, News::Gone);
            // A server that ends it again and again is left alone for a moment.
            while let Err(fault) = a.ask(&handle, Action::Enqueue { place: a.place }).await {
                assert_eq!(fault.kind(), FaultKind::NotSent, "{fault}");
                sleep(Duration::from_millis(5)).await;
            }
            assert_eq!(
                b.enqueue(&handle).await.0,
                Queued { rank: Some(1), is_free: false, is_told: true }
            );
            server.ask().call(&["DEL", "r"]);
            assert_eq!(a.next_news().await, FREED);
            a.leave(&handle).await;
            assert_eq!(b.next_news().await, CALLED);
        }
    });
}

#[test]
fn a_restarted_server_gives_places_again() {
    run(async {
        let mut server = Server::start();
        let handle = handle(&server);
        let mut a = Caller::new(1, &["r"]);
        a.enqueue(&handle).await;
        server.kill();
        assert_eq!(a.next_news().await, News::Gone);
        let fault = a.fault(&handle).await;
        assert_eq!(fault.kind(), FaultKind::NotSent);
        assert!(fault.detail().contains("is the server running"), "{fault}");
        a.leave(&handle).await;
        server.restart();
        while a.ask(&handle, Action::Enqueue { place: a.place }).await.is_err() {
            sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(a.ask(&handle, Action::CountWaiters).await, Ok(Answer::Waiters(1)));
    });
}

#[test]
fn a_server_that_is_down_is_not_stormed() {
    run(async {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        let settings = NodeSettings {
            connect_timeout: Duration::from_millis(50),
            backoff_min: Duration::from_secs(20),
            backoff_max: Duration::from_secs(20),
            ..NodeSettings::default()
        };
        let handle = WakeHandle::new(connections(), Arc::new(url.parse().unwrap()), settings);
        let mut callers: Vec<_> = (0..100).map(|number| Caller::new(number, &["r"])).collect();
        for _ in 0..3 {
            for caller in &mut callers {
                caller.send(&handle, Action::Enqueue { place: caller.place }, Moment::FAR_FUTURE);
            }
            for caller in &mut callers {
                let fault = caller.reply().await.unwrap_err();
                assert_eq!(fault.kind(), FaultKind::NotSent);
                assert!(fault.detail().contains("no answer within 50 ms"), "{fault}");
            }
        }
        assert!(listener.accept().is_ok());
        assert!(listener.accept().is_err(), "one dial for all");
    });
}

#[test]
fn a_place_that_was_not_taken_is_given_up_without_a_connection() {
    run(async {
        let server = Server::start();
        let connections = connections();
        let handle = handle_of(&connections, &server.url());
        let mut a = Caller::new(1, &["r"]);
        a.leave(&handle).await;
        assert!(handle.connection.get().is_none());
        // Also when another node of the server has a connection.
        let tasks = connections.tasks();
        let connection = connections.wake_connections().find_or_start(
            tasks,
            &handle.address,
            handle.settings,
            IDLE,
        );
        assert!(handle.connection.set(connection).is_ok());
        a.leave(&handle).await;
        until_connections(&server, 0).await;
        assert!(server.ask().call(&["INFO", "clients"]).contains("connected_clients:1\r\n"));
    });
}

#[test]
fn a_server_that_stops_answering_is_given_up() {
    run(async {
        let server = Server::start();
        let handle = handle(&server);
        let (mut a, mut b) = (Caller::new(1, &["r"]), Caller::new(2, &["r"]));
        a.enqueue(&handle).await;
        server.pause();
        let begun = Instant::now();
        b.send(&handle, Action::Enqueue { place: b.place }, Moment::FAR_FUTURE);
        b.send(&handle, Action::Leave { place: b.place }, Moment::FAR_FUTURE);
        assert_eq!(b.reply().await.unwrap_err().kind(), FaultKind::TimedOut);
        assert_eq!(b.reply().await, Ok(Answer::Done));
        assert!(begun.elapsed() >= Duration::from_secs(5));
        assert_eq!(a.next_news().await, News::Gone);
        server.resume();
        a.enqueue(&handle).await;
        assert!(b.news.is_empty(), "it has left");
    });
}
