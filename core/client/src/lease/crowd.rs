//! The replies to a crowd of leases, which wait for each other: each lease then acts once or twice, and not for each
//! node. Owns for how long; knows nothing of what they say.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::inbox::{Arrival, OperationId};

/// Replies that have come, and how many more there may be.
#[derive(Default)]
pub(super) struct Crowd {
    replies: BTreeMap<OperationId, Vec<Arrival>>,
    count: usize,
    /// How many commands have not been answered, or have their answer here.
    expected: usize,
    /// How long their replies may wait for each other.
    patience: Duration,
    /// When those that are here are handed over at the latest.
    end: Option<Instant>,
    /// They are being handed over.
    is_leaving: bool,
}

/// What came for one operation, in its order.
pub(super) type News = (OperationId, Vec<Arrival>);

impl Crowd {
    /// So many commands have been sent, for leases of which the shortest has this `ttl`.
    pub(super) fn expect(&mut self, count: usize, ttl: Duration) {
        let patience = (ttl / PATIENCE_SHARE).min(LONGEST_PATIENCE);
        let is_first = self.expected == 0;
        self.patience = if is_first { patience } else { patience.min(self.patience) };
        self.end = self.end.map(|end| end.min(Instant::now() + self.patience));
        self.expected += count;
    }

    /// No more replies have come for long: those that are missing do not count.
    pub(super) fn expect_no_more(&mut self) {
        self.expected = self.count;
    }

    /// Takes replies in, the first of which may wait for a moment.
    pub(super) fn gather(&mut self, news: &mut Vec<Arrival>) {
        if self.end.is_none() && !news.is_empty() {
            self.end = Some(Instant::now() + self.patience);
        }
        self.count += news.len();
        for arrival in news.drain(..) {
            self.replies.entry(arrival.operation).or_default().push(arrival);
        }
        news.shrink_to(KEPT);
    }

    /// For how long the replies may yet wait; `None` if there are none.
    pub(super) fn left(&self) -> Option<Duration> {
        self.end.map(|end| end.saturating_duration_since(Instant::now()))
    }

    /// Whether it is time to hand the replies over; once begun, until none is left.
    pub(super) fn is_due(&mut self) -> bool {
        let may_wait = (FEW..self.expected.min(MANY)).contains(&self.count);
        self.is_leaving |= self.left().is_some_and(|left| !may_wait || left.is_zero());
        self.is_leaving
    }

    /// Lets go of the replies to `most` operations.
    pub(super) fn let_go(&mut self, most: usize) -> Vec<News> {
        let gone = std::iter::from_fn(|| self.replies.pop_first()).take(most).collect();
        self.note_gone(gone)
    }

    /// Lets go of those to `operations`.
    pub(super) fn let_go_of(&mut self, operations: &[OperationId]) -> Vec<News> {
        if self.replies.is_empty() {
            return Vec::new();
        }
        let gone = operations.iter().filter_map(|operation| self.replies.remove_entry(operation));
        let gone = gone.collect();
        self.note_gone(gone)
    }

    fn note_gone(&mut self, gone: Vec<News>) -> Vec<News> {
        let count: usize = gone.iter().map(|(_, replies)| replies.len()).sum();
        self.count -= count;
        self.expected = self.expected.saturating_sub(count);
        if self.replies.is_empty() {
            self.end = None;
            self.is_leaving = false;
        }
        gone
    }
}

#[cfg(test)]
impl Crowd {
    /// A crowd of replies, one to each of `operations`, that wait for as many more, for long.
    pub(super) fn of_replies_to(operations: std::ops::Range<u64>) -> Self {
        let mut crowd = Self::default();
        let mut replies: Vec<_> = operations.map(OperationId).map(tests::reply).collect();
        crowd.expect(2 * replies.len(), tests::LONG);
        crowd.gather(&mut replies);
        crowd
    }
}

/// So many replies at once are those of many leases, of which others will come.
const FEW: usize = 64;
/// What waits takes up room.
const MANY: usize = 16384;
/// They wait for this share of the shortest ttl,
const PATIENCE_SHARE: u32 = 400;
/// and not for longer than this.
const LONGEST_PATIENCE: Duration = Duration::from_millis(25);
/// For so many replies room is kept where they come in.
const KEPT: usize = 1024;

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

    /// A crowd of so many replies where so many are expected.
    fn crowd(count: usize, expected: usize) -> Crowd {
        let mut crowd = Crowd::default();
        crowd.expect(expected, LONG);
        crowd.gather(&mut replies(0..count));
        crowd
    }

    fn waits(count: usize, expected: usize) -> bool {
        !crowd(count, expected).is_due()
    }

    fn names(news: &[News]) -> Vec<u64> {
        news.iter().map(|(operation, _)| operation.0).collect()
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
        crowd.expect(3 * FEW, Duration::ZERO);
        crowd.gather(&mut replies(0..FEW));
        assert_eq!(crowd.left(), Some(Duration::ZERO));
        crowd.expect(FEW, LONG);
        crowd.gather(&mut replies(FEW..FEW + 1));
        assert!(crowd.is_due());
    }

    #[test]
    fn the_shortest_ttl_counts_for_as_long_as_its_replies_are_expected() {
        let mut crowd = crowd(FEW, 2 * FEW);
        assert!(crowd.left() > Some(Duration::from_millis(1)));
        crowd.expect(1, Duration::from_millis(400));
        assert!(crowd.left() <= Some(Duration::from_millis(1)), "also for those that wait");
        crowd.expect(1, LONG);
        assert_eq!(crowd.patience, Duration::from_millis(1));
        crowd.let_go(FEW);
        crowd.expect_no_more();
        crowd.expect(1, Duration::from_secs(4));
        assert_eq!(crowd.patience, Duration::from_millis(10));
    }

    #[test]
    fn once_begun_it_leaves_to_the_last_in_parts() {
        let mut crowd = crowd(2 * FEW, 2 * FEW);
        crowd.gather(&mut vec![reply(OperationId(1))]);
        assert!(crowd.is_due());
        let first = crowd.let_go(FEW);
        assert_eq!(names(&first), (0..FEW as u64).collect::<Vec<_>>());
        assert_eq!(first[1].1.len(), 2);
        crowd.expect(4 * FEW, LONG);
        assert!(crowd.is_due(), "it has begun");
        crowd.gather(&mut replies(0..1));
        assert_eq!(crowd.let_go(2 * FEW).len(), FEW + 1);
        assert!(crowd.left().is_none());
        crowd.gather(&mut replies(0..FEW));
        assert!(!crowd.is_due(), "this is another");
    }

    #[test]
    fn what_is_handed_over_or_missing_is_expected_no_more() {
        let mut crowd = crowd(2 * FEW, 4 * FEW);
        assert_eq!(crowd.let_go(MANY).len(), 2 * FEW);
        assert!(crowd.left().is_none());
        crowd.gather(&mut replies(0..FEW));
        assert!(!crowd.is_due());
        crowd.expect_no_more();
        assert!(crowd.is_due());
    }

    #[test]
    fn it_lets_go_of_some_while_the_others_wait() {
        let mut crowd = crowd(FEW, 2 * FEW);
        let some = [7, 999, 0].map(OperationId);
        assert_eq!(names(&crowd.let_go_of(&some)), [7, 0]);
        assert!(crowd.let_go_of(&some).is_empty());
        assert!(crowd.left().is_some());
        assert_eq!(crowd.let_go(MANY).len(), FEW - 2);
        assert!(crowd.let_go_of(&some).is_empty());
        assert!(crowd.left().is_none());
    }

    pub(super) const LONG: Duration = Duration::from_secs(60);
}
