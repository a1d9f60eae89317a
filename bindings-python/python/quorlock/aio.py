"""The same lock for asyncio: what users import. Owns only the list of names.

Nothing here is bound to an event loop when it is created: module-level objects, several loops in
several threads, and uvloop all work. While a loop is blocked, its leases are still renewed.
"""

from __future__ import annotations

from ._async import Lease, Lock, Redlock
from ._errors import (
    ConfigError,
    ConfigTypeError,
    LeaseLost,
    LockCancelled,
    LockError,
    LockNotAcquired,
    LockNotHeld,
    LocksClosed,
    LockTimeout,
    QuorumUnreachable,
    Vote,
)
from ._module import configure, redlock
from ._nodes import Node
from ._options import LockOptions, ManagerOptions
from ._owner import Holder
from ._sequencer import Sequencer
from ._stats import Histogram, NodeStats, Stats

__all__ = [
    "ConfigError",
    "ConfigTypeError",
    "Histogram",
    "Holder",
    "Lease",
    "LeaseLost",
    "Lock",
    "LockCancelled",
    "LockError",
    "LockNotAcquired",
    "LockNotHeld",
    "LockOptions",
    "LockTimeout",
    "LocksClosed",
    "ManagerOptions",
    "Node",
    "NodeStats",
    "QuorumUnreachable",
    "Redlock",
    "Sequencer",
    "Stats",
    "Vote",
    "configure",
    "redlock",
]

# As in `quorlock`.
for _type in (Lease, Lock, Redlock):
    _type.__module__ = __name__
