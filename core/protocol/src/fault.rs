//! The list of reasons why a node could not answer, with their words. A refusal is an answer, not a
//! fault.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Why a node did not give a usable answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FaultKind {
    /// The command was never sent: the node is known to be down.
    NotSent,
    /// The command was never sent: this process was paused or too busy to send it in time.
    Late,
    /// No reply came in time; the node may still carry the command out.
    TimedOut,
    /// The connection broke after the command was sent; the node may have carried it out.
    Broken,
    /// The node refused the user name or password.
    Unauthenticated,
    /// The node's access list does not let this user run what is needed.
    NotPermitted,
    /// A key of another type is in the way.
    WrongType,
    /// The node is a replica and takes no writes.
    Replica,
    /// The node is out of memory or refuses writes for another reason of its own.
    Unwritable,
    /// The node is starting or busy with a script.
    Busy,
    /// The node answered something that is not the protocol.
    Garbled,
    /// The TLS handshake failed.
    Tls,
    /// The node may have forgotten locks; its grants do not count until none of those locks can be
    /// valid.
    Quarantined,
    /// The node is not independent of another one that is listed.
    NotIndependent,
    /// The node is part of a Redis Cluster.
    Clustered,
    /// The server has no database with the number in the address.
    NoDatabase,
    /// The server has as many connections as it takes.
    TooManyClients,
    /// Any other error that the node replied with.
    Other,
}

impl FaultKind {
    /// Every kind, in a fixed order.
    pub const ALL: [Self; 18] = [
        Self::NotSent,
        Self::Late,
        Self::TimedOut,
        Self::Broken,
        Self::Unauthenticated,
        Self::NotPermitted,
        Self::WrongType,
        Self::Replica,
        Self::Unwritable,
        Self::Busy,
        Self::Garbled,
        Self::Tls,
        Self::Quarantined,
        Self::NotIndependent,
        Self::Clustered,
        Self::NoDatabase,
        Self::TooManyClients,
        Self::Other,
    ];

    /// A stable name for programs, for example `TIMED_OUT`.
    pub const fn code(self) -> &'static str {
        match self {
            Self::NotSent => "NOT_SENT",
            Self::Late => "LATE",
            Self::TimedOut => "TIMED_OUT",
            Self::Broken => "BROKEN",
            Self::Unauthenticated => "UNAUTHENTICATED",
            Self::NotPermitted => "NOT_PERMITTED",
            Self::WrongType => "WRONG_TYPE",
            Self::Replica => "REPLICA",
            Self::Unwritable => "UNWRITABLE",
            Self::Busy => "BUSY",
            Self::Garbled => "GARBLED",
            Self::Tls => "TLS",
            Self::Quarantined => "QUARANTINED",
            Self::NotIndependent => "NOT_INDEPENDENT",
            Self::Clustered => "CLUSTERED",
            Self::NoDatabase => "NO_DATABASE",
            Self::TooManyClients => "TOO_MANY_CLIENTS",
            Self::Other => "OTHER",
        }
    }

    /// Whether the command never reached the node.
    pub const fn is_unsent(self) -> bool {
        matches!(self, Self::NotSent | Self::Late)
    }

    /// Whether the command may have taken effect on the node in spite of the fault.
    pub const fn may_have_acted(self) -> bool {
        matches!(self, Self::TimedOut | Self::Broken | Self::Garbled | Self::Other)
    }

    /// Whether only a person can correct it, so that another try cannot succeed.
    pub const fn is_permanent(self) -> bool {
        matches!(
            self,
            Self::Unauthenticated
                | Self::NotPermitted
                | Self::WrongType
                | Self::Replica
                | Self::Tls
                | Self::NotIndependent
                | Self::Clustered
                | Self::NoDatabase
        )
    }
}

/// A fault of one node: its kind, and a sentence for people that never contains a password.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fault {
    kind: FaultKind,
    detail: Arc<str>,
    lasts: Option<Duration>,
}

impl Fault {
    /// A fault of `kind`; `detail` says what happened and, where known, what to do.
    pub fn new(kind: FaultKind, detail: impl Into<Arc<str>>) -> Self {
        Self { kind, detail: detail.into(), lasts: None }
    }

    /// The same fault, marked as one that ends by itself after `time`.
    #[must_use]
    pub const fn lasting(mut self, time: Duration) -> Self {
        self.lasts = Some(time);
        self
    }

    /// After what time the fault ends by itself, where that is known.
    pub const fn lasts(&self) -> Option<Duration> {
        self.lasts
    }

    /// What sort of fault it is.
    pub const fn kind(&self) -> FaultKind {
        self.kind
    }

    /// The sentence for a person.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// Several nodes' faults, each with the node's address, in one line in which nothing stands twice:
    /// `redis://a:6379, redis://b:6379: connection refused; redis://c:6379: timed out`.
    pub fn list<'a>(faults: impl IntoIterator<Item = (&'a str, &'a Self)>) -> String {
        let mut told: Vec<(Vec<&str>, &Self)> = Vec::new();
        for (address, fault) in faults {
            match told.iter_mut().find(|(_, same)| same.detail == fault.detail) {
                Some((nodes, _)) => nodes.push(address),
                None => told.push((vec![address], fault)),
            }
        }
        let line = |(nodes, fault): &(Vec<&str>, &Self)| {
            // Some faults already name the node that they are about.
            let names_it = nodes.first().is_some_and(|node| fault.detail.starts_with(node));
            if names_it { fault.to_string() } else { format!("{}: {fault}", nodes.join(", ")) }
        };
        told.iter().map(line).collect::<Vec<_>>().join("; ")
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.detail)
    }
}
