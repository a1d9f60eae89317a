//! Whether grants go through to a node: the ruling of the guards as the connection applies it. Owns the
//! calls of a check-up and the words for a closed gate; decides nothing.

use std::sync::Arc;
use std::time::Duration;

use quorlock_protocol::{
    CanaryKey, Checkup, ClockReading, Fault, FaultKind, Moment, Notes, Quarantine, Ruling, Skew,
};
use redis::{Cmd, Value};

use super::facts::Facts;
use super::faults;
use crate::clock;

/// What becomes of grants.
#[derive(Clone, Debug)]
pub(super) enum Gate {
    /// They are done while this stands in the canary key (empty: whatever stands there).
    Open(Arc<str>),
    /// They are held back until then.
    Quarantined(Quarantine),
    /// It is not known yet whether they count.
    Undecided,
    /// The check-up failed.
    Broken(Fault),
}

impl Gate {
    /// Why a grant is not sent; `None` if it is.
    pub(super) fn refusal(&self) -> Option<Fault> {
        let held_back = |words: String| Fault::new(FaultKind::Quarantined, words);
        match self {
            Self::Open(_) => None,
            Self::Quarantined(quarantine) => {
                let left = quarantine.until.since(clock::now());
                let why = quarantine.reason.describe();
                Some(
                    held_back(format!("{why}: its grants count again in {}", seconds(left)))
                        .lasting(left),
                )
            }
            Self::Undecided => Some(held_back(UNDECIDED.to_owned()).lasting(LOOK_AGAIN)),
            Self::Broken(fault) => Some(fault.clone()),
        }
    }

    /// What must stand in the canary key for a grant.
    pub(super) fn canary(&self) -> Arc<str> {
        if let Self::Open(canary) = self { Arc::clone(canary) } else { Arc::default() }
    }

    /// When to look again, at the latest.
    pub(super) fn look_at(&self, now: Moment) -> Moment {
        match self {
            Self::Open(_) => now + LOOK_EVERY,
            // The canary may change sooner: another client may have waited longer.
            Self::Quarantined(quarantine) => {
                quarantine.until.max(now + GRAIN).min(now + LOOK_AGAIN)
            }
            Self::Undecided => now + LOOK_SOON,
            Self::Broken(_) => now + LOOK_AGAIN,
        }
    }
}

/// A canary to be put in the place of the one that was seen.
#[derive(Clone, Debug)]
pub(super) struct Writing {
    pub(super) expected: Option<Arc<str>>,
    pub(super) canary: Arc<str>,
}

/// The call of a check-up.
pub(super) fn call(notes: Notes, writing: Option<&Writing>) -> Cmd {
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let kept = notes.longest.saturating_mul(2).clamp(KEPT, LONGEST_KEPT);
    let mut call = redis::cmd("EVAL");
    call.arg(include_str!("../scripts/checkup.lua")).arg(2).arg(CANARY_KEY).arg(NOTES_KEY);
    call.arg(millis(kept)).arg(millis(notes.longest.min(LONGEST_KEPT)));
    match notes.skew {
        Some(Skew { ahead_micros, uncertainty_micros, node_micros }) => {
            call.arg(ahead_micros).arg(uncertainty_micros).arg(node_micros)
        }
        None => call.arg("").arg("").arg(""),
    };
    match writing {
        Some(Writing { expected, canary }) => {
            call.arg(&**canary).arg(expected.as_deref().unwrap_or_default())
        }
        None => call.arg("").arg(""),
    };
    call
}

/// Reads the reply to it, which was asked for at `sent`.
pub(super) fn read(value: &Value, sent: Moment, facts: &Facts) -> Result<Checkup, Fault> {
    if let Value::ServerError(error) = value {
        return Err(faults::of_checkup(error));
    }
    let Value::Array(parts) = value else {
        return Err(faults::garbled());
    };
    let [canary, Value::Int(micros), Value::Int(longest), skew @ ..] = parts.as_slice() else {
        return Err(faults::garbled());
    };
    let canary = text(canary);
    let number = |value: Option<&Value>| text(value?)?.parse::<i64>().ok();
    let natural = |value| u64::try_from(number(value)?).ok();
    let skew = number(skew.first()).zip(natural(skew.get(1))).zip(natural(skew.get(2)));
    let skew = skew.map(|((ahead_micros, uncertainty_micros), node_micros)| Skew {
        ahead_micros,
        uncertainty_micros,
        node_micros,
    });
    let positive = |number: i64| u64::try_from(number).unwrap_or(0);
    let canary = CanaryKey::read(canary.as_deref());
    Ok(Checkup {
        run: facts.identity().run.clone().unwrap_or_else(|| run_in(&canary)),
        durable: facts.is_durable(),
        canary,
        clock: ClockReading { sent, received: clock::now(), micros: positive(*micros) },
        notes: Notes { longest: Duration::from_millis(positive(*longest)), skew },
    })
}

/// A user who may not ask for the run takes the one that others have seen.
fn run_in(canary: &CanaryKey) -> Arc<str> {
    match canary {
        CanaryKey::Present(canary) => Arc::clone(&canary.run),
        CanaryKey::Absent | CanaryKey::Unreadable(_) => "?".into(),
    }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok(),
        Value::Int(number) => Some(number.to_string()),
        _ => None,
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

impl From<Ruling> for Gate {
    fn from(ruling: Ruling) -> Self {
        match ruling {
            Ruling::Trusted(canary) => Self::Open(canary),
            Ruling::Quarantined(quarantine) => Self::Quarantined(quarantine),
            Ruling::Undecided(_) | Ruling::Write { .. } => Self::Undecided,
        }
    }
}

/// The key that shows whether a node remembers, in the same hash slot as the notes.
pub(super) const CANARY_KEY: &str = "quorlock:{node}:canary";
const NOTES_KEY: &str = "quorlock:{node}:notes";
const UNDECIDED: &str = "it is being found out whether the node may have forgotten locks";

/// How long canary and notes stay after the last look.
const KEPT: Duration = Duration::from_secs(7 * 86_400);
const LONGEST_KEPT: Duration = Duration::from_millis((1 << 53) - 1);
/// How often a node is looked at that nothing is the matter with: its clock is to be known.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(10);
/// How often a node is looked at whose grants are held back.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// How often a node is looked at that is not decided on.
const LOOK_SOON: Duration = Duration::from_millis(60);
/// A look right at the end would come too soon once more.
const GRAIN: Duration = Duration::from_millis(2);
