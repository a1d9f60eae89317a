//! The list of ways in which the holding of a lease ends, and the words for them.

/// Why a lease is no longer held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HoldEnd {
    /// The lease was lost, for this reason. [`LeaseLife`](crate::LeaseLife) decides what becomes of
    /// its keys.
    Lost(LossReason),
    /// The caller stopped the machine.
    Stopped,
}

/// How a lease was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LossReason {
    /// Its validity ended without a renewal that a quorum confirmed.
    Expired,
    /// Nodes have lost the keys, or given them to another, so that no quorum is left.
    Gone,
    /// It was renewed for as long as `max_hold` permits.
    HeldTooLong,
}

impl LossReason {
    /// Every reason, in a fixed order.
    pub const ALL: [Self; 3] = [Self::Expired, Self::Gone, Self::HeldTooLong];

    /// A stable name for programs, for example `expired`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Gone => "gone",
            Self::HeldTooLong => "held-too-long",
        }
    }

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
