//! Decides whether a cluster is new, so that its nodes have forgotten nothing, and which one client
//! may declare that.
//!
//! A client that finds all listed nodes empty within one second may found the cluster. It writes
//! the first canary to one node, the same node for every client (the *registrar*, whose server has
//! the smallest run). The client whose canary is found there has founded the cluster; it then
//! writes the canaries of the other nodes. So a client that reaches only nodes which forgot founds
//! nothing, and of two clients that begin at the same time one waits for the other.

use std::time::Duration;

use super::checkup::{CanaryKey, Ruling};
use super::memory::Look;
use super::quarantine::QuarantineReason;
use super::{AGES_AGO, Guards, NodeRecord};
use crate::identity::NodeId;
use crate::machine::Environment;
use crate::policy::RestartGuard;
use crate::time::Moment;

/// How far this client is with founding the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Founding {
    #[default]
    No,
    /// This client has written this memory to the registrar, provided that the key was empty.
    Asked(NodeId, u64),
    /// It has founded the cluster.
    Won(Moment),
}

impl Guards {
    /// What to do about an empty node, if this client founds the cluster; `None` if it does not, or
    /// not yet.
    pub(super) fn found(&mut self, env: &mut dyn Environment, look: Look<'_>) -> Option<Ruling> {
        let now = env.now();
        match self.founding {
            Founding::Won(since) if now.since(since) < SETTING_UP => {}
            Founding::Won(_) => return None,
            Founding::No | Founding::Asked(..) => {
                if self.registrar(now)? != look.node {
                    return None;
                }
            }
        }
        let age = self.age_of_new_clusters();
        let canary = self.first_canary(env, look.checkup, QuarantineReason::NoHistory, age);
        if !matches!(self.founding, Founding::Won(_)) {
            self.founding = Founding::Asked(look.node, canary.id);
        }
        self.records[look.node.index()].begun = Some(canary.id);
        Some(look.write(&canary))
    }

    /// Learns what stands on a node: whether this client is the one that has founded the cluster.
    pub(super) fn note_founding(&mut self, look: Look<'_>, now: Moment) {
        let CanaryKey::Present(canary) = &look.checkup.canary else {
            return;
        };
        if self.founding == Founding::Asked(look.node, canary.id) {
            self.founding = Founding::Won(now);
            self.has_news = true;
        }
    }

    /// The node that decides who founds the cluster, if all are known to be empty.
    fn registrar(&self, now: Moment) -> Option<NodeId> {
        let is_empty = |record: &NodeRecord| {
            let is_recent = record.empty_at.is_some_and(|at| now.since(at) < SETTING_UP);
            let has_nothing = record.memory.is_none() && record.sure.len() == 0;
            record.is_heard() && has_nothing && is_recent && record.run.is_some()
        };
        let is_new = self.records.iter().all(is_empty);
        let all = NodeId::all(self.quorum.nodes());
        let smallest = || all.min_by_key(|node| self.records[node.index()].run.clone());
        is_new.then(smallest).flatten()
    }

    /// The age of the nodes of a new cluster: no lock was ever asked for that they do not know.
    /// With `max_ttl` a strict founder records that nothing is known of earlier times.
    pub(super) fn age_of_new_clusters(&self) -> Duration {
        match (self.restart, self.limit) {
            (RestartGuard::Strict, Some(_)) => Duration::ZERO,
            (RestartGuard::Strict | RestartGuard::Auto | RestartGuard::Off, _) => AGES_AGO,
        }
    }
}

/// How long it may take a client to set up a new cluster.
pub(super) const SETTING_UP: Duration = Duration::from_secs(1);
