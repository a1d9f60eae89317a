//! Begins a round, with a holder id of its own, a ticket (by which replies are told from those to earlier rounds) and a
//! deadline.

use std::sync::Arc;

use super::token::proposal;
use super::{Acquire, State};
use crate::command::{Action, Fence, Ticket};
use crate::identity::{Claim, HolderId};
use crate::machine::Environment;
use crate::round::{Round, Window};
use crate::time::Moment;

impl Acquire {
    pub(super) fn begin_round(&mut self, env: &mut dyn Environment) {
        let start = env.now();
        let holder = HolderId::fresh(env.random());
        let claim = Arc::new(Claim { resources: self.resources.clone(), holder });
        let fence = self.policy.fencing.then(|| Fence {
            proposal: proposal(env, self.known),
            retention: self.policy.fence_retention(),
        });
        let place = self.fair_place(env);
        let action = Action::Grant { key_ttl: self.policy.key_ttl(), fence, place };
        let window = self.window(start);
        self.attempts = self.attempts.saturating_add(1);
        let ticket = self.ticket();
        self.state = State::Voting(Round::new(ticket, &claim, action, window, self.quorum));
    }

    pub(super) fn window(&self, start: Moment) -> Window {
        let deadline = (start + self.policy.node_timeout()).min(self.give_up);
        Window { start, deadline }
    }

    pub(super) const fn ticket(&mut self) -> Ticket {
        self.next_ticket += 1;
        Ticket(self.next_ticket - 1)
    }
}
