"""The options of a lock in Python.

Owns those that only Python has; the others come from the core.
"""

from __future__ import annotations

import difflib
import inspect
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Callable, Literal, NamedTuple, Optional, TypedDict, Union

from ._errors import ConfigError, ConfigTypeError, LeaseLost
from ._native import OPTIONS

if TYPE_CHECKING:
    from ._clients import Clients

OnLost = Callable[..., object]
OnEvent = Callable[..., object]
#: A length of time; `None` stands for the default.
Seconds = Union[float, timedelta, None]


class Settings(TypedDict, total=False):
    """How a lock is acquired and kept, beside its ttl."""

    timeout: Seconds
    """How long to wait for it. Default: until it is held. 0 tries once."""
    blocking: Optional[bool]
    """Whether to wait at all. Default yes; otherwise one round decides."""
    auto_extend: Optional[bool]
    """Whether the lease is renewed until it is released. Default: in blocks and decorators yes,
    for a bare `acquire()` no."""
    max_hold: Seconds
    """For how long it is renewed at the most. Default 24 hours."""
    lock_delay: Seconds
    """How much longer than the ttl the nodes keep a lock that is lost instead of released, or whose
    process died: for work that goes on after the end of its lease. Default 0 s. A release (a block
    releases at its end) gives the lock to others at once, even after a loss."""
    min_hold: Seconds
    """How long the lock is kept from others, at least, from its acquisition on, however soon it is
    released: for a job that several machines begin by clocks that differ. Default 0 s. It binds
    releases alone, so let the lease be renewed if its ttl is shorter."""
    on_lost: Optional[OnLost]
    """Called with the `LeaseLost` when the lease is lost: from a thread of this package, or from
    the event loop. A callable that takes no argument is called without."""
    raise_on_lost: Optional[bool]
    """Whether a loss raises `LeaseLost` at the end of the block (with asyncio: at once) and from
    `release()`. Default yes."""
    drift_factor: Optional[float]
    """The part of the ttl given away for clocks that run at different rates. Default 0.01."""
    node_timeout: Seconds
    """How long one node may take to answer. Default: a fiftieth of the ttl, 50 to 250 ms."""
    retry_limit: Optional[int]
    """How many rounds may follow the first. Default: no limit."""
    retry_delay: Seconds
    """The mean delay between two rounds. Default 0.1 s."""
    retry_jitter: Seconds
    """How much shorter or longer than the mean a delay may be. Default 0.05 s."""
    unreachable_timeout: Seconds
    """How long to go on without a quorum where the wait has no other limit. Default 3 s."""
    wait: Optional[Literal["push", "poll"]]
    """How a caller that waits learns that the lock is free. Default `push`: it takes a place in a
    queue on every node, over a connection of its own, and the nodes call it when its turn comes;
    a node that cannot do that is asked again after each delay. `poll`: all nodes are asked again
    after each delay, and no place is taken."""
    fair: Optional[bool]
    """Whether callers get the lock in the order in which they came, over all processes and
    languages. Default: no; then one that has just come may get it before others that wait. It
    holds among callers with `fair=True`, needs one more round trip where the lock is free, and is
    for one resource and `wait="push"`."""
    on_unreachable: Optional[Literal["raise", "proceed"]]
    """What becomes of an acquisition that can reach no quorum. Default `raise`. With `proceed` the
    work goes on **without the lock**, under a lease that is `degraded` and has no token: only for
    locks that save work and protect nothing."""
    fencing: Optional[bool]
    """Whether acquisitions get a fencing token. Default yes."""
    fence_retention: Seconds
    """How long the nodes remember fencing tokens once no client is connected. Default 120 s; what
    is below 30 s counts as 30 s. Raise it where the nodes' clocks may differ by over a minute."""


class LockOptions(Settings, total=False):
    """How a lock is acquired and kept. Times are in seconds; `None` stands for the default."""

    ttl: Seconds
    """How long the nodes keep the lock unless it is extended. Default 10 s."""


