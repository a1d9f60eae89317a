//! One client's connection to one node: ordered both ways, until it breaks. Owns what is unanswered.

use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use quorlock_protocol::{Action, Answer, Command, Fault, FaultKind, Moment, Reply};

use crate::site::Owner;

/// The number of one operation of a client: replies go to the operation that asked, or nowhere.
pub(crate) type Op = u32;

/// The connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Link {
    /// Unanswered commands in order; those done already come first, with their reply on the way.
    pub(crate) out: VecDeque<Sent>,
    /// What the client's own side has to tell: faults.
    told: VecDeque<(Op, Reply)>,
}

/// A command on its way, or its reply on the way back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) op: Op,
    pub(crate) owner: Owner,
    pub(crate) command: Command,
    /// The true time up to which the client counts with its being done.
    pub(crate) in_time_until: Option<u64>,
    /// How often it went out.
    sends: u8,
    /// Once the node has done the first of its commands: whether the key was set.
    pub(crate) begun: Option<bool>,
    /// Present once the node has done it.
    answer: Option<Result<Answer, FaultKind>>,
    /// Present with a grant where something is guarded.
    pub(crate) ward: Option<Ward>,
}

/// What the guards send along with a grant, and hear of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ward {
    /// What must stand in the canary key.
    pub(crate) canary: Arc<str>,
    /// The note that went ahead: for how long this client asks nodes to keep keys.
    pub(crate) longest: Duration,
    /// When it was sent, by the lease clock.
    pub(crate) sent: Moment,
    /// What the node's clock showed when it was done.
    pub(crate) micros: Option<u64>,
}

impl Hash for Sent {
    /// The claim is told by its owner; hashing its text again would only cost time.
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.op, self.owner, self.command.ticket, self.command.action).hash(state);
        (self.command.not_after, self.in_time_until, self.sends, self.begun).hash(state);
        (self.answer, &self.ward).hash(state);
    }
}

impl Sent {
    /// Whether it goes out for the first time.
    pub(crate) const fn is_first(&self) -> bool {
        self.sends == 1
    }
}

impl Link {
    /// Sends a command.
    pub(crate) fn send(
        &mut self,
        op: Op,
        owner: Owner,
        command: Command,
        (ward, in_time_until): (Option<Ward>, Option<u64>),
    ) {
        let (sends, begun, answer) = (1, None, None);
        self.out.push_back(Sent { op, owner, command, in_time_until, sends, begun, answer, ward });
    }

    /// Answers a command that is not sent at all.
    pub(crate) fn refuse(&mut self, op: Op, command: &Command, why: FaultKind) {
        self.tell(op, command, 1, why);
    }

    /// Has the next command rely on `canary` if it goes out once more; `false` if it does not go out,
    /// because it is a grant and there is none.
    pub(crate) fn rely_on(&mut self, canary: Option<Arc<str>>) -> bool {
        let next = self.out.iter_mut().find(|sent| sent.answer.is_none() && sent.sends > 1);
        match (next.and_then(|sent| sent.ward.as_mut()), canary) {
            (None, _) => true,
            (Some(ward), Some(canary)) => {
                ward.canary = canary;
                true
            }
            (Some(_), None) => false,
        }
    }

    /// The next command for the node.
    pub(crate) fn next_for_node(&self) -> Option<&Sent> {
        self.out.iter().find(|sent| sent.answer.is_none())
    }

    /// Puts a revoke that the node has not done before all else that it has not done.
    pub(crate) fn let_overtake(&mut self) {
        let undone = self.out.iter().position(|sent| sent.answer.is_none());
        let revoke = self
            .out
            .iter()
            .rposition(|sent| sent.answer.is_none() && sent.command.action == Action::Revoke);
        if let (Some(undone), Some(revoke)) = (undone, revoke)
            && let Some(sent) = self.out.remove(revoke)
        {
            self.out.insert(undone, sent);
        }
    }

    /// Notes that the node has done the first part of the next command.
    pub(crate) fn begun(&mut self, is_set: bool) {
        if let Some(sent) = self.out.iter_mut().find(|sent| sent.answer.is_none()) {
            sent.begun = Some(is_set);
        }
    }

