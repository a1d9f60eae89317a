//! The fences whose end a connection has put off lately, by more than was needed, so that for a while it need not be
//! put off again (decision 0016). Owns for how long.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use quorlock_protocol::{Action, Moment, Ttl};

use super::mail::Letter;

/// What is known of the ends of fences on a node that would be noticed to have forgotten them.
pub(super) struct FenceEnds {
    hasher: RandomState,
    /// The fences put off, with their retention, as hashes:
    late: HashSet<u64>,
    /// since then,
    since: Moment,
    /// and while this canary stood.
    canary: Arc<str>,
}

impl FenceEnds {
    /// Nothing is known on a connection that begins `now`.
    pub(super) fn new(now: Moment) -> Self {
        let (hasher, late, canary) = (RandomState::new(), HashSet::new(), Arc::default());
        Self { hasher, late, since: now, canary }
    }

    /// Whether the fence of a first grant lasts for long enough already, while `canary` stands.
    pub(super) fn cover(&mut self, letter: &Letter, canary: &Arc<str>, now: Moment) -> bool {
        if now.since(self.since) > KNOWN_FOR || self.canary != *canary {
            self.late.clear();
            self.since = now;
            self.canary = Arc::clone(canary);
        }
        !self.late.is_empty() && self.hash(letter).is_some_and(|hash| self.late.contains(&hash))
    }

    /// The end of the fence of a first grant was put off by what was sent at `sent`, and `canary` stood.
    pub(super) fn note(&mut self, letter: &Letter, canary: &str, sent: Moment) {
        // Without a canary it would not be noticed that the fence is gone.
        let is_news = sent >= self.since && *self.canary == *canary && !canary.is_empty();
        if is_news && self.late.len() < MOST {
            self.late.extend(self.hash(letter));
        }
    }

    /// `None` for a fence of which nothing is to be known.
    fn hash(&self, letter: &Letter) -> Option<u64> {
        let kept = retention(letter).filter(|kept| has_reserve(*kept))?;
        let [resource] = letter.command.claim.resources.as_slice() else { return None };
        Some(self.hasher.hash_one((resource.as_str(), kept.as_millis())))
    }
}

/// How many milliseconds a grant keeps its fence; `None` without fencing.
pub(super) fn millis_kept(letter: &Letter) -> Option<u64> {
    let kept = retention(letter)?;
    let reserve = if has_reserve(kept) { RESERVE } else { Duration::ZERO };
    Some((kept.as_duration() + reserve).as_millis().try_into().unwrap_or(u64::MAX))
}

/// For how long a grant needs its fence.
fn retention(letter: &Letter) -> Option<Ttl> {
    match letter.command.action {
        Action::Grant { ttl, fence: Some(fence) } => Some(fence.retention.max(ttl)),
        _ => None,
    }
}

fn has_reserve(kept: Ttl) -> bool {
    kept.as_duration() >= LONG
}

/// By so much more than is needed,
const RESERVE: Duration = Duration::from_secs(60);
/// to be relied on for so long: there may be a while between a command's sending and its effect.
const KNOWN_FOR: Duration = Duration::from_secs(50);
/// For fences kept for so long it does not matter.
const LONG: Duration = Duration::from_secs(60 * 60);
/// How many are remembered: 75 kB.
const MOST: usize = 7_000;

#[cfg(test)]
mod tests {
    use quorlock_protocol::{
        Claim, Command, Fence, FencingToken, HolderId, NodeId, Resources, Ticket,
    };

    use super::*;
    use crate::inbox::{Inbox, ReplyTo};

    fn grant(resource: &str, kept: Duration) -> Letter {
        let millis = |duration| Ttl::from_duration(duration).unwrap();
        let fence = Fence { proposal: FencingToken(1), retention: millis(kept) };
        let claim = Claim {
            holder: HolderId::fresh([7; HolderId::RANDOM_BYTES]),
            resources: Resources::new([resource]).unwrap(),
        };
        let command = Command {
            ticket: Ticket::default(),
            claim: Arc::new(claim),
            action: Action::Grant { ttl: millis(Duration::from_secs(1)), fence: Some(fence) },
            not_after: Moment::FAR_FUTURE,
        };
        Letter::new(command, ReplyTo::new(&Arc::<Inbox>::default(), NodeId(0)))
    }

    fn at(seconds: u64) -> Moment {
        Moment::from_millis(1000 * seconds)
    }

    #[test]
    fn an_end_is_relied_on_for_less_than_it_was_put_off_by() {
        let (mut ends, canary) = (FenceEnds::new(at(0)), "canary".into());
        let letter = grant("r", LONG);
        assert_eq!(millis_kept(&letter), Some(1000 * (60 * 60 + 60)));
        assert!(!ends.cover(&letter, &canary, at(0)));
        ends.note(&letter, &canary, at(0));
        assert!(ends.cover(&letter, &canary, at(50)));
        assert!(!ends.cover(&grant("s", LONG), &canary, at(50)), "another resource");
        assert!(!ends.cover(&grant("r", 2 * LONG), &canary, at(50)), "kept for longer");
        assert!(!ends.cover(&letter, &canary, at(51)));
        ends.note(&letter, &canary, at(50));
        assert!(!ends.cover(&letter, &canary, at(51)), "sent before all was forgotten");
    }

    #[test]
    fn what_a_node_has_forgotten_is_relied_on_no_more() {
        let mut ends = FenceEnds::new(at(0));
        let [first, second] = ["first", "second"].map(Arc::<str>::from);
        let letter = grant("r", LONG);
        assert!(!ends.cover(&letter, &first, at(0)));
        ends.note(&letter, &first, at(0));
        assert!(ends.cover(&letter, &first, at(1)));
        assert!(!ends.cover(&letter, &second, at(2)));
        ends.note(&letter, &first, at(2));
        assert!(!ends.cover(&letter, &second, at(3)), "what was put off stood behind the first");
        ends.note(&letter, &second, at(1));
        assert!(!ends.cover(&letter, &second, at(3)), "sent before it was known to have forgotten");
        ends.note(&letter, &second, at(3));
        assert!(ends.cover(&letter, &second, at(4)));
        assert!(
            !ends.cover(&letter, &first, at(5)),
            "what stood before is back, and what was noted then is not"
        );
    }

    #[test]
    fn a_fence_of_short_life_is_kept_to_the_point() {
        let (mut ends, canary) = (FenceEnds::new(at(0)), "canary".into());
        let letter = grant("r", Duration::from_secs(60));
        assert_eq!(millis_kept(&letter), Some(60_000));
        assert!(!ends.cover(&letter, &canary, at(0)));
        ends.note(&letter, &canary, at(0));
        assert!(!ends.cover(&letter, &canary, at(0)));
    }

    #[test]
    fn nothing_is_relied_on_where_nobody_would_notice_that_it_is_gone() {
        let (mut ends, none) = (FenceEnds::new(at(0)), Arc::default());
        let letter = grant("r", LONG);
        assert!(!ends.cover(&letter, &none, at(0)));
        ends.note(&letter, &none, at(0));
        assert!(!ends.cover(&letter, &none, at(0)));
    }

    #[test]
    fn a_crowd_of_names_takes_little_room() {
        let (mut ends, canary) = (FenceEnds::new(at(0)), "canary".into());
        assert!(!ends.cover(&grant("0", LONG), &canary, at(0)));
        for name in 0..MOST + 1000 {
            ends.note(&grant(&name.to_string(), LONG), &canary, at(0));
        }
        assert!(ends.late.capacity() < 2 * MOST);
        assert!(ends.cover(&grant("0", LONG), &canary, at(1)));
    }
}
