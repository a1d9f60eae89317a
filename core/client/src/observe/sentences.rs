//! The line that says an event to a person. Owns the words; no holder id is among them, since who
//! knows it can release the lease.

use std::fmt;
use std::time::Duration;

use quorlock_protocol::Resources;

use super::events::{Event, EventKind, LeaseInfo};

impl fmt::Display for Event {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind() {
            EventKind::Acquired { lease, waited, attempts, .. } => {
                write!(to, "{lease} acquired after {} in {attempts} round(s)", Shown(*waited))?;
                lease.fencing_token().map_or(Ok(()), |token| write!(to, ", fencing token {token}"))
            }
            EventKind::Contended { resources, holder_ends_in: Some(left) } => {
                write!(to, "{resources} is held by another for at most {} more", Shown(*left))
            }
            EventKind::Contended { resources, holder_ends_in: None } => {
                write!(to, "{resources} is held by another")
            }
            EventKind::Waiting { resources, rank: Some(rank), .. } => {
                write!(to, "{resources} is waited for, with {rank} callers before this one")
            }
            EventKind::Waiting { resources, .. } => write!(to, "{resources} is waited for"),
            EventKind::Woken { resources, by, waited } => {
                write!(to, "{resources} is tried again after {} ({})", Shown(*waited), by.name())
            }
            EventKind::Extended { lease, validity, slack } => write!(
                to,
                "{lease} extended, valid for {}; {:.0} % of the validity before was left",
                Shown(*validity),
                slack * 100.0
            ),
            EventKind::ExtensionFailed { lease, validity, detail } => write!(
                to,
                "{lease} could not be extended yet, still valid for {}: {detail}",
                Shown(*validity)
            ),
            EventKind::Lost { lease, reason, held_for } => write!(
                to,
                "the lease on {lease} is lost after {}: {}; work since then may overlap another holder's",
                Shown(*held_for),
                reason.describe()
            ),
            EventKind::Released { lease, outcome, held_for } => {
                write!(to, "{lease} given back after {}: {outcome}", Shown(*held_for))
            }
            EventKind::Node { address, from, to: now, detail } => {
                write!(to, "{address}: {now}, was {from}")?;
                detail.as_ref().map_or(Ok(()), |detail| write!(to, ": {detail}"))
            }
            EventKind::Quarantined { address, reason, lasts } => write!(
                to,
                "{address}: its votes do not count for about {} ({reason})",
                Shown(*lasts)
            ),
            EventKind::ClockStep { address, by, direction } => {
                let whose = address.as_deref().unwrap_or("this machine");
                write!(to, "{whose}: its clock went {direction}")?;
                by.map_or(Ok(()), |by| write!(to, " by {}", Shown(by)))
            }
            EventKind::Degraded { resources, detail } => {
                to.write_str(&sentence_of_degraded(resources, detail))
            }
        }
    }
}

/// That work goes on without its lock, and why.
pub(crate) fn sentence_of_degraded(resources: &Resources, why: &str) -> String {
    format!(
        "{resources} is NOT locked, and the work goes on without it as on_unreachable=proceed says: {why}"
    )
}

impl fmt::Display for LeaseInfo {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.locked().fmt(formatter)
    }
}

/// A time for people: `850 ms`, `2.5 s`.
struct Shown(Duration);

impl fmt::Display for Shown {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs_f64();
        if seconds < 1.0 {
            return write!(formatter, "{:.1} ms", seconds * 1000.0);
        }
        write!(formatter, "{seconds:.1} s")
    }
}
