//! The replies to a crowd of leases, which wait for each other: each lease then acts once or twice, and not for each
//! node. Owns for how long; knows nothing of what they say.

use std::time::Duration;

use tokio::time::Instant;

use crate::inbox::{Arrival, OperationId};

/// Replies that have come, and how many more there may be.
#[derive(Default)]
pub(super) struct Crowd {
    replies: Vec<Arrival>,
    /// How many commands have not been answered, or have their answer here.
    expected: usize,
    /// When those that are here are handed over at the latest.
    end: Option<Instant>,
}

impl Crowd {
    /// So many commands have been sent.
    pub(super) fn expect(&mut self, count: usize) {
        self.expected += count;
    }

    /// No more replies have come for long: those that are missing do not count.
    pub(super) fn expect_no_more(&mut self) {
        self.expected = self.replies.len();
    }

    /// Takes replies in; the first of them may wait for `patience`.
    pub(super) fn gather(&mut self, news: &mut Vec<Arrival>, patience: Duration) {
        if self.end.is_none() && !news.is_empty() {
            self.end = Some(Instant::now() + patience);
        }
        self.replies.append(news);
    }

    /// For how long the replies may yet wait; `None` if there are none.
    pub(super) fn left(&self) -> Option<Duration> {
        self.end.map(|end| end.saturating_duration_since(Instant::now()))
    }

    /// Whether it is time to hand the replies over.
    pub(super) fn is_due(&self) -> bool {
        let may_wait = (FEW..self.expected.min(MANY)).contains(&self.replies.len());
        self.left().is_some_and(|left| !may_wait || left.is_zero())
    }

    /// Whether there is a reply to any of `operations`.
    pub(super) fn is_about(&self, operations: &[OperationId]) -> bool {
        if self.replies.is_empty() {
            return false;
        }
        let mut sorted = operations.to_vec();
        sorted.sort_unstable();
        self.replies.iter().any(|reply| sorted.binary_search(&reply.operation).is_ok())
    }

    /// The replies, all of which are to be taken out.
    pub(super) fn let_go(&mut self) -> &mut Vec<Arrival> {
        self.expected = self.expected.saturating_sub(self.replies.len());
        self.end = None;
        &mut self.replies
    }
}

#[cfg(test)]
impl Crowd {
    /// A crowd of replies to one operation that wait for as many more, for `patience` at the most.
    pub(super) fn of_replies_to(operation: OperationId, patience: Duration) -> Self {
        let mut crowd = Self::default();
        crowd.expect(2 * FEW);
        crowd.gather(&mut (0..FEW).map(|_| tests::reply(operation)).collect(), patience);
        crowd
    }
}

/// So many replies at once are those of many leases, of which others will come.
const FEW: usize = 64;
/// What waits takes up room.
const MANY: usize = 16384;

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use quorlock_protocol::{Answer, Moment, NodeId, Reply, Ticket};

    use super::*;

    pub(super) fn reply(operation: OperationId) -> Arrival {
        let reply = Reply { ticket: Ticket(0), answer: Ok(Answer::Absent), repeated: false };
        Arrival { at: Moment::from_millis(1), operation, node: NodeId(0), reply }
    }

    fn replies(operations: Range<usize>) -> Vec<Arrival> {
        operations.map(|number| reply(OperationId(number as u64))).collect()
    }

    /// Whether so many replies wait where so many are expected.
    fn waits(count: usize, expected: usize) -> bool {
        let mut crowd = Crowd::default();
        crowd.expect(expected);
        crowd.gather(&mut replies(0..count), LONG);
        !crowd.is_due()
    }

    #[test]
    fn a_crowd_waits_for_the_rest() {
        assert!(waits(FEW, 2 * FEW));
        assert!(!waits(FEW, FEW), "there is no rest");
        assert!(!waits(FEW - 1, 2 * FEW), "few do not");
        assert!(!waits(MANY, 2 * MANY), "too many do not");
        assert!(!waits(2 * FEW, FEW), "nor do more than were expected");
    }

    #[test]
    fn it_does_not_wait_for_long_nor_begin_anew_with_each_reply() {
        let mut crowd = Crowd::default();
        assert!(crowd.left().is_none());
        crowd.expect(3 * FEW);
        crowd.gather(&mut replies(0..FEW), Duration::ZERO);
        assert_eq!(crowd.left(), Some(Duration::ZERO));
        crowd.gather(&mut replies(FEW..FEW + 1), LONG);
        assert!(crowd.is_due());
    }

    #[test]
    fn what_is_handed_over_or_missing_is_expected_no_more() {
        let mut crowd = Crowd::default();
        crowd.expect(4 * FEW);
        crowd.gather(&mut replies(0..2 * FEW), LONG);
        assert_eq!(crowd.let_go().drain(..).count(), 2 * FEW);
        assert!(crowd.left().is_none());
        crowd.gather(&mut replies(0..FEW), LONG);
        assert!(!crowd.is_due());
        crowd.expect_no_more();
        assert!(crowd.is_due());
    }

    #[test]
    fn it_knows_whom_it_has_replies_for() {
        let mut crowd = Crowd::default();
        let about = |crowd: &Crowd, names: &[u64]| {
            crowd.is_about(&names.iter().copied().map(OperationId).collect::<Vec<_>>())
        };
        assert!(!about(&crowd, &[1]));
        crowd.gather(&mut replies(1..3), LONG);
        assert!(about(&crowd, &[7, 2, 0]));
        assert!(!about(&crowd, &[7, 3, 0]));
    }

    const LONG: Duration = Duration::from_secs(60);
}
