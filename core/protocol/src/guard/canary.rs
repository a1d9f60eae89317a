//! What stands in a node's canary key. Owns its text form; decides nothing.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use super::checkup::QuarantineReason;

/// The value of the key by which a node shows that it remembers.
///
/// It goes when the node forgets (a restart without persistence, `FLUSHALL`), and it names the run of
/// the server that it was written in, so that a copy of it (an old snapshot, a replica that took over)
/// is told from the original.
///
/// ```
/// use quorlock_protocol::{Canary, CanaryState};
/// use std::time::Duration;
///
/// let waited = Duration::from_secs(10);
/// let state = CanaryState::Trusted { waited, durable: false, node_micros: 5 };
/// let canary = Canary { run: "4f2a".into(), memory: 7, state };
/// assert_eq!(canary.to_string(), "1 4f2a 7 trusted 10000 0 5");
/// assert_eq!("1 4f2a 7 trusted 10000 0 5".parse(), Ok(canary));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Canary {
    /// The run of the server: a new one with each start of it.
    pub run: Arc<str>,
    /// A random number for the memory that began when the canary was first written.
    pub memory: u64,
    /// Whether that memory is trusted.
    pub state: CanaryState,
}

/// Whether a node's memory is trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CanaryState {
    /// No lease from before this memory can be valid any more.
    Trusted {
        /// How long a client held grants back before it wrote this; zero for a new cluster.
        waited: Duration,
        /// Whether the node wrote every change to disk before it answered.
        durable: bool,
        /// When that was, by the node's own clock in microseconds: what was noted of its clock before
        /// tells nothing any more.
        node_micros: u64,
    },
    /// A client found that the node may have forgotten locks and holds grants back.
    Waiting {
        /// When it found so, by the node's own clock in microseconds.
        node_micros: u64,
        /// The same by the client's wall clock.
        wall_micros: u64,
        /// How long grants are to be held back.
        length: Duration,
        /// Why.
        reason: QuarantineReason,
    },
}

impl Canary {
    /// Whether the node was started anew since the canary was written.
    pub(super) fn is_of_run(&self, run: &str) -> bool {
        &*self.run == run
    }
}

impl fmt::Display for Canary {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { run, memory, state } = self;
        write!(formatter, "{VERSION} {run} {memory} ")?;
        match state {
            CanaryState::Trusted { waited, durable, node_micros } => {
                let (waited, durable) = (waited.as_millis(), u8::from(*durable));
                write!(formatter, "trusted {waited} {durable} {node_micros}")
            }
            CanaryState::Waiting { node_micros, wall_micros, length, reason } => {
                let (length, reason) = (length.as_millis(), reason.name());
                write!(formatter, "waiting {node_micros} {wall_micros} {length} {reason}")
            }
        }
    }
}

/// The text is not that of a canary of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a canary of this version")]
pub struct NoCanary;

impl FromStr for Canary {
    type Err = NoCanary;

    fn from_str(text: &str) -> Result<Self, NoCanary> {
        let words: Vec<&str> = text.split(' ').collect();
        let number = |word: &str| word.parse::<u64>().map_err(|_| NoCanary);
        let millis = |word: &str| number(word).map(Duration::from_millis);
        let [VERSION, run, memory, rest @ ..] = words.as_slice() else {
            return Err(NoCanary);
        };
        let state = match rest {
            ["trusted", waited, durable @ ("0" | "1"), node] => CanaryState::Trusted {
                waited: millis(waited)?,
                durable: *durable == "1",
                node_micros: number(node)?,
            },
            ["waiting", node, wall, length, reason] => CanaryState::Waiting {
                node_micros: number(node)?,
                wall_micros: number(wall)?,
                length: millis(length)?,
                reason: QuarantineReason::named(reason).ok_or(NoCanary)?,
            },
            _ => return Err(NoCanary),
        };
        Ok(Self { run: Arc::from(*run), memory: number(memory)?, state })
    }
}

const VERSION: &str = "1";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_canary_survives_the_way_to_the_node_and_back(
            run in "[0-9a-f]{1,40}", memory: u64, millis in 0_u64..1 << 53, durable: bool,
            waits: bool, node_micros: u64, wall_micros: u64, why in 0_usize..4,
        ) {
            let length = Duration::from_millis(millis);
            let state = if waits {
                let reason = QuarantineReason::ALL[why];
                CanaryState::Waiting { node_micros, wall_micros, length, reason }
            } else {
                CanaryState::Trusted { waited: length, durable, node_micros }
            };
            let canary = Canary { run: run.into(), memory, state };
            prop_assert_eq!(canary.to_string().parse(), Ok(canary));
        }

        #[test]
        fn what_is_no_canary_is_refused(text in ".{0,60}") {
            if let Ok(canary) = text.parse::<Canary>() {
                // Leading zeros and signs are the only other spellings.
                prop_assert_eq!(canary.to_string().parse(), Ok(canary));
            }
        }
    }
}
