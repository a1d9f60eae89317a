"""Which lease belongs to whom, when threads or tasks share one lock object. No I/O.

An acquisition belongs to the task, greenlet or thread that made it. A lock taken in one thread may
be released in another, as with `threading.Lock`; but whoever has acquired through the object and
released may not release again what somebody else is at work under.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import weakref
from typing import Any, Generic, TypeVar

from ._greenlets import current_greenlet
from ._native import LeaseState

L = TypeVar("L", bound=LeaseState)


class Hold(Generic[L]):
    """One acquisition."""

    __slots__ = ("context", "is_block", "lease")

    def __init__(self, context: object, lease: L, is_block: bool) -> None:
        self.context = context
        self.lease = lease
        self.is_block = is_block


class Holdings(Generic[L]):
    """The leases acquired through one lock object and not given back through it."""

    __slots__ = ("_holds", "_seen")

    def __init__(self) -> None:
        # Appended to, removed from and copied, each in one step: threads need no guard here. Never
        # walked through as it is: who walks misses one when another thread removes one before it.
        self._holds: list[Hold[L]] = []
        self._seen: weakref.WeakSet[Any] = weakref.WeakSet()

    def add(self, lease: L, *, is_block: bool) -> None:
        """Note a lease of the current context."""
        context = current_context()
        for hold in self._mine(context):
            if not hold.is_block and not hold.lease.is_valid:
                self._remove(hold)
        self._seen.add(context)
        self._holds.append(Hold(context, lease, is_block))

    def discard(self, lease: L) -> None:
        """Forget a lease, if it is noted."""
        for hold in self._holds.copy():
            if hold.lease is lease:
                self._remove(hold)

    def leave_block(self, taken: list[L]) -> None:
        """Take out the lease of the innermost block of the current context, into `taken`."""
        mine = [hold for hold in self._mine(current_context()) if hold.is_block]
        # A generator may be entered by one thread and left by another.
        hold = _last(mine) or _last([hold for hold in self._holds.copy() if hold.is_block])
        if hold is not None:
            # Before it is forgotten here: whoever is interrupted in between still knows of it.
            taken.append(hold.lease)
            self._remove(hold)

    def release(self) -> L | None:
        """The lease that `release()` means. It is taken out, unless its block still runs."""
        context = current_context()
        alive = [hold for hold in self._holds.copy() if not hold.lease.is_released]
        hold = _last([hold for hold in alive if hold.context is context])
        if hold is None:
            stranger = context not in self._seen
            hold = _last([hold for hold in alive if stranger or _is_over(hold.context)])
        if hold is None:
            return None
        try:
            if not hold.is_block:
                self._remove(hold)
        except BaseException:
            # Ctrl-C can come in between: nobody else would give it back.
            hold.lease.withdraw()
            raise
        return hold.lease

    def current(self) -> L | None:
        """The current context's latest lease, or else the latest."""
        alive = [hold for hold in self._holds.copy() if not hold.lease.is_released]
        context = current_context()
        hold = _last([hold for hold in alive if hold.context is context]) or _last(alive)
        return None if hold is None else hold.lease

    def _mine(self, context: object) -> list[Hold[L]]:
        return [hold for hold in self._holds.copy() if hold.context is context]

    def _remove(self, hold: Hold[L]) -> None:
        with contextlib.suppress(ValueError):  # another thread was faster
            self._holds.remove(hold)


def current_context() -> Any:
    """What runs now: a task, a greenlet or a thread."""
    asyncio = sys.modules.get("asyncio")
    running = getattr(asyncio, "_get_running_loop", None)
    if asyncio is not None and running is not None and (loop := running()) is not None:
        task = asyncio.current_task(loop)
        if task is not None:
            return task
    return current_greenlet() or threading.current_thread()


def _is_over(context: Any) -> bool:
    """Whether the task, greenlet or thread has ended (as the one that `wait_for` makes)."""
    if isinstance(context, threading.Thread):
        return not context.is_alive()
    return bool(context.done() if hasattr(context, "done") else context.dead)


def _last(holds: list[Hold[L]]) -> Hold[L] | None:
    return holds[-1] if holds else None
