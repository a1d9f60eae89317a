//! The promises that must hold in every state of every schedule:
//!
//! - Each request is answered once.
//! - On one connection a request takes effect once, and the requests of one holder take effect in their order. (An
//!   extension that found nothing may come before its grant; a revoke never does.) Over all connections a request takes
//!   effect twice at most, and nothing that came over a lost connection takes effect after something that came over a
//!   later one.
//! - A request that is answered as not sent, or as late, has had no effect and will have none.
//! - An answer says that it is repeated if the request took effect more than once. One that found nothing to do, without
//!   saying so, has done nothing.
//! - When a revoke is answered, or a grant refused, no key of its holder is left or will come. A grant that is answered as
//!   granted had its key.
//! - A request is not sent for the first time, nor again, after its deadline.

use quorlock_protocol::{Answer, FaultKind};

use super::World;
use crate::redis_node::tests::requests::{Kind, Submitted};
use crate::redis_node::tests::server::{Effect, Run};

impl World {
    /// What must hold of what the server has just done for a request.
    pub(super) fn check_run(&self, place: usize) {
        let (run, before) = (&self.server.runs[place], &self.server.runs[..place]);
        let index = self.index_of(run);
        for other in before.iter().filter(|other| other.holder == run.holder) {
            assert!(other.connection <= run.connection, "done over a connection that was ended");
            if other.connection < run.connection || !other.counts() {
                continue;
            }
            let order = self.index_of(other).cmp(&index);
            let is_late = order.is_gt() && other.bars_what_came_before();
            assert!(!is_late || run.effect == Effect::Nothing, "an earlier request came later");
            assert!(order.is_ne() || !other.is_script, "done twice over one connection");
        }
        let mut copies: Vec<_> = self.runs_of(run.holder.as_str(), run.kind).collect();
        copies.retain(|copy| copy.counts());
        copies.dedup_by_key(|copy| copy.connection);
        assert!(copies.len() <= 2, "done more than twice");
    }

    /// What must hold of all answers, now and later.
    pub(super) fn check(&self) {
        for submitted in &self.submitted {
            let asked = submitted.asked;
            assert!(submitted.answers.len() <= 1, "{asked:?} is answered twice");
            let Some(reply) = submitted.answers.first() else { continue };
            let mut runs: Vec<_> = self.runs_of(asked.holder, asked.kind).collect();
            runs.retain(|run| run.counts());
            let is_done = runs.iter().any(|run| run.effect == Effect::Done);
            match &reply.answer {
                Err(fault) => {
                    let is_sure = matches!(fault.kind(), FaultKind::NotSent | FaultKind::Late);
                    assert!(!(is_sure && is_done), "{asked:?} is done, and answered with {fault}");
                }
                Ok(answer) => {
                    let is_ours = matches!(answer, Answer::Ours { .. });
                    let is_first = runs.iter().all(|run| run.connection == runs[0].connection);
                    assert!(is_first || reply.repeated, "{asked:?} was done before");
                    assert!(is_done || !is_ours, "{asked:?} is not done");
                    let is_told = is_ours || reply.repeated;
                    assert!(is_told || !is_done, "{asked:?} is done, and found nothing");
                    if asked.kind == Kind::Revoke || (asked.kind == Kind::Grant && !is_ours) {
                        let is_left = self.server.keys.values().any(|it| it == asked.holder);
                        assert!(!is_left, "a key is left of {asked:?}");
                    }
                }
            }
        }
    }

    /// What must hold when all is done: also of what the server may still do over connections that were lost.
    pub(in crate::redis_node::tests) fn check_end(mut self) {
        for submitted in &self.submitted {
            assert_eq!(submitted.answers.len(), 1, "{:?} is answered", submitted.asked);
        }
        for number in 0..self.connections.len() {
            while !self.connections[number].calls.is_empty()
                && !self.server.killed.contains(&number)
            {
                self.execute(number);
            }
        }
        self.check();
    }

    fn runs_of(&self, holder: &str, kind: Kind) -> impl Iterator<Item = &Run> {
        self.server.runs.iter().filter(move |run| run.holder == holder && run.kind == kind)
    }

    /// The place of a run's request among those that were handed over.
    fn index_of(&self, run: &Run) -> Option<usize> {
        let is_of = |it: &Submitted| it.asked.holder == run.holder && it.asked.kind == run.kind;
        self.submitted.iter().position(is_of)
    }
}
