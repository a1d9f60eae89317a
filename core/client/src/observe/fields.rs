//! The fields of each event by name, for bindings. Owns the names; the values are the event's.

use quorlock_protocol::Resources;

use super::events::{EventKind, LeaseInfo};
use super::value::Value;

impl EventKind {
    /// Its fields.
    pub(super) fn fields(&self) -> Vec<(&'static str, Value)> {
        match self {
            Self::Acquired { lease, waited, attempts, votes } => lease.with([
                ("waited", (*waited).into()),
                ("attempts", u64::from(*attempts).into()),
                ("votes", Value::Votes(votes.clone())),
            ]),
            Self::Contended { resources, holder_ends_in } => {
                named(resources, [("holder_ends_in", (*holder_ends_in).into())])
            }
            Self::Waiting { resources, rank, holder_ends_in } => {
                let rank = rank.map(u64::from).into();
                named(resources, [("rank", rank), ("holder_ends_in", (*holder_ends_in).into())])
            }
            Self::Woken { resources, by, waited } => {
                named(resources, [("by", by.name().into()), ("waited", (*waited).into())])
            }
            Self::Extended { lease, validity, slack } => {
                lease.with([("validity", (*validity).into()), ("slack", Value::Number(*slack))])
            }
            Self::ExtensionFailed { lease, validity, detail } => {
                lease.with([("validity", (*validity).into()), ("detail", detail.as_str().into())])
            }
            Self::Lost { lease, reason, held_for } => lease.with([
                ("reason", reason.name().into()),
                ("detail", reason.describe().into()),
                ("held_for", (*held_for).into()),
            ]),
            Self::Released { lease, outcome, held_for } => {
                lease.with([("outcome", (*outcome).into()), ("held_for", (*held_for).into())])
            }
            Self::Node { address, from, to, detail } => vec![
                ("address", (&**address).into()),
                ("from", (*from).into()),
                ("to", (*to).into()),
                ("detail", detail.as_deref().into()),
            ],
            Self::Quarantined { address, reason, lasts } => vec![
                ("address", (&**address).into()),
                ("reason", (*reason).into()),
                ("lasts", (*lasts).into()),
            ],
            Self::ClockStep { address, by, direction } => vec![
                ("address", address.as_deref().into()),
                ("by", (*by).into()),
                ("direction", (*direction).into()),
            ],
            Self::Degraded { resources, detail } => {
                named(resources, [("detail", detail.as_str().into())])
            }
        }
    }
}

impl LeaseInfo {
    fn with<const N: usize>(&self, more: [(&'static str, Value); N]) -> Vec<(&'static str, Value)> {
        let own = [("token", self.token().into()), ("fencing_token", self.fencing_token().into())];
        named(self.locked(), own.into_iter().chain(more))
    }
}

fn named(
    resources: &Resources,
    more: impl IntoIterator<Item = (&'static str, Value)>,
) -> Vec<(&'static str, Value)> {
    let names: Vec<Value> = resources.names().map(Value::from).collect();
    let first = names.first().cloned().unwrap_or(Value::None);
    [("resource", first), ("resources", Value::List(names))].into_iter().chain(more).collect()
}
