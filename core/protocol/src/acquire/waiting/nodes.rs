//! A wait as data: the places of an acquisition, and how the lock stands on each node. Owns what a look and its
//! answers change; decides nothing about rounds.

use std::sync::Arc;
use std::time::Duration;

use crate::command::{Action, Command, Frees, Ticket};
use crate::identity::{Claim, NodeId};
use crate::place::{Place, Queued};
use crate::queue::{WaitQueue, WakeCause};
use crate::quorum::Quorum;
use crate::time::Moment;

/// The places of one acquisition, from its first look to its end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::acquire) struct Places {
    pub(super) place: Place,
    pub(super) claim: Arc<Claim>,
    /// The nodes that may have the place.
    pub(super) asked: Vec<bool>,
    /// A node has told that it has the place. Where none can, the keys of queues may be out of bounds, and a revoke
    /// that used them would fail.
    pub(super) has_place: bool,
    /// The lock was held, or another came before: somebody may wait behind this one, too.
    pub(super) has_company: bool,
    /// Rounds in a row that some nodes granted and that were lost all the same.
    pub(super) splits: u32,
}

/// A wait.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::acquire) struct Waiting {
    pub(super) ticket: Ticket,
    pub(super) nodes: Vec<Standing>,
    /// Until when the answers to the look under way are waited for; the far future between looks.
    pub(super) look_ends: Moment,
    /// When the place is kept next, and the lock looked at, if nothing happens before.
    pub(super) refresh_at: Moment,
    /// When news asks for a look; the far future if none does.
    pub(super) look_at: Moment,
    /// When the next round begins, whatever the nodes say.
    pub(super) try_at: Moment,
    /// No round begins before.
    pub(super) not_before: Moment,
}

/// How the lock stands on one node.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Standing {
    /// It is to be asked.
    pub(super) wanted: bool,
    /// It has answered what it was asked last.
    pub(super) has_answered: bool,
    /// It told that the lock is free while an answer was due, which may be the older word of the two.
    pub(super) is_overtaken: bool,
    pub(super) is_told: bool,
    pub(super) rank: Option<u32>,
    /// The lock is free there, it is this caller's turn, and how the caller learned that.
    pub(super) freed: Option<WakeCause>,
    /// The lock is free there, and the caller before this one has its turn.
    pub(super) is_next: bool,
    /// When the holder's key ends, as the node told in this look.
    pub(super) frees_at: Option<Moment>,
    /// The same, as was known before.
    known_end: Option<Moment>,
}

impl Waiting {
    /// The next command for the queues.
    pub(in crate::acquire) fn poll_send(
        &mut self,
        places: &mut Places,
    ) -> Option<(NodeId, Command)> {
        let index = self.nodes.iter().position(|node| node.wanted)?;
        self.nodes[index].wanted = false;
        places.asked[index] = true;
        let by =
            if self.look_ends == Moment::FAR_FUTURE { self.refresh_at } else { self.look_ends };
        places.command(index, self.ticket, Action::Enqueue { place: places.place }, by)
    }

    pub(super) fn freed(&self) -> usize {
        self.nodes.iter().filter(|node| node.freed.is_some()).count()
    }

    /// How many nodes told in the last look that the lock is held, or that others come first.
    pub(super) fn refused(&self) -> usize {
        let refuses =
            |node: &&Standing| node.has_answered && node.rank.is_some() && node.freed.is_none();
        self.nodes.iter().filter(refuses).count()
    }

    /// What told first that the lock is free: a call before a watch before a timer.
    pub(super) fn woken_by(&self) -> WakeCause {
        let causes = self.nodes.iter().filter_map(|node| node.freed);
        causes.min().unwrap_or(WakeCause::Timer)
    }

    /// How many are before this caller, on the node where they are the fewest.
    pub(in crate::acquire) fn rank(&self) -> Option<u32> {
        self.nodes.iter().filter_map(|node| node.rank).min()
    }

    pub(super) fn look_by(&mut self, at: Moment) {
        self.look_at = self.look_at.min(at);
    }

    pub(super) fn next_look(&self, quorum: Quorum) -> Moment {
        self.refresh_at.min(self.look_at).min(self.after_keys(quorum))
    }

