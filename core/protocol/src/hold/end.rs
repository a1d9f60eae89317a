//! How the holding of a lease ends, and the words for it.

/// Why a lease is no longer held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HoldEnd {
    /// The lease is over, and why. What becomes of its keys is decided by [`LeaseLife`](crate::LeaseLife).
    Lost(LossReason),
    /// The caller stopped the machine.
    Stopped,
}

/// How a lease was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LossReason {
    /// Its validity passed without a renewal that a quorum confirmed.
    Expired,
    /// So many nodes had lost the keys, or given them to another, that no quorum is left.
    Gone,
    /// It was renewed for as long as `max_hold` allows.
    HeldTooLong,
}

impl LossReason {
    /// What happened, for the middle of a sentence.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Expired => "its validity passed without a renewal confirmed by a quorum",
            Self::Gone => {
                "a quorum of nodes no longer holds it (taken by another, deleted or expired)"
            }
            Self::HeldTooLong => "it was renewed for as long as max_hold allows",
        }
    }
}
