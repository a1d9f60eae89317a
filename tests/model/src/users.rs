//! The users of the world: what they do, and what they write under the lock. Owns the resource that
//! the lock protects.

use crate::client::Phase;
use crate::property::{Property, Violation};
use crate::scope::{Scope, Target};
use crate::step::Deed;
use crate::world::World;

/// What the protected target has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Written {
    /// The highest token of a write.
    token: u64,
    /// The latest lease that wrote.
    serial: u32,
}

impl World {
    pub(crate) fn user(&mut self, scope: &Scope, client: u8, deed: Deed) -> Result<(), Violation> {
        match deed {
            Deed::Acquire => {
                self.note_arrival(scope, client);
                self.announce(scope, client);
                self.prepare(scope, client);
                self.act(scope, client, |actor| actor.acquire(scope.policy_of(client)))
            }
            Deed::Release => self.release(scope, client),
            Deed::Extend => {
                self.budget.extends -= 1;
                self.act(scope, client, |actor| actor.extend(scope.policy))
            }
            Deed::Shorten => {
                self.budget.shortens -= 1;
                self.act(scope, client, |actor| actor.extend(scope.shorter))
            }
            Deed::TakeOver => {
                self.budget.take_overs -= 1;
                self.act(scope, client, |actor| actor.take_over())
            }
            Deed::ExtendElsewhere => {
                self.budget.extends_elsewhere -= 1;
                self.extend_elsewhere(scope, client);
                Ok(())
            }
            Deed::Check => {
                self.budget.checks -= 1;
                self.act(scope, client, |actor| actor.check())
            }
            Deed::Cancel => {
                self.budget.cancels -= 1;
                self.act(scope, client, |actor| actor.cancel())
            }
            Deed::Abandon => {
                let is_lost = matches!(self.clients[usize::from(client)].phase, Phase::Lost(_));
                self.budget.abandons -= u16::from(!is_lost);
                self.act(scope, client, |actor| actor.abandon())
            }
            Deed::Look => {
                let clock = self.clock(scope, client);
                let valid = self.clients[usize::from(client)].valid_lease(clock).is_some();
                if let Phase::Holding(holding) = &mut self.clients[usize::from(client)].phase {
                    holding.looked = valid;
                }
                Ok(())
            }
            Deed::Write => self.write(scope, client),
        }
    }

    fn release(&mut self, scope: &Scope, client: u8) -> Result<(), Violation> {
        let draw = match &self.clients[usize::from(client)].phase {
            Phase::Holding(holding) | Phase::Lost(holding) => holding.draw,
            Phase::Idle | Phase::Acquiring(_) => return Ok(()),
        };
        let clock = self.clock(scope, client);
        if self.clients[usize::from(client)].valid_lease(clock).is_some() {
            self.end_second_user(client);
        }
        self.note_hand_off(scope);
        self.act(scope, client, |actor| actor.release())?;
        self.note_release(scope, client, draw);
        Ok(())
    }

    /// The client writes, believing what it saw when it looked.
    fn write(&mut self, scope: &Scope, client: u8) -> Result<(), Violation> {
        let Phase::Holding(holding) = &mut self.clients[usize::from(client)].phase else {
            return Ok(());
        };
        holding.looked = false;
        let token = holding.life.fencing_token().map_or(0, |token| token.0);
        let serial = holding.serial;
        let wants = scope.wants_of(client);
        let mut seen = wants.iter().map(|it| self.targets[usize::from(*it)]);
        if scope.target == Target::Checking && seen.any(|seen| token < seen.token) {
            return Ok(());
        }
        for resource in wants {
            let target = &mut self.targets[usize::from(*resource)];
            if serial < target.serial {
                let text = format!(
                    "lease {serial} wrote after lease {} had written, and was let",
                    target.serial
                );
                return Err(Violation::new(Property::StaleWrite, text));
            }
            *target = Written { token, serial };
        }
        Ok(())
    }
}
