//! Tests wake connections against real servers.

#[path = "../../../tests/support/ask.rs"]
#[allow(dead_code, unreachable_pub, reason = "these tests use a part of it")]
mod ask;
mod closing;
mod lost;
mod news;
mod rights;
mod same_queue;
#[path = "../../../tests/support/server.rs"]
#[allow(dead_code, unreachable_pub, reason = "these tests use a part of it")]
mod server;
mod watching;

use std::collections::VecDeque;
use std::future::Future;
use std::time::Duration;

use quorlock_protocol::{
    Claim, Fault, FaultKind, Frees, HolderId, Moment, News, NodeId, Place, Queued, Resources,
    Ticket, Waiter, WakeCause,
};
use tokio::runtime::{Builder, Handle};
use tokio::time::sleep;

use self::server::Server;
use super::*;
use crate::clock::LeaseClock;
use crate::inbox::{Inbox, Wake};
use crate::tasks::Tasks;

/// Runs a test on a runtime of its own; a test that hangs fails.
fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let limited = async { tokio::time::timeout(Duration::from_secs(60), test).await };
    let result = runtime.block_on(limited).expect("the test ends within a minute");
    runtime.shutdown_background();
    result
}

/// An engine's connections.
fn connections() -> Connections {
    Connections::on(Tasks::on(Handle::current()))
}

/// The handle of one node of an engine at `url`.
fn handle_of(connections: &Connections, url: &str) -> WakeHandle {
    let address: Arc<Address> = Arc::new(url.parse().unwrap());
    let patient =
        NodeSettings { connect_timeout: Duration::from_secs(20), ..NodeSettings::default() };
    WakeHandle::new(connections.clone(), address, patient)
}

fn handle(server: &Server) -> WakeHandle {
    handle_of(&connections(), &server.url())
}

/// One acquisition that waits.
struct Caller {
    place: Place,
    claim: Arc<Claim>,
    inbox: Arc<Inbox>,
    replies: VecDeque<Result<Answer, Fault>>,
    news: VecDeque<News>,
}

impl Caller {
    /// The acquisition with this number, which came at that time.
    fn new(number: u32, names: &[&str]) -> Self {
        let waiter = Waiter { process: PROCESS, number };
        let claim = Claim {
            resources: Resources::new(names).unwrap(),
            holder: HolderId::adopt("waiter").unwrap(),
        };
        Self {
            place: Place { arrived: u64::from(number), waiter },
            claim: Arc::new(claim),
            inbox: Inbox::with_room_for(1, &LeaseClock::default(), None),
            replies: VecDeque::new(),
            news: VecDeque::new(),
        }
    }

    fn send(&self, handle: &WakeHandle, action: Action, not_after: Moment) {
        let claim = Arc::clone(&self.claim);
        let command = Command { ticket: Ticket(1), claim, action, not_after };
        handle.send(command, ReplyTo::new(&self.inbox, NodeId(0)));
    }

    async fn ask(&mut self, handle: &WakeHandle, action: Action) -> Result<Answer, Fault> {
        self.send(handle, action, Moment::FAR_FUTURE);
        self.reply().await
    }

    /// Takes or keeps the place.
    async fn enqueue(&mut self, handle: &WakeHandle) -> (Queued, Frees) {
        match self.ask(handle, Action::Enqueue { place: self.place }).await {
            Ok(Answer::Queued { queued, frees }) => (queued, frees),
            other => panic!("{other:?}"),
        }
    }

    async fn fault(&mut self, handle: &WakeHandle) -> Fault {
        self.ask(handle, Action::Enqueue { place: self.place }).await.unwrap_err()
    }

    async fn leave(&mut self, handle: &WakeHandle) {
        let action = Action::Leave { place: self.place };
        assert_eq!(self.ask(handle, action).await, Ok(Answer::Done));
    }

    async fn reply(&mut self) -> Result<Answer, Fault> {
        while self.replies.is_empty() {
            self.take().await;
        }
        self.replies.pop_front().unwrap()
    }

    async fn next_news(&mut self) -> News {
        while self.news.is_empty() {
            self.take().await;
        }
        self.news.pop_front().unwrap()
    }

    /// The time that a key is held according to the next news.
    async fn held(&mut self) -> Duration {
        match self.next_news().await {
            News::Held(left) => left,
            other => panic!("{other:?}"),
        }
    }

    async fn take(&mut self) {
        let mut batch = Vec::new();
        match self.inbox.take(&mut batch).await {
            Wake::News(_, news) => self.news.push_back(news),
            _ => self.replies.extend(batch.into_iter().map(|it| it.reply.answer)),
        }
    }
}

/// Waits until the server shows this number of wake connections.
async fn until_connections(server: &Server, count: usize) {
    let mut ask = server.ask();
    let mut shown = || ask.call(&["CLIENT", "LIST", "TYPE", "pubsub"]).matches("id=").count();
    while shown() != count {
        sleep(Duration::from_millis(2)).await;
    }
}

/// Somebody takes the lock on the server.
fn hold(server: &Server, key: &str, millis: u32) {
    assert_eq!(server.ask().call(&["SET", key, "other", "PX", &millis.to_string()]), "OK");
}

const PROCESS: u64 = 0xfe_dcba_9876_5432;
const FREED: News = News::Freed(WakeCause::Watch);
const CALLED: News = News::Freed(WakeCause::Push);