    /// Notes what the node answered to the next command.
    pub(crate) fn answered(&mut self, answer: Result<Answer, FaultKind>, micros: u64) {
        if let Some(sent) = self.out.iter_mut().find(|sent| sent.answer.is_none()) {
            sent.answer = Some(answer);
            if let Some(ward) = &mut sent.ward {
                ward.micros = Some(micros);
            }
        }
    }

    /// Has `counts` judge the clocks that the grants tell whose replies are on their way; one that does not
    /// count is no grant.
    pub(crate) fn judge_replies(&mut self, mut counts: impl FnMut(&Ward) -> bool) {
        for sent in self.out.iter_mut().filter(|sent| matches!(sent.answer, Some(Ok(_)))) {
            let Some(ward) = &mut sent.ward else {
                continue;
            };
            if !counts(ward) {
                sent.answer = Some(Err(FaultKind::Quarantined));
            }
            ward.micros = None;
        }
    }

    /// Whether a reply is on its way.
    pub(crate) fn has_reply(&self) -> bool {
        !self.told.is_empty() || self.out.front().is_some_and(|sent| sent.answer.is_some())
    }

    /// Takes the next reply.
    pub(crate) fn take_reply(&mut self) -> Option<(Op, Reply, Option<Ward>)> {
        if let Some((op, reply)) = self.told.pop_front() {
            return Some((op, reply, None));
        }
        let answer = self.out.front()?.answer?.map_err(|kind| Fault::new(kind, ""));
        let sent = self.out.pop_front()?;
        let reply = Reply { ticket: sent.command.ticket, answer, repeated: sent.sends > 1 };
        Some((sent.op, reply, sent.ward))
    }

    /// Breaks the connection: what was on it is lost, done or not. With `again`, a new one sends the
    /// unanswered commands once more, in order, save those that have become too late.
    pub(crate) fn break_off(&mut self, again: bool, now: Moment) {
        for mut sent in std::mem::take(&mut self.out) {
            if again && sent.sends < MAX_SENDS && sent.command.not_after >= now {
                sent.sends += 1;
                (sent.begun, sent.answer) = (None, None);
                if let Some(ward) = &mut sent.ward {
                    (ward.sent, ward.micros) = (now, None);
                }
                self.out.push_back(sent);
            } else {
                self.tell(sent.op, &sent.command, sent.sends, FaultKind::Broken);
            }
        }
    }

    /// Nobody waits for replies to `op` any more.
    pub(crate) fn close(&mut self, op: Op) {
        self.told.retain(|(to, _)| *to != op);
        for sent in self.out.iter_mut().filter(|sent| sent.op == op) {
            sent.op = NOBODY;
        }
    }

    /// Nobody waits for any reply any more.
    pub(crate) fn close_all(&mut self) {
        self.told.clear();
        self.out.retain(|sent| sent.answer.is_none());
        for sent in &mut self.out {
            sent.op = NOBODY;
        }
    }

    /// Drops replies that nobody waits for.
    pub(crate) fn drop_unheard(&mut self) {
        self.told.retain(|(to, _)| *to != NOBODY);
        self.out.retain(|sent| sent.op != NOBODY || sent.answer.is_none());
    }

    /// Whether a revoke of the claim is on its way to the node.
    pub(crate) fn revokes(&self, owner: Owner) -> bool {
        let mut waiting = self.out.iter().filter(|sent| sent.answer.is_none());
        waiting.any(|sent| sent.owner == owner && sent.command.action == Action::Revoke)
    }

    fn tell(&mut self, op: Op, command: &Command, sends: u8, kind: FaultKind) {
        let reply = Reply {
            ticket: command.ticket,
            answer: Err(Fault::new(kind, "")),
            repeated: sends > 1,
        };
        self.told.push_back((op, reply));
    }
}

/// The operation of a command whose reply nobody waits for.
pub(crate) const NOBODY: Op = 0;
const MAX_SENDS: u8 = 2;
