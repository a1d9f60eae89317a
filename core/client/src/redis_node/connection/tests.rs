//! Tests of a connection with several users, over a pipe in memory with the test at its other end.

use futures::FutureExt as _;
use quorlock_protocol::FaultKind;
use redis::{Value, cmd};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::spawn;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::timeout;

use super::*;
use crate::redis_node::transport::garbled;

#[tokio::test]
async fn each_is_given_the_replies_to_its_own_calls() {
    let (mut server, one) = pair();
    let two = one.connection().share();
    for (share, name) in [(&one, "A"), (&two, "B"), (&two, "C"), (&one, "D")] {
        share.request(&mut call(name));
    }
    // The user that is polled writes for all, in the order of the calls.
    assert!(reply(&two).now_or_never().is_none());
    assert_eq!(
        read(&mut server),
        "*1\r\n$1\r\nA\r\n*1\r\n$1\r\nB\r\n*1\r\n$1\r\nC\r\n*1\r\n$1\r\nD\r\n"
    );
    say(&mut server, ":1\r\n:2\r\n:3\r\n:4\r\n");
    for (share, number) in [(&two, 2), (&one, 1), (&one, 4), (&two, 3)] {
        assert_eq!(in_time(reply(share)).await, Ok(Value::Int(number)));
    }
}

#[tokio::test]
async fn a_waiter_is_woken_when_another_task_reads() {
    let (mut server, one) = pair();
    let two = one.connection().share();
    one.request(&mut call("A"));
    two.request(&mut call("B"));
    let (one, two) = (waiting(one).await, waiting(two).await);
    // The second was polled last: it reads for the first.
    say(&mut server, ":1\r\n");
    let (one, number) = in_time(one).await.unwrap();
    assert_eq!(number, Ok(Value::Int(1)));
    say(&mut server, ":2\r\n");
    assert_eq!(in_time(two).await.unwrap().1, Ok(Value::Int(2)));
    drop(one);
}

#[tokio::test]
async fn another_reads_when_the_reader_leaves() {
    let (mut server, one) = pair();
    let two = one.connection().share();
    one.request(&mut call("A"));
    two.request(&mut call("B"));
    let (one, two) = (waiting(one).await, waiting(two).await);
    // The stream holds its waker, which is dropped with it.
    two.abort();
    assert!(two.await.is_err_and(|error| error.is_cancelled()));
    yield_now().await;
    say(&mut server, ":1\r\n:2\r\n");
    let (one, number) = in_time(one).await.unwrap();
    assert_eq!(number, Ok(Value::Int(1)));
    // The other reply has no user any more; the next reply must not be mistaken for it.
    let three = one.connection().share();
    three.request(&mut call("C"));
    say(&mut server, ":3\r\n");
    assert_eq!(in_time(reply(&three)).await, Ok(Value::Int(3)));
}

#[tokio::test]
async fn who_waits_for_something_else_reads_for_the_others() {
    let (mut server, one) = pair();
    let two = one.connection().share();
    one.request(&mut call("A"));
    two.request(&mut call("B"));
    let one = waiting(one).await;
    let rests = spawn(async move {
        // It is the one that is woken.
        assert!(poll_fn(|context| Poll::Ready(two.poll_reply(context))).await.is_pending());
        two.wait(Duration::from_secs(3600)).await;
    });
    yield_now().await;
    say(&mut server, ":1\r\n");
    assert_eq!(in_time(one).await.unwrap().1, Ok(Value::Int(1)));
    rests.abort();
}

#[tokio::test]
async fn a_number_is_used_again_once_its_replies_have_come() {
    let (mut server, one) = pair();
    let two = one.connection().share();
    two.request(&mut call("A"));
    drop(two);
    let three = one.connection().share();
    assert_eq!(three.number, 2, "a reply for the second may still come");
    one.request(&mut call("B"));
    say(&mut server, ":1\r\n:2\r\n");
    assert_eq!(in_time(reply(&one)).await, Ok(Value::Int(2)));
    assert_eq!(one.connection().share().number, 1);
}

