//! Real servers for the tests: finds the program, starts servers on free ports, stops them by
//! process id. Knows no lock.
#![allow(dead_code, unreachable_pub, reason = "every test program uses a part of it")]

pub mod ask;
pub mod hooked;
pub mod hostile_server;
pub mod proxy;
pub mod server;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use quorlock::{Address, Node, NodeSettings, NodeState, Redlock, Replies, connect};
use quorlock_protocol::{
    Action, Answer, Claim, Command, Fault, FaultKind, Fence, FencingToken, HolderId, Moment, Reply,
    Resources, Ticket, Ttl,
};
use tokio::runtime::{Builder, Handle};
use tokio::time::{sleep, timeout};

use self::server::Server;

/// Runs a test on a runtime of its own; a test that hangs fails.
pub fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let limited = async { timeout(Duration::from_secs(60), test).await };
    let result = runtime.block_on(limited).expect("the test ends within a minute");
    runtime.shutdown_background();
    result
}

/// Waits until `condition` is met, looking often.
pub async fn until(what: &str, condition: impl FnMut() -> bool) {
    assert!(became_true(condition).await, "{what}: never came true");
}

async fn became_true(mut condition: impl FnMut() -> bool) -> bool {
    let wait = async {
        while !condition() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(20), wait).await.is_ok()
}

pub fn urls(servers: &[Server]) -> Vec<String> {
    servers.iter().map(Server::url).collect()
}

/// The names of those who are connected to `server` over TCP.
pub fn connections(server: &Server) -> Vec<String> {
    let list = server.ask().call(&["CLIENT", "LIST"]);
    let lines = list.lines().filter(|line| line.contains("addr=127.0.0.1:"));
    lines.filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

/// Locks and releases, so that every node is connected and its canary stands.
pub async fn warm_up(locks: &Redlock) {
    locks.lock("warm").acquire().await.expect("a quorum").release().await.expect("released");
    let all_healthy = || locks.nodes().iter().all(|(_, state)| *state == NodeState::Healthy);
    assert!(became_true(all_healthy).await, "not every node is healthy: {:?}", locks.nodes());
}

/// Makes a server that was started for it a Redis Cluster of one.
pub async fn give_all_slots_to(server: &Server) {
    let slots: Vec<String> = (0..16384).map(|slot| slot.to_string()).collect();
    let mut words = vec!["CLUSTER", "ADDSLOTS"];
    words.extend(slots.iter().map(String::as_str));
    let mut ask = server.ask();
    assert_eq!(ask.call(&words), "OK");
    let is_up = || ask.call(&["CLUSTER", "INFO"]).contains("cluster_state:ok");
    eventually("the cluster", is_up).await;
}

/// The node at `address`, on the runtime of the caller.
pub fn node_at(address: &str) -> Client {
    node_with(address, patient())
}

/// For nodes that say what is wrong, or come in the end, however busy this machine is.
pub fn patient() -> NodeSettings {
    NodeSettings { connect_timeout: Duration::from_secs(20), ..NodeSettings::default() }
}

/// [`node_at`] with settings.
pub fn node_with(address: &str, settings: NodeSettings) -> Client {
    let address: Address = address.parse().expect("an address");
    Client::new(connect(&address, &settings, &Handle::current()))
}

/// A node, and the way its replies come back.
pub struct Client {
    pub node: Arc<dyn Node>,
    replies: Replies,
    tickets: AtomicU32,
}

impl Client {
    pub fn new(node: Arc<dyn Node>) -> Self {
        Self { node, replies: Replies::new(), tickets: AtomicU32::new(0) }
    }

    /// Hands a command over without waiting; tells its ticket.
    pub fn send(&self, claim: &Arc<Claim>, action: Action) -> Ticket {
        self.send_until(claim, action, Moment::FAR_FUTURE)
    }

    pub fn send_until(&self, claim: &Arc<Claim>, action: Action, not_after: Moment) -> Ticket {
        let ticket = Ticket(self.tickets.fetch_add(1, Ordering::Relaxed));
        let command = Command { ticket, claim: Arc::clone(claim), action, not_after };
        self.node.send(command, self.replies.way_back());
        ticket
    }

    /// The next reply, whatever it is to.
    pub async fn reply(&mut self) -> Reply {
        timeout(Duration::from_secs(10), self.replies.next()).await.expect("a reply")
    }

    /// The next replies, which must be to these tickets in this order.
    pub async fn replies_to(&mut self, tickets: &[Ticket]) -> Vec<Reply> {
        let mut replies = Vec::new();
        for ticket in tickets {
            let reply = self.reply().await;
            assert_eq!(reply.ticket, *ticket, "replies come in the order of the commands");
            replies.push(reply);
        }
        replies
    }

    /// The replies to these tickets, whichever comes first.
    pub async fn replies_in_any_order(&mut self, tickets: &[Ticket]) -> Vec<Reply> {
        let mut replies = Vec::new();
        for _ in tickets {
            replies.push(self.reply().await);
        }
        replies.sort_by_key(|reply| reply.ticket);
        assert!(replies.iter().map(|reply| reply.ticket).eq(tickets.iter().copied()));
        replies
    }

    /// The next reply if one comes in time.
    pub async fn reply_within(&mut self, limit: Duration) -> Option<Reply> {
        timeout(limit, self.replies.next()).await.ok()
    }

    pub async fn ask(&mut self, claim: &Arc<Claim>, action: Action) -> Result<Answer, Fault> {
        let ticket = self.send(claim, action);
        self.replies_to(&[ticket]).await.remove(0).answer
    }

    pub async fn grant(&mut self, claim: &Arc<Claim>, millis: u64) -> Result<Answer, Fault> {
        self.ask(claim, grant(millis)).await
    }

    pub async fn fault(&mut self, claim: &Arc<Claim>, action: Action) -> Fault {
        match self.ask(claim, action).await {
            Ok(answer) => panic!("expected a fault, got {answer:?}"),
            Err(fault) => fault,
        }
    }

    /// Waits until the state is as `wanted`.
    pub async fn until(&self, wanted: impl Fn(&NodeState) -> bool) {
        eventually("the node's state", || wanted(&self.node.state())).await;
    }
}

/// Waits for a condition that is checked every millisecond; fails after ten seconds.
pub async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let waiting = async {
        while !condition() {
            sleep(Duration::from_millis(1)).await;
        }
    };
    assert!(
        timeout(Duration::from_secs(10), waiting).await.is_ok(),
        "waited ten seconds for {what}"
    );
}

