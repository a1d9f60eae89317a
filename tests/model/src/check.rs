//! Checks what must hold in every state of the world. Owns these checks; machines and nodes know
//! none of them.

use std::time::Duration;

use quorlock_protocol::Moment;

use crate::client::{Client, Phase, Status};
use crate::property::{Property, Violation};
use crate::scope::Scope;
use crate::site::{Holder, buckets};
use crate::step::name;
use crate::waits::FOREIGN;
use crate::world::World;

impl World {
    /// The first promise that this state breaks.
    pub(crate) fn check(&self, scope: &Scope) -> Result<(), Violation> {
        let results = [
            self.check_exclusion(scope),
            self.check_second_user(scope),
            self.check_standing(scope),
            self.check_known(scope),
            self.check_clients(scope),
            self.check_keys(scope),
            self.check_blame(scope),
            self.check_waits(scope),
            self.check_memory(),
            self.check_places(scope),
            self.check_idleness(scope),
        ];
        let mut breaches = results.into_iter().filter_map(Result::err);
        breaches.find(|breach| scope.minds(breach.property)).map_or(Ok(()), Err)
    }

    fn check_exclusion(&self, scope: &Scope) -> Result<(), Violation> {
        // A client whose machine stood still trusts a lease for too long, until it can know of the
        // pause.
        let excused = |client: &Client| client.unaware.is_some() && scope.limit.is_none();
        let holds = |client: &Client| {
            !excused(client) && client.valid_lease(client.clock(scope, self.now)).is_some()
        };
        for (place, client) in self.clients.iter().enumerate() {
            if !holds(client) {
                continue;
            }
            let wants = scope.wants_of(client.id);
            for other in self.clients.iter().skip(place + 1) {
                let shares = scope.wants_of(other.id).iter().any(|it| wants.contains(it));
                if shares && holds(other) {
                    let (one, two) = (name(client.id), name(other.id));
                    let text = format!("at {} ms both {one} and {two} hold the lock", self.now);
                    return Err(Violation::new(Property::Exclusion, text));
                }
            }
        }
        Ok(())
    }

    fn check_standing(&self, scope: &Scope) -> Result<(), Violation> {
        for client in self.clients.iter() {
            let clock = client.clock(scope, self.now);
            if client.trusts_what_was_over(clock) {
                let text = format!("the lease of {} was over and is valid again", name(client.id));
                return Err(Violation::new(Property::LossTold, text));
            }
            let Some(holding) = client.valid_lease(clock) else {
                continue;
            };
            if client.unaware.is_some() || client.lost_time.is_behind() {
                continue;
            }
            let holder = Holder { client: client.id, draw: holding.draw };
            // A node that has forgotten since it voted lost its part of the lease; the guards must
            // keep others from using that.
            let struck = self.struck_since(scope, client, holding.proved());
            let standing = (self.stands_on(scope, holder) | struck).count_ones();
            if (standing as usize) < scope.quorum() {
                let text = format!(
                    "at {} ms {} trusts a lease that stands on {standing} of {} nodes",
                    self.now,
                    name(client.id),
                    scope.nodes
                );
                return Err(Violation::new(Property::Standing, text));
            }
        }
        Ok(())
    }

    /// The nodes that have forgotten or had their clocks set since `moment` of the client, as bits.
    pub(crate) fn struck_since(&self, scope: &Scope, client: &Client, moment: Moment) -> u64 {
        let nodes = self.nodes.iter().enumerate();
        let struck = nodes.filter(|(place, node)| {
            let is_late = |at| client.clock(scope, at) >= moment;
            scope.is_wrong(*place) || node.struck_at.is_some_and(is_late)
        });
        struck.fold(0, |bits, (place, _)| bits | 1 << place)
    }

    /// Checks that a quorum knows the token of a valid lease, so that the next one is higher.
    fn check_known(&self, scope: &Scope) -> Result<(), Violation> {
        let forgets = scope.is_guarded() || scope.fences_end || scope.budget.fence_losses > 0;
        for client in self.clients.iter().filter(|_| !forgets) {
            let clock = client.clock(scope, self.now);
            let token = client.valid_lease(clock).and_then(|it| it.life.fencing_token());
            let Some(token) = token else {
                continue;
            };
            let buckets = || buckets(scope.wants_of(client.id), scope.shares_bucket);
            let known = self.nodes.iter().filter(|node| node.knows(token.0, buckets())).count();
            if known < scope.quorum() {
                let text = format!(
                    "at {} ms only {known} of {} nodes know the token of {}",
                    self.now,
                    scope.nodes,
                    name(client.id)
                );
                return Err(Violation::new(Property::Fencing, text));
            }
        }
        Ok(())
    }

