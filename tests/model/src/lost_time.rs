//! Pauses a client's machine (a virtual machine that stands still): its clocks lose time. Owns how
//! much they lose, and since when the client could know; the shipping `Guards` judges that.

use std::time::Duration;

use quorlock_protocol::{Command, Moment};

use crate::client::{Client, Status};
use crate::clock::Rate;
use crate::scope::Scope;
use crate::world::World;

/// What a machine that stands still makes of a client's two clocks: the boot clock, which is never corrected, and
/// the lease clock, which is set forward by what the client has found to be lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct LostTime {
    /// The true time at which they stopped, while they stand still.
    since: Option<u64>,
    /// For how long they have stood still before.
    stood: Duration,
    /// By how much the lease clock was set forward.
    lost: Duration,
    /// Whether its reader was ever stopped, or it stood still itself: what steps it has missed can look
    /// like lost time.
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

    /// By how much more the lease clock was set forward than was lost.
    pub(crate) fn ahead(self) -> Duration {
        self.lost.saturating_sub(self.stood)
    }

    /// Whether less time has passed by the lease clock than has passed.
    pub(crate) fn is_behind(self) -> bool {
        self.since.is_some() || self.lost < self.stood
    }

    fn stop(&mut self, now: u64) {
        self.since = Some(now);
    }

    /// Runs again; tells what was lost. Between what was asked before and what is asked now the clock shows some time
    /// at least, as real ones do.
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

    /// The clock that a client's guards and connections go by.
    pub(crate) fn boot(&self, scope: &Scope, client: u8) -> Moment {
        self.clients[usize::from(client)].boot(scope, self.now)
    }

    /// The true time up to which a client counts with being done what it hands to a connection; with what it sends by a
    /// clock that lies behind, it reckons too early when to stop taking it back.
    pub(crate) fn in_time_until(
        &self,
        scope: &Scope,
        client: u8,
        command: &Command,
    ) -> Option<u64> {
        let lost_time = self.clients[usize::from(client)].lost_time;
        (!lost_time.is_behind()).then(|| lost_time.passes(scope.client_rate, command.not_after))
    }

    /// The machine of a client stands still, its clocks too, and so do the other managers of its process.
    pub(crate) fn freeze(&mut self, scope: &Scope, client: u8) {
        for client in scope.process_of(client) {
            let client = &mut self.clients[usize::from(client)];
            if client.status == Status::Dead {
                continue;
            }
            client.stop();
            client.status = Status::Frozen;
            client.lost_time.stop(self.now);
            client.dazed = Some(0);
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
    /// It has looked at `node`: once it has looked at a quorum since it went on, it can know what it lost.
    pub(crate) fn has_looked(&mut self, node: u8, quorum: usize) {
        let Some(looked) = self.dazed.map(|looked| looked | 1 << node) else {
            return;
        };
        let is_enough = looked.count_ones() as usize >= quorum;
        self.dazed = (!is_enough).then_some(looked);
    }
}

const SOME_TIME: Duration = Duration::from_millis(1);
