//! The steps that can happen in the world, as data: a schedule is a list of these. Owns how a step
//! is written.

use std::fmt;

/// One thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    /// The node does the next command of the client.
    Exec(u8, u8),
    /// The client gets the next reply of the node.
    Reply(u8, u8),
    /// The node does the next command, and the client has the reply at once.
    Trip(u8, u8),
    /// The node does the next that the client asks its queue for.
    Queue(u8, u8),
    /// The client hears the next that the node's queue says.
    Hear(u8, u8),
    /// The node does the next that the client asks its queue for, and the client hears at once.
    Ask(u8, u8),
    /// Someone deletes the key of a holder that knows nothing of queues.
    Delete(u8),
    /// The client takes every reply that has come in, without looking up in between.
    Batch(u8),
    /// The client looks at its nodes, as it does now and then.
    Glance(u8),
    /// A timer of the client is due.
    Timer(u8),
    /// Time passes, up to this moment.
    Until(u64),
    /// The client's user does something.
    User(u8, Deed),
    /// A fault.
    Fault(Fault),
}

/// What a user does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Deed {
    /// Asks for the lock.
    Acquire,
    /// Gives the lease back.
    Release,
    /// Extends the lease by the ttl it has.
    Extend,
    /// Extends the lease by the scope's shorter ttl.
    Shorten,
    /// Asks the nodes whether they hold the lease.
    Check,
    /// Cancels its operation.
    Cancel,
    /// Forgets the lease without giving it back.
    Abandon,
    /// Asks for the token of the lease again, as who takes it over does.
    TakeOver,
    /// Has it extended by the ttl of another, who has its token.
    ExtendElsewhere,
    /// Looks whether the lease is valid, before it writes.
    Look,
    /// Writes to what the lock protects.
    Write,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Fault {
    /// A connection breaks; with `true` what is unanswered is sent again.
    Break(u8, u8, bool),
    /// A connection breaks, what is unanswered is sent again, and what was not done may still be done later.
    Stray(u8, u8),
    /// The node does the next command that arrives after all.
    Arrive(u8, u8),
    /// A node dies and comes back; with `true` it forgets its keys.
    Restart(u8, bool),
    /// A node dies and comes back from a snapshot that is older than any lock.
    Rollback(u8),
    /// Every key of a node is deleted.
    Flush(u8),
    /// The table of fences of a node is deleted, and nothing else.
    LoseFences(u8),
    /// A node has what it had one beat ago, in the same run and under the same connections: its replica, which took
    /// over in between, had no more.
    FailBack(u8),
    /// The same for a machine that is put back to a snapshot of it: every connection breaks, and nothing that the
    /// server says of itself tells.
    Snapshot(u8),
    /// The same for a memory that it had before the one that it has now.
    Return(u8),
    /// A node goes down and stays down.
    Down(u8),
    /// A node that is down or hangs is back.
    Up(u8),
    /// A node stops without being gone.
    Hang(u8),
    /// A node's clock jumps forward.
    ClockStep(u8),
    /// A client stops, and does not know.
    Pause(u8),
    /// The same, and its clocks stand still.
    Freeze(u8),
    /// A stopped client runs again.
    Resume(u8),
    /// A client is gone; with `true` what it has sent still arrives.
    Crash(u8, bool),
    /// A client's wall clock jumps back.
    WallBack(u8),
    /// A wake connection is lost.
    CutWake(u8, u8),
    /// It is made anew.
    MendWake(u8, u8),
    /// The next that a queue says to a client is lost.
    LoseNews(u8, u8),
    /// The queues of a node are deleted, and nothing else.
    LoseQueues(u8),
}

impl Fault {
    /// The node that it strikes, if it is one.
    pub(crate) const fn node(self) -> Option<u8> {
        match self {
            Self::Break(_, node, _)
            | Self::Stray(_, node)
            | Self::Arrive(_, node)
            | Self::CutWake(_, node)
            | Self::MendWake(_, node)
            | Self::LoseNews(_, node)
            | Self::LoseQueues(node)
            | Self::Restart(node, _)
            | Self::Rollback(node)
            | Self::Flush(node)
            | Self::LoseFences(node)
            | Self::FailBack(node)
            | Self::Snapshot(node)
            | Self::Return(node)
            | Self::Down(node)
            | Self::Up(node)
            | Self::Hang(node)
            | Self::ClockStep(node) => Some(node),
            _ => None,
        }
    }

    /// Whether a node forgets by it, or has its clock set.
    pub(crate) const fn strikes(self) -> bool {
        let forgets = matches!(self, Self::Restart(_, true) | Self::Rollback(_) | Self::Flush(_));
        let comes_back = matches!(self, Self::FailBack(_) | Self::Snapshot(_) | Self::Return(_));
        forgets || comes_back || matches!(self, Self::ClockStep(_))
    }