class ManagerOptions(LockOptions, total=False):
    """What the locks of a manager start from, and how it guards against nodes that forget.

    Times are in seconds; `None` stands for the default. The guards are the same for all locks of a
    manager.
    """

    restart_guard: Optional[Literal["auto", "strict", "off"]]
    """What is done about nodes that may have forgotten locks. Default `auto`: their votes do not
    count until every lock that they may have forgotten is over; a cluster in which no node has a
    history is used at once, and a single node always. `strict`: without these exceptions."""
    clock_guard: Optional[bool]
    """Whether a node whose clock was set forward is held back as if it had forgotten. Default yes;
    it does nothing with one node."""
    max_ttl: Seconds
    """The longest that a lock may keep its keys: ttl and `lock_delay` together, or `min_hold`. A
    longer one is refused. A node that may have forgotten locks is held back for that time.
    Default: no limit; then the longest counts that this manager has asked for or that others have
    noted on the nodes. The same for all who use the nodes."""

    owner: Optional[dict[str, str]]
    """Lets others see who holds these locks: your words (such as `service`), beside the host and
    the process id; 4 KiB at most. `Lock.holder()` shows it, and so do the errors of refused locks
    of managers that have an owner themselves. Default: nothing is told."""
    on_event: Optional[OnEvent]
    """Called with every event of these locks and nodes, see `quorlock.events`: from a thread of
    this package, one after another."""


class Behaviour(NamedTuple):
    """The options that the core does not know."""

    blocking: bool
    raise_on_lost: bool
    on_lost: Optional[OnLost]
    #: The clients among the nodes, which may begin to use other keys.
    clients: Optional[Clients] = None


def split(options: dict[str, Any]) -> tuple[dict[str, Any], Behaviour]:
    """Divide the options into those for the core and Python's own."""
    core = {}
    own: dict[str, Any] = dict.fromkeys(_OWN)
    for name, value in options.items():
        if name in own:
            own[name] = value
        elif name in OPTIONS:
            core[name] = value
        else:
            raise ConfigTypeError(_unknown(name))
    blocking = _flag("blocking", own["blocking"])
    if not blocking and core.get("timeout") is not None:
        raise ConfigError("a lock with blocking=False does not wait: it takes no timeout")
    on_lost = own["on_lost"]
    if on_lost is not None and not callable(on_lost):
        raise ConfigTypeError(f"on_lost must be callable, not {type(on_lost).__name__}")
    raise_on_lost = _flag("raise_on_lost", own["raise_on_lost"])
    if blocking and raise_on_lost and on_lost is None:
        return core, USUAL
    return core, Behaviour(blocking, raise_on_lost, on_lost)


def check_wait(blocking: object, timeout: object) -> None:
    """Refuse what `threading.Lock.acquire` refuses, with its exceptions."""
    if not isinstance(blocking, (bool, int)):
        raise ConfigTypeError(f"blocking must be True or False, not {blocking!r}")
    if not blocking and timeout not in (-1, None):
        raise ConfigError("acquire(blocking=False) does not wait: it takes no timeout")


def telling(callback: OnLost) -> Callable[[LeaseLost], object]:
    """Wrap the callback so that it can be called with the error even if it takes no argument."""
    try:
        inspect.signature(callback).bind(None)
    except TypeError:
        return lambda _loss: callback()
    except (ValueError, SystemError):
        # A builtin that does not tell; Python 3.11 fails there when many threads ask at once.
        pass
    return callback


def _flag(name: str, value: object) -> bool:
    if value is None:
        return True
    if not isinstance(value, bool):
        raise ConfigTypeError(f"{name} must be True or False, not {value!r}")
    return value


def _unknown(name: str) -> str:
    names = {*OPTIONS, *OWN}
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean '{near[0]}'?" if near else f"the options are {', '.join(sorted(names))}"
    return f"there is no option '{name}'; {hint}"


# : The behaviour of most locks, recognised by identity.
USUAL = Behaviour(blocking=True, raise_on_lost=True, on_lost=None)
# : Options that only Python has, or whose default differs here: the default and the meaning.
OWN: dict[str, tuple[object, str]] = {
    "blocking": (True, "whether to wait at all; otherwise one round decides"),
    "auto_extend": (
        None,
        "whether leases are renewed until released; in blocks yes, for a bare acquire() no",
    ),
    "on_lost": (None, "called with the LeaseLost when a lease is lost"),
    "raise_on_lost": (True, "whether a loss raises LeaseLost at the end of the block"),
    "owner": (None, "what others are told of who holds these locks"),
    "on_event": (None, "called with every event of the locks and nodes of a manager"),
}
_OWN = ("blocking", "raise_on_lost", "on_lost")
# : Options that only a manager takes, and that no lock inherits.
MANAGERS_OWN = ("on_event", "owner")
