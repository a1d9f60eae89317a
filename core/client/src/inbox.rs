//! Where the replies for one operation arrive. Owns the queue and the wake-up.

use std::future::poll_fn;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use futures_util::task::AtomicWaker;
use quorlock_protocol::{NodeId, Reply};

/// The replies that one operation has not looked at yet.
#[derive(Default)]
pub(crate) struct Inbox {
    replies: Mutex<Vec<(NodeId, Reply)>>,
    waker: AtomicWaker,
}

impl Inbox {
    /// Waits until there is at least one reply and takes all there are, into an empty `batch`.
    pub(crate) async fn take(&self, batch: &mut Vec<(NodeId, Reply)>) {
        poll_fn(|context| {
            self.waker.register(context.waker());
            let mut replies = self.replies.lock().unwrap_or_else(PoisonError::into_inner);
            if replies.is_empty() {
                return Poll::Pending;
            }
            mem::swap(&mut *replies, batch);
            Poll::Ready(())
        })
        .await;
    }
}

/// The way back for one command's reply.
#[derive(Clone)]
pub struct ReplyTo {
    inbox: Arc<Inbox>,
    node: NodeId,
}

impl ReplyTo {
    pub(crate) fn new(inbox: &Arc<Inbox>, node: NodeId) -> Self {
        Self { inbox: Arc::clone(inbox), node }
    }

    /// Hands the reply to the operation that asked, and wakes it.
    pub fn deliver(&self, reply: Reply) {
        let mut replies = self.inbox.replies.lock().unwrap_or_else(PoisonError::into_inner);
        replies.push((self.node, reply));
        drop(replies);
        self.inbox.waker.wake();
    }
}
