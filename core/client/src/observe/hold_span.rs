//! Covers the time for which a lease is held with a span of the crate `tracing`. Owns its name, its
//! fields and its links; without the feature `tracing` it is nothing.

/// The span of one lease, from its acquisition to its end. Without [`Self::end`] it ends when it is
/// dropped, and has no outcome.
#[derive(Default)]
pub(crate) struct HoldSpan {
    #[cfg(feature = "tracing")]
    span: Option<tracing::Span>,
}

impl HoldSpan {
    /// The outcome of a lease that ended before it was given back.
    pub(crate) const LOST: &str = "lost";

    /// Begins the span, if a subscriber wants it. It is no child of the caller's span, which would
    /// stay open as long, but follows from it. It does not name what is locked: that may be personal
    /// data.
    #[cfg(feature = "tracing")]
    pub(crate) fn begin(caller: &tracing::Span, fencing_token: Option<u64>) -> Option<Self> {
        let span = tracing::debug_span!(
            target: "quorlock",
            parent: None,
            "quorlock.hold",
            quorlock.fencing_token = fencing_token,
            quorlock.outcome = tracing::field::Empty,
        );
        if span.is_disabled() {
            return None;
        }
        span.follows_from(caller);
        Some(Self { span: Some(span) })
    }

    /// Ends the span; `outcome` is what has become of the lease.
    #[cfg_attr(not(feature = "tracing"), allow(clippy::unused_self))]
    pub(crate) fn end(self, outcome: &'static str) {
        #[cfg(feature = "tracing")]
        if let Some(span) = self.span {
            span.record("quorlock.outcome", outcome);
        }
        #[cfg(not(feature = "tracing"))]
        let _ = outcome;
    }
}
