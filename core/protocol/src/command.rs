//! What a machine asks of a node and what it hears back. Owns the vocabulary; knows no wire format.

use std::sync::Arc;
use std::time::Duration;

use crate::fault::Fault;
use crate::identity::{Claim, FencingToken};
use crate::place::{Place, Queued};
use crate::time::{Moment, Ttl};

/// Ties a reply to the round that asked: unique among the rounds of one machine, and 0 for the first grant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u32);

/// One request to one node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Command {
    /// Returned in the reply.
    pub ticket: Ticket,
    /// Whose keys it is about.
    pub claim: Arc<Claim>,
    /// What to do with them.
    pub action: Action,
    /// A node that gets to it only after this moment answers
    /// [`FaultKind::Late`](crate::FaultKind::Late) instead of doing it.
    ///
    /// As a machine makes it, it is a moment of the lease clock. Nodes go by the clock that is never corrected: the
    /// driver converts it when it hands the command over.
    pub not_after: Moment,
}

/// What a node is asked to do with the keys of a [`Claim`]: all of them or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Take the keys if every one is free or already the claim's: [`Answer::Ours`] or
    /// [`Answer::Theirs`], which may have raised the fence, too. May be sent again after a lost reply:
    /// keys are kept, and the token is one that nobody else was given.
    Grant {
        /// How long the node keeps the keys.
        key_ttl: Ttl,
        /// Present when fencing tokens are on.
        fence: Option<Fence>,
        /// Present in fair mode: the grant is refused while an earlier caller waits.
        place: Option<Place>,
    },
    /// Keep the keys for `key_ttl` from now: [`Answer::Ours`], or [`Answer::Absent`] if one is gone, or
    /// [`Answer::Theirs`]. Never makes a key.
    Extend {
        /// How long the node keeps the keys from now on.
        key_ttl: Ttl,
        /// How much may be left of a key that is kept for no longer than `key_ttl` either. Only for a lease that has
        /// ended: else a command that is late, or of another who has the token, could end what is trusted.
        may_shorten: Option<Duration>,
    },
    /// Take the keys again on a node that has lost them, for a lease that a quorum has just confirmed:
    /// [`Answer::Ours`] or [`Answer::Theirs`]. It counts for no vote, so that a node does it also
    /// while its grants are held back.
    Restore {
        /// How long the node keeps the keys.
        key_ttl: Ttl,
    },
    /// Delete those keys that are the claim's: [`Answer::Ours`] if all were, otherwise
    /// [`Answer::Theirs`] if one is another's, otherwise [`Answer::Absent`].
    Revoke {
        /// For each key that is free then, call the first waiter.
        calls: bool,
        /// Present for a lease that has ended: a key of which more is left stays, as another who has the token has
        /// extended it.
        max_remaining: Option<Duration>,
    },
    /// Raise the fence to `token` if the keys are the claim's (the write-back of a fencing token).
    RaiseFence {
        /// The token of the acquisition.
        token: FencingToken,
        /// How long the node is to remember fences, at least.
        retention: Ttl,
    },
    /// Only look: [`Answer::Ours`], [`Answer::Absent`] or [`Answer::Theirs`].
    Inspect,
    /// Take or keep a place in the queue of every key, and look: [`Answer::Queued`]. Grants nothing.
    Enqueue {
        /// Whose place it is.
        place: Place,
    },
    /// Give the place up: [`Answer::Done`]. If it was the first, the next waiter is told.
    Leave {
        /// Whose place it is.
        place: Place,
    },
    /// Count the places in the queues of the keys, of the longest: [`Answer::Waiters`].
    CountWaiters,
}

impl Action {
    /// Deletes the claim's keys, whatever is left of them, and calls nobody.
    pub const REVOKE: Self = Self::Revoke { calls: false, max_remaining: None };

    /// Whether it makes lock keys that were not there.
    pub const fn makes_keys(&self) -> bool {
        matches!(self, Self::Grant { .. } | Self::Restore { .. })
    }

    /// Whether it concerns only queues: it never makes, keeps or deletes a lock key.
    pub const fn is_of_queue(&self) -> bool {
        matches!(self, Self::Enqueue { .. } | Self::Leave { .. } | Self::CountWaiters)
    }
}

/// The fencing part of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fence {
    /// The token that the client proposes, the same to every node.
    pub proposal: FencingToken,
    /// How long the node is to remember fences, at least.
    pub retention: Ttl,
}

impl Fence {
    /// By how many microseconds a granted token may differ from the node's own clock, unless the fence stands
    /// higher: one second. A node grants, for its fence `f` and its clock `T`, the proposal `P` brought within a
    /// second of `T`, or `f + 1` if that is larger. So no client's clock can make tokens go back, or raise them
    /// for ever.
    pub const SLACK_MICROS: u64 = 1_000_000;
}

/// A node's reply to one [`Command`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reply {
    /// The ticket of the command.
    pub ticket: Ticket,
    /// What the node found and did, or why it could not.
    pub answer: Result<Answer, Fault>,
    /// The command went out more than once (its first reply was lost with the connection), so that
    /// the answer may describe the node after the command's own effect.
    pub repeated: bool,
}

/// What a node found: one shape for every action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// Every key is (or, for a revoke, was) the claim's, and the action was done.
    Ours {
        /// The fence of the resources after the action, the highest of several.
        token: Option<FencingToken>,
        /// What is left of the keys' ttl, the shortest of several; only told by an inspection, and `None` there if
        /// another program has made the keys without an end.
        remaining: Option<Duration>,
    },
    /// No key is another's, but at least one is gone. Nothing was made or extended.
    Absent,
    /// At least one key is another's. Nothing was made or extended.
    Theirs {
        /// The fence of the resources, the highest of several.
        floor: Option<FencingToken>,
        /// When the other's keys will be free.
        frees: Frees,
    },
    /// The place was taken or kept.
    Queued {
        /// What the queue says.
        queued: Queued,
        /// When the keys will be free.
        frees: Frees,
    },
    /// The place was given up.
    Done,
    /// How many wait.
    Waiters(u32),
}

/// When a key that another holds will be free by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Frees {
    /// In this time, by the node's clock.
    In(Duration),
    /// Never: the key has no ttl (another program made it).
    Never,
    /// The node did not say.
    Unknown,
}
