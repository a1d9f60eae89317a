//! Decides whether nodes are independent of each other, from what their servers say of themselves.
//! Owns the rules; knows addresses only as text to compare.

use std::sync::Arc;

use super::{Contact, Guards, Notice};
use crate::identity::NodeId;
use crate::quorum::Quorum;

/// What a server says of itself when a connection is made. A field is `None` if the server does not
/// tell, and then nothing is concluded from it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Its run: a new one with each start of it.
    pub run: Option<Arc<str>>,
    /// The name of the history of writes that it shares with its replicas.
    pub history: Option<Arc<str>>,
    /// The server that it replicates from, as `host:port`.
    pub follows: Option<Arc<str>>,
    /// The address that the user listed, as `host:port`.
    pub listed_as: Option<Arc<str>>,
    /// Its place in a Redis Cluster, if it is in one.
    pub cluster: Option<Membership>,
    /// The policy by which it evicts keys when its memory is full, if there is a limit.
    pub evicts_by: Option<Arc<str>>,
}

/// A node's place in a Redis Cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Membership {
    /// The name by which the cluster knows it.
    pub own: Arc<str>,
    /// The names of all members that it knows, its own among them.
    pub all: Arc<[Arc<str>]>,
}

/// Why a node has no vote.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Dependence {
    /// Both addresses lead to one server.
    SameServer(NodeId, NodeId),
    /// The first replicates from the second, which is listed too.
    ReplicaOf(NodeId, NodeId),
    /// It replicates from a server that is not listed.
    Replica(NodeId, Arc<str>),
    /// Both belong to one Redis Cluster.
    OneCluster(NodeId, NodeId),
}

impl Dependence {
    /// Whether the fault is in the user's list of nodes, whatever roles the servers have: a master
    /// that is not listed may have changed places with its replica.
    pub const fn is_mistake(&self) -> bool {
        !matches!(self, Self::Replica(..))
    }
}

/// What is known of the nodes' identities.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Independence {
    known: Vec<Option<Known>>,
    verdicts: Vec<Option<Dependence>>,
    /// How many servers have been seen so far.
    arrivals: u32,
    /// For each node, whether people were told that it evicts keys when memory runs short.
    evictions_told: Vec<bool>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Known {
    identity: Identity,
    /// The memory that its canary names.
    memory: Option<u64>,
    /// The order in which servers were seen, as a growing number.
    arrival: u32,
}

impl Independence {
    pub(super) fn new(quorum: Quorum) -> Self {
        let nodes = quorum.nodes();
        Self {
            known: vec![None; nodes],
            verdicts: vec![None; nodes],
            arrivals: 0,
            evictions_told: vec![false; nodes],
        }
    }

    /// Records who a node is; tells whether that changes which nodes are independent.
    pub(super) fn learn(&mut self, node: NodeId, identity: Identity) -> bool {
        let known = &mut self.known[node.index()];
        let same = known.as_ref().filter(|known| known.identity.run == identity.run);
        // A node that votes already keeps its place before one that later turns out to be the same
        // server.
        let arrival = same.map_or(self.arrivals, |known| known.arrival);
        self.arrivals += u32::from(same.is_none());
        let memory = known.as_ref().and_then(|known| known.memory);
        *known = Some(Known { identity, memory, arrival });
        self.judge_all()
    }

    /// Records which memory a node has; tells whether that changes which nodes are independent. Two
    /// nodes with the same memory are one server, which works also where the user may not ask the
    /// servers who they are.
    fn learn_memory(&mut self, node: NodeId, memory: u64) -> bool {
        match &mut self.known[node.index()] {
            Some(known) if known.memory != Some(memory) => known.memory = Some(memory),
            _ => return false,
        }
        self.judge_all()
    }

    fn judge_all(&mut self) -> bool {
        let verdicts = NodeId::all(self.known.len()).map(|node| self.judge(node)).collect();
        let is_news = self.verdicts != verdicts;
        self.verdicts = verdicts;
        is_news
    }

    /// Why a node has no vote; `None` if it has one.
    pub(super) fn verdict(&self, node: NodeId) -> Option<&Dependence> {
        self.verdicts[node.index()].as_ref()
    }

    /// The first mistake in the list of nodes. If every node is a replica, no lock can be granted
    /// at all.
    pub(super) fn mistake(&self) -> Option<&Dependence> {
        let mut verdicts = self.verdicts.iter().flatten();
        let all_follow = self.verdicts.iter().all(|it| matches!(it, Some(Dependence::Replica(..))));
        verdicts.find(|verdict| verdict.is_mistake() || all_follow)
    }

