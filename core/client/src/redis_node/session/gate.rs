//! Whether grants may be sent to a node: applies what the guards decided about it, as it may have
//! forgotten locks. Owns the call by which a node is looked at for the guards, and the words for
//! grants that are not sent; decides nothing itself.

use std::time::Duration;

use quorlock_protocol::{
    CanaryKey, Checkup, ClockReading, Fault, FaultKind, HoldingNote, LeadNote, Moment, Notes, Pass,
    Quarantine, Relied, Ruling, SightingNote, Writing,
};
use redis::{Cmd, Value};

use super::facts::Facts;
use super::faults;
use crate::redis_node::transport::garbled;

/// Whether grants are sent.
#[derive(Clone, Debug)]
pub(crate) enum Gate {
    /// They are sent, under these conditions.
    Open(Pass),
    /// They are not sent until the end of the quarantine.
    Quarantined(Quarantine),
    /// It is not known yet whether they count.
    Undecided,
    /// The check-up failed.
    Broken(Fault),
}

impl Gate {
    /// A gate that lets every grant through.
    pub(super) fn unguarded() -> Self {
        Self::Open(Pass { relied: Relied::anything(), longest: Duration::MAX })
    }

    /// Why a grant that asks the node to keep keys for `key_ttl` is not sent; `None` if it is.
    pub(super) fn refusal(&self, key_ttl: Duration, now: Moment) -> Option<Fault> {
        let quarantined = |words: String| Fault::new(FaultKind::Quarantined, words);
        match self {
            Self::Open(pass) if key_ttl <= pass.longest => None,
            Self::Open(pass) => {
                let left = key_ttl.saturating_sub(pass.longest);
                let words = format!("{TOO_LONG} {}", seconds(left));
                Some(quarantined(words).lasting(left))
            }
            Self::Quarantined(quarantine) => {
                let left = quarantine.until.since(now);
                let why = quarantine.reason.describe();
                Some(
                    quarantined(format!("{why}: its grants count again in {}", seconds(left)))
                        .lasting(left),
                )
            }
            Self::Undecided => Some(undecided()),
            Self::Broken(fault) => Some(fault.clone()),
        }
    }

    /// What must stand in the canary key for a grant.
    pub(super) fn relied(&self) -> Option<&Relied> {
        match self {
            Self::Open(pass) => Some(&pass.relied),
            Self::Quarantined(_) | Self::Undecided | Self::Broken(_) => None,
        }
    }

    /// The canary has had `count` beats, and must not show fewer from now on.
    pub(super) fn note_count(&mut self, count: u64) {
        if let Self::Open(pass) = self {
            pass.relied.count = pass.relied.count.max(count);
        }
    }

    /// When the node must be probed again, at the latest.
    pub(super) fn probe_at(&self, now: Moment) -> Moment {
        match self {
            Self::Open(_) => now + PROBE_EVERY,
            // The canary may change sooner: another client may have waited longer.
            Self::Quarantined(quarantine) => {
                quarantine.until.max(now + GRAIN).min(now + PROBE_AGAIN)
            }
            Self::Undecided => now + PROBE_SOON,
            Self::Broken(_) => now + PROBE_AGAIN,
        }
    }
}

/// The answer to a grant while it is not known whether grants of the node count.
pub(super) fn undecided() -> Fault {
    Fault::new(FaultKind::Quarantined, UNDECIDED).lasting(PROBE_AGAIN)
}

/// The call of a check-up.
pub(super) fn call(notes: &Notes, writing: Option<&Writing>) -> Cmd {
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX).min(LONGEST);
    let mut call = redis::cmd("EVAL");
    call.arg(include_str!("../../scripts/checkup.lua")).arg(2).arg(CANARY_KEY).arg(NOTES_KEY);
    call.arg(millis(KEPT));
    match writing {
        Some(Writing { expected, canary }) => {
            call.arg(expected.as_deref().unwrap_or_default()).arg(&**canary)
        }
        None => call.arg("").arg(""),
    };
    call.arg(notes.holdings.len());
    for note in &notes.holdings {
        call.arg(&*note.name).arg(note.version).arg(millis(note.key_ttl));
        call.arg(millis(note.began)).arg(millis(note.left));
    }
    for note in &notes.sightings {
        call.arg(note.id).arg(note.count);
        match note.lead {
            Some(LeadNote { most_micros, anew: true, .. }) => call.arg(format!("={most_micros}")),
            Some(lead) => call.arg(lead.most_micros),
            None => call.arg(""),
        };
    }
    call
}

