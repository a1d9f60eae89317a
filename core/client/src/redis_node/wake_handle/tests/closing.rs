//! Tests how long wake connections last, and who shares them.

use super::*;

#[test]
fn managers_of_an_engine_share_a_connection() {
    run(async {
        let server = Server::start();
        let connections = connections();
        let one = handle_of(&connections, &server.url());
        let two = handle_of(&connections, &format!("{}?key_prefix=app:", server.url()));
        let (mut a, mut b) = (Caller::new(1, &["app:r"]), Caller::new(2, &["r"]));
        hold(&server, "app:r", 60_000);
        assert_eq!(a.enqueue(&one).await.0.rank, Some(0));
        assert_eq!(b.enqueue(&two).await.0.rank, Some(1), "the same lock");
        until_connections(&server, 1).await;
        // The waiter of the other manager keeps it.
        a.leave(&one).await;
        one.close();
        drop(one);
        server.ask().call(&["DEL", "app:r"]);
        assert_eq!(b.next_news().await, News::First);
        b.enqueue(&two).await;
        b.leave(&two).await;
        two.close();
        until_connections(&server, 0).await;
    });
}

#[test]
fn an_idle_connection_is_closed_and_made_again() {
    run(async {
        let server = Server::start();
        let connections = connections();
        let handle = handle_of(&connections, &server.url());
        let tasks = connections.tasks();
        let idle = Duration::from_millis(30);
        let connection = connections.wake_connections().find_or_start(
            tasks,
            &handle.address,
            handle.settings,
            idle,
        );
        assert!(handle.connection.set(connection).is_ok());
        let mut a = Caller::new(1, &["r"]);
        hold(&server, "r", 60_000);
        for _ in 0..2 {
            a.enqueue(&handle).await;
            sleep(3 * idle).await;
            until_connections(&server, 1).await;
            a.leave(&handle).await;
            until_connections(&server, 0).await;
        }
        assert!(a.news.is_empty(), "nobody waited");
    });
}

#[test]
fn a_closed_manager_takes_no_places_but_gives_them_up() {
    run(async {
        let server = Server::start();
        let handle = handle(&server);
        let mut a = Caller::new(1, &["r"]);
        a.enqueue(&handle).await;
        handle.close();
        assert!(a.fault(&handle).await.detail().contains("closed"));
        a.leave(&handle).await;
        until_connections(&server, 0).await;
        assert_eq!(server.ask().call(&["EXISTS", "quorlock:queue:{r}"]), "0");
    });
}

#[test]
fn nothing_is_left_when_the_last_node_is_dropped() {
    run(async {
        let server = Server::start();
        let connections = connections();
        let handle = handle_of(&connections, &server.url());
        let mut a = Caller::new(1, &["r"]);
        a.enqueue(&handle).await;
        a.send(&handle, Action::Leave { place: a.place }, Moment::FAR_FUTURE);
        drop(handle);
        assert_eq!(a.reply().await, Ok(Answer::Done), "what was handed over is done");
        until_connections(&server, 0).await;
        while !connections.tasks().are_idle() {
            tokio::task::yield_now().await;
        }
        let metrics = Handle::current().metrics();
        while metrics.num_alive_tasks() > 0 {
            tokio::task::yield_now().await;
        }
    });
}
