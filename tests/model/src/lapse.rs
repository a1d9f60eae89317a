//! What becomes of a client whose machine stands still (a virtual machine that is paused): its clocks lose
//! time. Owns what they lose and since when the client could know; the judgement is the shipping `Guards`'.

use std::time::Duration;

use quorlock_protocol::{Command, Moment};

use crate::client::{Client, Status};
use crate::clock::Rate;
use crate::scope::Scope;
use crate::world::World;

/// How a lease clock has departed from its rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Lapse {
    /// The true time at which it stopped, while it stands still.
    since: Option<u64>,
    /// How far it lies behind.
    behind: Duration,
    /// How far it was set forward beyond that.
    ahead: Duration,
    /// Whether its reader was ever stopped, or it stood still itself: what steps it has missed can look
    /// like lost time.
    pub(crate) has_stopped: bool,
}

impl Lapse {
    /// What the clock shows at true time `now`.
    pub(crate) fn moment(self, rate: Rate, now: u64) -> Moment {
        (rate.moment(self.since.unwrap_or(now)) + self.ahead).before(self.behind)
    }

    /// The first true time at which it shows `moment` or more, if it goes on.
    pub(crate) fn reaches(self, rate: Rate, moment: Moment) -> Option<u64> {
        let goes_on = self.since.is_none();
        goes_on.then(|| rate.reaches((moment + self.behind).before(self.ahead))).flatten()
    }

    /// The last true time at which it shows `moment` or less, if it goes on.
    pub(crate) fn passes(self, rate: Rate, moment: Moment) -> u64 {
        rate.passes((moment + self.behind).before(self.ahead))
    }

    /// Whether it was set forward by more than it had lost.
    pub(crate) fn is_ahead(self) -> bool {
        !self.ahead.is_zero()
    }

    /// Whether less time has passed by it than has passed.
    pub(crate) fn is_behind(self) -> bool {
        self.since.is_some() || !self.behind.is_zero()
    }

    fn stop(&mut self, now: u64) {
        self.since = Some(now);
    }

    /// Goes on; tells what was lost.
    fn go_on(&mut self, rate: Rate, now: u64) -> Duration {
        let since = self.since.take().unwrap_or(now);
        let lost = rate.moment(now).since(rate.moment(since));
        self.behind += lost;
        self.settle();
        lost
    }

    /// Is set forward.
    pub(crate) fn set_forward(&mut self, by: Duration) {
        self.ahead += by;
        self.settle();
    }

    fn settle(&mut self) {
        let both = self.behind.min(self.ahead);
        (self.behind, self.ahead) =
            (self.behind.saturating_sub(both), self.ahead.saturating_sub(both));
    }
}

impl World {
    /// The lease clock of a client.
    pub(crate) fn clock(&self, scope: &Scope, client: u8) -> Moment {
        self.clients[usize::from(client)].clock(scope, self.now)
    }

    /// The true time up to which a client counts with a command's being done; with what it sends by a
    /// clock that lies behind, it reckons too early when to stop taking it back.
    pub(crate) fn in_time_until(
        &self,
        scope: &Scope,
        client: u8,
        command: &Command,
    ) -> Option<u64> {
        let lapse = self.clients[usize::from(client)].lapse;
        (!lapse.is_behind()).then(|| lapse.passes(scope.client_rate, command.not_after))
    }

    /// The machine of a client stands still, its clocks too.
    pub(crate) fn freeze(&mut self, client: u8) {
        let client = &mut self.clients[usize::from(client)];
        client.stop();
        client.status = Status::Frozen;
        client.lapse.stop(self.now);
        client.dazed = Some(0);
    }

    /// A client that was stopped goes on, and knows of nothing.
    pub(crate) fn resume(&mut self, scope: &Scope, client: u8) {
        let client = &mut self.clients[usize::from(client)];
        if client.status == Status::Frozen {
            let lost = client.lapse.go_on(scope.client_rate, self.now);
            if scope.walls_run {
                client.wall_back += u64::try_from(lost.as_micros()).unwrap_or(u64::MAX);
            }
        }
        client.status = Status::Running;
    }
}

impl Client {
    /// It has looked at `node`: once it has looked at a quorum since it went on, it can know what it lost.
    pub(crate) fn has_looked(&mut self, node: u8, quorum: usize) {
        let Some(looked) = self.dazed.map(|looked| looked | 1 << node) else {
            return;
        };
        let is_enough = looked.count_ones() as usize >= quorum;
        self.dazed = (!is_enough).then_some(looked);
    }
}