    fn judge(&self, node: NodeId) -> Option<Dependence> {
        let own = self.known[node.index()].as_ref()?;
        if let Some(master) = &own.identity.follows {
            let found =
                self.others(node).find(|(_, other)| own.identity.replicates(&other.identity));
            return Some(match found {
                Some((other, _)) => Dependence::ReplicaOf(node, other),
                None => Dependence::Replica(node, Arc::clone(master)),
            });
        }
        let earlier = || self.others(node).filter(|(_, other)| other.arrival < own.arrival);
        let in_order = |other: NodeId| (node.min(other), node.max(other));
        if let Some((other, _)) = earlier().find(|(_, other)| own.is_same(other)) {
            let (first, second) = in_order(other);
            return Some(Dependence::SameServer(first, second));
        }
        let (other, _) = earlier().find(|(_, other)| own.identity.knows(&other.identity))?;
        let (first, second) = in_order(other);
        Some(Dependence::OneCluster(first, second))
    }

    fn others(&self, node: NodeId) -> impl Iterator<Item = (NodeId, &Known)> {
        let all = NodeId::all(self.known.len()).zip(&self.known);
        all.filter(move |(other, _)| *other != node)
            .filter_map(|(other, known)| Some((other, known.as_ref()?)))
    }
}

impl Guards {
    /// Takes who a node's server says it is: before the node's first look, and whenever it may be
    /// another server.
    pub fn handle_identity(&mut self, node: NodeId, identity: Identity) {
        if let Some(policy) = &identity.evicts_by
            && !std::mem::replace(&mut self.independence.evictions_told[node.index()], true)
        {
            self.notices.push(Notice::MayEvict(node, Arc::clone(policy)));
        }
        self.learn_independence(|independence| independence.learn(node, identity));
    }

    pub(super) fn learn_memory(&mut self, node: NodeId, memory: u64) {
        self.learn_independence(|independence| independence.learn_memory(node, memory));
    }

    fn learn_independence(&mut self, learn: impl FnOnce(&mut Independence) -> bool) {
        let before = self.mistake().cloned();
        if !learn(&mut self.independence) {
            return;
        }
        self.has_news = true;
        let mistake = self.mistake().filter(|mistake| before.as_ref() != Some(*mistake)).cloned();
        self.notices.extend(mistake.map(Notice::NotIndependent));
        for (node, record) in NodeId::all(self.records.len()).zip(&mut self.records) {
            // The node is not looked at, so no other node must wait for its look.
            if self.independence.verdict(node).is_some() {
                record.contact = Contact::Down;
            }
        }
    }

    /// Why a node has no vote, so that its grants never count; `None` if it has one.
    pub fn dependence(&self, node: NodeId) -> Option<&Dependence> {
        self.independence.verdict(node)
    }

    /// The first mistake in the list of nodes, as far as the servers have told it.
    pub fn mistake(&self) -> Option<&Dependence> {
        self.independence.mistake()
    }
}

impl Known {
    fn is_same(&self, other: &Self) -> bool {
        let runs = self.identity.run.as_ref().zip(other.identity.run.as_ref());
        let same_memory = self.memory.is_some() && self.memory == other.memory;
        runs.map_or(same_memory, |(one, other)| one == other)
    }
}

impl Identity {
    fn replicates(&self, other: &Self) -> bool {
        let is_named = self.follows.is_some() && self.follows == other.listed_as;
        // A replica has its master's history name, under whatever address the master is known.
        let is_copy = self.history.is_some() && self.history == other.history;
        is_named || (is_copy && other.follows.is_none())
    }

