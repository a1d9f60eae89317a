//! A call that the server has not answered, and when it was sent. Owns these records; decides
//! nothing.

use quorlock_protocol::Moment;
use redis::Value;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::batch::Batch;
use super::native::NativeReply;
use super::wire::Form;

/// One moment, by two clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    /// By the boot clock, which deadlines and guards go by.
    pub(crate) boot: Moment,
    /// By a clock that stops while the computer sleeps, as a server is not silent during that time.
    pub(crate) awake: Instant,
}

/// A call that the server has not answered.
pub(super) struct InFlight {
    pub(super) sent: Now,
    pub(super) kind: InFlightKind,
}

/// What was asked.
#[cfg_attr(test, derive(Debug))]
pub(super) enum InFlightKind {
    Batch(Batch, Form),
    /// First grants by several commands, and what their replies have said so far.
    Native(Batch, NativeReply),
    Script,
    Fences,
    Facts,
    Probe,
    /// A call that is no lock command; its reply is passed on as it is.
    Plain(oneshot::Sender<Value>),
}

impl InFlightKind {
    pub(super) fn batch(&self) -> Option<&Batch> {
        match self {
            Self::Batch(batch, _) | Self::Native(batch, _) => Some(batch),
            Self::Script | Self::Fences | Self::Facts | Self::Probe | Self::Plain(_) => None,
        }
    }

    pub(super) fn into_batch(self) -> Option<Batch> {
        match self {
            Self::Batch(batch, _) | Self::Native(batch, _) => Some(batch),
            Self::Script | Self::Fences | Self::Facts | Self::Probe | Self::Plain(_) => None,
        }
    }
}
