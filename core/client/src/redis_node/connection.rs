//! One connection of the process to a server, and those who use it. Owns who is to be given which reply, and who reads;
//! knows no lock.
//!
//! Each user sees a connection of its own: its calls go out in their order, and their replies come back in that order.
//! Those of others go in between, and it never hears of them. There is no task for the connection: whoever of its users
//! was polled last is woken when something can be read or written, and does so for all. So whoever has a share in a
//! connection must poll it until it is dropped; the next one is woken then.

mod traffic;

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use quorlock_protocol::Fault;
use redis::Cmd;
use tokio::time::{Instant, sleep};

use self::traffic::Traffic;
use super::call::Call;
use super::connections::Registry;
use super::facts::Facts;
use super::frame::Reply;
use super::login::{ClientId, ask};
use super::pipe::Pipe;
use super::scripts::Digests;
use crate::address::Address;
use crate::clock;

/// A connection to a server, with one log-in.
pub(super) struct Connection {
    /// Whom it leads to, and as whom.
    address: Arc<Address>,
    traffic: Mutex<Traffic>,
    known: OnceLock<Known>,
    registry: Weak<Registry>,
    /// The question who the server is that is out, for all who come meanwhile.
    inquiry: Mutex<Option<WeakShared<Inquiry>>>,
    made: Instant,
    /// When a reply came that not the only user was waiting for, in nanoseconds since it was made; 0 before the first.
    heard: AtomicU64,
}

pub(super) type Inquiry = BoxFuture<'static, Result<Facts, Fault>>;

/// What the log-in has told of the connection.
#[derive(Clone)]
pub(super) struct Known {
    /// How the server calls it.
    pub(super) client: Option<ClientId>,
    /// What the server calls the scripts; `None` if this user may not load them.
    pub(super) digests: Option<Digests>,
}

/// One user's side of a connection.
pub(super) struct Share {
    connection: Arc<Connection>,
    number: usize,
    /// Whether the connection is kept for a while when nobody uses it any more.
    lingers: bool,
}

impl Connection {
    /// Makes one to `address` of `pipe`, and its first user.
    pub(super) fn over(pipe: Pipe, address: &Arc<Address>, registry: Weak<Registry>) -> Share {
        let (traffic, known) = (Mutex::new(Traffic::over(pipe)), OnceLock::new());
        let inquiry = Mutex::default();
        let (made, heard) = (Instant::now(), AtomicU64::new(0));
        let address = Arc::clone(address);
        Self::share(&Arc::new(Self { address, traffic, known, registry, inquiry, made, heard }))
    }

    /// One user more.
    pub(super) fn share(self: &Arc<Self>) -> Share {
        let number = self.lock().admit();
        Share { connection: Arc::clone(self), number, lingers: true }
    }

    pub(super) fn address(&self) -> &Arc<Address> {
        &self.address
    }

    pub(super) fn learn(&self, known: Known) {
        // It logs in once.
        let _ = self.known.set(known);
    }

    pub(super) fn known(&self) -> Option<&Known> {
        self.known.get()
    }

    /// How the server calls it.
    pub(super) fn client(&self) -> Option<&ClientId> {
        self.known.get()?.client.as_ref()
    }

    /// Asks the server who it is, or waits with those who do.
    pub(super) fn inquire(self: &Arc<Self>) -> Shared<Inquiry> {
        let mut inquiry = self.inquiry.lock().unwrap_or_else(PoisonError::into_inner);
        inquiry.as_ref().and_then(WeakShared::upgrade).unwrap_or_else(|| {
            let share = self.share();
            let fresh = async move { ask(&share, None).await }.boxed().shared();
            *inquiry = fresh.downgrade();
            fresh
        })
    }

    /// Whether there will be no more replies.
    pub(super) fn has_ended(&self) -> bool {
        self.lock().pipe.has_failed()
    }

    /// When a reply has come last; `None` also while a user is alone, who is given every reply and knows by itself.
    pub(super) fn heard(&self) -> Option<Instant> {
        let nanos = self.heard.load(Ordering::Relaxed);
        (nanos > 0).then(|| self.made + Duration::from_nanos(nanos))
    }

    /// Whether a reply has come after `moment`, other than to an only user.
    pub(super) fn was_heard_after(&self, moment: Instant) -> bool {
        self.heard().is_some_and(|heard| heard > moment)
    }

    pub(super) fn is_unused(&self) -> bool {
        self.lock().count == 0
    }