    fn knows(&self, other: &Self) -> bool {
        let (Some(one), Some(two)) = (&self.cluster, &other.cluster) else {
            return false;
        };
        one.own != two.own && (one.all.contains(&two.own) || two.all.contains(&one.own))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;

    const A: NodeId = NodeId(0);
    const B: NodeId = NodeId(1);
    const C: NodeId = NodeId(2);

    fn guards() -> Guards {
        Guards::new(&Policy::default(), Quorum::of(3))
    }

    /// A master with the name of its run, which is listed as `run:1`.
    fn master(run: &str) -> Identity {
        Identity {
            run: Some(run.into()),
            history: Some(format!("history of {run}").into()),
            listed_as: Some(format!("{run}:1").into()),
            ..Identity::default()
        }
    }

    fn replica_of(place: &str, history: &str) -> Identity {
        let history = Some(format!("history of {history}").into());
        Identity { follows: Some(place.into()), history, ..master("replica") }
    }

    fn member(run: &str, all: &[&str]) -> Identity {
        let all = all.iter().map(|&name| name.into()).collect();
        Identity { cluster: Some(Membership { own: run.into(), all }), ..master(run) }
    }

    #[test]
    fn masters_that_know_nothing_of_each_other_are_independent() {
        let mut guards = guards();
        for (node, run) in [(A, "a"), (B, "b"), (C, "c")] {
            guards.handle_identity(node, member(run, &[run]));
        }
        assert!([A, B, C].iter().all(|node| guards.dependence(*node).is_none()));
        assert_eq!(guards.mistake(), None);
    }

    #[test]
    fn nothing_follows_from_what_is_not_told() {
        let mut guards = guards();
        for node in [A, B, C] {
            guards.handle_identity(node, Identity::default());
        }
        assert_eq!(guards.mistake(), None);
    }

    #[test]
    fn the_second_node_on_a_server_has_no_vote() {
        for (first, second) in [(A, C), (C, A)] {
            let mut guards = guards();
            guards.handle_identity(first, master("a"));
            guards.handle_identity(B, master("b"));
            guards.take_news();
            guards.handle_identity(second, master("a"));
            assert!(guards.take_news());
            let same = Dependence::SameServer(A, C);
            assert_eq!(guards.dependence(second), Some(&same));
            assert_eq!(guards.dependence(first), None);
            assert_eq!(guards.mistake(), Some(&same));
            // Coming again, as after a broken connection, changes nothing.
            for node in [first, second] {
                guards.handle_identity(node, master("a"));
            }
            assert_eq!(guards.dependence(first), None);
            assert!(!guards.take_news());
            // Until one of them leads elsewhere.
            guards.handle_identity(first, master("c"));
            assert_eq!(guards.mistake(), None);
        }
    }

    #[test]
    fn a_node_that_moves_to_the_server_of_another_comes_second() {
        let mut guards = guards();
        guards.handle_identity(A, master("a"));
        guards.handle_identity(B, master("b"));
        guards.handle_identity(A, master("b"));
        assert_eq!(guards.dependence(A), Some(&Dependence::SameServer(A, B)));
        assert_eq!(guards.dependence(B), None);
    }

    #[test]
    fn a_replica_is_told_by_its_masters_place_or_by_its_history() {
        for (place, history) in [("b:1", "itself"), ("elsewhere:1", "b")] {
            let mut guards = guards();
            guards.handle_identity(A, replica_of(place, history));
            assert_eq!(guards.dependence(A), Some(&Dependence::Replica(A, place.into())));
            assert_eq!(guards.mistake(), None, "its master may have changed places with it");
            guards.handle_identity(B, master("b"));
            assert_eq!(guards.dependence(A), Some(&Dependence::ReplicaOf(A, B)));
            assert_eq!(guards.dependence(B), None);
            assert_eq!(guards.mistake(), Some(&Dependence::ReplicaOf(A, B)));
            guards.handle_identity(A, master("a"));
            assert_eq!(guards.mistake(), None);
        }
    }

    #[test]
    fn two_replicas_of_a_server_that_is_not_listed_are_no_mistake() {
        let mut guards = guards();
        guards.handle_identity(A, replica_of("x:1", "x"));
        guards.handle_identity(B, replica_of("x:1", "x"));
        assert_eq!(guards.dependence(B), Some(&Dependence::Replica(B, "x:1".into())));
        assert_eq!(guards.mistake(), None);
    }

    #[test]
    fn replicas_alone_are_a_mistake_until_one_is_a_master() {
        let mut guards = Guards::new(&Policy::default(), Quorum::of(2));
        guards.handle_identity(A, replica_of("x:1", "x"));
        assert_eq!(guards.mistake(), None, "who the other is, is not known yet");
        guards.handle_identity(B, replica_of("x:1", "x"));
        assert_eq!(guards.mistake(), Some(&Dependence::Replica(A, "x:1".into())));
        guards.handle_identity(B, master("b"));
        assert_eq!(guards.mistake(), None);
    }

    #[test]
    fn members_of_one_cluster_are_found_by_either_of_them() {
        for (one, two) in [(&["a", "c"][..], &["c"][..]), (&["a"], &["c", "a"])] {
            let mut guards = guards();
            guards.handle_identity(A, member("a", one));
            guards.handle_identity(C, member("c", two));
            assert_eq!(guards.dependence(C), Some(&Dependence::OneCluster(A, C)));
            assert_eq!(guards.dependence(A), None);
        }
    }

    #[test]
    fn people_are_told_once() {
        let mut guards = guards();
        let forgetful = Identity { evicts_by: Some("allkeys-lru".into()), ..master("a") };
        for _ in 0..2 {
            guards.handle_identity(A, forgetful.clone());
            guards.handle_identity(B, master("a"));
        }
        let dependent = Notice::NotIndependent(Dependence::SameServer(A, B));
        assert_eq!(guards.take_notices(), [Notice::MayEvict(A, "allkeys-lru".into()), dependent]);
    }
}
