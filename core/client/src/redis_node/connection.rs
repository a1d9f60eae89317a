//! One connection to a server, which several users of this process share. Owns which user gets
//! which reply, and which user reads; knows nothing of locks.
//!
//! Each user sees a connection of its own: its calls go out in order, and their replies come back
//! in that order. Calls of other users go in between, and it never sees their replies. The
//! connection has no task: the user that was polled last is woken when bytes can be read or
//! written, and does that for all users. So each user must poll its share until it drops it; then
//! another user is woken.

mod traffic;

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt as _, Shared, WeakShared};
use quorlock_protocol::Fault;
use tokio::time::{Instant, sleep};

use self::traffic::Traffic;
use super::session::{ClientId, Facts, Known};
use super::transport::{Outgoing, Pipe, Reply};
use crate::address::Address;
use crate::clock;

/// A connection to a server, with one log-in.
pub(super) struct Connection {
    /// The address and log-in that it was made with.
    address: Arc<Address>,
    traffic: Mutex<Traffic>,
    known: OnceLock<Known>,
    registry: Weak<dyn ConnectionRegistry>,
    /// The identity question that is in flight, shared by all users that ask meanwhile.
    inquiry: Mutex<Option<WeakShared<Inquiry>>>,
    made: Instant,
    /// When the last reply came while there were several users, in nanoseconds since `made`; 0 before the first.
    last_reply: AtomicU64,
}

/// The registry of connections: gives one to new users, and keeps one without users for a while.
pub(super) trait ConnectionRegistry: Send + Sync {
    /// The last user of `connection` has left, for the `leaving`th time; the connection is kept for
    /// a while if it `stays_open`.
    fn handle_unused(self: Arc<Self>, connection: &Arc<Connection>, leaving: u64, stays_open: bool);

    /// New users are given another connection.
    fn dismiss(&self, connection: &Arc<Connection>);

    /// New users are given this connection again, unless another is in use by now.
    fn restore(&self, connection: &Arc<Connection>);
}

/// The answer to the question which server is at the other end.
pub(super) type Inquiry = BoxFuture<'static, Result<Facts, Fault>>;

/// One user's side of a connection.
pub(super) struct Share {
    connection: Arc<Connection>,
    number: usize,
    /// Whether the connection is kept for a while after its last user has left.
    stays_open: bool,
}

impl Connection {
    /// Creates a connection to `address` over `pipe`, and its first user. `registry` gives it to
    /// further users.
    pub(super) fn over(
        pipe: Pipe,
        address: &Arc<Address>,
        registry: Weak<dyn ConnectionRegistry>,
    ) -> Share {
        let (traffic, known) = (Mutex::new(Traffic::over(pipe)), OnceLock::new());
        let inquiry = Mutex::default();
        let (made, last_reply) = (Instant::now(), AtomicU64::new(0));
        let address = Arc::clone(address);
        Self::share(&Arc::new(Self {
            address,
            traffic,
            known,
            registry,
            inquiry,
            made,
            last_reply,
        }))
    }

    /// Adds a user.
    pub(super) fn share(self: &Arc<Self>) -> Share {
        let number = self.lock().admit();
        Share { connection: Arc::clone(self), number, stays_open: true }
    }

    pub(super) fn address(&self) -> &Arc<Address> {
        &self.address
    }

    pub(super) fn learn(&self, known: Known) {
        // Set once, as a connection logs in once.
        let _ = self.known.set(known);
    }

    pub(super) fn known(&self) -> Option<&Known> {
        self.known.get()
    }

    pub(super) fn client(&self) -> Option<&ClientId> {
        self.known.get()?.client.as_ref()
    }

    /// The identity question that is in flight, or else the one that `ask` starts.
    pub(super) fn inquiry(&self, ask: impl FnOnce() -> Inquiry) -> Shared<Inquiry> {
        let mut inquiry = self.inquiry.lock().unwrap_or_else(PoisonError::into_inner);
        inquiry.as_ref().and_then(WeakShared::upgrade).unwrap_or_else(|| {
            let fresh = ask().shared();
            *inquiry = fresh.downgrade();
            fresh
        })
    }

    /// Whether there will be no more replies.
    pub(super) fn has_ended(&self) -> bool {
        self.lock().pipe.has_failed()
    }

    /// When the last reply came; `None` also if there was only one user, which knows that itself.
    pub(super) fn last_reply(&self) -> Option<Instant> {
        let nanos = self.last_reply.load(Ordering::Relaxed);
        (nanos > 0).then(|| self.made + Duration::from_nanos(nanos))
    }

    /// Whether a reply has come after `moment`, while there was more than one user.
    pub(super) fn was_heard_after(&self, moment: Instant) -> bool {
        self.last_reply().is_some_and(|last_reply| last_reply > moment)
    }

    pub(super) fn is_unused(&self) -> bool {
        self.lock().count == 0
    }

    /// Whether it has had no user since the last one left for the `leaving`th time.
    pub(super) fn is_unused_since(&self, leaving: u64) -> bool {
        let traffic = self.lock();
        traffic.count == 0 && traffic.leavings == leaving
    }

