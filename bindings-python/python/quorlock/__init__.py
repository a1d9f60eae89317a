"""A distributed lock over independent Redis or Valkey masters (Redlock), with a Rust core.

    from quorlock import Redlock

    locks = Redlock(["redis://a:6379", "redis://b:6379", "redis://c:6379"])
    with locks.lock("invoice:42", ttl=10) as lease:
        ...  # nobody else is here; the lease is renewed until the block ends

`quorlock.aio` has the same names for asyncio.
"""

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
from ._native import __version__
from ._nodes import Node
from ._options import LockOptions, ManagerOptions
from ._owner import Holder
from ._sequencer import Sequencer
from ._stats import Histogram, NodeStats, Stats
from ._sync import Lease, Lock, Redlock

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
    "__version__",
    "configure",
    "redlock",
]

# Tracebacks and documentation show where users import these from.
for _name in __all__:
    _item = globals()[_name]
    if isinstance(_item, type):
        _item.__module__ = __name__
