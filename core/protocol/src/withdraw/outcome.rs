//! The list of outcomes of a release, and the words for them.

/// What became of the keys that a release took back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReleaseOutcome {
    /// A quorum held the lease until it deleted the keys (or, within `min_hold`, was told when to
    /// delete them): no one else can have held it.
    Released,
    /// The keys were gone on so many nodes that another may have held the lock in between.
    Expired,
    /// Another holds the lock.
    Taken,
    /// Too few nodes answered to tell. The others are asked again in the background.
    Unknown,
}

impl ReleaseOutcome {
    /// Every outcome, in a fixed order.
    pub const ALL: [Self; 4] = [Self::Released, Self::Expired, Self::Taken, Self::Unknown];

    /// The word for it: `released`, `expired`, `taken` or `unknown`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Released => "released",
            Self::Expired => "expired",
            Self::Taken => "taken",
            Self::Unknown => "unknown",
        }
    }
}
