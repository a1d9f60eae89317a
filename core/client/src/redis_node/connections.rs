//! The registry of an engine's connections: one for each server and log-in, shared by all its
//! users. Owns when a connection is made, found and closed; knows nothing of what is sent over it.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Poll;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared, WeakShared};
use quorlock_protocol::Fault;
use tokio::select;
use tokio::time::{Instant, sleep, timeout_at};

use super::connection::{Connection, ConnectionRegistry, Share};
use super::log_in::log_in;
use super::session::{ClientId, Facts};
use super::transport::{self, Pipe};
use super::wake::WakeConnections;
use crate::address::Address;
use crate::outage::Outages;
use crate::tasks::Tasks;

/// The connections that the nodes of an engine's managers share.
#[derive(Clone)]
pub(crate) struct Connections(Arc<Registry>);

pub(super) struct Registry {
    tasks: Tasks,
    wake_connections: WakeConnections,
    outages: Outages,
    entries: Mutex<Vec<Entry>>,
}

/// The state for one address with one log-in.
struct Entry {
    address: Arc<Address>,
    /// The connection that new users get.
    current: Option<Arc<Connection>>,
    dial: Option<Dial>,
}

/// A try to connect and log in, for all users that wait for it. It is given up when no user waits any more.
struct Dial {
    began: Instant,
    /// Whether it may find out that no new connection is needed.
    is_beside: bool,
    result: WeakShared<Making>,
    /// Lives as long as the dial does. (If users held a share in the result instead, the last
    /// one to drop it could end the dial.)
    life: Weak<()>,
}

/// A dial, for a user that waits for it.
struct UnderWay {
    began: Instant,
    making: Shared<Making>,
}

type Making = BoxFuture<'static, Result<Arc<Connected>, Fault>>;

/// The result of a dial.
struct Connected {
    share: Share,
    /// `None` if it is an existing connection: the old one, which was silent and answers again, or one that another
    /// dial has made.
    told: Option<Facts>,
    /// The older connection that the server has ended.
    ended: Option<ClientId>,
}

/// What a user wants of a connection.
#[derive(Clone, Copy)]
pub(super) struct Wish<'a> {
    pub(super) address: &'a Arc<Address>,
    /// When the user began to try.
    pub(super) since: Instant,
    /// How long a dial that began before may take, until one is made that begins now.
    pub(super) patience: Duration,
    /// This connection does not answer. It is replaced only if it still does not once another one
    /// is ready.
    pub(super) silent: Option<&'a Arc<Connection>>,
    /// A connection that was given up, which the server should end.
    pub(super) abandoned: Option<&'a ClientId>,
}

/// A share in a connection, and what the server said of itself if it was just asked.
pub(super) struct Reached {
    pub(super) share: Share,
    pub(super) told: Option<Facts>,
    /// It had no user before.
    pub(super) is_new: bool,
}

impl Connections {
    /// A registry whose own tasks run among `tasks`.
    pub(crate) fn on(tasks: Tasks) -> Self {
        let (wake_connections, outages) = (WakeConnections::default(), Outages::default());
        Self(Arc::new(Registry { tasks, wake_connections, outages, entries: Mutex::default() }))
    }

    pub(super) fn tasks(&self) -> &Tasks {
        &self.0.tasks
    }

    /// The wake connections.
    pub(super) fn wake_connections(&self) -> &WakeConnections {
        &self.0.wake_connections
    }

    /// Gives up the places of all callers that wait, as background work.
    pub(crate) fn leave_queues(&self) {
        self.0.wake_connections.leave_all(self.0.tasks.background());
    }

    /// What is told of nodes that are out.
    pub(super) fn outages(&self) -> &Outages {
        &self.0.outages
    }

