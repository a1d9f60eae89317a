"""The figures of a manager as objects. Owns their classes; the core counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional

from ._hints import evaluated


@dataclass(frozen=True)
class Histogram:
    """How often values fell into each bucket."""

    bounds: tuple[float, ...]
    """The upper bound of each bucket but the last, which has none."""
    counts: tuple[int, ...]
    """How many values fell into each bucket; one more than there are bounds."""
    count: int
    """How many values there were."""
    sum: float
    """Their sum."""

    def quantile(self, q: float) -> Optional[float]:
        """The bound of the bucket of the `q`-quantile (0.99, say).

        `None` without values; infinite in the last bucket.

        >>> Histogram(bounds=(0.1, 0.2), counts=(98, 2, 0), count=100, sum=5.0).quantile(0.99)
        0.2
        """
        seen, wanted = 0, min(1.0, max(0.0, q)) * self.count
        for bound, count in zip((*self.bounds, float("inf")), self.counts):
            seen += count
            if seen and seen >= wanted:
                return bound
        return None


@evaluated
@dataclass(frozen=True)
class NodeStats:
    """What was counted of one node."""

    address: str
    """Where it is, without a password."""
    state: str
    """Its state now; see `Node.state`."""
    latency_seconds: Histogram
    """The time from a command to its answer, in seconds."""
    timeouts: int
    """How often it did not answer in time."""
    offset_seconds: Optional[float]
    """How many seconds its clock is ahead of this machine's; `None` while that is not known."""


@dataclass(frozen=True)
class Stats:
    """What a `Redlock` has counted in this process since it was made."""

    acquisitions: dict[str, int]
    """Acquisitions by how they ended: `acquired`, `not_acquired`, `timed_out`, `unreachable`,
    `cancelled` (without those that were cancelled before the core had begun them), `error`, and
    `degraded` for those that went on without a quorum (and are not counted as `unreachable`)."""
    acquire_seconds: Histogram
    """How long the acquisitions took that were won, in seconds."""
    rounds: int
    """Rounds of acquisitions."""
    futile_rounds: int
    """Rounds of those that were refused because another holds the lock."""
    waits: int
    """How often a caller began to wait."""
    wakes: dict[str, int]
    """What made callers that waited try again: `push`, `watch` or `timer`."""
    held: int
    """How many leases are held now. One that nobody renews or watches counts until it is
    dropped."""
    hold_seconds: Histogram
    """How long leases were held that have ended, in seconds."""
    extensions: int
    """How often a lease was prolonged, by its renewal or its holder."""
    failed_extensions: int
    """How often a round that was to prolong one failed."""
    renewal_slack: Histogram
    """The part of the validity that was left when a renewal was proved, from 0.0 to 1.0."""
    losses: dict[str, int]
    """Leases lost, by reason: `expired`, `gone`, `held-too-long`."""
    releases: dict[str, int]
    """Leases given back, by outcome: `released`, `expired`, `taken`, `unknown`, `abandoned`."""
    nodes: tuple[NodeStats, ...]
    """The nodes, in the order given."""


def stats_of(values: dict[str, Any]) -> Stats:
    """The figures, from the core's values."""
    return Stats(**{name: _made(name, value) for name, value in values.items()})


def _made(name: str, value: Any) -> Any:
    if name == "nodes":
        return tuple(
            NodeStats(**{field: _made(field, it) for field, it in node.items()}) for node in value
        )
    return Histogram(**value) if isinstance(value, dict) and "bounds" in value else value
