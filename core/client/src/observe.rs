//! What a manager tells of its work: notices for people, events and figures for programs. Owns none
//! of the words and decides nothing; its parts are in this folder.

mod events;
mod fields;
mod figures;
mod histogram;
mod hold_span;
mod notices;
mod sentences;
mod stats;
mod telemetry;
#[cfg(feature = "tracing")]
mod traces;
mod value;
mod waiting;

pub use events::{Event, EventKind, EventName, LeaseInfo};
pub(crate) use figures::ABANDONED;
pub use histogram::HistogramStats;
pub(crate) use hold_span::HoldSpan;
pub use notices::NoticeReport;
pub(crate) use notices::{Listener, Observer};
pub use quorlock_protocol::WakeCause;
pub(crate) use sentences::sentence_of_degraded;
pub use stats::{NodeStats, Stats};
pub(crate) use telemetry::{EventListener, Telemetry};
pub use telemetry::{Interest, Subscription};
pub use value::Value;
pub(crate) use waiting::WaitWatch;