    /// A share in the existing connection, or in one that is being made. It fails only if a dial has failed that
    /// began after the user did: what came of an older one tells nothing of the server as it is now.
    pub(super) async fn reach(&self, wish: &Wish<'_>) -> Result<Reached, Fault> {
        let UnderWay { began, making } = match self.0.find_or_make(wish, wish.patience) {
            Ok(share) => return Ok(Reached::existing(share)),
            Err(under_way) => under_way,
        };
        if began >= wish.since {
            return Ok(Reached::made(&*making.await?, wish));
        }
        if let Ok(Ok(made)) = timeout_at(began + wish.patience, making.clone()).await {
            return Ok(Reached::made(&made, wish));
        }
        match self.0.find_or_make(wish, Duration::ZERO) {
            Ok(share) => Ok(Reached::existing(share)),
            Err(own) => select! {
                biased;
                Ok(made) = making => Ok(Reached::made(&made, wish)),
                made = own.making => Ok(Reached::made(&*made?, wish)),
            },
        }
    }
}

impl Reached {
    fn existing(share: Share) -> Self {
        Self { share, told: None, is_new: false }
    }

    fn made(connected: &Connected, wish: &Wish<'_>) -> Self {
        let Connected { share, told, ended } = connected;
        let is_asked = wish.abandoned.is_none_or(|it| ended.as_ref() == Some(it));
        let (share, is_new) = (share.connection().share(), told.is_some());
        Self { share, told: told.clone().filter(|_| is_asked), is_new }
    }
}

impl Registry {
    /// The existing connection, or the dial that makes one: if none is under way that began at most `earlier` before
    /// the user did, one that begins now.
    fn find_or_make(
        self: &Arc<Self>,
        wish: &Wish<'_>,
        earlier: Duration,
    ) -> Result<Share, UnderWay> {
        let mut entries = self.lock();
        entries.retain(Entry::is_of_use);
        let index = index_for(&mut entries, wish.address);
        let entry = &mut entries[index];
        if let Some(current) = entry.usable(wish.silent) {
            return Ok(current.share());
        }
        if let Some(under_way) = entry.under_way(wish, earlier) {
            return Err(under_way);
        }
        let (making, dial) = Dial::begin(self, wish);
        entry.dial = dial;
        Err(UnderWay { began: Instant::now(), making })
    }

    /// Makes `connection` the one for its address, in place of the `silent` one. If another dial was quicker, its
    /// connection stays, and is returned.
    fn enter(
        &self,
        connection: &Arc<Connection>,
        silent: Option<&Arc<Connection>>,
    ) -> Option<Share> {
        let mut entries = self.lock();
        let index = index_for(&mut entries, connection.address());
        if let Some(quicker) = entries[index].usable(silent) {
            return Some(quicker.share());
        }
        entries[index].current = Some(Arc::clone(connection));
        None
    }

    fn has(&self, connection: &Arc<Connection>) -> bool {
        self.lock().iter().any(|entry| entry.has(connection))
    }

