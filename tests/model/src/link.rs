//! One client's connection to one node, which keeps the order in both directions until it breaks.
//! Owns the unanswered commands.

use std::collections::VecDeque;
use std::hash::{Hash, Hasher};

use quorlock_protocol::{Action, Answer, Command, Fault, FaultKind, Frees, Moment, Relied, Reply};

use crate::site::Holder;

/// The number of one operation of a client: replies go to the operation that asked, or nowhere.
pub(crate) type Op = u32;

/// The connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Link {
    /// Unanswered commands in order; those done already come first, with their reply on the way.
    pub(crate) out: VecDeque<Sent>,
    /// What the client's own side has to tell: faults.
    told: VecDeque<(Op, Reply)>,
    /// Commands that may reach the node at any later time, with no reply: those of a connection that broke, and
    /// those of another who has the token.
    pub(crate) strays: VecDeque<Sent>,
}

/// A command on its way, or its reply on the way back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) op: Op,
    pub(crate) holder: Holder,
    pub(crate) command: Command,
    /// The true time up to which the client counts with its being done.
    pub(crate) in_time_until: Option<u64>,
    /// How often it went out.
    sends: u8,
    pub(crate) progress: Progress,
    /// Present once the node has done it.
    answer: Option<Result<Answer, FaultKind>>,
    /// Present with a grant where something is guarded.
    pub(crate) ward: Option<Ward>,
}

/// How far a grant by several commands has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Progress {
    /// The node has done none of them, or it is one command.
    Untouched,
    /// The node has done the first of them: whether the key was set.
    Begun(bool),
    /// It has done the second as well: whether the fence was raised.
    Raised(bool, bool),
    /// It has told what stands in the canary key: whether that is what should.
    Looked(bool, bool, bool),
    /// The node has done all, and it was not granted beyond doubt, so that it is to be asked for again: whether the key was set.
    ToReplay(bool),
    /// It is asked for again, by script.
    Replayed,
}

/// What the guards send along with a grant, and get back.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ward {
    /// What must stand in the canary key.
    pub(crate) relied: Relied,
    /// When it was sent, by the clock that connections go by.
    pub(crate) sent: Moment,
    /// What the node's clock showed when it was done.
    pub(crate) micros: Option<u64>,
    /// Whether the memory that the node had then has ended.
    pub(crate) is_misled: bool,
}

impl Hash for Sent {
    /// The claim is told by its holder; hashing its text again would only cost time.
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.op, self.holder, self.command.ticket, self.command.action).hash(state);
        (self.command.not_after, self.in_time_until, self.sends, self.progress).hash(state);
        (self.answer, &self.ward).hash(state);
    }
}

impl Sent {
    /// Whether it goes out for the first time.
    pub(crate) fn is_first(&self) -> bool {
        self.sends == 1 && self.progress != Progress::Replayed
    }

    fn is_unheard(&self) -> bool {
        self.op == NOBODY && self.answer.is_some()
    }

    fn is_done(&self) -> bool {
        self.answer.is_some() || matches!(self.progress, Progress::ToReplay(_))
    }
}

impl Link {
    /// Sends a command.
    pub(crate) fn send(
        &mut self,
        op: Op,
        holder: Holder,
        command: Command,
        (ward, in_time_until): (Option<Ward>, Option<u64>),
    ) {
        let (sends, progress, answer) = (1, Progress::Untouched, None);
        let sent = Sent { op, holder, command, in_time_until, sends, progress, answer, ward };
        self.out.push_back(sent);
    }

    /// Answers a command that is not sent at all.
    pub(crate) fn refuse(&mut self, op: Op, command: &Command, why: FaultKind) {
        self.tell(op, command, 1, why);
    }

    /// Has the next command rely on `relied` if it goes out once more; `false` if it does not go out,
    /// because it is a grant and there is none.
    pub(crate) fn rely_on(&mut self, relied: Option<Relied>) -> bool {
        let next = self.out.iter_mut().find(|sent| !sent.is_done() && sent.sends > 1);
        match (next.and_then(|sent| sent.ward.as_mut()), relied) {
            (None, _) => true,
            (Some(ward), Some(relied)) => {
                ward.relied = relied;
                true
            }
            (Some(_), None) => false,
        }
    }

    /// The next command for the node.
    pub(crate) fn next_for_node(&self) -> Option<&Sent> {
        self.out.iter().find(|sent| !sent.is_done())
    }

    /// Puts a revoke that the node has not done before all else that it has not done.
    pub(crate) fn let_overtake(&mut self) {
        let not_done = self.out.iter().position(|sent| !sent.is_done());
        let revoke = self.out.iter().rposition(|sent| !sent.is_done() && is_revoke(&sent.command));
        if let (Some(not_done), Some(revoke)) = (not_done, revoke)
            && let Some(sent) = self.out.remove(revoke)
        {
            self.out.insert(not_done, sent);
        }
    }

