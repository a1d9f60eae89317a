//! Pauses a client's machine (a virtual machine that stands still): its clocks lose time. Owns how
//! much they lose, and since when the client could know; the shipping `Guards` judges that.

use std::time::Duration;

use quorlock_protocol::{Command, Moment};

use crate::client::{Client, Status};
use crate::clock::Rate;
use crate::scope::Scope;
use crate::world::World;

/// A client's two clocks when its machine stands still: the boot clock, which is never corrected,
/// and the lease clock, which is set forward by the time that the client has found to be lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct LostTime {
    /// The true time at which they stopped, while they stand still.
    since: Option<u64>,
    /// How long they have stood still before.
    stood: Duration,
    /// By how much the lease clock was set forward.
    lost: Duration,
    /// Whether the client was ever stopped, or its machine stood still: to it, steps that it has
    /// missed can look like lost time.
    pub(crate) has_stopped: bool,
}

impl LostTime {
    /// What the boot clock shows at true time `now`.
    pub(crate) fn boot(self, rate: Rate, now: u64) -> Moment {
        rate.moment(self.since.unwrap_or(now)).before(self.stood)
    }

    /// What the lease clock shows at true time `now`.
    pub(crate) fn moment(self, rate: Rate, now: u64) -> Moment {
        self.boot(rate, now) + self.lost
    }

    /// What the boot clock shows when the lease clock shows `moment`.
    pub(crate) fn to_boot(self, moment: Moment) -> Moment {
        if moment == Moment::FAR_FUTURE { moment } else { moment.before(self.lost) }
    }

    /// The first true time at which the boot clock shows `moment` or more, if it runs.
    pub(crate) fn boot_reaches(self, rate: Rate, moment: Moment) -> Option<u64> {
        self.since.is_none().then(|| rate.reaches(moment + self.stood)).flatten()
    }

    /// The first true time at which the lease clock shows `moment` or more, if it runs.
    pub(crate) fn reaches(self, rate: Rate, moment: Moment) -> Option<u64> {
        self.boot_reaches(rate, self.to_boot(moment))
    }

    /// The last true time at which the boot clock shows `moment` or less, if it runs.
    fn passes(self, rate: Rate, moment: Moment) -> u64 {
        rate.passes(moment + self.stood)
    }

    /// By how much more than the lost time the lease clock was set forward.
    pub(crate) fn ahead(self) -> Duration {
        self.lost.saturating_sub(self.stood)
    }

    /// Whether the lease clock shows less time than has passed.
    pub(crate) fn is_behind(self) -> bool {
        self.since.is_some() || self.lost < self.stood
    }

    fn stop(&mut self, now: u64) {
        self.since = Some(now);
    }

    /// Runs again; returns the lost time. Between a question before the pause and one after it the
    /// clock shows at least some time, as real ones do.
    fn go_on(&mut self, rate: Rate, now: u64) -> Duration {
        let since = self.since.take().unwrap_or(now);
        let lost = rate.moment(now).since(rate.moment(since)).saturating_sub(SOME_TIME);
        self.stood += lost;
        lost
    }

    /// The lease clock is set forward.
    pub(crate) fn set_forward(&mut self, by: Duration) {
        self.lost += by;
    }
}

impl World {
    /// The lease clock of a client.
    pub(crate) fn clock(&self, scope: &Scope, client: u8) -> Moment {
        self.clients[usize::from(client)].clock(scope, self.now)
    }

    /// The clock that a client's guards and connections use.
    pub(crate) fn boot(&self, scope: &Scope, client: u8) -> Moment {
        self.clients[usize::from(client)].boot(scope, self.now)
    }

    /// The true time until which a client expects its command to be carried out. If its clock is
    /// behind, it stops taking the keys back too early.
    pub(crate) fn in_time_until(
        &self,
        scope: &Scope,
        client: u8,
        command: &Command,
    ) -> Option<u64> {
        let lost_time = self.clients[usize::from(client)].lost_time;
        (!lost_time.is_behind()).then(|| lost_time.passes(scope.client_rate, command.not_after))
    }

    /// The machine of a client stands still with its clocks, and so do the other managers of its
    /// process.
    pub(crate) fn freeze(&mut self, scope: &Scope, client: u8) {
        for client in scope.process_of(client) {
            let client = &mut self.clients[usize::from(client)];
            if client.status == Status::Dead {
                continue;
            }
            client.stop();
            client.status = Status::Frozen;
            client.lost_time.stop(self.now);
            client.unaware = Some(0);
        }
    }

    /// A client that was stopped runs again with its whole process, and does not know of the pause.
    pub(crate) fn resume(&mut self, scope: &Scope, client: u8) {
        for client in scope.process_of(client) {
            self.go_on(scope, client);
        }
    }

    fn go_on(&mut self, scope: &Scope, client: u8) {
        let client = &mut self.clients[usize::from(client)];
        if client.status == Status::Frozen {
            let lost = client.lost_time.go_on(scope.client_rate, self.now);
            if scope.walls_run {
                client.wall_back += u64::try_from(lost.as_micros()).unwrap_or(u64::MAX);
            }
        }
        if client.status != Status::Dead {
            client.status = Status::Running;
        }
    }
}

impl Client {
    /// The client has looked at `node`: after looks at a quorum since the pause, it can know what
    /// it lost.
    pub(crate) fn has_looked(&mut self, node: u8, quorum: usize) {
        let Some(looked) = self.unaware.map(|looked| looked | 1 << node) else {
            return;
        };
        let is_enough = looked.count_ones() as usize >= quorum;
        self.unaware = (!is_enough).then_some(looked);
    }
}

const SOME_TIME: Duration = Duration::from_millis(1);
