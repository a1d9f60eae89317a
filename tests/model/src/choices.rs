//! Lists the steps that are possible in a state. Owns the rules of time: it moves only to the next
//! moment at which anything can change, and only after every due timer has fired.

use crate::client::{Client, Phase, Status};
use crate::scope::{Scope, Target};
use crate::site::{Health, Site};
use crate::step::{Deed, Fault, Step};
use crate::wake::{State, Told};
use crate::world::World;

impl World {
    /// Every step that is possible now.
    pub(crate) fn choices(&self, scope: &Scope, steps: &mut Vec<Step>) {
        steps.clear();
        self.ordinary(scope, steps);
        if scope.is_ordered {
            self.keep_order(steps);
        }
        if self.budget.faults > 0 {
            self.faults(scope, steps);
        }
        self.recoveries(scope, steps);
    }

    /// Those that are no faults.
    pub(crate) fn ordinary(&self, scope: &Scope, steps: &mut Vec<Step>) {
        self.messages(scope, steps);
        self.news(scope, steps);
        self.users(scope, steps);
        self.glances(steps);
        self.passing(scope, steps);
    }

    /// What comes and goes on the second connections, and what others do to keys.
    fn news(&self, scope: &Scope, steps: &mut Vec<Step>) {
        if self.wakes.is_empty() {
            return;
        }
        for client in self.clients.iter() {
            let hears = client.status == Status::Running;
            for node in self.node_ids().filter(|node| self.counts(scope, *node)) {
                let Some(wake) = self.wake(client.id, node) else {
                    continue;
                };
                if !wake.out.is_empty() && self.is_up(node) {
                    let at_once = scope.prompt && hears && wake.back.is_empty();
                    let step = if at_once { Step::Ask } else { Step::Queue };
                    steps.push(step(client.id, node));
                }
                if hears && !wake.back.is_empty() {
                    steps.push(Step::Hear(client.id, node));
                }
            }
        }
        if scope.is_deleted {
            let nodes = self.node_ids().filter(|node| self.counts(scope, *node));
            steps.extend(nodes.filter(|node| self.has_foreign(*node)).map(Step::Delete));
        }
    }

    fn messages(&self, scope: &Scope, steps: &mut Vec<Step>) {
        for client in self.clients.iter() {
            let hears = client.status == Status::Running;
            let mut replies = 0;
            for node in self.node_ids().filter(|node| self.counts(scope, *node)) {
                let link = self.link(client.id, node);
                let is_ready = self.is_up(node) && self.is_connected(client.id, node);
                if link.next_for_node().is_some() && is_ready {
                    let at_once = scope.prompt && hears && !link.has_reply();
                    if at_once {
                        steps.push(Step::Trip(client.id, node));
                    }
                    if !at_once || self.budget.delays > 0 {
                        steps.push(Step::Exec(client.id, node));
                    }
                }
                if hears && link.has_reply() {
                    replies += 1;
                    steps.push(Step::Reply(client.id, node));
                }
            }
            if scope.batches && replies > 1 {
                steps.push(Step::Batch(client.id));
            }
        }
    }

    /// A client looks at its nodes from time to time; that matters once its machine has stood
    /// still.
    fn glances(&self, steps: &mut Vec<Step>) {
        let running = self.clients.iter().filter(|it| it.status == Status::Running);
        let unaware = running.filter(|it| it.unaware.is_some() && it.guarding.is_some());
        steps.extend(unaware.map(|client| Step::Glance(client.id)));
    }

