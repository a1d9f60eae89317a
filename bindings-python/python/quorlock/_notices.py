"""Logs notices with Python's logging when they come, and tells events. Owns the thread for it.

That is a thread of its own, or the greenlets' hub: never a thread that waits for a lock, and no
thread once the interpreter ends.
"""

from __future__ import annotations

import os
import re
import threading
import time
from typing import NamedTuple

from ._ends import see_out
from ._events import tell_events
from ._hubs import router_of_hub
from ._native import listen as native_listen
from ._native import report, take_notices
from ._router import Dispatcher, log


def listen() -> None:
    """Start logging notices. Must be called once, while an operation is under way.

    Called from Python: a thread of native code must not run Python code, which may be stopped at
    any step when the interpreter ends.
    """
    with _starting:
        if has_listener[0]:
            return
        try:
            hub = router_of_hub()
            if hub is None:
                see_out()
            router = hub or Dispatcher("quorlock-notices")
            native_listen(router.queue, router.stand_by(tell))
        except RuntimeError:
            pass  # the interpreter ends: it starts no thread any more
        has_listener[0] = True


def tell() -> None:
    """Log the notices that came since the last call, as warnings, and tell the events.

    An error in logging stops nothing.
    """
    for text, name, node in take_notices():
        if _is_news(name, text, node):
            warn(name, text, node)
    tell_events()


def _is_news(name: str, text: str, node: str | None) -> bool:
    """Whether no other manager of the process has seen the same of a node's state a moment ago."""
    if name not in _OF_NODES:
        return True
    # A node that was down and is up is down anew.
    opposite = {"node-down": "node-up", "node-up": "node-down"}.get(name)
    _told.pop((node, opposite), None)
    now, before = time.monotonic(), _told.get((node, name))
    seen = _Seen(_TIMES.sub("", text), now, _end(text, now) if name in _HELD_BACK else 0.0)
    if before is not None and _is_same(name, before, seen):
        # Managers that follow each other closely see one event.
        _told[node, name] = before if name in _SETTINGS else before._replace(at=now)
        return False
    if len(_told) >= _MOST_TOLD:
        _told.clear()
    _told[node, name] = seen
    return True


class _Seen(NamedTuple):
    """What was seen of a node."""

    without_times: str
    at: float
    ends: float
    """Until when the node is held back; 0 if it is not."""


def _is_same(name: str, before: _Seen, seen: _Seen) -> bool:
    lasting = _LASTING if name in _SETTINGS else _SAME_EVENT
    return (
        seen.without_times == before.without_times
        and seen.at - before.at < lasting
        # One that is held back for longer was restarted meanwhile.
        and seen.ends - before.ends < _SAME_EVENT
    )


def _end(text: str, now: float) -> float:
    """When the last time is over that a text names; 0 if it names none."""
    times: list[str] = _TIMES.findall(text)
    if not times:
        return 0.0
    number, unit = times[-1].split()
    return now + float(number) / (1000 if unit == "ms" else 1)


def warn(name: str, text: str, node: str | None = None) -> None:
    """Log one warning."""
    try:
        log.warning(text, extra={"notice": name, "node": node})
    except BaseException as error:  # noqa: BLE001 - of the user's filters and handlers
        report(error)


def _renew() -> None:
    """In a forked child a thread that does not exist there may hold the mutex, and none listens."""
    global _starting
    _starting = threading.Lock()
    has_listener[0] = False
    _told.clear()


#: Whether a thread listens in this process. A list, so that others can read its current value.
has_listener = [False]
_starting = threading.Lock()
# : What tells how a server is set up.
_SETTINGS = frozenset({"may-evict", "no-push"})
# : What tells of the state of a node, which every manager that uses it sees.
_OF_NODES = frozenset({"node-down", "node-up", "quarantined", "long-wait"} | _SETTINGS)
# : What tells for how long a node is held back.
_HELD_BACK = frozenset({"quarantined", "long-wait"})
#: Times, as the core writes them.
_TIMES = re.compile(r"\d+(?:\.\d+ s| ms)\b")
# : What was told last by node and notice, and when it was seen last.
_told: dict[tuple[str | None, str | None], _Seen] = {}
# : How far apart managers see the same event at most, in seconds.
_SAME_EVENT = 5.0
# : How often it is told how a server is set up, in seconds.
_LASTING = 3600.0
_MOST_TOLD = 1000
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
