//! What nodes said about a lease, with what they say later. Owns the votes; they decide nothing here.

use std::sync::{Arc, Mutex, PoisonError};

use quorlock_protocol::{Round, RoundReport};

use crate::error::{NodeReport, name_votes};
use crate::inbox::{Inbox, Wake};

/// The last round's votes; those that come late are looked at when someone asks.
pub(super) enum LastVotes {
    Open(Round, Arc<Inbox>),
    Closed(Vec<NodeReport>),
}

impl LastVotes {
    pub(super) fn now(&mut self, addresses: &[Arc<str>]) -> Vec<NodeReport> {
        let (round, inbox) = match self {
            Self::Closed(votes) => return votes.clone(),
            Self::Open(round, inbox) => (round, inbox),
        };
        let mut batch = Vec::new();
        if inbox.try_take(&mut batch) == Some(Wake::Replies) {
            for arrival in batch {
                round.handle_reply(arrival.at, arrival.node, arrival.reply);
            }
        }
        name_votes(&round.report(), addresses)
    }
}

/// What every node answers to a release: those that had not when its outcome was certain follow.
#[derive(Clone, Default)]
pub struct ReleaseVotes {
    report: Arc<Mutex<RoundReport>>,
    addresses: Arc<[Arc<str>]>,
}

impl ReleaseVotes {
    pub(super) fn new(addresses: &Arc<[Arc<str>]>) -> Self {
        Self { report: Arc::default(), addresses: Arc::clone(addresses) }
    }

    pub(super) fn set(&self, report: RoundReport) {
        *self.report.lock().unwrap_or_else(PoisonError::into_inner) = report;
    }

    /// What is known by now; empty if the lease was known to be over, because no node is asked then.
    pub fn now(&self) -> Vec<NodeReport> {
        let report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        name_votes(&report, &self.addresses)
    }
}