    fn users(&self, scope: &Scope, steps: &mut Vec<Step>) {
        let budget = &self.budget;
        for client in self.clients.iter().filter(|client| client.status == Status::Running) {
            let mut user = |wanted: bool, deed| {
                if wanted {
                    steps.push(Step::User(client.id, deed));
                }
            };
            match &client.phase {
                Phase::Idle => user(client.locks > 0 && !client.is_releasing(), Deed::Acquire),
                Phase::Acquiring(_) => user(budget.cancels > 0, Deed::Cancel),
                Phase::Holding(holding) => {
                    let busy = holding.is_busy();
                    user(!holding.looked && scope.releases, Deed::Release);
                    user(budget.abandons > 0, Deed::Abandon);
                    user(budget.extends > 0 && !busy, Deed::Extend);
                    user(budget.shortens > 0 && !busy, Deed::Shorten);
                    user(budget.take_overs > 0 && !busy, Deed::TakeOver);
                    user(budget.extends_elsewhere > 0, Deed::ExtendElsewhere);
                    user(budget.checks > 0 && !busy, Deed::Check);
                    user(budget.cancels > 0 && holding.life.is_extending(), Deed::Cancel);
                    let writes = scope.target != Target::None;
                    let clock = client.clock(scope, self.now);
                    let valid = client.valid_lease(clock).is_some();
                    user(writes && !holding.looked && valid, Deed::Look);
                    user(writes && holding.looked, Deed::Write);
                }
                // In the end it releases the lease or forgets it.
                Phase::Lost(_) => {
                    user(scope.releases, Deed::Release);
                    user(budget.extends_elsewhere > 0, Deed::ExtendElsewhere);
                    user(true, Deed::Abandon);
                }
            }
        }
    }

    fn passing(&self, scope: &Scope, steps: &mut Vec<Step>) {
        let mut is_due = false;
        for client in self.clients.iter().filter(|client| client.status == Status::Running) {
            if client.wake() <= client.clock(scope, self.now) {
                is_due = true;
                steps.push(Step::Timer(client.id));
            }
        }
        if is_due || (self.budget.delays == 0 && self.has_messages()) {
            return;
        }
        // A lost connection is replaced before time passes: that may change when the next look is
        // due.
        let next = if self.is_cut_off() { Some(self.now) } else { self.next_moment(scope) };
        steps.extend(next.map(Step::Until));
    }

    /// The next true time at which anything can change by itself.
    pub(crate) fn next_moment(&self, scope: &Scope) -> Option<u64> {
        let reaches = |client: &Client, moment| client.lost_time.reaches(scope.client_rate, moment);
        let timers = self
            .clients
            .iter()
            .filter(|client| client.status == Status::Running)
            .filter_map(|client| reaches(client, client.wake()));
        let looks = self.next_looks().filter_map(|(client, moment)| {
            client.lost_time.boot_reaches(scope.client_rate, moment)
        });
        let leases = self.clients.iter().filter_map(|client| match &client.phase {
            Phase::Holding(holding) => reaches(client, holding.until()),
            _ => None,
        });
        // Between a lease's beginning and its end nothing changes by itself; but an extension (or
        // check) in between that is answered later is another schedule than one at the beginning.
        let budget = &self.budget;
        let extensions = [budget.extends, budget.shortens, budget.extends_elsewhere];
        let extends = budget.checks > 0 || extensions.iter().any(|left| *left > 0);
        let half = scope.policy.ttl().as_duration() / 2;
        let midway = self.clients.iter().filter_map(|client| match &client.phase {
            Phase::Holding(holding) if extends => reaches(client, holding.until().before(half)),
            _ => None,
        });
        let nodes = || self.nodes.iter().enumerate();
        let shows = |(place, node): (usize, &Site), millis: u64| {
            scope.rate_of(place).reaches_millis(millis.saturating_sub(node.stepped))
        };
        let keys = nodes().flat_map(|node| {
            node.1.keys.iter().flatten().filter_map(move |key| shows(node, key.expires))
        });
        let fences = nodes().filter(|(_, node)| node.fences_end < u64::MAX);
        let fences = fences.filter_map(|node| shows(node, node.1.fences_end));
        timers
            .chain(looks)
            .chain(fences)
            .chain(leases)
            .chain(midway)
            .chain(keys)
            .filter(|time| *time > self.now)
            .min()
    }

