//! What a look at the nodes says of a lease: its token, and whether they still hold it.

use super::{LeaseLife, Stage, WorkId};
use crate::hold::LossReason;
use crate::inspect::{Inspect, Standing};
use crate::policy::Policy;
use crate::time::Moment;

impl LeaseLife {
    /// Whether a fencing token is missing although the settings ask for one: a look finds it, an
    /// extension does not.
    pub fn lacks_token(&self, policy: &Policy) -> bool {
        policy.fencing && self.fencing_token().is_none()
    }

    /// Creates an inspection of what the nodes hold. Hand its result to [`Self::learn`] or
    /// [`Self::checked`], with the number returned here.
    pub fn look(&self, now: Moment, policy: &Policy) -> (WorkId, Inspect) {
        let machine = Inspect::new(now, self.claim(), *policy, self.quorum);
        let lacks_token = self.lacks_token(policy);
        (self.work_id, if lacks_token { machine.with_token() } else { machine })
    }

    /// Records what an inspection has proved, if it is the first proof of a lease that was taken
    /// over, or the first with its fencing token. In other cases an earlier proof may reach further
    /// than the slowest node's answer; and if another operation was started since the inspection,
    /// that one knows better.
    pub fn learn(&mut self, now: Moment, asked: WorkId, standing: &Standing) {
        let Standing::Held(found) = standing else {
            return;
        };
        let is_first = self.lease().is_none();
        let has_token = self.fencing_token().is_none() && found.fencing_token().is_some();
        if self.stage != Stage::Held || asked != self.work_id || !(is_first || has_token) {
            return;
        }
        let mut lease = found.clone();
        if let Some(known) = self.lease() {
            lease.outlast(known.keys_expire_by());
        }
        self.stop_work(now);
        self.rest(Some(Box::new(lease)));
    }

    /// Takes the result of a check: it proves the lease, or that it is gone, or nothing. It cannot
    /// restore a lease that has ended by the clock.
    pub fn checked(&mut self, now: Moment, asked: WorkId, standing: &Standing) {
        self.learn(now, asked, standing);
        match standing {
            Standing::Held(_) => self.expire(now),
            Standing::NotHeld => self.lose(now, LossReason::Gone),
            Standing::Unknown => {}
        }
    }
}