#[tokio::test]
async fn all_hear_of_the_end_after_what_came_before() {
    let (mut server, one) = pair();
    let two = one.connection().share();
    for share in [&one, &two, &two] {
        share.request(&mut call("A"));
    }
    let one = waiting(one).await;
    say(&mut server, ":1\r\n:2\r\n");
    drop(server);
    assert_eq!(in_time(one).await.unwrap().1, Ok(Value::Int(1)));
    assert_eq!(in_time(reply(&two)).await, Ok(Value::Int(2)));
    let fault = in_time(reply(&two)).await.unwrap_err();
    assert_eq!(fault.kind(), FaultKind::Broken, "{fault}");
    assert!(two.connection().has_ended());
}

#[tokio::test]
async fn one_can_end_it_for_all() {
    let (_server, one) = pair();
    let two = one.connection().share();
    one.request(&mut call("A"));
    let one = waiting(one).await;
    two.fail(&garbled());
    assert_eq!(in_time(one).await.unwrap().1, Err(garbled()));
}

#[tokio::test]
async fn it_is_known_when_somebody_was_answered() {
    let (mut server, one) = pair();
    let ask = async |server: &mut DuplexStream, share: &Share| {
        share.request(&mut call("A"));
        say(server, ":1\r\n");
        in_time(reply(share)).await.unwrap();
    };
    ask(&mut server, &one).await;
    assert_eq!(one.connection().last_reply(), None, "there is nobody else to know it");
    let two = one.connection().share();
    let since = Instant::now();
    ask(&mut server, &one).await;
    assert!(two.connection().was_heard_after(since));
    assert!(!two.connection().was_heard_after(Instant::now()));
    // A call of a user that has left was answered.
    two.request(&mut call("B"));
    drop(two);
    let since = Instant::now();
    one.request(&mut call("A"));
    say(&mut server, ":1\r\n");
    assert!(reply(&one).now_or_never().is_none());
    assert!(one.connection().was_heard_after(since));
}

#[tokio::test]
async fn what_nobody_uses_is_watched_and_read_by_nobody_else() {
    let (mut server, one) = pair();
    let connection = Arc::clone(one.connection());
    let mut end = pin!(poll_fn(|context| connection.poll_unused(context)));
    one.request(&mut call("A"));
    say(&mut server, ":1\r\n");
    assert!(end.as_mut().now_or_never().is_none());
    assert_eq!(in_time(reply(&one)).await, Ok(Value::Int(1)));
    one.request(&mut call("B"));
    drop(one);
    assert!(connection.is_unused_since(1));
    assert!(end.as_mut().now_or_never().is_none());
    say(&mut server, ":2\r\n");
    assert!(end.as_mut().now_or_never().is_none());
    let two = connection.share();
    assert!(!connection.is_unused_since(1));
    drop(two);
    assert!(!connection.is_unused_since(1));
    drop(server);
    in_time(end).await;
    assert!(connection.has_ended());
}

/// The server's end of a connection, and its first user.
fn pair() -> (DuplexStream, Share) {
    let (ours, theirs) = duplex(64 * 1024);
    let address = Arc::new("redis://test".parse().unwrap());
    (theirs, Connection::over(Pipe::new(Box::new(ours)), &address, Weak::<EmptyRegistry>::new()))
}

struct EmptyRegistry;

impl ConnectionRegistry for EmptyRegistry {
    fn handle_unused(self: Arc<Self>, _: &Arc<Connection>, _: u64, _: bool) {}
    fn dismiss(&self, _: &Arc<Connection>) {}
    fn restore(&self, _: &Arc<Connection>) {}
}

fn call(name: &str) -> Outgoing {
    Outgoing::from(&cmd(name))
}

/// A task that waits for a reply, and has begun to.
async fn waiting(share: Share) -> JoinHandle<(Share, Result<Value, Fault>)> {
    let task = spawn(async move {
        let value = reply(&share).await;
        (share, value)
    });
    yield_now().await;
    task
}

async fn reply(share: &Share) -> Result<Value, Fault> {
    poll_fn(|context| share.poll_reply(context)).await.map(Value::from)
}

fn say(server: &mut DuplexStream, words: &str) {
    server.write_all(words.as_bytes()).now_or_never().unwrap().unwrap();
}

fn read(server: &mut DuplexStream) -> String {
    let mut bytes = vec![0; 1024];
    let count = server.read(&mut bytes).now_or_never().unwrap().unwrap();
    String::from_utf8(bytes[..count].to_vec()).unwrap()
}

async fn in_time<T>(future: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(20), future).await.expect("it is woken")
}
