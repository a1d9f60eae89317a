//! One client's second connection to one node: commands for the node's queues go over it, and news comes back. Owns
//! the order on it, which no message on the first connection keeps.

use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::time::Duration;

use quorlock_protocol::{Command, Fault, FaultKind, News, Reply, Waiter};

use crate::link::Op;

/// The connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Wake {
    pub(crate) state: State,
    /// What the node has not done yet.
    pub(crate) out: VecDeque<Asked>,
    /// What the client has not heard yet.
    pub(crate) back: VecDeque<Told>,
    /// Whether the client watches the key, as it is the first in the queue.
    pub(crate) watches: bool,
}

/// Whether the node reaches the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum State {
    /// Nobody has waited there.
    #[default]
    Unused,
    /// It is subscribed.
    Standing,
    /// It was lost.
    Lost,
}

/// What goes to the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// A command of an operation.
    Command(Op, Command),
    /// A look at the key, which arms the watch unless the client is flawed.
    Read { arms: bool },
    /// A waiter that is called there has ended: its place is given up.
    Drop(Waiter),
}

/// What comes back.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Told {
    Reply(Op, Reply),
    News(Waiter, News),
    /// The key that is watched has changed.
    Changed,
    /// What a look at the key found: for how long it stays.
    Key(Option<Duration>),
}

impl Told {
    /// Whether the node says it unasked.
    pub(crate) const fn is_news(&self) -> bool {
        matches!(self, Self::News(..) | Self::Changed)
    }

    /// Whether somebody listens if `op` alone is waited for.
    fn matters_to(&self, op: Option<Op>) -> bool {
        match self {
            Self::Reply(other, _) => Some(*other) == op,
            Self::News(..) => true,
            Self::Changed | Self::Key(_) => op.is_some(),
        }
    }
}

impl Asked {
    const fn matters_to(&self, op: Option<Op>) -> bool {
        op.is_some() || !matches!(self, Self::Read { .. })
    }
}

impl Hash for Asked {
    /// The claim of a command for a queue is nobody's key.
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Self::Command(op, command) => {
                (0_u8, op, command.ticket, command.action, command.not_after).hash(state);
            }
            Self::Read { arms } => (1_u8, arms).hash(state),
            Self::Drop(waiter) => (2_u8, waiter).hash(state),
        }
    }
}

impl Wake {
    /// Sends a command, over a connection that is made if there was none.
    pub(crate) fn send(&mut self, op: Op, command: Command) {
        if self.state == State::Unused {
            self.state = State::Standing;
        }
        self.out.push_back(Asked::Command(op, command));
    }

    /// Answers a command that is not sent or not answered.
    pub(crate) fn refuse(&mut self, op: Op, command: &Command, kind: FaultKind) {
        let answer = Err(Fault::new(kind, ""));
        self.back
            .push_back(Told::Reply(op, Reply { ticket: command.ticket, answer, repeated: false }));
    }

    /// Watches the key, or looks at it again.
    pub(crate) fn read(&mut self, arms: bool) {
        self.watches = true;
        let read = Asked::Read { arms };
        if !self.out.contains(&read) {
            self.out.push_back(read);
        }
    }

    /// Loses the connection, and what is on it, done or not.
    pub(crate) fn cut(&mut self) {
        if self.state == State::Unused {
            return;
        }
        (self.state, self.watches) = (State::Lost, false);
        self.back.retain(|told| matches!(told, Told::Reply(_, Reply { answer: Err(_), .. })));
        for asked in std::mem::take(&mut self.out) {
            if let Asked::Command(op, command) = asked {
                self.refuse(op, &command, FaultKind::Broken);
            }
        }
    }

    /// The next news is lost.
    pub(crate) fn lose_news(&mut self) {
        if let Some(place) = self.back.iter().position(Told::is_news) {
            self.back.remove(place);
        }
    }

    /// Its client is gone; with `arrives` the node still does what was sent.
    pub(crate) fn close(&mut self, arrives: bool) {
        if self.state != State::Unused {
            self.state = State::Lost;
        }
        self.watches = false;
        self.back.clear();
        self.out.retain(|asked| arrives && matches!(asked, Asked::Command(..)));
    }

    /// Nobody waits for any operation but this one any more. What a queue says to others is still heard: their places
    /// are given up then.
    pub(crate) fn forget_all_but(&mut self, op: Option<Op>) {
        self.watches &= op.is_some();
        self.back.retain(|told| told.matters_to(op));
        self.out.retain(|asked| asked.matters_to(op));
    }

    /// Whether there is nothing that this would change.
    pub(crate) fn knows_none_but(&self, op: Option<Op>) -> bool {
        (op.is_some() || !self.watches)
            && self.back.iter().all(|told| told.matters_to(op))
            && self.out.iter().all(|asked| asked.matters_to(op))
    }
}
