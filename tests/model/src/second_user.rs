//! Another process that has the token of a lease, and extends it. Owns until when it trusts the lease; how the lease of
//! the one that acquired it ends must not matter to it.

use quorlock_protocol::{Action, Answer, Command, Moment, Ticket};

use crate::client::Phase;
use crate::property::{Property, Violation};
use crate::scope::Scope;
use crate::site::Holder;
use crate::step::name;
use crate::world::World;

/// What the second user of a lease knows of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SecondUser {
    holder: Holder,
    /// The nodes that have extended the lease for it, as bits.
    votes: u64,
    /// No vote counts from then on.
    deadline: Moment,
    /// The end of its validity, if a quorum votes for it.
    until: Moment,
}

impl World {
    /// Another process, to which the holder has given its token, extends the lease on every node.
    pub(crate) fn extend_elsewhere(&mut self, scope: &Scope, client: u8) {
        let (Phase::Holding(holding) | Phase::Lost(holding)) =
            &self.clients[usize::from(client)].phase
        else {
            return;
        };
        let policy = &scope.elsewhere;
        let command = Command {
            ticket: ELSEWHERE,
            claim: holding.lease().claim().clone(),
            action: Action::Extend { key_ttl: policy.key_ttl(), may_shorten: None },
            not_after: Moment::FAR_FUTURE,
        };
        let holder = Holder { client, draw: holding.draw };
        let now = Moment::from_millis(self.now);
        let until = policy.drift().end_of(policy.ttl(), now);
        let deadline = (now + policy.node_timeout()).min(until);
        self.second_user = Some(Box::new(SecondUser { holder, votes: 0, deadline, until }));
        for node in self.node_ids() {
            self.link_mut(client, node).send_elsewhere(holder, command.clone());
        }
    }

    /// A node has answered a command; it may be the second user's.
    pub(crate) fn note_second_vote(&mut self, node: u8, command: &Command, answer: Answer) {
        let now = Moment::from_millis(self.now);
        let Some(second) = self.second_user.as_deref_mut() else {
            return;
        };
        let is_its_own =
            command.ticket == ELSEWHERE && Holder::of(&command.claim.holder) == second.holder;
        if is_its_own && now <= second.deadline && matches!(answer, Answer::Ours { .. }) {
            second.votes |= 1 << node;
        }
    }

    /// The client releases its lease while it is valid: that ends the lease for all who have its token.
    pub(crate) fn end_second_user(&mut self, client: u8) {
        self.second_user = self.second_user.take().filter(|it| it.holder.client != client);
    }

    /// Checks that nobody else holds the lock while the second user trusts its lease.
    pub(crate) fn check_second_user(&self, scope: &Scope) -> Result<(), Violation> {
        let Some(second) = self.second_user.as_deref().filter(|_| scope.spares_second_user())
        else {
            return Ok(());
        };
        let is_trusted = second.votes.count_ones() as usize >= scope.quorum()
            && Moment::from_millis(self.now) < second.until;
        let wants = scope.wants_of(second.holder.client);
        let other = self.clients.iter().filter(|_| is_trusted).find(|client| {
            let clock = client.clock(scope, self.now);
            let is_another = |draw| Holder { client: client.id, draw } != second.holder;
            let shares = scope.wants_of(client.id).iter().any(|it| wants.contains(it));
            shares && client.valid_lease(clock).is_some_and(|holding| is_another(holding.draw))
        });
        other.map_or(Ok(()), |other| {
            let (one, two) = (name(second.holder.client), name(other.id));
            let now = self.now;
            let text =
                format!("at {now} ms both {two} and who has the token of {one} hold the lock");
            Err(Violation::new(Property::Exclusion, text))
        })
    }
}

/// No round of a lease counts this far.
const ELSEWHERE: Ticket = Ticket(u32::MAX);
