//! Receives the replies of a node, for code that implements, wraps or tests one. Owns only the
//! waiting.

use std::collections::VecDeque;
use std::sync::Arc;

use quorlock_protocol::{NodeId, Reply};

use crate::inbox::{Inbox, ReplyTo};

/// The replies of one node, in the order in which they come.
///
/// ```
/// use quorlock::{Node as _, MemoryNode, Replies};
/// use quorlock_protocol::{Action, Answer, Claim, Command, HolderId, Moment, Resources, Ticket};
///
/// # futures::FutureExt::now_or_never(async {
/// let node = MemoryNode::named("documentation");
/// let claim = Claim { resources: Resources::new(["r"])?, holder: HolderId::adopt("me")? };
/// let mut replies = Replies::new();
/// node.send(
///     Command {
///         ticket: Ticket(1),
///         claim: claim.into(),
///         action: Action::Inspect,
///         not_after: Moment::FAR_FUTURE,
///     },
///     replies.way_back(),
/// );
/// assert_eq!(replies.next().await.answer, Ok(Answer::Absent));
/// # Ok::<(), quorlock_protocol::ConfigError>(())
/// # }).unwrap().unwrap();
/// ```
#[derive(Default)]
pub struct Replies {
    inbox: Arc<Inbox>,
    taken: VecDeque<Reply>,
}

impl Replies {
    /// No replies yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The reply address to pass to [`Node::send`](crate::Node::send), so that the reply arrives
    /// here.
    pub fn way_back(&self) -> ReplyTo {
        ReplyTo::new(&self.inbox, NodeId(0))
    }

    /// Waits for the next reply. No reply is lost when the future is dropped.
    pub async fn next(&mut self) -> Reply {
        loop {
            if let Some(reply) = self.taken.pop_front() {
                return reply;
            }
            let mut batch = Vec::new();
            self.inbox.take(&mut batch).await;
            self.taken.extend(batch.into_iter().map(|arrival| arrival.reply));
        }
    }
}
