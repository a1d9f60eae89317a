//! Passes events to the crate `tracing`: losses and work without its lock as warnings, everything
//! else at the level debug, with the target `quorlock`. Owns the levels.

use tracing::{Level, enabled, event};

use super::events::{Event, EventName};

/// Whether a subscriber wants the events of that name.
pub(super) fn traced(name: EventName) -> bool {
    if is_warning(name) {
        enabled!(target: "quorlock", Level::WARN)
    } else {
        enabled!(target: "quorlock", Level::DEBUG)
    }
}

/// Tells the event; its fields are in the sentence, and its name and resource beside it.
pub(super) fn trace(told: &Event) {
    let name = told.name();
    if is_warning(told.kind().name()) {
        event!(target: "quorlock", Level::WARN, event = name, "{told}");
    } else {
        event!(target: "quorlock", Level::DEBUG, event = name, "{told}");
    }
}

const fn is_warning(name: EventName) -> bool {
    matches!(name, EventName::Lost | EventName::Degraded)
}