/// A claim of `names` by `holder`.
pub fn claim(names: &[&str], holder: &str) -> Arc<Claim> {
    let resources = Resources::new(names).expect("names");
    Arc::new(Claim { resources, holder: HolderId::adopt(holder).expect("a holder") })
}

pub fn ttl(millis: u64) -> Ttl {
    Ttl::from_millis(millis).expect("a ttl")
}

pub fn grant(millis: u64) -> Action {
    Action::Grant { key_ttl: ttl(millis), fence: None, place: None }
}

/// A grant that proposes `more` microseconds beyond the wall clock, which is that of the nodes here.
pub fn fenced(millis: u64, more: u64) -> Action {
    proposing(millis, wall() + more)
}

/// The wall clock in microseconds since 1970.
pub fn wall() -> u64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    u64::try_from(elapsed.as_micros()).expect("before 2255")
}

/// A grant that proposes exactly that.
pub fn proposing(millis: u64, proposal: u64) -> Action {
    let fence = Fence { proposal: FencingToken(proposal), retention: ttl(60_000) };
    Action::Grant { key_ttl: ttl(millis), fence: Some(fence), place: None }
}

pub fn extend(millis: u64) -> Action {
    Action::Extend { key_ttl: ttl(millis), may_shorten: None }
}

/// What a release sends that keeps the keys for a while.
pub fn shorten(millis: u64) -> Action {
    Action::Extend { key_ttl: ttl(millis), may_shorten: Some(Duration::MAX) }
}

pub fn raise(token: u64) -> Action {
    Action::RaiseFence { token: FencingToken(token), retention: ttl(60_000) }
}

pub const OURS: Result<Answer, Fault> = Ok(Answer::Ours { token: None, remaining: None });
pub const ABSENT: Result<Answer, Fault> = Ok(Answer::Absent);

#[allow(clippy::unnecessary_wraps, reason = "it is compared with what a node answers")]
pub fn ours_with(token: u64) -> Result<Answer, Fault> {
    Ok(Answer::Ours { token: Some(FencingToken(token)), remaining: None })
}

/// The token of a grant, or of an inspection of what is held.
pub fn token(answer: &Result<Answer, Fault>) -> u64 {
    match answer {
        Ok(Answer::Ours { token: Some(token), .. }) => token.0,
        other => panic!("no token: {other:?}"),
    }
}

/// The fence of a name on the server.
pub fn fence(server: &Server, name: &str) -> String {
    server.ask().call(&["ZSCORE", FENCES, &bucket(name).to_string()])
}

/// The table of fences on a server.
pub const FENCES: &str = "quorlock:{node}:fences";

/// The bucket of a name, written down once more: FNV-1a modulo 16,384.
pub fn bucket(name: &str) -> u64 {
    let mut hash: u64 = 14_695_981_039_346_656_037;
    for byte in name.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(1_099_511_628_211);
    }
    hash % 16_384
}

pub fn is_theirs(answer: &Result<Answer, Fault>) -> bool {
    matches!(answer, Ok(Answer::Theirs { .. }))
}

pub fn kind(answer: &Result<Answer, Fault>) -> Option<FaultKind> {
    answer.as_ref().err().map(Fault::kind)
}
