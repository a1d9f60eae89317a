//! The size of a searched world, and the steps that can happen in it.

use super::requests::Plan;

/// The users of a world, and the faults that may happen.
#[derive(Clone, Debug)]
pub(super) struct Scope {
    /// What each user asks.
    pub(super) users: Vec<Plan>,
    /// How often a connection may end.
    pub(super) cuts: u8,
    /// How often the server may forget the scripts.
    pub(super) flushes: u8,
    /// How often another process may load them again.
    pub(super) loads: u8,
    /// Whether the deadlines may pass.
    pub(super) is_late: bool,
    /// Whether the server deletes keys by a command of its own.
    pub(super) has_deletion: bool,
}

impl Scope {
    pub(super) fn of<const N: usize>(users: [Plan; N]) -> Self {
        let users = users.into();
        let (cuts, flushes, loads, is_late, has_deletion) = (0, 0, 0, false, false);
        Self { users, cuts, flushes, loads, is_late, has_deletion }
    }
}

/// What can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A user hands over its next turn of requests.
    Submit(usize),
    /// The server does the next call that came over a connection.
    Execute(usize),
    /// The next reply arrives.
    Deliver,
    /// The connection ends after this number of bytes of the next reply.
    Cut { after: usize },
    /// A user whose connection has ended is connected again, and sends what was not answered.
    Reconnect(usize),
    /// The server forgets the scripts.
    Flush,
    /// Another process loads them.
    Load,
    /// The deadlines pass.
    Late,
}
