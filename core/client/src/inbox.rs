//! Where an operation is woken: by replies, or because it is told to stop. Owns the queue.

mod late;

use std::future::poll_fn;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use futures_util::task::AtomicWaker;
use quorlock_protocol::{Moment, NodeId, Reply};

pub(crate) use self::late::{CompactVotes, LateVotes};
use crate::clock::{self, LeaseClock};

/// What has come in for one operation, or for several that share it, and was not looked at yet.
#[derive(Default)]
pub(crate) struct Inbox {
    incoming: Mutex<Incoming>,
    waker: AtomicWaker,
    /// That of the operations.
    clock: LeaseClock,
}

#[derive(Default)]
struct Incoming {
    replies: Vec<Arrival>,
    cancelled: bool,
    freed: bool,
    /// Where replies go once the operation is over.
    late: Option<Arc<LateVotes>>,
}

/// Tells apart the operations that share an inbox; the default one has an inbox to itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OperationId(pub(crate) u64);

/// One reply, and when it came: it may be looked at much later.
pub(crate) struct Arrival {
    /// By the lease clock of whoever asked.
    pub(crate) at: Moment,
    pub(crate) operation: OperationId,
    pub(crate) node: NodeId,
    pub(crate) reply: Reply,
}

/// Why an operation woke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wake {
    Replies,
    /// What is waited for may be free.
    Freed,
    Cancelled,
}

impl Inbox {
    /// For so many replies at once, mostly, to operations that go by `clock`.
    pub(crate) fn with_room_for(replies: usize, clock: &LeaseClock) -> Self {
        let replies = Vec::with_capacity(replies);
        let incoming = Mutex::new(Incoming { replies, ..Incoming::default() });
        Self { incoming, waker: AtomicWaker::new(), clock: clock.clone() }
    }

    /// The clock of those who are told here.
    pub(crate) const fn clock(&self) -> &LeaseClock {
        &self.clock
    }

    /// Waits until something is there, and takes all replies into an empty `batch`.
    ///
    /// A cancellation comes before replies, and for ever after.
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
        mem::take(&mut incoming.freed).then_some(Wake::Freed)
    }

    /// Tells the operation to stop.
    pub(crate) fn cancel(&self) {
        self.lock().cancelled = true;
        self.waker.wake();
    }

    /// What the operation waits for may be free.
    pub(crate) fn tell_free(&self) {
        self.lock().freed = true;
        self.waker.wake();
    }

    /// The operation is over: what its last round still gets counts for `late`.
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

/// The way back for one command's reply.
#[derive(Clone)]
pub struct ReplyTo {
    inbox: Arc<Inbox>,
    operation: OperationId,
    node: NodeId,
}

impl ReplyTo {
    /// The way back to the one operation that has the inbox.
    pub(crate) fn new(inbox: &Arc<Inbox>, node: NodeId) -> Self {
        Self::of(inbox, OperationId::default(), node)
    }

    /// The way back to one of the operations that share the inbox.
    pub(crate) fn of(inbox: &Arc<Inbox>, operation: OperationId, node: NodeId) -> Self {
        Self { inbox: Arc::clone(inbox), operation, node }
    }

    /// The lease clock of the operation that asked.
    pub(crate) fn clock(&self) -> &LeaseClock {
        self.inbox.clock()
    }

    /// Hands the reply to the operation that asked, and wakes it.
    pub fn deliver(&self, reply: Reply) {
        self.deliver_at(clock::now(), reply);
    }

    /// [`Self::deliver`] of what came at that moment of the boot clock.
    pub(crate) fn deliver_at(&self, at: Moment, reply: Reply) {
        let (operation, node) = (self.operation, self.node);
        let at = self.clock().at(at);
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
