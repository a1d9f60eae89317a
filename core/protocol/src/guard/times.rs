//! The durations that the guards use: how often to look at nodes, how long to wait, when a node is
//! idle. Owns these constants.

use std::time::Duration;

use crate::time::Ttl;

pub(super) const FLOOR_TTL: Ttl = Ttl::of_millis(10_000);
pub(super) const FLOOR: Duration = FLOOR_TTL.as_duration();
/// Quarantines last no longer than this, even for longer locks, unless `max_ttl` is set.
pub(super) const LONGEST_FORGOTTEN: Duration = Duration::from_secs(3600);
/// The age of a memory that began when no lock could be held that it does not know.
pub(super) const AGES_AGO: Duration = Duration::from_secs(100 * 365 * 86_400);
/// How often the canary is written while any client looks at the node.
pub(super) const BEAT_EVERY: Duration = Duration::from_secs(5);
/// A command that takes or prolongs keys goes to a node only if it was looked at within this time.
pub(super) const LOOKED_AT_WITHIN: Duration = Duration::from_secs(20);
/// A node without a beat for this long is idle: a client beats before it asks for a lock
/// ([`LOOKED_AT_WITHIN`] and [`BEAT_EVERY`]).
pub(super) const IDLE: Duration =
    NOT_ASKED_WITHIN.saturating_add(LOOKED_AT_WITHIN).saturating_add(BEAT_EVERY);
/// An idle node was asked for no lock within this time: more than the floor and the drift
/// allowance.
pub(super) const NOT_ASKED_WITHIN: Duration = Duration::from_secs(11);
/// How long all nodes may take to be reached for the first time.
pub(super) const FIRST_CONTACT: Duration = Duration::from_millis(100);
/// The same where nobody has used the nodes for a while. A node that forgot then counts at once,
/// but only if it is looked at before the others get a new beat; otherwise it waits for the floor.
pub(super) const FIRST_CONTACT_IF_IDLE: Duration = Duration::from_millis(500);
/// Where too few nodes remember, a node counts as unreachable if it was so this long after another was found to
/// have forgotten: one refused or broken connection proves nothing.
pub(super) const UNREACHABLE_AFTER: Duration = Duration::from_millis(350);
/// When to look again, at the latest, at a node without a decision.
pub(super) const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// People are told of a quarantine that is longer than this.
pub(super) const LONG_WAIT: Duration = Duration::from_secs(60);