    fn faults(&self, scope: &Scope, steps: &mut Vec<Step>) {
        let budget = &self.budget;
        let mut fault = |left: u16, fault| {
            if left > 0 {
                steps.push(Step::Fault(fault));
            }
        };
        for node in self.node_ids().filter(|node| self.is_up(*node) && self.counts(scope, *node)) {
            fault(budget.restarts, Fault::Restart(node, false));
            fault(budget.downs, Fault::Down(node));
            fault(budget.hangs, Fault::Hang(node));
            fault(budget.fence_losses, Fault::LoseFences(node));
            if self.has_places(node) {
                fault(budget.queue_losses, Fault::LoseQueues(node));
            }
            if self.may_be_struck(scope, node) {
                let site = &self.nodes[usize::from(node)];
                fault(budget.forgets, Fault::Restart(node, true));
                fault(budget.rollbacks, Fault::Rollback(node));
                fault(budget.flushes, Fault::Flush(node));
                if (budget.failbacks > 0 || budget.snapshots > 0) && site.can_come_back() {
                    fault(budget.failbacks, Fault::FailBack(node));
                    fault(budget.snapshots, Fault::Snapshot(node));
                }
                if budget.returns > 0 && site.can_return() {
                    fault(budget.returns, Fault::Return(node));
                }
                fault(budget.clock_steps, Fault::ClockStep(node));
            }
        }
        for client in self.clients.iter().filter(|client| client.status == Status::Running) {
            let busy = is_busy(client);
            if busy {
                fault(budget.pauses, Fault::Pause(client.id));
                if scope.stands_still.is_none_or(|only| only == client.id) {
                    fault(budget.freezes, Fault::Freeze(client.id));
                }
                fault(budget.crashes, Fault::Crash(client.id, true));
                fault(budget.crashes, Fault::Crash(client.id, false));
            }
            fault(budget.wall_steps, Fault::WallBack(client.id));
            for node in self.node_ids().filter(|node| self.counts(scope, *node)) {
                if let Some(wake) = self.wake(client.id, node) {
                    if wake.state == State::Standing && busy {
                        fault(budget.wake_cuts, Fault::CutWake(client.id, node));
                    }
                    if wake.back.iter().any(Told::is_news) {
                        fault(budget.lost_news, Fault::LoseNews(client.id, node));
                    }
                }
                if !self.link(client.id, node).out.is_empty() {
                    fault(budget.resends, Fault::Break(client.id, node, true));
                    fault(budget.breaks, Fault::Break(client.id, node, false));
                    fault(budget.strays, Fault::Stray(client.id, node));
                }
            }
        }
    }

    /// Steps that end a fault cost nothing.
    fn recoveries(&self, scope: &Scope, steps: &mut Vec<Step>) {
        let gone = self.node_ids().filter(|node| !self.is_up(*node));
        let most = if scope.returns_at_once { 1 } else { self.nodes.len() };
        steps.extend(gone.take(most).map(|node| Step::Fault(Fault::Up(node))));
        self.arrivals(scope, steps);
        for client in self.clients.iter().filter(|client| client.is_stopped()) {
            steps.push(Step::Fault(Fault::Resume(client.id)));
        }
        for client in self.clients.iter().filter(|client| client.status == Status::Running) {
            let lost = self.node_ids().find(|node| {
                let wake = self.wake(client.id, *node);
                self.is_up(*node) && wake.is_some_and(|wake| wake.state == State::Lost)
            });
            steps.extend(lost.map(|node| Step::Fault(Fault::MendWake(client.id, node))));
        }
    }

    /// Whether steps of this node are searched.
    fn counts(&self, scope: &Scope, node: u8) -> bool {
        !scope.symmetric || self.stands_for_its_like(node)
    }

    fn is_up(&self, node: u8) -> bool {
        self.nodes[usize::from(node)].health == Health::Up
    }

    pub(crate) fn node_ids(&self) -> impl Iterator<Item = u8> + use<> {
        0..u8::try_from(self.nodes.len()).unwrap_or(u8::MAX)
    }
}

/// Whether a stop of the client can matter.
fn is_busy(client: &Client) -> bool {
    !matches!(client.phase, Phase::Idle) || !client.background.is_empty()
}
