//! Checks what must hold when a client is told something: a won lease, a refusal, the outcome of a
//! release. Owns these checks; `check` has those of every state.

use quorlock_protocol::{FencingToken, ReleaseOutcome};

use crate::client::{Phase, Release};
use crate::property::{Property, Violation};
use crate::scope::Scope;
use crate::site::{Health, Holder, Key};
use crate::step::name;
use crate::world::World;

impl World {
    /// A lease was won just now.
    pub(crate) fn check_won(&mut self, scope: &Scope, client: u8) -> Result<(), Violation> {
        self.won += 1;
        let (serial, clock) = (self.won, self.clock(scope, client));
        let one = &mut self.clients[usize::from(client)];
        let is_unaware = one.unaware.is_some();
        let Phase::Holding(holding) = &mut one.phase else {
            return Ok(());
        };
        holding.serial = serial;
        if holding.until() <= clock {
            let text = format!("at {} ms {} won a lease that is over", self.now, name(client));
            return Err(Violation::new(Property::Standing, text));
        }
        let token = holding.life.fencing_token();
        self.check_kept_out(scope, client)?;
        let Some(token) = token else {
            return Ok(());
        };
        for resource in scope.wants_of(client) {
            let highest = &mut self.tokens[usize::from(*resource)];
            if token.0 <= *highest && is_unaware {
                // Its machine stood still after the grants: the next holder came before it knew.
                if let Phase::Holding(holding) = &mut self.clients[usize::from(client)].phase {
                    holding.serial = 0;
                }
                continue;
            }
            if token.0 <= *highest {
                let text = format!(
                    "{} got token {token} for a resource whose last holder had {highest}",
                    name(client)
                );
                return Err(Violation::new(Property::Fencing, text));
            }
            (*highest, self.latest[usize::from(*resource)]) = (token.0, serial);
        }
        Ok(())
    }

    /// Who takes the lease over got `token` just now: no less than who won it, and less than who came later.
    pub(crate) fn check_taken_over(
        &mut self,
        scope: &Scope,
        client: u8,
        serial: u32,
        token: FencingToken,
    ) -> Result<(), Violation> {
        let Phase::Holding(holding) = &self.clients[usize::from(client)].phase else {
            return Ok(());
        };
        let own = holding.life.fencing_token().unwrap_or_default();
        let mut wrong = token < own;
        for resource in scope.wants_of(client) {
            let highest = &mut self.tokens[usize::from(*resource)];
            if self.latest[usize::from(*resource)] > serial {
                wrong |= token.0 >= *highest;
            } else {
                *highest = token.0.max(*highest);
            }
        }
        let text = format!("who takes the lease of {} over got {token}, not {own}", name(client));
        if wrong { Err(Violation::new(Property::Fencing, text)) } else { Ok(()) }
    }

    /// The time has passed in which a client that lost a lease, or released one early, keeps others out.
    fn check_kept_out(&self, scope: &Scope, winner: u8) -> Result<(), Violation> {
        let wants = scope.wants_of(winner);
        let shares = |id| scope.wants_of(id).iter().any(|it| wants.contains(it));
        let others = self.clients.iter().filter(|it| it.id != winner && shares(it.id));
        for other in others {
            let is_unaware = other.unaware.is_some() || other.lost_time.is_behind();
            if other.clock(scope, self.now) < other.keeps_out && !is_unaware {
                let (one, two) = (name(winner), name(other.id));
                let text = format!("at {} ms {one} begins and {two} is to keep it out", self.now);
                return Err(Violation::new(Property::Delay, text));
            }
        }
        Ok(())
    }

    /// An acquisition was told just now that another holds the lock, and no node had refused it for another's
    /// keys.
    pub(crate) fn check_refused(&self, client: u8) -> Violation {
        let one = name(client);
        let text = format!("at {} ms {one} was told that another holds the lock", self.now);
        Violation::new(Property::Outcome, text)
    }

    /// A release told its outcome just now.
    pub(crate) fn check_told(
        &mut self,
        scope: &Scope,
        holder: Holder,
        outcome: ReleaseOutcome,
        release: Release,
    ) -> Result<(), Violation> {
        let few = |nodes: u64| (nodes.count_ones() as usize) < scope.quorum();
        let standing = self.stands_on(scope, holder);
        let again = self.set_again(scope, holder);
        let held = release.deleted | (standing & !again);
        let free = scope.nodes - (standing & !again).count_ones() as usize;
        let keeps = release.keeps > self.clock(scope, holder.client);
        if keeps && outcome == ReleaseOutcome::Released {
            self.clients[usize::from(holder.client)].keeps_out = release.keeps;
        }
        let told = outcome.seen(release.was_over);
        let wrong = match told {
            // It held until the release, and so many nodes are free that another can have it, or none
            // that the keys are kept from.
            ReleaseOutcome::Released => {
                // A node that forgets takes its part along, which the guards keep all others from using.
                let stood = !few(release.stood) || !few(release.deleted) || scope.is_guarded();
                !stood || (!keeps && free < scope.quorum())
            }
            ReleaseOutcome::Expired if release.was_over => false,
            ReleaseOutcome::Expired | ReleaseOutcome::Taken => !few(held),
            ReleaseOutcome::Unknown => false,
        };
        if !wrong {
            return Ok(());
        }
        let text = format!(
            "{} was told '{}': of {} nodes that had its keys {} deleted them and {} have them",
            name(holder.client),
            told.name(),
            release.stood.count_ones(),
            release.deleted.count_ones(),
            standing.count_ones()
        );
        Err(Violation::new(Property::Outcome, text))
    }

    /// The nodes whose keys were set by a command that was late, as bits: they expire by themselves.
    fn set_again(&self, scope: &Scope, holder: Holder) -> u64 {
        let is_late = |key: &Key| key.holder == holder && !key.in_time;
        let nodes = self.nodes.iter().enumerate().filter(|_| scope.budget.strays > 0);
        let again = nodes.filter(|(_, node)| node.keys.iter().flatten().any(is_late));
        again.fold(0, |bits, (place, _)| bits | 1 << place)
    }

    /// Notes where the keys stand that the client's user is about to release.
    pub(crate) fn note_release(&mut self, scope: &Scope, client: u8, draw: u32) {
        let stood = self.stands_on(scope, Holder { client, draw });
        let background = self.clients[usize::from(client)].background.iter_mut();
        for release in background.filter_map(|it| it.release.as_mut()) {
            release.stood = stood;
        }
    }

    /// A withdrawal ended by the clock just now: the nodes must have forgotten the keys by then.
    pub(crate) fn check_given_up(&self, client: u8, draw: u32) -> Result<(), Violation> {
        let holder = Holder { client, draw };
        let owner = &self.clients[usize::from(client)];
        if owner.excused.contains(&draw) {
            return Ok(());
        }
        // A clock that was set forward too far ends it too early.
        let is_early = !owner.lost_time.ahead().is_zero();
        for (place, node) in self.nodes.iter().enumerate() {
            let mut keys = node.keys.iter().flatten();
            if keys.any(|key| key.holder == holder && key.in_time && !is_early) {
                let text = format!(
                    "at {} ms {} no longer takes back what node {place} ({}) still has",
                    self.now,
                    name(client),
                    if node.health == Health::Up { "up" } else { "not up" }
                );
                return Err(Violation::new(Property::Orphan, text));
            }
        }
        Ok(())
    }
}
