//! Starts the machine for each user action of a golden schedule. Owns which machine that is.

use quorlock_protocol::{Acquire, FencingToken, Machine, Release, Resources, Waiter};

use super::guards::Cluster;
use super::session::{Outcome, Session, Work};

impl Session {
    pub(super) fn acquire(
        &mut self,
        ttl: Option<u64>,
        cluster: &mut Cluster,
    ) -> Result<(), String> {
        let resources = Resources::new(["r"]).map_err(|problem| problem.to_string())?;
        let policy = self.settings.policy(ttl)?;
        let now = self.boot();
        if let Some(client_guards) = &mut self.client_guards {
            client_guards.prepare(cluster, &policy, now);
        }
        let (quorum, known) = (self.settings.quorum(), FencingToken::default());
        self.policy = policy;
        let mut machine = Acquire::new(self.env.now, resources, policy, quorum, known);
        if self.settings.queues {
            machine = machine.queued_as(Waiter { process: 1, number: 1 });
        }
        self.result = Outcome::Pending;
        self.work = Work::Acquire(Box::new(machine));
        Ok(())
    }

    pub(super) fn extend(&mut self, ttl: Option<u64>) -> Result<(), String> {
        let policy = self.settings.policy(ttl)?;
        let life = self.life.as_mut().ok_or("there is no lease")?;
        let id = life.extend(self.env.now, policy.into()).ok_or("it is not held")?;
        self.result = Outcome::Pending;
        self.work = Work::Lease(id);
        Ok(())
    }

    pub(super) fn hold(&mut self) -> Result<(), String> {
        let life = self.life.as_mut().ok_or("there is no lease")?;
        life.watch();
        let (id, _) = life.resume(self.env.now, true).ok_or("it is not held")?;
        self.result = Outcome::Pending;
        self.work = Work::Lease(id);
        Ok(())
    }

    pub(super) fn release(&mut self) -> Result<(), String> {
        self.cancel();
        self.settle();
        let mut life = self.life.take().ok_or("there is no lease")?;
        self.result = Outcome::Pending;
        match life.release(self.env.now) {
            Release::Asked { withdraw, .. } | Release::Lost(Some(withdraw)) => {
                self.work = Work::Withdraw(withdraw);
                Ok(())
            }
            Release::Lost(None) | Release::NotHeld => Err("nothing is left to release".to_owned()),
        }
    }

    pub(super) fn cancel(&mut self) {
        let env = &mut self.env;
        match &mut self.work {
            Work::None => {}
            Work::Acquire(machine) => machine.cancel(env),
            Work::Lease(id) => self.life.iter_mut().for_each(|life| life.work(*id).cancel(env)),
            Work::Withdraw(machine) => machine.cancel(env),
        }
    }
}
