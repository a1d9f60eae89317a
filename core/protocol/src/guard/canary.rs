//! The value of a node's canary key, by which clients recognise the node's memory. Owns its text
//! form; decides nothing.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use super::notes::SightingNote;
use super::quarantine::QuarantineReason;

/// The value of the key by which a node shows which memory it has.
///
/// The key disappears together with the node's other keys (a restart without persistence,
/// `FLUSHALL`). It names the memory, the server that it was written on, and how often it was
/// written: so a copy of it (an old snapshot, a replica that took over) can be told from the
/// original.
///
/// The text begins with the part that never changes while the memory lasts ([`Self::prefix`]). The
/// rest is rewritten with each beat; the node itself appends its clock.
///
/// ```
/// use quorlock_protocol::{Canary, QuarantineReason};
/// use std::time::Duration;
///
/// let canary = Canary {
///     id: 7,
///     run: Some("4f2a".into()),
///     lineage: Some("0:12".into()),
///     durable: false,
///     count: 3,
///     floor: Duration::from_secs(10),
///     age: Duration::from_secs(60),
///     reason: QuarantineReason::Restarted,
///     wall_micros: 5,
///     node_micros: 6,
/// };
/// assert_eq!(canary.to_string(), "2 7 4f2a 0:12 0 3 10000 60000 restarted 5 6");
/// assert_eq!(canary.to_string().parse(), Ok(canary));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Canary {
    /// A random number for the memory.
    pub id: u64,
    /// The run of the server: a new one with each start of it. `None` if no client was allowed to ask.
    pub run: Option<Arc<str>>,
    /// Where the server took its keys from in this run; `None` if no client was allowed to ask.
    pub lineage: Option<Arc<str>>,
    /// Whether the node wrote every change to disk before it answered.
    pub durable: bool,
    /// How often the canary was written. It never goes back while the memory lasts.
    pub count: u64,
    /// Locks that ask nodes to keep keys for at most this long need no note on the nodes: every
    /// client waits at least this long at a node that forgot.
    pub floor: Duration,
    /// Before the last beat, no lock that this memory does not know was asked for within this time.
    pub age: Duration,
    /// Why the memory began.
    pub reason: QuarantineReason,
    /// The clock of the client that beat last, in microseconds since 1970.
    pub wall_micros: u64,
    /// The node's clock at that beat, in microseconds since 1970.
    pub node_micros: u64,
}

impl Canary {
    /// What stays the same from beat to beat.
    pub fn prefix(&self) -> String {
        let Self { id, durable, .. } = self;
        let (run, lineage) = (word(self.run.as_ref()), word(self.lineage.as_ref()));
        format!("{VERSION} {id} {run} {lineage} {} ", u8::from(*durable))
    }

    /// The whole text except the node's clock, which the node appends.
    pub fn text_to_write(&self) -> String {
        let Self { count, reason, wall_micros, .. } = self;
        let (floor, age) = (self.floor.as_millis(), self.age.as_millis());
        format!("{}{count} {floor} {age} {} {wall_micros}", self.prefix(), reason.name())
    }

    /// How long ago the last beat was, by the two clocks: the longer time and the shorter one.
    pub(super) fn since_beat(&self, node_micros: u64, wall_micros: u64) -> (Duration, Duration) {
        let by_node = node_micros.saturating_sub(self.node_micros);
        let by_wall = wall_micros.saturating_sub(self.wall_micros);
        (Duration::from_micros(by_node.max(by_wall)), Duration::from_micros(by_node.min(by_wall)))
    }
}

impl fmt::Display for Canary {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.text_to_write(), self.node_micros)
    }
}

/// The error for text that is not a canary of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a canary of this version")]
pub struct NoCanary;

impl FromStr for Canary {
    type Err = NoCanary;

    fn from_str(text: &str) -> Result<Self, NoCanary> {
        let words: Vec<&str> = text.split(' ').collect();
        let number = |word: &str| word.parse::<u64>().map_err(|_| NoCanary);
        let millis = |word: &str| number(word).map(Duration::from_millis);
        let name = |word: &str| (word != UNKNOWN).then(|| Arc::from(word));
        let [
            VERSION,
            id,
            run,
            lineage,
            durable @ ("0" | "1"),
            count,
            floor,
            age,
            reason,
            wall,
            node,
        ] = *words.as_slice()
        else {
            return Err(NoCanary);
        };
        Ok(Self {
            id: number(id)?,
            run: name(run),
            lineage: name(lineage),
            durable: durable == "1",
            // A count that cannot be incremented, or that a note cannot hold, was not written by a
            // client.
            count: number(count).and_then(below_ended)?,
            floor: millis(floor)?,
            age: millis(age)?,
            reason: QuarantineReason::named(reason).ok_or(NoCanary)?,
            wall_micros: number(wall)?,
            node_micros: number(node)?,
        })
    }
}

