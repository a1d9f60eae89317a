//! Carries bytes to and from one server: sockets, TLS, and Redis's protocol (RESP2) as calls and
//! replies. Knows neither locks nor what a reply means.

mod call;
mod faults;
mod frame;
mod meter;
mod pipe;
mod stream;
mod tls;

pub(super) use self::call::{Call, Outgoing};
pub(super) use self::faults::{garbled, plain};
pub(super) use self::frame::Reply;
pub(super) use self::pipe::Pipe;
pub(super) use self::stream::{Socket, connect, open, secure};
