//! The state of one node in a withdrawal: which command it was sent, and what is known of its
//! answer.

use std::time::Duration;

use crate::backoff;
use crate::command::Answer;
use crate::fault::Fault;
use crate::time::Moment;

/// One node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Progress {
    pub(super) state: State,
    failures: u32,
    unanswered: Unanswered,
    /// The answer may describe the node after an earlier command of this machine: then it does not
    /// tell whose the keys were.
    pub(super) unclear: bool,
    pub(super) answer: Option<Result<Answer, Fault>>,
    pub(super) took: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum State {
    Ready,
    Sent { deadline: Moment },
    Resting { until: Moment },
    Settled,
}

/// Which command may have been carried out although no reply came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Unanswered {
    None,
    Last,
    /// A command before the last one.
    Earlier,
}

impl Progress {
    pub(super) const fn new() -> Self {
        Self {
            state: State::Ready,
            failures: 0,
            unanswered: Unanswered::None,
            unclear: false,
            answer: None,
            took: Duration::ZERO,
        }
    }

    /// A command goes out.
    pub(super) fn send(&mut self, deadline: Moment) {
        if self.unanswered == Unanswered::Last {
            self.unanswered = Unanswered::Earlier;
        }
        self.state = State::Sent { deadline };
    }

    pub(super) fn settle(&mut self, answer: Result<Answer, Fault>) {
        self.answer = Some(answer);
        self.state = State::Settled;
    }

    /// The last command failed or got no reply: it is sent again after a while.
    pub(super) fn rest(&mut self, now: Moment, fault: Option<Fault>) {
        if fault.as_ref().is_none_or(|fault| fault.kind().may_have_acted()) {
            self.lose_reply();
        }
        if let Some(fault) = fault {
            self.answer = Some(Err(fault));
        }
        let delay = backoff::doubled(FIRST_REST, self.failures, LONGEST_REST);
        self.failures += 1;
        self.state = State::Resting { until: now + delay };
    }

    /// Sends the command again unless the node has answered, as its reply may have been missed.
    pub(super) fn restart(&mut self) {
        if self.state == State::Settled {
            return;
        }
        if matches!(self.state, State::Sent { .. }) {
            self.lose_reply();
        }
        self.state = State::Ready;
    }

    fn lose_reply(&mut self) {
        if self.unanswered == Unanswered::None {
            self.unanswered = Unanswered::Last;
        }
    }

    /// Whether a command before the last one may have been carried out.
    pub(super) fn is_asked_again(&self) -> bool {
        self.unanswered == Unanswered::Earlier
    }

    pub(super) const fn has_had_its_chance(&self) -> bool {
        matches!(self.state, State::Settled | State::Resting { .. }) || self.failures > 0
    }
}

const FIRST_REST: Duration = Duration::from_millis(50);
const LONGEST_REST: Duration = Duration::from_secs(2);