/// What the canary key must contain for a grant to count: the same memory, with at least as many
/// beats.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Relied {
    /// How the text begins; empty if the canary is not compared.
    pub prefix: Arc<str>,
    /// The highest number of beats that is known.
    pub count: u64,
}

impl Relied {
    /// Accepts any canary: nothing is guarded.
    pub fn anything() -> Self {
        Self { prefix: "".into(), count: 0 }
    }

    /// Whether any canary is accepted.
    pub fn is_anything(&self) -> bool {
        self.prefix.is_empty()
    }

    /// The number of beats in `text`, if it shows the expected memory and not an older state of it.
    pub fn count_in(&self, text: &[u8]) -> Option<u64> {
        if self.is_anything() {
            return Some(0);
        }
        let rest = text.strip_prefix(self.prefix.as_bytes())?;
        let digits = rest.split(|byte| *byte == b' ').next()?;
        let count = std::str::from_utf8(digits).ok()?.parse().ok()?;
        (count >= self.count).then_some(count)
    }
}

fn below_ended(count: u64) -> Result<u64, NoCanary> {
    if count < SightingNote::ENDED { Ok(count) } else { Err(NoCanary) }
}

fn word(name: Option<&Arc<str>>) -> &str {
    name.map_or(UNKNOWN, |name| name)
}

const VERSION: &str = "2";
const UNKNOWN: &str = "?";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_canary_survives_the_way_to_the_node_and_back(
            id: u64, run in proptest::option::of("[0-9a-f]{1,40}"), lineage in proptest::option::of("[0-9a-f:]{1,40}"),
            durable: bool, count in 0..SightingNote::ENDED, floor in 0_u64..1 << 40, age in 0_u64..1 << 53,
            wall_micros: u64, node_micros: u64, why in 0_usize..QuarantineReason::ALL.len(),
        ) {
            let millis = Duration::from_millis;
            let (run, lineage) = (run.map(Arc::from), lineage.map(Arc::from));
            let reason = QuarantineReason::ALL[why];
            let (floor, age) = (millis(floor), millis(age));
            let canary = Canary {
                id, run, lineage, durable, count, floor, age, reason, wall_micros, node_micros,
            };
            let text = canary.to_string();
            let relied = Relied { prefix: canary.prefix().into(), count };
            prop_assert_eq!(relied.count_in(text.as_bytes()), Some(count));
            if let Some(higher) = count.checked_add(1) {
                let later = Relied { count: higher, ..relied };
                prop_assert_eq!(later.count_in(text.as_bytes()), None);
            }
            prop_assert_eq!(text.parse(), Ok(canary));
        }

        #[test]
        fn what_is_no_canary_is_refused(text in ".{0,60}") {
            if let Ok(canary) = text.parse::<Canary>() {
                // Leading zeros and signs are the only other spellings.
                prop_assert_eq!(canary.to_string().parse(), Ok(canary));
            }
        }
    }

    #[test]
    fn a_count_that_cannot_go_on_is_none() {
        for (count, is_one) in
            [(SightingNote::ENDED - 1, true), (SightingNote::ENDED, false), (u64::MAX, false)]
        {
            let text = format!("2 7 a b 0 {count} 10000 1 forgot 2 3");
            assert_eq!(text.parse::<Canary>().is_ok(), is_one, "{text}");
        }
    }

    #[test]
    fn another_memory_is_not_relied_on() {
        let relied = Relied { prefix: "2 7 a b 0 ".into(), count: 4 };
        assert_eq!(relied.count_in(b"2 7 a b 0 5 10000 1 forgot 2 3"), Some(5));
        for text in
            ["2 7 a b 0 3 10000 1 forgot 2 3", "2 8 a b 0 5 x", "2 7 a b 1 5 x", "", "2 7 a b 0 "]
        {
            assert_eq!(relied.count_in(text.as_bytes()), None, "{text}");
        }
        assert_eq!(Relied::anything().count_in(b"whatever"), Some(0));
    }
}