    /// Removes `connection` if `condition` holds; it gets no new user in between.
    fn remove_if(&self, connection: &Arc<Connection>, condition: impl FnOnce() -> bool) {
        let mut entries = self.lock();
        let entry = entries.iter_mut().find(|entry| entry.has(connection));
        if let Some(entry) = entry.filter(|_| condition()) {
            entry.current = None;
        }
        entries.retain(Entry::is_of_use);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionRegistry for Registry {
    fn restore(&self, connection: &Arc<Connection>) {
        let mut entries = self.lock();
        let index = index_for(&mut entries, connection.address());
        let place = &mut entries[index].current;
        if place.as_ref().is_none_or(|current| current.is_unused()) {
            *place = Some(Arc::clone(connection));
        }
    }

    fn dismiss(&self, connection: &Arc<Connection>) {
        self.remove_if(connection, || true);
    }

    fn handle_unused(
        self: Arc<Self>,
        connection: &Arc<Connection>,
        leaving: u64,
        stays_open: bool,
    ) {
        if !self.has(connection) {
            return;
        }
        if !stays_open || connection.has_ended() {
            return self.remove_if(connection, || connection.is_unused_since(leaving));
        }
        let (registry, connection) = (Arc::downgrade(&self), Arc::downgrade(connection));
        self.tasks.spawn(async move {
            let end = poll_fn(|context| match connection.upgrade() {
                Some(connection) => connection.poll_unused(context),
                None => Poll::Ready(()),
            });
            select! {
                () = end => {}
                () = sleep(KEPT) => {}
            }
            if let Some((registry, connection)) = registry.upgrade().zip(connection.upgrade()) {
                registry.remove_if(&connection, || connection.is_unused_since(leaving));
            }
        });
    }
}

/// The index in `entries` of the entry for `address`, which is added if there is none.
fn index_for(entries: &mut Vec<Entry>, address: &Arc<Address>) -> usize {
    entries.iter().position(|entry| entry.is_for(address)).unwrap_or_else(|| {
        entries.push(Entry { address: Arc::clone(address), current: None, dial: None });
        entries.len() - 1
    })
}

impl Entry {
    fn is_for(&self, address: &Address) -> bool {
        self.address.connects_as(address)
    }

    fn has(&self, connection: &Arc<Connection>) -> bool {
        self.current.as_ref().is_some_and(|current| Arc::ptr_eq(current, connection))
    }

    fn is_of_use(&self) -> bool {
        self.current.is_some()
            || self.dial.as_ref().is_some_and(|dial| dial.life.strong_count() > 0)
    }

    /// The existing connection, unless it is the `silent` one.
    fn usable(&mut self, silent: Option<&Arc<Connection>>) -> Option<&Arc<Connection>> {
        if self.current.as_ref().is_some_and(|current| current.has_ended()) {
            self.current = None;
        }
        let is_silent = silent.is_some_and(|silent| self.has(silent));
        self.current.as_ref().filter(|_| !is_silent)
    }

    fn under_way(&self, wish: &Wish<'_>, earlier: Duration) -> Option<UnderWay> {
        let dial = self.dial.as_ref()?;
        let is_fit =
            dial.began + earlier >= wish.since && (wish.silent.is_some() || !dial.is_beside);
        let making = dial.result.upgrade().filter(|_| is_fit)?;
        Some(UnderWay { began: dial.began, making })
    }
}

impl Dial {
    /// Starts a dial; nothing happens before a user waits for it.
    fn begin(registry: &Arc<Registry>, wish: &Wish<'_>) -> (Shared<Making>, Option<Self>) {
        let (alive, address) = (Arc::new(()), Arc::clone(wish.address));
        let (life, registry) = (Arc::downgrade(&alive), Arc::downgrade(registry));
        let (abandoned, silent) = (wish.abandoned.cloned(), wish.silent.cloned());
        let (began, is_beside) = (Instant::now(), silent.is_some());
        let making = make(registry, address, abandoned, silent);
        let making = making.inspect(move |_| drop(alive)).boxed().shared();
        let result = making.downgrade();
        (making, result.map(|result| Self { began, is_beside, result, life }))
    }
}

/// Makes a connection to `address`, and tells the server to end `abandoned`.
async fn make(
    registry: Weak<Registry>,
    address: Arc<Address>,
    abandoned: Option<ClientId>,
    silent: Option<Arc<Connection>>,
) -> Result<Arc<Connected>, Fault> {
    let since = Instant::now();
    let stream = transport::open(&address).await?.stream;
    let share = Connection::over(Pipe::new(stream), &address, registry.clone());
    let told = log_in(&share, &address, abandoned.as_ref()).await?;
    if let Some(silent) = silent.as_ref().filter(|silent| !silent.has_ended()) {
        share.wait(GRACE).await;
        if silent.was_heard_after(since) {
            return Ok(Arc::new(Connected { share: silent.share(), told: None, ended: None }));
        }
    }
    let quicker = registry.upgrade().and_then(|it| it.enter(share.connection(), silent.as_ref()));
    if let Some(share) = quicker {
        return Ok(Arc::new(Connected { share, told: None, ended: None }));
    }
    Ok(Arc::new(Connected { share, told: Some(told), ended: abandoned }))
}

/// How long a connection without a user is kept.
const KEPT: Duration = Duration::from_secs(5);
/// The time that a server gets, after it was stopped and continues, to work through its buffers.
pub(super) const GRACE: Duration = Duration::from_millis(20);
