//! Makes a lease of a won round. Owns which token it has, whether a quorum knows that token yet, and until when the
//! lease may be trusted.

use std::sync::Arc;

use super::token::{granted_token, join_raise};
use super::{Acquire, State, Won};
use crate::command::{Action, Ticket};
use crate::lease::Lease;
use crate::machine::Environment;
use crate::round::Round;

impl Acquire {
    /// A quorum granted: the token must be known to a quorum before the lease is handed out.
    pub(super) fn settle_token(&mut self, env: &mut dyn Environment) {
        let State::Voting(grant) = &self.state else {
            return;
        };
        let granted = || grant.answers().filter_map(|(_, answer)| granted_token(answer));
        let token = granted().max().unwrap_or_default();
        let is_known = granted().filter(|own| *own == token).count() >= self.quorum.size();
        if !self.policy.fencing || is_known {
            return self.accept(env);
        }
        let action = Action::RaiseFence { token, retention: self.policy.fence_retention() };
        let window = self.window(env.now());
        let ticket = Ticket(self.next_ticket);
        let mut raise = Round::asking_none(ticket, grant.claim(), action, window, self.quorum);
        for (node, answer) in grant.answers() {
            join_raise(&mut raise, node, answer, token);
        }
        if let Some(grant) = self.take_grant() {
            self.next_ticket += 1;
            self.state = State::Raising { grant, raise, token };
        }
    }

    pub(super) fn accept(&mut self, env: &mut dyn Environment) {
        let (State::Voting(grant) | State::Raising { grant, .. }) = &self.state else {
            return;
        };
        let until = self.policy.drift.end_of(self.policy.ttl, grant.started());
        if env.now() >= until {
            return self.lose_round(env);
        }
        let granted = || grant.answers().filter_map(|(_, answer)| granted_token(answer));
        let lease = Lease {
            claim: Arc::clone(grant.claim()),
            fencing_token: match &self.state {
                State::Raising { token, .. } => Some(*token),
                _ if self.policy.fencing => granted().max(),
                _ => None,
            },
            ttl: self.policy.ttl,
            key_ttl: self.policy.key_ttl(),
            until,
            keys_expire_by: self.keys_expire_by(grant),
            fence_retention: self.policy.fence_retention(),
            unsent: grant.unsent(),
        };
        if let Some(round) = self.take_grant() {
            let was_queued = self.was_queued();
            self.state = State::Finished(Ok(Won { lease, round, was_queued }));
        }
    }

    /// Takes the grant under way out, for another state to hold; `None` if none is under way.
    pub(super) fn take_grant(&mut self) -> Option<Round> {
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Voting(grant) | State::Raising { grant, .. } => Some(grant),
            other => {
                self.state = other;
                None
            }
        }
    }
}
