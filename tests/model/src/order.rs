//! The order of steps in worlds that are too large for every order: what comes next by rule, and how often something
//! else may happen instead. Owns the rule.
//!
//! Messages arrive first, then timers go off, users ask, keys are deleted, users release, and time passes last. With a
//! *deviation* another step is taken; a message that was next waits then until nothing but the passing of time is left
//! (it is held). Faults, and what users do beside asking and releasing, have budgets of their own and cost no deviation.

use crate::scope::Scope;
use crate::step::{Deed, Step};
use crate::world::World;

impl World {
    /// Sorts the steps, and leaves only the next one where no deviation is left.
    pub(crate) fn keep_order(&self, steps: &mut Vec<Step>) {
        steps.sort_by_key(|step| self.rank(*step));
        if self.budget.deviations == 0 {
            let mut is_next = true;
            steps.retain(|step| !is_in_order(*step) || std::mem::take(&mut is_next));
        }
    }

    /// Counts a deviation, before the step is taken.
    pub(crate) fn note_order(&mut self, scope: &Scope, step: Step) {
        if !scope.is_ordered || !is_in_order(step) {
            return;
        }
        let mut steps = Vec::new();
        self.ordinary(scope, &mut steps);
        let next = steps.into_iter().min_by_key(|step| self.rank(*step));
        if let Some(next) = next.filter(|next| *next != step) {
            self.budget.deviations = self.budget.deviations.saturating_sub(1);
            self.waits.held |= self.way_of(next);
        }
        self.waits.held &= !self.way_of(step);
    }

    fn rank(&self, step: Step) -> u8 {
        match step {
            _ if self.way_of(step) & self.waits.held != 0 => 5,
            Step::User(_, Deed::Acquire) => 2,
            Step::Delete(_) => 3,
            Step::User(_, Deed::Release) => 4,
            Step::Timer(_) => 1,
            Step::Glance(_) => 6,
            Step::Until(_) => 7,
            Step::User(..) | Step::Fault(_) => 8,
            _ => 0,
        }
    }

    /// The connection on which a message comes, as a bit; none for other steps.
    fn way_of(&self, step: Step) -> u64 {
        let way = |client: u8, node: u8, is_second: bool| {
            let link = usize::from(client) * self.nodes.len() + usize::from(node);
            1_u64.checked_shl(u32::try_from(2 * link).unwrap_or(u32::MAX)).unwrap_or(0)
                << u32::from(is_second)
        };
        match step {
            Step::Exec(client, node) | Step::Reply(client, node) | Step::Trip(client, node) => {
                way(client, node, false)
            }
            Step::Queue(client, node) | Step::Hear(client, node) | Step::Ask(client, node) => {
                way(client, node, true)
            }
            _ => 0,
        }
    }
}

/// Whether the step has its place in the order.
const fn is_in_order(step: Step) -> bool {
    !matches!(step, Step::Fault(_))
        && (!matches!(step, Step::User(..))
            || matches!(step, Step::User(_, Deed::Acquire | Deed::Release)))
}
