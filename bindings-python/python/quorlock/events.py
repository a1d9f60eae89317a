"""What happens to locks and nodes, as objects that do not change. Owns their classes.

    from quorlock import Redlock, events

    def watch(event):
        if isinstance(event, events.Lost):
            alert(event.resource, event.reason)

    locks = Redlock(["redis://a", "redis://b", "redis://c"], on_event=watch)

Every event has a `name`, the same in every language, and `at`, when it happened, in seconds since
1970. Times are in seconds. `on_event` is called by a thread of this package (under gevent and
eventlet, in a greenlet), one event after another, for blocking code and asyncio alike: it may take
its time, and what it raises is logged. Without it, no event is made, save losses and work without
its lock, which are always warnings of `logging.getLogger("quorlock")`; with that logger at `DEBUG`,
every event is a line there.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Optional

from ._errors import Vote

__all__ = [
    "Acquired",
    "ClockStep",
    "Contended",
    "Degraded",
    "Event",
    "Extended",
    "ExtensionFailed",
    "LeaseEvent",
    "LockEvent",
    "Lost",
    "NodeChanged",
    "Quarantined",
    "Released",
    "Waiting",
    "Woken",
]


@dataclass(frozen=True)
class Event:
    """The base of all events."""

    name: ClassVar[str] = "event"
    """What happened, for programs: for example `acquired`."""

    at: float
    """When it happened, in seconds since 1970."""


@dataclass(frozen=True)
class LockEvent(Event):
    """An event of a lock."""

    resource: str
    """The name of what is locked; the first of several."""
    resources: tuple[str, ...]
    """The names of what is locked."""


@dataclass(frozen=True)
class LeaseEvent(LockEvent):
    """An event of a lock that is held, or was."""

    token: str = field(repr=False)
    """The holder id, `Lease.token`: not for logs, since who knows it can release the lock."""
    fencing_token: Optional[int]
    """The number that the protected resource checks."""


@dataclass(frozen=True)
class Acquired(LeaseEvent):
    """A lock was acquired."""

    name: ClassVar[str] = "acquired"
    waited: float
    """How many seconds its caller waited for it."""
    attempts: int
    """How many rounds it took."""
    votes: tuple[Vote, ...]
    """What every node did in the last round, as far as it is known."""


@dataclass(frozen=True)
class Contended(LockEvent):
    """A round was refused, because another holds the lock."""

    name: ClassVar[str] = "contended"
    holder_ends_in: Optional[float]
    """After how many seconds it can be had, if the holder neither extends nor releases it; `None`
    if the nodes did not tell."""


@dataclass(frozen=True)
class Waiting(LockEvent):
    """A caller waits for the lock."""

    name: ClassVar[str] = "waiting"
    rank: Optional[int]
    """How many callers are before this one in the nodes' queues; `None` where it has no place
    there, as behind others of its own process."""
    holder_ends_in: Optional[float]
    """After how many seconds it can be had, if the holder neither extends nor releases it; `None`
    if the nodes did not tell."""


@dataclass(frozen=True)
class Woken(LockEvent):
    """A caller that waited tries again."""

    name: ClassVar[str] = "woken"
    by: str
    """`push` (the release called it), `watch` (a key that it watched is gone) or `timer`."""
    waited: float
    """How many seconds it had waited."""


@dataclass(frozen=True)
class Extended(LeaseEvent):
    """A lease was prolonged, by its renewal or its holder."""

    name: ClassVar[str] = "extended"
    validity: float
    """For how many seconds it may be trusted from now on."""
    slack: float
    """The part of the earlier validity that was left, from 0.0 to 1.0."""


@dataclass(frozen=True)
class ExtensionFailed(LeaseEvent):
    """A lease could not be prolonged so far; the rest of its validity stays good."""

    name: ClassVar[str] = "extension_failed"
    validity: float
    """For how many seconds it may still be trusted."""
    detail: str
    """What kept it."""


@dataclass(frozen=True)
class Lost(LeaseEvent):
    """A lease was lost: work done under it may overlap another holder's."""

    name: ClassVar[str] = "lost"
    reason: str
    """`expired`, `gone` or `held-too-long`."""
    detail: str
    """The reason in words."""
    held_for: float
    """For how many seconds it was held."""


@dataclass(frozen=True)
class Released(LeaseEvent):
    """A lease was given back."""

    name: ClassVar[str] = "released"
    outcome: str
    """`released`, `expired`, `taken` or `unknown` as for `Lease.release`, or `abandoned` if the
    lease was garbage-collected without a release."""
    held_for: float
    """For how many seconds it was held."""


@dataclass(frozen=True)
class NodeChanged(Event):
    """The state of a node has changed: `from_` (or `getattr(it, "from")`) `to` another."""

    name: ClassVar[str] = "node"
    address: str
    """Where it is, without a password."""
    from_: str
    """The name of its state before; see `Node.state`."""
    to: str
    """The name of its state now."""
    detail: Optional[str]
    """Why, where the name does not say everything."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            # In every other language the field is called `from`, which is a keyword here.
            if name == "from":
                return self.from_
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


@dataclass(frozen=True)
class Quarantined(Event):
    """A node may have forgotten locks: its votes do not count for a time."""

    name: ClassVar[str] = "quarantined"
    address: str
    """Where it is, without a password."""
    reason: str
    """`restarted`, `forgot`, `no-history` or `clock-stepped`."""
    lasts: float
    """For about how many seconds."""


@dataclass(frozen=True)
class ClockStep(Event):
    """A clock was set, or stood still with this machine."""

    name: ClassVar[str] = "clock_step"
    address: Optional[str]
    """Where the node is; `None` if it is this machine's clock."""
    by: Optional[float]
    """By how many seconds, where that is known."""
    direction: str
    """`forward`, `back` or `paused`."""


@dataclass(frozen=True)
class Degraded(LockEvent):
    """No quorum could be reached, and the work goes on without the lock (`on_unreachable`)."""

    name: ClassVar[str] = "degraded"
    detail: str
    """What kept it from being locked."""


_BY_NAME: dict[str, type[Event]] = {
    kind.name: kind
    for kind in (
        Acquired,
        Contended,
        Waiting,
        Woken,
        Extended,
        ExtensionFailed,
        Lost,
        Released,
        NodeChanged,
        Quarantined,
        ClockStep,
        Degraded,
    )
}


def _made(name: str, at: float, values: dict[str, Any]) -> Event:
    """The event of that name, from the core's values."""
    kind = _BY_NAME[name]
    if "from" in values:
        values["from_"] = values.pop("from")
    known = {it.name for it in fields(kind)}
    return kind(at=at, **{key: value for key, value in values.items() if key in known})
