//! Collects the replies for many leases, so that a lease acts once for the replies of several nodes
//! and not once for each. Owns how long replies wait for each other; does not read them.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::inbox::{Arrival, OperationId};

/// Replies that have come, and how many more are expected.
#[derive(Default)]
pub(super) struct ReplyBatcher {
    replies: BTreeMap<OperationId, Vec<Arrival>>,
    count: usize,
    /// How many commands were sent whose replies have not been handed over.
    expected: usize,
    /// How long replies may wait for each other.
    patience: Duration,
    /// When the replies that have come are handed over at the latest.
    end: Option<Instant>,
    /// Handing over has begun, and goes on until no reply is left.
    is_handing_over: bool,
}

/// The replies for one lease, in the order in which they came.
pub(super) type Replies = (OperationId, Vec<Arrival>);

impl ReplyBatcher {
    /// Notes that `count` commands were sent, for leases of which the shortest has this `ttl`.
    pub(super) fn expect(&mut self, count: usize, ttl: Duration) {
        let patience = (ttl / PATIENCE_SHARE).min(LONGEST_PATIENCE);
        let is_first = self.expected == 0;
        self.patience = if is_first { patience } else { patience.min(self.patience) };
        self.end = self.end.map(|end| end.min(Instant::now() + self.patience));
        self.expected += count;
    }

    /// Stops expecting the replies that have not come.
    pub(super) fn expect_no_more(&mut self) {
        self.expected = self.count;
    }

    /// Adds `arrivals`; the first one sets how long all of them may wait.
    pub(super) fn gather(&mut self, arrivals: &mut Vec<Arrival>) {
        if self.end.is_none() && !arrivals.is_empty() {
            self.end = Some(Instant::now() + self.patience);
        }
        self.count += arrivals.len();
        for arrival in arrivals.drain(..) {
            self.replies.entry(arrival.operation).or_default().push(arrival);
        }
        arrivals.shrink_to(LARGEST_BUFFER);
    }

    /// How long the replies may still wait; `None` if there are none.
    pub(super) fn left(&self) -> Option<Duration> {
        self.end.map(|end| end.saturating_duration_since(Instant::now()))
    }

    /// Whether to hand replies over now.
    pub(super) fn is_ready(&mut self) -> bool {
        let may_wait = (FEW..self.expected.min(MANY)).contains(&self.count);
        self.is_handing_over |= self.left().is_some_and(|left| !may_wait || left.is_zero());
        self.is_handing_over
    }

    /// Hands over the replies for `most` leases.
    pub(super) fn take(&mut self, most: usize) -> Vec<Replies> {
        let taken = std::iter::from_fn(|| self.replies.pop_first()).take(most).collect();
        self.note_taken(taken)
    }

    /// Hands over the replies for `operations`.
    pub(super) fn take_of(&mut self, operations: &[OperationId]) -> Vec<Replies> {
        if self.replies.is_empty() {
            return Vec::new();
        }
        let taken = operations.iter().filter_map(|operation| self.replies.remove_entry(operation));
        let taken = taken.collect();
        self.note_taken(taken)
    }

    fn note_taken(&mut self, taken: Vec<Replies>) -> Vec<Replies> {
        let count: usize = taken.iter().map(|(_, replies)| replies.len()).sum();
        self.count -= count;
        self.expected = self.expected.saturating_sub(count);
        if self.replies.is_empty() {
            self.end = None;
            self.is_handing_over = false;
        }
        taken
    }
}

#[cfg(test)]
impl ReplyBatcher {
    /// A batcher with one reply to each of `operations`, which waits a minute for as many more.
    pub(super) fn of_replies_to(operations: std::ops::Range<u64>) -> Self {
        let mut batcher = Self::default();
        let mut replies: Vec<_> = operations.map(OperationId).map(tests::reply).collect();
        batcher.expect(2 * replies.len(), tests::LONG);
        batcher.gather(&mut replies);
        batcher
    }
}

