//! The queue through which an operation receives replies and is told to stop. Owns the queue and
//! its wake-ups.

mod late;

use std::future::poll_fn;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use futures::task::AtomicWaker;
use quorlock_protocol::{Moment, News, NodeId, Reply};

pub(crate) use self::late::{CompactVotes, LateVotes};
use crate::clock::{self, LeaseClock};
use crate::observe::Telemetry;

/// What has arrived for one operation, or for several that share the inbox, and was not taken yet.
#[derive(Default)]
pub(crate) struct Inbox {
    incoming: Mutex<Incoming>,
    waker: AtomicWaker,
    /// The lease clock of the operations.
    clock: LeaseClock,
    /// When the commands were sent that go out now, in nanoseconds of the lease clock.
    asking: AtomicU64,
    /// Where the latencies of answers are counted.
    telemetry: Option<Arc<Telemetry>>,
}

#[derive(Default)]
struct Incoming {
    replies: Vec<Arrival>,
    /// News for its place in the nodes' queues.
    news: Vec<(NodeId, News)>,
    cancelled: bool,
    freed: bool,
    /// Where replies go once the operation has ended.
    late: Option<Arc<LateVotes>>,
}

/// Identifies one of the operations that share an inbox; the default value is for an operation that
/// does not share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OperationId(pub(crate) u64);

/// One reply, and when it arrived: it may be read much later.
pub(crate) struct Arrival {
    /// By the lease clock of the operation that asked.
    pub(crate) at: Moment,
    pub(crate) operation: OperationId,
    pub(crate) node: NodeId,
    pub(crate) reply: Reply,
}

/// Why an operation woke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wake {
    Replies,
    /// The resource may be free.
    Freed,
    /// A node has news for the operation's place in its queue.
    News(NodeId, News),
    Cancelled,
}

impl Inbox {
    /// An inbox with room for this many replies at once, for operations that use `clock`; the
    /// latencies of the answers are counted in `telemetry`.
    #[inline]
    pub(crate) fn with_room_for(
        replies: usize,
        clock: &LeaseClock,
        telemetry: Option<&Arc<Telemetry>>,
    ) -> Arc<Self> {
        let replies = Vec::with_capacity(replies);
        Arc::new(Self {
            incoming: Mutex::new(Incoming { replies, ..Incoming::default() }),
            waker: AtomicWaker::new(),
            clock: clock.clone(),
            asking: AtomicU64::new(0),
            telemetry: telemetry.cloned(),
        })
    }

    /// Commands are sent from `now` on.
    pub(crate) fn note_asking(&self, now: Moment) {
        self.asking.store(wrapped_nanos(now), Ordering::Relaxed);
    }

    /// The lease clock of the operations that receive here.
    pub(crate) const fn clock(&self) -> &LeaseClock {
        &self.clock
    }

    /// Waits until something is there, and takes all replies into `batch`, which must be empty.
    ///
    /// A cancellation is returned before replies, and again at each later call.
    pub(crate) async fn take(&self, batch: &mut Vec<Arrival>) -> Wake {
        poll_fn(|context| {
            self.waker.register(context.waker());
            self.try_take(batch).map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// Takes what is there without waiting.
    pub(crate) fn try_take(&self, batch: &mut Vec<Arrival>) -> Option<Wake> {
        let mut incoming = self.lock();
        if incoming.cancelled {
            return Some(Wake::Cancelled);
        }
        mem::swap(&mut incoming.replies, batch);
        if !batch.is_empty() {
            return Some(Wake::Replies);
        }
        if !incoming.news.is_empty() {
            let (node, news) = incoming.news.remove(0);
            return Some(Wake::News(node, news));
        }
        mem::take(&mut incoming.freed).then_some(Wake::Freed)
    }

    /// Tells the operation to stop.
    pub(crate) fn cancel(&self) {
        self.lock().cancelled = true;
        self.waker.wake();
    }

    /// Tells the operation that its resource may be free.
    pub(crate) fn tell_free(&self) {
        self.lock().freed = true;
        self.waker.wake();
    }

    /// The operation has ended: later replies to its last round go to `late`.
    pub(crate) fn leave_to(&self, late: &Arc<LateVotes>) {
        let mut incoming = self.lock();
        incoming.late = Some(Arc::clone(late));
        for arrival in mem::take(&mut incoming.replies) {
            late.record(arrival);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Incoming> {
        self.incoming.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where the reply to one command goes.
#[derive(Clone)]
pub struct ReplyTo {
    inbox: Arc<Inbox>,
    operation: OperationId,
    node: NodeId,
    /// When the command was sent, in nanoseconds of the lease clock.
    asked: u64,
}

impl ReplyTo {
    /// A reply address for the one operation that has the inbox.
    pub(crate) fn new(inbox: &Arc<Inbox>, node: NodeId) -> Self {
        Self::of(inbox, OperationId::default(), node)
    }

    /// A reply address for one of the operations that share the inbox.
    pub(crate) fn of(inbox: &Arc<Inbox>, operation: OperationId, node: NodeId) -> Self {
        let asked = inbox.asking.load(Ordering::Relaxed);
        Self { inbox: Arc::clone(inbox), operation, node, asked }
    }

    /// The lease clock of the operation that asked.
    pub(crate) fn clock(&self) -> &LeaseClock {
        self.inbox.clock()
    }

    /// Hands the reply to the operation that asked, and wakes it.
    pub fn deliver(&self, reply: Reply) {
        self.deliver_at(clock::now(), reply);
    }

    /// Hands news for its place in the node's queue to the operation, and wakes it.
    pub(crate) fn deliver_news(&self, news: News) {
        let mut incoming = self.inbox.lock();
        if incoming.late.is_none() && !incoming.news.contains(&(self.node, news)) {
            incoming.news.push((self.node, news));
        }
        drop(incoming);
        self.inbox.waker.wake();
    }

    /// [`Self::deliver`] for a reply that arrived at that moment of the boot clock.
    pub(crate) fn deliver_at(&self, at: Moment, reply: Reply) {
        let (operation, node) = (self.operation, self.node);
        let at = self.clock().at(at);
        if reply.answer.is_ok()
            && let Some(telemetry) = &self.inbox.telemetry
        {
            let took = wrapped_nanos(at).wrapping_sub(self.asked).cast_signed();
            telemetry.figures().note_answer(node, took.max(0).cast_unsigned());
        }
        let arrival = Arrival { at, operation, node, reply };
        let mut incoming = self.inbox.lock();
        if let Some(late) = &incoming.late {
            return late.record(arrival);
        }
        incoming.replies.push(arrival);
        drop(incoming);
        self.inbox.waker.wake();
    }
}

/// Nanoseconds that may wrap around, of which only differences matter.
const fn wrapped_nanos(moment: Moment) -> u64 {
    let since = moment.since_epoch();
    since.as_secs().wrapping_mul(1_000_000_000).wrapping_add(since.subsec_nanos() as u64)
}