    /// Ready when the connection has ended while it had no user; with a user, only that user reads.
    pub(super) fn poll_unused(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut traffic = self.lock();
        while traffic.count == 0 {
            match traffic.pipe.poll_reply(context) {
                Poll::Ready(Ok(reply)) => {
                    self.note_reply();
                    let asker = traffic.next_asker();
                    traffic.give(asker, reply);
                }
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Pending
    }

    /// A reply has come: users that wait for another reply must know that the server is not silent.
    pub(super) fn note_reply(&self) {
        self.last_reply.store(clock::nanos(self.made.elapsed()).max(1), Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Traffic> {
        self.traffic.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Share {
    pub(super) fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    /// Takes the calls of `outgoing` behind all others. They are written by the next [`Self::poll_reply`].
    pub(super) fn request(&self, outgoing: &mut Outgoing) {
        self.open().request(outgoing);
    }

    /// Locks the connection, for several calls or replies in a row.
    pub(super) fn open(&self) -> Open<'_> {
        Open { share: self, traffic: self.connection.lock() }
    }

    /// The reply to this user's oldest call, or why there will be no more.
    pub(super) fn poll_reply(&self, context: &mut Context<'_>) -> Poll<Result<Reply, Fault>> {
        self.open().poll_reply(context)
    }

    /// Waits, but reads and writes for the other users meanwhile.
    pub(super) async fn wait(&self, time: Duration) {
        let (mut pause, mut serving) = (pin!(sleep(time)), pin!(self.serve()));
        poll_fn(|context| {
            let _ = serving.as_mut().poll(context);
            pause.as_mut().poll(context)
        })
        .await;
    }

    /// Reads and writes for the other users, while this one waits for something else.
    async fn serve(&self) {
        poll_fn(|context| {
            // A failure is told to the next user that asks.
            let _ = self.open().read(context, |_| false);
            Poll::<()>::Pending
        })
        .await;
    }

    /// Ends the connection for all its users.
    pub(super) fn fail(&self, fault: &Fault) {
        let mut traffic = self.connection.lock();
        traffic.pipe.give_up(fault);
        traffic.wake_all_but(self.number);
    }

    /// Leaves; the connection is closed at once if it has no other user.
    pub(super) fn close(mut self) {
        self.stays_open = false;
    }

    /// New users are given another connection.
    pub(super) fn dismiss(&self) {
        if let Some(registry) = self.connection.registry.upgrade() {
            registry.dismiss(&self.connection);
        }
    }

    /// New users are given this connection again, unless another one is in use by now.
    pub(super) fn restore(&self) {
        if let Some(registry) = self.connection.registry.upgrade() {
            registry.restore(&self.connection);
        }
    }
}

/// A share that has locked the connection: no other user can use it meanwhile.
pub(super) struct Open<'a> {
    share: &'a Share,
    traffic: MutexGuard<'a, Traffic>,
}

impl Open<'_> {
    /// Takes calls, as [`Share::request`] does.
    pub(super) fn request(&mut self, outgoing: &mut Outgoing) {
        self.traffic.expect_replies(self.share.number, outgoing.calls());
        self.traffic.pipe.request(outgoing);
    }

    #[inline]
    pub(super) fn poll_reply(&mut self, context: &mut Context<'_>) -> Poll<Result<Reply, Fault>> {
        let number = self.share.number;
        if let Some(reply) = self.traffic.take(number) {
            return Poll::Ready(Ok(reply));
        }
        self.read(context, |asker| asker == number)
    }

    /// Reads until a reply `is_wanted`; passes other replies to the users that asked for them.
    #[inline]
    fn read(
        &mut self,
        context: &mut Context<'_>,
        is_wanted: impl Fn(usize) -> bool,
    ) -> Poll<Result<Reply, Fault>> {
        let (traffic, number) = (&mut *self.traffic, self.share.number);
        loop {
            // Passed on as it is: a reply is large, and copying each would cost.
            let polled = traffic.pipe.poll_reply(context);
            match &polled {
                Poll::Ready(Ok(_)) => {
                    let asker = traffic.next_asker();
                    if traffic.count > 1 || asker != number {
                        self.share.connection.note_reply();
                    }
                    if is_wanted(asker) {
                        traffic.note_given(asker);
                        return polled;
                    }
                    if let Poll::Ready(Ok(reply)) = polled {
                        traffic.give(asker, reply);
                    }
                }
                Poll::Ready(Err(_)) => {
                    traffic.wake_all_but(number);
                    return polled;
                }
                Poll::Pending => {
                    traffic.note_reader(number, context.waker());
                    return polled;
                }
            }
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let left = self.connection.lock().discharge(self.number);
        let registry = || self.connection.registry.upgrade();
        if let Some((leaving, registry)) = left.zip(registry()) {
            registry.handle_unused(&self.connection, leaving, self.stays_open);
        }
    }
}

#[cfg(test)]
mod tests;