/// From this many on replies wait for more: they are those of many leases.
const FEW: usize = 64;
/// From this many on replies are handed over at once, to bound memory.
const MANY: usize = 16384;
/// Replies wait for this share of the shortest ttl,
const PATIENCE_SHARE: u32 = 400;
/// and not for longer than this.
const LONGEST_PATIENCE: Duration = Duration::from_millis(25);
/// How many replies the buffer for arrivals keeps room for once it is empty.
const LARGEST_BUFFER: usize = 1024;

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

    /// A batcher with `count` replies of `expected`.
    fn batcher(count: usize, expected: usize) -> ReplyBatcher {
        let mut batcher = ReplyBatcher::default();
        batcher.expect(expected, LONG);
        batcher.gather(&mut replies(0..count));
        batcher
    }

    fn waits(count: usize, expected: usize) -> bool {
        !batcher(count, expected).is_ready()
    }

    fn names(batch: &[Replies]) -> Vec<u64> {
        batch.iter().map(|(operation, _)| operation.0).collect()
    }

    #[test]
    fn many_replies_wait_for_the_rest() {
        assert!(waits(FEW, 2 * FEW));
        assert!(!waits(FEW, FEW), "there is no rest");
        assert!(!waits(FEW - 1, 2 * FEW), "few do not");
        assert!(!waits(MANY, 2 * MANY), "too many do not");
        assert!(!waits(2 * FEW, FEW), "nor do more than were expected");
    }

    #[test]
    fn the_wait_is_short_and_no_reply_prolongs_it() {
        let mut batcher = ReplyBatcher::default();
        assert!(batcher.left().is_none());
        batcher.expect(3 * FEW, Duration::ZERO);
        batcher.gather(&mut replies(0..FEW));
        assert_eq!(batcher.left(), Some(Duration::ZERO));
        batcher.expect(FEW, LONG);
        batcher.gather(&mut replies(FEW..FEW + 1));
        assert!(batcher.is_ready());
    }

    #[test]
    fn the_shortest_expected_ttl_bounds_the_wait() {
        let mut batcher = batcher(FEW, 2 * FEW);
        assert!(batcher.left() > Some(Duration::from_millis(1)));
        batcher.expect(1, Duration::from_millis(400));
        assert!(batcher.left() <= Some(Duration::from_millis(1)), "also for those that wait");
        batcher.expect(1, LONG);
        assert_eq!(batcher.patience, Duration::from_millis(1));
        batcher.take(FEW);
        batcher.expect_no_more();
        batcher.expect(1, Duration::from_secs(4));
        assert_eq!(batcher.patience, Duration::from_millis(10));
    }

    #[test]
    fn handing_over_goes_on_to_the_last_reply() {
        let mut batcher = batcher(2 * FEW, 2 * FEW);
        batcher.gather(&mut vec![reply(OperationId(1))]);
        assert!(batcher.is_ready());
        let first = batcher.take(FEW);
        assert_eq!(names(&first), (0..FEW as u64).collect::<Vec<_>>());
        assert_eq!(first[1].1.len(), 2);
        batcher.expect(4 * FEW, LONG);
        assert!(batcher.is_ready(), "it has begun");
        batcher.gather(&mut replies(0..1));
        assert_eq!(batcher.take(2 * FEW).len(), FEW + 1);
        assert!(batcher.left().is_none());
        batcher.gather(&mut replies(0..FEW));
        assert!(!batcher.is_ready(), "this is another");
    }

    #[test]
    fn handed_over_and_missing_replies_are_not_expected() {
        let mut batcher = batcher(2 * FEW, 4 * FEW);
        assert_eq!(batcher.take(MANY).len(), 2 * FEW);
        assert!(batcher.left().is_none());
        batcher.gather(&mut replies(0..FEW));
        assert!(!batcher.is_ready());
        batcher.expect_no_more();
        assert!(batcher.is_ready());
    }

    #[test]
    fn some_are_taken_while_the_others_wait() {
        let mut batcher = batcher(FEW, 2 * FEW);
        let some = [7, 999, 0].map(OperationId);
        assert_eq!(names(&batcher.take_of(&some)), [7, 0]);
        assert!(batcher.take_of(&some).is_empty());
        assert!(batcher.left().is_some());
        assert_eq!(batcher.take(MANY).len(), FEW - 2);
        assert!(batcher.take_of(&some).is_empty());
        assert!(batcher.left().is_none());
    }

    pub(super) const LONG: Duration = Duration::from_secs(60);
}
