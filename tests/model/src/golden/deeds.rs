//! What the user of a golden schedule does. Owns which machine each deed sets to work.

use quorlock_protocol::{
    Acquire, Extend, Extension, FencingToken, Hold, Machine, Resources, Ticket, Withdraw,
    Withdrawal,
};

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
        if let Some(sentinel) = &mut self.sentinel {
            sentinel.prepare(cluster, &policy, now);
        }
        let (quorum, known) = (self.settings.quorum(), FencingToken::default());
        let machine = Acquire::new(self.env.now, resources, policy, quorum, known);
        self.result = Outcome::Pending;
        self.work = Work::Acquire(Box::new(machine));
        Ok(())
    }

    pub(super) fn extend(&mut self, ttl: Option<u64>) -> Result<(), String> {
        let lease = self.lease.as_ref().ok_or("there is no lease")?;
        let extension = Extension {
            claim: lease.claim().clone(),
            fencing_token: lease.fencing_token(),
            until: lease.until(),
            patience: self.settings.patience(),
            first_ticket: 0,
        };
        let policy = self.settings.policy(ttl)?;
        let machine = Extend::new(self.env.now, extension, policy, self.settings.quorum())
            .outlasting(lease.forgotten());
        self.result = Outcome::Pending;
        self.work = Work::Extend(machine);
        Ok(())
    }

    pub(super) fn hold(&mut self) -> Result<(), String> {
        let lease = self.lease.clone().ok_or("there is no lease")?;
        let (now, policy) = (self.env.now, self.settings.policy(None)?);
        self.result = Outcome::Pending;
        self.work = Work::Hold(Hold::new(now, lease, policy, now, self.settings.quorum()));
        Ok(())
    }

    pub(super) fn release(&mut self) -> Result<(), String> {
        self.cancel();
        self.settle();
        let lease = self.lease.take().ok_or("there is no lease")?;
        let (now, policy) = (self.env.now, self.settings.policy(None)?);
        let withdrawal = Withdrawal {
            ticket: Ticket(0),
            claim: lease.claim().clone(),
            quorum: self.settings.quorum(),
            forgotten: lease.forgotten().max(now + policy.node_timeout()),
            unsent: lease.unsent().to_vec(),
            node_timeout: policy.node_timeout(),
        };
        self.result = Outcome::Pending;
        let (drift, keep) = (policy.drift(), self.since + policy.min_hold());
        let machine = Withdraw::new(now, withdrawal).valid_until(lease.kept_until(drift));
        self.work = Work::Withdraw(machine.keeping(keep, drift));
        Ok(())
    }

    pub(super) fn cancel(&mut self) {
        let env = &mut self.env;
        match &mut self.work {
            Work::None => {}
            Work::Acquire(machine) => machine.cancel(env),
            Work::Extend(machine) => machine.cancel(env),
            Work::Hold(machine) => machine.cancel(env),
            Work::Withdraw(machine) => machine.cancel(env),
        }
    }
}