    /// The same for every node.
    pub(crate) const fn kind(self) -> Self {
        match self {
            Self::Break(client, _, again) => Self::Break(client, 0, again),
            Self::Stray(client, _) => Self::Stray(client, 0),
            Self::Arrive(client, _) => Self::Arrive(client, 0),
            Self::CutWake(client, _) => Self::CutWake(client, 0),
            Self::MendWake(client, _) => Self::MendWake(client, 0),
            Self::LoseNews(client, _) => Self::LoseNews(client, 0),
            Self::LoseQueues(_) => Self::LoseQueues(0),
            Self::Restart(_, forgets) => Self::Restart(0, forgets),
            Self::Rollback(_) => Self::Rollback(0),
            Self::Flush(_) => Self::Flush(0),
            Self::LoseFences(_) => Self::LoseFences(0),
            Self::FailBack(_) => Self::FailBack(0),
            Self::Snapshot(_) => Self::Snapshot(0),
            Self::Return(_) => Self::Return(0),
            Self::Down(_) => Self::Down(0),
            Self::Up(_) => Self::Up(0),
            Self::Hang(_) => Self::Hang(0),
            Self::ClockStep(_) => Self::ClockStep(0),
            other => other,
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exec(client, node) => {
                write!(out, "node {node} does the next of {}", name(*client))
            }
            Self::Reply(client, node) => write!(out, "{} hears from node {node}", name(*client)),
            Self::Trip(client, node) => {
                write!(out, "node {node} does the next of {}, who hears at once", name(*client))
            }
            Self::Queue(client, node) => {
                write!(out, "the queue of node {node} does the next of {}", name(*client))
            }
            Self::Hear(client, node) => {
                write!(out, "{} hears from the queue of node {node}", name(*client))
            }
            Self::Ask(client, node) => write!(
                out,
                "the queue of node {node} does the next of {}, who hears at once",
                name(*client)
            ),
            Self::Delete(node) => write!(out, "the key of node {node} is deleted by hand"),
            Self::Batch(client) => write!(out, "{} hears all at once", name(*client)),
            Self::Glance(client) => write!(out, "{} looks at its nodes", name(*client)),
            Self::Timer(client) => write!(out, "{} is woken by its timer", name(*client)),
            Self::Until(time) => write!(out, "time passes to {time} ms"),
            Self::User(client, deed) => write!(out, "{} {deed}", name(*client)),
            Self::Fault(fault) => fault.fmt(out),
        }
    }
}

impl fmt::Display for Deed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Acquire => "asks for the lock",
            Self::Release => "releases",
            Self::Extend => "extends",
            Self::Shorten => "extends by a shorter ttl",
            Self::Check => "checks the lease",
            Self::Cancel => "cancels",
            Self::Abandon => "abandons the lease",
            Self::TakeOver => "asks for the token of the lease",
            Self::ExtendElsewhere => "has another extend the lease",
            Self::Look => "looks whether the lease is valid",
            Self::Write => "writes",
        })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Break(client, node, true) => {
                write!(
                    out,
                    "FAULT: {} and node {node} lose and replace their connection",
                    name(*client)
                )
            }
            Self::Break(client, node, false) => {
                write!(out, "FAULT: {} and node {node} lose their connection", name(*client))
            }
            Self::Stray(client, node) => write!(
                out,
                "FAULT: {} and node {node} replace their connection, and what was sent is late",
                name(*client)
            ),
            Self::Arrive(client, node) => {
                write!(out, "node {node} does what {} sent long ago", name(*client))
            }
            Self::Restart(node, true) => {
                write!(out, "FAULT: node {node} restarts and has forgotten all")
            }
            Self::Restart(node, false) => write!(out, "FAULT: node {node} restarts with its keys"),
            Self::Rollback(node) => write!(out, "FAULT: node {node} restarts from an old snapshot"),
            Self::Flush(node) => write!(out, "FAULT: every key of node {node} is deleted"),
            Self::LoseFences(node) => write!(out, "FAULT: the fences of node {node} are deleted"),
            Self::FailBack(node) => {
                write!(out, "FAULT: node {node} fails over to a replica and back")
            }
            Self::Snapshot(node) => {
                write!(out, "FAULT: the machine of node {node} is put back to a snapshot")
            }
            Self::Return(node) => {
                write!(out, "FAULT: node {node} has what it had before it last forgot")
            }
            Self::Down(node) => write!(out, "FAULT: node {node} goes down"),
            Self::Up(node) => write!(out, "node {node} is back"),
            Self::Hang(node) => write!(out, "FAULT: node {node} hangs"),
            Self::ClockStep(node) => write!(out, "FAULT: the clock of node {node} jumps forward"),
            Self::Pause(client) => write!(out, "FAULT: {} stops", name(*client)),
            Self::Freeze(client) => {
                write!(out, "FAULT: the machine of {} stands still, its clocks too", name(*client))
            }
            Self::Resume(client) => write!(out, "{} goes on", name(*client)),
            Self::Crash(client, true) => write!(out, "FAULT: {} dies", name(*client)),
            Self::Crash(client, false) => {
                write!(out, "FAULT: {} dies, and what it sent is lost", name(*client))
            }
            Self::CutWake(client, node) => {
                write!(out, "FAULT: {} and node {node} lose their wake connection", name(*client))
            }
            Self::MendWake(client, node) => {
                write!(out, "{} and node {node} have a wake connection again", name(*client))
            }
            Self::LoseNews(client, node) => {
                write!(out, "FAULT: news of node {node} for {} is lost", name(*client))
            }
            Self::LoseQueues(node) => write!(out, "FAULT: the queues of node {node} are deleted"),
            Self::WallBack(client) => {
                write!(out, "FAULT: the wall clock of {} jumps back", name(*client))
            }
        }
    }
}

/// What a client is called in a trace.
pub(crate) fn name(client: u8) -> String {
    if client < 26 { char::from(b'A' + client).to_string() } else { format!("client{client}") }
}