/// Parses the reply to a check-up, which was sent and received at these moments.
pub(super) fn read(
    value: &Value,
    (sent, received): (Moment, Moment),
    facts: &Facts,
) -> Result<Checkup, Fault> {
    if let Value::ServerError(error) = value {
        return Err(faults::of_checkup(error));
    }
    let Value::Array(parts) = value else {
        return Err(garbled());
    };
    let [canary, Value::Int(micros), Value::Array(holdings), Value::Array(sightings)] =
        parts.as_slice()
    else {
        return Err(garbled());
    };
    let canary = CanaryKey::read(text(canary).as_deref());
    let micros = u64::try_from(*micros).map_err(|_| garbled())?;
    let notes = Notes {
        holdings: read_each(holdings, holding).ok_or_else(garbled)?,
        sightings: read_each(sightings, sighting).ok_or_else(garbled)?,
    };
    Ok(Checkup {
        run: facts.identity().run.clone(),
        lineage: facts.lineage(),
        durable: facts.is_durable(),
        canary,
        clock: ClockReading { sent, received, micros },
        notes,
    })
}

/// Parses values that come in groups; `None` if they do not. A group that cannot be parsed was
/// written by another program and is ignored.
fn read_each<const N: usize, T>(
    values: &[Value],
    read: impl Fn(&[Value; N]) -> Option<T>,
) -> Option<Vec<T>> {
    let (groups, []) = values.as_chunks::<N>() else {
        return None;
    };
    Some(groups.iter().filter_map(read).collect())
}

fn holding([name, version, key_ttl, began, left]: &[Value; 5]) -> Option<HoldingNote> {
    let millis = |value| natural(value).map(Duration::from_millis);
    Some(HoldingNote {
        name: text(name)?.into(),
        version: natural(version)?,
        key_ttl: millis(key_ttl)?,
        began: millis(began)?,
        left: millis(left)?,
    })
}

fn sighting([id, count, most, age]: &[Value; 4]) -> Option<SightingNote> {
    let lead = match text(most)?.as_str() {
        "" => None,
        most => {
            let (most_micros, age_micros) = (most.parse().ok()?, natural(age)?);
            Some(LeadNote { most_micros, age_micros, anew: false })
        }
    };
    Some(SightingNote { id: text(id)?.parse().ok()?, count: natural(count)?, lead })
}

fn natural(value: &Value) -> Option<u64> {
    text(value)?.parse().ok()
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
            Ruling::Open(pass) => Self::Open(pass),
            Ruling::Quarantined(quarantine) => Self::Quarantined(quarantine),
            Ruling::Undecided(_) | Ruling::Write(_) => Self::Undecided,
        }
    }
}

/// The key that shows whether a node remembers, in the same hash slot as the notes.
pub(super) const CANARY_KEY: &str = "quorlock:{node}:canary";
const NOTES_KEY: &str = "quorlock:{node}:notes";
const TOO_LONG: &str =
    "it may have forgotten locks that last as long as this one: its grants count again in";
const UNDECIDED: &str = "it is being found out whether the node may have forgotten locks";

/// How long canary and notes stay on the node after the last probe.
const KEPT: Duration = Duration::from_secs(7 * 86_400);
/// The largest number that Lua keeps exactly.
const LONGEST: u64 = (1 << 53) - 1;
/// The time between probes of a healthy node. They keep its clock known.
pub(super) const PROBE_EVERY: Duration = Duration::from_secs(10);
/// The time between probes of a node whose grants are held back.
const PROBE_AGAIN: Duration = Duration::from_secs(1);
/// The time between probes of a node about which nothing is decided yet.
const PROBE_SOON: Duration = Duration::from_millis(60);
/// Because clocks are rounded, a probe exactly at the end of a quarantine would come too soon.
const GRAIN: Duration = Duration::from_millis(2);
