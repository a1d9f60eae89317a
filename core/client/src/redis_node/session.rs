//! The conversation with one server over one connection: which commands go out, in what order, and
//! which are sent again. Sans IO: replies and clock readings come in as arguments, calls go out as
//! bytes. Knows no socket and no task.

mod arrivals;
mod batch;
mod batcher;
mod contention_cache;
mod facts;
mod faults;
mod fence_expiry_cache;
mod gate;
mod guard_probe;
mod handshake;
mod in_flight;
mod machine;
mod native;
mod replay;
mod replies;
mod request;
mod scripts;
mod wire;

pub(super) use self::arrivals::{Arrivals, SILENT};
pub(super) use self::facts::Facts;
pub(super) use self::faults::{of_connection, of_queue, of_reply, replica};
pub(crate) use self::faults::{of_key, of_record};
pub(super) use self::gate::Gate;
pub(super) use self::guard_probe::GuardProbe;
pub(super) use self::handshake::{ClientId, Handshake, Known, Told, log_in_calls, refused};
pub(super) use self::in_flight::Now;
pub(super) use self::machine::Session;
pub(super) use self::replay::Unanswered;
pub(super) use self::replies::Event;
pub(super) use self::request::{PlainCall, Request};
#[cfg(test)]
pub(super) use self::scripts::Script;