    /// Whether nobody uses it, since its last user left for the `leaving`th time.
    pub(super) fn is_unused_since(&self, leaving: u64) -> bool {
        let traffic = self.lock();
        traffic.count == 0 && traffic.leavings == leaving
    }

    /// Ready when it has ended while nobody used it; it is never read from as long as somebody does.
    pub(super) fn poll_unused(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut traffic = self.lock();
        while traffic.count == 0 {
            match traffic.pipe.poll_reply(context) {
                Poll::Ready(Ok(reply)) => {
                    self.note_heard();
                    let asker = traffic.next_asker();
                    traffic.give(asker, reply);
                }
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Pending
    }

    /// A reply has come, which not only one who waits for more of them must know.
    pub(super) fn note_heard(&self) {
        self.heard.store(clock::nanos(self.made.elapsed()).max(1), Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Traffic> {
        self.traffic.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Share {
    /// The connection.
    pub(super) fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    /// Puts a call in, behind all others. It is written by the next [`Self::poll_reply`].
    pub(super) fn request(&self, call: &Cmd) {
        let mut traffic = self.connection.lock();
        traffic.expect_reply(self.number);
        traffic.pipe.request(call);
    }

    /// For several calls or replies in a row.
    pub(super) fn open(&self) -> Open<'_> {
        Open { share: self, traffic: self.connection.lock() }
    }

    /// The reply to this user's oldest call, or why there will be no more.
    pub(super) fn poll_reply(&self, context: &mut Context<'_>) -> Poll<Result<Reply, Fault>> {
        self.open().poll_reply(context)
    }

    /// Waits, and reads and writes for the others meanwhile.
    pub(super) async fn wait(&self, time: Duration) {
        let (mut pause, mut serving) = (pin!(sleep(time)), pin!(self.serve()));
        poll_fn(|context| {
            let _ = serving.as_mut().poll(context);
            pause.as_mut().poll(context)
        })
        .await;
    }

    /// Reads and writes for the others, while this user waits for something else.
    async fn serve(&self) {
        poll_fn(|context| {
            // Whoever asks next hears of a failure.
            let _ = self.open().read(context, |_| false);
            Poll::<()>::Pending
        })
        .await;
    }

    /// Ends the connection for all who use it.
    pub(super) fn fail(&self, fault: &Fault) {
        let mut traffic = self.connection.lock();
        traffic.pipe.give_up(fault);
        traffic.wake_all_but(self.number);
    }

    /// Leaves; the connection is closed at once if nobody else uses it.
    pub(super) fn close(mut self) {
        self.lingers = false;
    }

    /// Has nobody else begin to use the connection.
    pub(super) fn dismiss(&self) {
        if let Some(registry) = self.connection.registry.upgrade() {
            registry.dismiss(&self.connection);
        }
    }

    /// Has those who come use the connection again, unless others use one that was made in its place.
    pub(super) fn restore(&self) {
        if let Some(registry) = self.connection.registry.upgrade() {
            registry.restore(&self.connection);
        }
    }
}

/// A share in use: nobody else is served meanwhile.
pub(super) struct Open<'a> {
    share: &'a Share,
    traffic: MutexGuard<'a, Traffic>,
}

impl Open<'_> {
    /// Puts a call in, as [`Share::request`] does.
    pub(super) fn request_call(&mut self, call: &Call) {
        self.traffic.expect_reply(self.share.number);
        self.traffic.pipe.request_call(call);
    }

    #[inline]
    pub(super) fn poll_reply(&mut self, context: &mut Context<'_>) -> Poll<Result<Reply, Fault>> {
        let number = self.share.number;
        if let Some(reply) = self.traffic.take(number) {
            return Poll::Ready(Ok(reply));
        }
        self.read(context, |asker| asker == number)
    }

    /// Reads until a reply `is_wanted`; hands the others to those who asked.
    #[inline]
    fn read(
        &mut self,
        context: &mut Context<'_>,
        is_wanted: impl Fn(usize) -> bool,
    ) -> Poll<Result<Reply, Fault>> {
        let (traffic, number) = (&mut *self.traffic, self.share.number);
        loop {
            // Passed on as it is: a reply is large, and there are many.
            let polled = traffic.pipe.poll_reply(context);
            match &polled {
                Poll::Ready(Ok(_)) => {
                    let asker = traffic.next_asker();
                    if traffic.count > 1 || asker != number {
                        self.share.connection.note_heard();
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
            registry.handle_unused(&self.connection, leaving, self.lingers);
        }
    }
}

#[cfg(test)]
mod tests;