    /// Notes how far the node has come with the next command.
    pub(crate) fn advance(&mut self, progress: Progress, micros: u64) {
        if let Some(sent) = self.out.iter_mut().find(|sent| !sent.is_done()) {
            sent.progress = progress;
            if let (Progress::ToReplay(_), Some(ward)) = (progress, &mut sent.ward) {
                ward.micros = Some(micros);
            }
        }
    }

    /// Takes the next reply if it says that a grant is to be asked for again.
    pub(crate) fn take_to_replay(&mut self) -> Option<Sent> {
        let is_next = matches!(self.out.front()?.progress, Progress::ToReplay(_));
        if is_next && self.told.is_empty() { self.out.pop_front() } else { None }
    }

    /// Asks for a grant again, by script, behind all that was sent since; or tells its operation what the guards
    /// say, or that it is too late.
    pub(crate) fn ask_again(
        &mut self,
        mut sent: Sent,
        ward: Result<Option<Ward>, ()>,
        is_late: bool,
    ) {
        let is_set = sent.progress == Progress::ToReplay(true);
        let mut later = self.out.iter().filter(|other| other.holder == sent.holder);
        let is_followed = later.any(|other| !matches!(other.command.action, Action::Grant { .. }));
        match ward {
            _ if is_late && !is_set => {
                let answer = Ok(Answer::Theirs { floor: None, frees: Frees::Unknown });
                let reply = Reply { ticket: sent.command.ticket, answer, repeated: false };
                self.told.push_back((sent.op, reply));
            }
            _ if is_followed || is_late => {
                let kind = if is_set { FaultKind::Broken } else { FaultKind::NotSent };
                self.tell(sent.op, &sent.command, 1, kind);
            }
            Err(()) => self.tell(sent.op, &sent.command, 1, FaultKind::Quarantined),
            Ok(ward) => {
                sent.sends = if is_set { 2 } else { 1 };
                (sent.progress, sent.ward) = (Progress::Replayed, ward);
                self.out.push_back(sent);
            }
        }
    }

    /// Notes that the node does the next command with a memory that has ended.
    pub(crate) fn mislead(&mut self) {
        let next = self.out.iter_mut().find(|sent| !sent.is_done());
        if let Some(ward) = next.and_then(|sent| sent.ward.as_mut()) {
            ward.is_misled = true;
        }
    }

    /// Notes what the node answered to the next command.
    pub(crate) fn answered(&mut self, answer: Result<Answer, FaultKind>, micros: u64) {
        if let Some(sent) = self.out.iter_mut().find(|sent| !sent.is_done()) {
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
        !self.told.is_empty() || self.out.front().is_some_and(Sent::is_done)
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
                (sent.progress, sent.answer) = (Progress::Untouched, None);
                if let Some(ward) = &mut sent.ward {
                    (ward.sent, ward.micros) = (now, None);
                }
                self.out.push_back(sent);
            } else {
                self.tell(sent.op, &sent.command, sent.sends, FaultKind::Broken);
            }
        }
    }

    /// What was sent over the connection that breaks now may still arrive, after what the next one carries.
    pub(crate) fn leave_strays(&mut self) {
        let is_whole = |sent: &&Sent| !sent.is_done() && sent.progress == Progress::Untouched;
        self.strays.extend(self.out.iter().filter(is_whole).cloned());
    }

    /// Another who has the token of `holder` sends a command.
    pub(crate) fn send_elsewhere(&mut self, holder: Holder, command: Command) {
        let (sends, progress) = (1, Progress::Untouched);
        let (op, in_time_until, answer, ward) = (NOBODY, None, None, None);
        let sent = Sent { op, holder, command, in_time_until, sends, progress, answer, ward };
        self.strays.push_back(sent);
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
        self.out.retain(|sent| !sent.is_done());
        for sent in &mut self.out {
            sent.op = NOBODY;
        }
    }

    /// Whether there are replies that nobody waits for.
    pub(crate) fn has_unheard(&self) -> bool {
        self.told.iter().any(|(to, _)| *to == NOBODY) || self.out.iter().any(Sent::is_unheard)
    }

    /// Drops them.
    pub(crate) fn drop_unheard(&mut self) {
        self.told.retain(|(to, _)| *to != NOBODY);
        self.out.retain(|sent| !sent.is_unheard());
    }

    /// Whether a revoke of the claim is on its way to the node.
    pub(crate) fn revokes(&self, holder: Holder) -> bool {
        let mut waiting = self.out.iter().filter(|sent| !sent.is_done());
        waiting.any(|sent| sent.holder == holder && is_revoke(&sent.command))
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

pub(crate) const fn is_revoke(command: &Command) -> bool {
    matches!(command.action, Action::Revoke { .. })
}

/// The operation of a command whose reply nobody waits for.
pub(crate) const NOBODY: Op = 0;
const MAX_SENDS: u8 = 2;
