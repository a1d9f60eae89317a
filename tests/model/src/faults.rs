//! The faults of the world. Owns the effect of each fault, and how much of the fault budget it
//! uses.

use crate::client::Status;
use crate::print::fingerprint;
use crate::scope::{Budget, Scope};
use crate::site::Health;
use crate::step::Fault;
use crate::world::World;

impl World {
    pub(crate) fn fail(&mut self, scope: &Scope, fault: Fault) {
        self.budget.spend(fault);
        if let Some(node) = fault.node() {
            let view = &mut self.views.0[usize::from(node)];
            *view = fingerprint(&(*view, self.now, fault.kind()));
        }
        if scope.is_guarded() && fault.strikes() {
            let node = usize::from(fault.node().unwrap_or(u8::MAX));
            self.nodes[node].struck_at = Some(self.now);
        }
        let may_return = self.budget.returns > 0 && !matches!(fault, Fault::Return(_));
        if let Some(node) = fault.node().filter(|_| may_return && fault.strikes()) {
            self.nodes[usize::from(node)].put_aside();
        }
        match fault {
            Fault::Break(client, node, again) => self.break_link(scope, client, node, again),
            Fault::Stray(client, node) => {
                self.link_mut(client, node).leave_strays();
                self.break_link(scope, client, node, true);
            }
            Fault::Arrive(client, node) => self.do_stray(scope, client, node),
            Fault::Restart(node, forgets) => {
                self.nodes[usize::from(node)].run += u32::from(scope.is_guarded());
                if forgets {
                    self.nodes[usize::from(node)].forget();
                }
                self.break_links_of(scope, node, true);
            }
            Fault::Rollback(node) => {
                let site = &mut self.nodes[usize::from(node)];
                let store = site.store.clone();
                site.forget();
                (site.run, site.store) = (site.run + 1, store);
                self.break_links_of(scope, node, true);
            }
            Fault::Flush(node) => {
                self.nodes[usize::from(node)].forget();
                self.fire_all_watches(node);
            }
            Fault::LoseFences(node) => self.nodes[usize::from(node)].lose_fences(),
            Fault::FailBack(node) => {
                let site = &mut self.nodes[usize::from(node)];
                site.take_back();
                site.lineage += 1;
            }
            Fault::Snapshot(node) => {
                let site = &mut self.nodes[usize::from(node)];
                site.take_back();
                // A server that writes everything to disk is taken at its word in its next run, too.
                site.run += u32::from(scope.durable);
                self.break_links_of(scope, node, true);
            }
            Fault::Return(node) => {
                self.nodes[usize::from(node)].bring_back();
                self.break_links_of(scope, node, true);
            }
            Fault::Down(node) => {
                self.nodes[usize::from(node)].health = Health::Down;
                self.break_links_of(scope, node, false);
            }
            Fault::Up(node) => self.bring_back(scope, node),
            Fault::Hang(node) => self.nodes[usize::from(node)].health = Health::Hung,
            Fault::ClockStep(node) => {
                self.nodes[usize::from(node)].stepped += CLOCK_STEP;
                self.pass(scope, self.now);
            }
            Fault::Pause(client) => self.clients[usize::from(client)].stop(),
            Fault::Freeze(client) => self.freeze(scope, client),
            Fault::Resume(client) => self.resume(scope, client),
            Fault::Crash(client, arrives) => self.crash(client, arrives),
            Fault::CutWake(client, node) => self.cut_wake(client, node),
            Fault::MendWake(client, node) => self.mend_wake(client, node),
            Fault::LoseNews(client, node) => {
                if let Some(wake) = self.wake_mut(client, node) {
                    wake.lose_news();
                }
            }
            Fault::LoseQueues(node) => self.nodes[usize::from(node)].lose_queues(),
            Fault::WallBack(client) => self.clients[usize::from(client)].wall_back += WALL_STEP,
        }
    }

    /// A node comes back; so do all others that are gone, where the scope says so.
    fn bring_back(&mut self, scope: &Scope, node: u8) {
        for place in 0..self.nodes.len() {
            let is_other = place != usize::from(node);
            let is_up = self.nodes[place].health == Health::Up;
            if is_up || (is_other && !scope.returns_at_once) {
                continue;
            }
            self.nodes[place].health = Health::Up;
            if is_other {
                let view = &mut self.views.0[place];
                *view = fingerprint(&(*view, self.now, Fault::Up(node).kind()));
            }
        }
    }

    fn break_links_of(&mut self, scope: &Scope, node: u8, again: bool) {
        for client in 0..self.clients.len() {
            let client = u8::try_from(client).unwrap_or(u8::MAX);
            self.cut_wake(client, node);
            // No other run of the server takes what was sent to this one.
            self.link_mut(client, node).strays.clear();
            self.break_link(scope, client, node, again);
        }
    }

    fn break_link(&mut self, scope: &Scope, client: u8, node: u8, again: bool) {
        let clock = self.boot(scope, client);
        // Nobody is left to make a new connection for a dead client.
        let again = again && self.clients[usize::from(client)].status != Status::Dead;
        self.link_mut(client, node).break_off(again, clock);
        self.forsake(client, node);
        self.drop_unheard(client);
    }

    pub(crate) fn crash(&mut self, client: u8, arrives: bool) {
        let place = usize::from(client);
        let draws = self.clients[place].draws;
        self.clients[place].die();
        self.clients[place].excused = (0..=draws).collect();
        for node in 0..self.nodes.len() {
            let node = u8::try_from(node).unwrap_or(u8::MAX);
            let link = self.link_mut(client, node);
            link.close_all();
            if !arrives {
                link.out.clear();
            }
            self.nodes[usize::from(node)].watchers &= !(1 << client);
            if let Some(wake) = self.wake_mut(client, node) {
                wake.close(arrives);
            }
        }
    }
}

impl Budget {
    fn spend(&mut self, fault: Fault) {
        let left = match fault {
            Fault::Up(_) | Fault::Resume(_) | Fault::MendWake(..) | Fault::Arrive(..) => return,
            Fault::Stray(..) => &mut self.strays,
            Fault::CutWake(..) => &mut self.wake_cuts,
            Fault::LoseNews(..) => &mut self.lost_news,
            Fault::LoseQueues(_) => &mut self.queue_losses,
            Fault::Break(_, _, true) => &mut self.resends,
            Fault::Break(_, _, false) => &mut self.breaks,
            Fault::Restart(_, false) => &mut self.restarts,
            Fault::Restart(_, true) => &mut self.forgets,
            Fault::Rollback(_) => &mut self.rollbacks,
            Fault::Flush(_) => &mut self.flushes,
            Fault::LoseFences(_) => &mut self.fence_losses,
            Fault::FailBack(_) => &mut self.failbacks,
            Fault::Snapshot(_) => &mut self.snapshots,
            Fault::Return(_) => &mut self.returns,
            Fault::Down(_) => &mut self.downs,
            Fault::Hang(_) => &mut self.hangs,
            Fault::ClockStep(_) => &mut self.clock_steps,
            Fault::Pause(_) => &mut self.pauses,
            Fault::Freeze(_) => &mut self.freezes,
            Fault::Crash(..) => &mut self.crashes,
            Fault::WallBack(_) => &mut self.wall_steps,
        };
        *left = left.saturating_sub(1);
        self.faults = self.faults.saturating_sub(1);
    }
}

/// How far a node's clock jumps, in milliseconds.
const CLOCK_STEP: u64 = 700;
/// How far a client's wall clock jumps back, in microseconds.
const WALL_STEP: u64 = 700_000;