    /// When to look whether the keys have ended. A caller behind others gives each of them the time of a turn first.
    fn after_keys(&self, quorum: Quorum) -> Moment {
        // No look is worth its messages while no round may begin.
        self.end_of_keys(quorum)
            .map_or(Moment::FAR_FUTURE, |end| (end + self.turn()).max(self.not_before) + GRAIN)
    }

    /// How long those before this caller have for their turns.
    pub(super) fn turn(&self) -> Duration {
        WaitQueue::TURN * self.rank().unwrap_or(0)
    }

    /// When the keys of a quorum will have ended; `None` if too few nodes have told in this look.
    pub(super) fn end_of_keys(&self, quorum: Quorum) -> Option<Moment> {
        let ends: Vec<_> = self.nodes.iter().map(|node| node.frees_at).collect();
        quorum.earliest(&ends)
    }

    /// The same, where nodes that have not told in this look count by what was known before.
    pub(super) fn known_end_of_keys(&self, quorum: Quorum) -> Option<Moment> {
        let ends: Vec<_> = self.nodes.iter().map(|node| node.frees_at.or(node.known_end)).collect();
        quorum.earliest(&ends)
    }

    /// No more answers are waited for: a node that is silent cannot be relied on to tell anything.
    pub(super) fn end_look(&mut self) {
        self.look_ends = Moment::FAR_FUTURE;
        for node in &mut self.nodes {
            node.is_told &= node.has_answered;
        }
    }

    /// Asks every node. What they say from now on replaces what they said before.
    pub(super) fn begin_look(&mut self, now: Moment, node_timeout: Duration, quorum: Quorum) {
        // The first tries soon after the keys have ended, although not all nodes tell.
        let is_turn = self.turn().is_zero() && now >= self.after_keys(quorum);
        self.look_ends = now + if is_turn { TO_TELL.min(node_timeout) } else { node_timeout };
        (self.refresh_at, self.look_at) = (now + REFRESH, Moment::FAR_FUTURE);
        for node in &mut self.nodes {
            node.ask();
            node.known_end = node.frees_at.take().or(node.known_end);
        }
    }
}

impl Standing {
    /// A node that is to be asked, and whose key ends then for all that is known.
    pub(super) const fn before_a_look(known_end: Option<Moment>) -> Self {
        Self {
            wanted: true,
            has_answered: false,
            is_overtaken: false,
            is_told: false,
            rank: None,
            freed: None,
            is_next: false,
            frees_at: None,
            known_end,
        }
    }

    pub(super) fn ask(&mut self) {
        (self.wanted, self.has_answered) = (true, false);
    }

    /// What a look found.
    pub(super) fn take(&mut self, now: Moment, queued: Queued, frees: Frees) {
        self.is_told = queued.is_told;
        self.rank = queued.rank;
        if queued.is_turn() {
            self.freed = self.freed.or(Some(WakeCause::Timer));
        }
        if !queued.is_free && !self.is_overtaken {
            (self.freed, self.is_next) = (None, false);
        }
        self.is_overtaken = false;
        self.frees_at = match frees {
            _ if queued.is_free => Some(now),
            Frees::In(left) => Some(now + left),
            Frees::Never | Frees::Unknown => None,
        };
    }
}

impl Places {
    /// After the end: the next node that is told that the place is given up.
    pub(in crate::acquire) fn poll_leave(&mut self, ticket: u32) -> Option<(NodeId, Command)> {
        let index = self.asked.iter().position(|asked| *asked)?;
        self.asked[index] = false;
        let action = Action::Leave { place: self.place };
        self.command(index, Ticket(ticket), action, Moment::FAR_FUTURE)
    }

    pub(super) fn command(
        &self,
        index: usize,
        ticket: Ticket,
        action: Action,
        not_after: Moment,
    ) -> Option<(NodeId, Command)> {
        let node = NodeId::all(self.asked.len()).nth(index)?;
        let claim = Arc::clone(&self.claim);
        Some((node, Command { ticket, claim, action, not_after }))
    }
}

/// How often a place is kept and the lock looked at, at least.
pub(super) const REFRESH: Duration = Duration::from_secs(3);
/// Nodes expire keys at a grain of 1 ms.
pub(super) const GRAIN: Duration = Duration::from_millis(2);
/// How long nodes have to tell that the keys have ended, when they should have.
const TO_TELL: Duration = Duration::from_millis(5);