    /// The nodes that hold the keys of a claim, as bits.
    pub(crate) fn stands_on(&self, scope: &Scope, holder: Holder) -> u64 {
        let wants = scope.wants_of(holder.client);
        let nodes = self.nodes.iter().enumerate();
        nodes
            .filter(|(_, node)| node.stands_for(holder, wants))
            .fold(0, |bits, (place, _)| bits | 1 << place)
    }

    fn check_clients(&self, scope: &Scope) -> Result<(), Violation> {
        for client in self.clients.iter().filter(|client| client.status == Status::Running) {
            let clock = client.clock(scope, self.now);
            // What is due now may still happen now.
            if client.wake() <= clock {
                continue;
            }
            if client.guarding.as_deref().is_some_and(|guarding| guarding.is_fooled) {
                let text = format!("{} takes itself for one that stood still", name(client.id));
                return Err(Violation::new(Property::Timely, text));
            }
            if client.lost_time.ahead() > most_ahead(scope) {
                let (text, ahead) =
                    ("was set forward by more than it had lost", client.lost_time.ahead());
                let text = format!("the lease clock of {} {text}: {ahead:?}", name(client.id));
                return Err(Violation::new(Property::Timely, text));
            }
            if let Some(late) = client.overdue(clock) {
                let text = format!("at {} ms {late} of {} is overdue", self.now, name(client.id));
                return Err(Violation::new(Property::Timely, text));
            }
            if let Phase::Holding(holding) = &client.phase
                && holding.life.is_kept()
                && holding.until() <= clock
            {
                let text = format!("at {} ms {} was not told", self.now, name(client.id));
                return Err(Violation::new(Property::LossTold, text));
            }
        }
        Ok(())
    }

    fn check_keys(&self, scope: &Scope) -> Result<(), Violation> {
        let longest = longest_kept(scope);
        for (place, node) in self.nodes.iter().enumerate() {
            let clock = self.node_clock(scope, place);
            for key in node.keys.iter().flatten().filter(|key| key.holder.client != FOREIGN) {
                if key.expires > clock + longest {
                    let text = format!("a key of node {place} lasts beyond the ttl");
                    return Err(Violation::new(Property::Expiry, text));
                }
                if !node.stands_for(key.holder, scope.wants_of(key.holder.client)) {
                    let text = format!("node {place} has a part of the keys that were asked for");
                    return Err(Violation::new(Property::Whole, text));
                }
                let client = &self.clients[usize::from(key.holder.client)];
                // Keys from a command that was carried out too late expire by themselves.
                let counts = key.in_time && client.lost_time.ahead().is_zero();
                let is_owned = client.owns(key.holder.draw, client.clock(scope, self.now));
                if counts && !is_owned && !self.has_revoke(key.holder, place) {
                    let text = format!(
                        "at {} ms node {place} has a key of {} that nobody will take back",
                        self.now,
                        name(key.holder.client)
                    );
                    return Err(Violation::new(Property::Orphan, text));
                }
            }
        }
        Ok(())
    }

    /// Whether a revoke of the claim is on its way to the node.
    fn has_revoke(&self, holder: Holder, node: usize) -> bool {
        let node = u8::try_from(node).unwrap_or(u8::MAX);
        self.link(holder.client, node).revokes(holder)
    }
}

/// The longest ttl that any command of the world asks for, in milliseconds.
fn longest_kept(scope: &Scope) -> u64 {
    let policies = [scope.policy, scope.policy_of(1), scope.shorter, scope.elsewhere];
    let asked = policies.map(|it| it.key_ttl().as_millis()).into_iter().max().unwrap_or(0);
    let least = scope.policy.min_hold().as_millis() * 100;
    // By a clock that is 1 % fast, plus an allowance for its grain.
    asked.max(u64::try_from(least.div_ceil(99)).unwrap_or(u64::MAX).saturating_add(GRAINS))
}

/// By how much more than the lost time a lease clock may be set forward: readings leave that much
/// open. A clock that was stepped meanwhile, or is badly known, shows more.
const fn most_ahead(scope: &Scope) -> Duration {
    let is_known_well = scope.budget.clock_steps == 0 && scope.late == 0;
    if is_known_well { Duration::from_millis(20) } else { Duration::MAX }
}

/// In milliseconds.
const GRAINS: u64 = 4;
