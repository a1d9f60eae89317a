//! Checks the promises of the guards in every state: no node is suspected or waited for without a
//! reason, and the nodes that clients rely on tell everything that is known.

use quorlock_protocol::{QuarantineReason, Ruling};

use crate::client::{Client, Status};
use crate::property::{Property, Violation};
use crate::scope::Scope;
use crate::site::Site;
use crate::world::World;

impl World {
    /// Whose machine stood still may take a minority of the clocks for wrong that it can reach.
    pub(crate) fn check_blame(&self, scope: &Scope) -> Result<(), Violation> {
        let stepped = QuarantineReason::ClockStepped.name();
        let is_blamed = |node: &usize| {
            let site: &Site = &self.nodes[*node];
            let canary = site.store.canary.as_deref();
            let is_right = site.stepped == 0 && !scope.is_wrong(*node);
            is_right && canary.is_some_and(|it| it.contains(stepped))
        };
        match (0..self.nodes.len()).find(is_blamed).filter(|_| scope.budget.freezes == 0) {
            None => Ok(()),
            Some(node) => {
                let text = format!("node {node} is held back for a clock that nobody set");
                Err(Violation::new(Property::Blame, text))
            }
        }
    }

    /// A node is held back for as long as a lock may be held that it has forgotten, counted from the beginning of its
    /// memory, and for no longer.
    pub(crate) fn check_waits(&self, scope: &Scope) -> Result<(), Violation> {
        // A client whose clocks stood still waits for longer, and so does a client that believes its note.
        let is_exact = scope.budget.freezes == 0 && scope.late == 0;
        for client in self.clients.iter().filter(|it| it.status == Status::Running && is_exact) {
            let now = client.boot(scope, self.now);
            let gates = client.guarding.as_deref().into_iter().flat_map(|it| &it.gates);
            for (node, gate) in self.nodes.iter().zip(gates) {
                let Some(Ruling::Quarantined(quarantine)) = gate.ruling else {
                    continue;
                };
                let longest = node.born + scope.longest_wait();
                let left =
                    u64::try_from(quarantine.until.since(now).as_millis()).unwrap_or(u64::MAX);
                if self.now + left > longest.max(self.now) {
                    let text =
                        format!("a node is held back until {} ms, not {longest}", self.now + left);
                    return Err(Violation::new(Property::Wait, text));
                }
            }
        }
        Ok(())
    }

    /// What a client knows of long locks is on every node that it relies on; and a memory that has ended is not relied
    /// on, should it come back.
    pub(crate) fn check_memory(&self) -> Result<(), Violation> {
        let lacks_notes =
            |client: &Client| client.guarding.as_deref().is_some_and(|it| it.lacks_notes);
        let what = if self.nodes.iter().any(|node| node.is_misled) {
            "a grant relied on a memory that has ended"
        } else if self.clients.iter().any(lacks_notes) {
            "a node does not tell what was known of long locks when it was relied on"
        } else {
            return Ok(());
        };
        Err(Violation::new(Property::Memory, what))
    }
}
