"""From the engine's mailboxes to Python code. Owns the routing and the one thread that calls back.

The engine's thread never touches Python: it posts a number. Whoever waits for it empties the
mailbox: an event loop, a gevent hub, or (for callbacks of blocking code) one daemon thread that is
started when the first callback is registered.
"""

from __future__ import annotations

import atexit
import itertools
import logging
import os
import threading
import weakref
from typing import TYPE_CHECKING, Callable

from ._native import Mailbox, drain, generation

if TYPE_CHECKING:
    from ._errors import LeaseLost
    from ._native import LeaseState, Operation

log = logging.getLogger("quorlock")


class Watch:
    """A callback for the loss of a lease. The lease keeps it: it goes when the lease goes."""

    __slots__ = ("__weakref__", "callback")

    def __init__(self, callback: Callable[[LeaseLost], object]) -> None:
        self.callback = callback


class Post:
    """A mailbox and who waits for what is posted there."""

    def __init__(self, *, bell: bool) -> None:
        self.mailbox = Mailbox(bell=bell)
        self.generation = generation()
        self._ids = itertools.count(1)
        self._expected: dict[int, Callable[[], object]] = {}
        self._watches: weakref.WeakValueDictionary[int, Watch] = weakref.WeakValueDictionary()

    def expect(self, operation: Operation, then: Callable[[], object]) -> int:
        """Call `then` when the operation has ended; returns what `forget` takes."""
        number = next(self._ids)
        self._expected[number] = then
        operation.announce(self.mailbox, number)
        return number

    def forget(self, number: int) -> None:
        """Do not call back for this any more."""
        self._expected.pop(number, None)

    def watch(self, lease: LeaseState, watch: Watch) -> Watch:
        """Call back when the lease is lost, as long as the watch is kept."""
        number = next(self._ids)
        self._watches[number] = watch
        lease.watch(self.mailbox, number)
        return watch

    def deliver(self) -> None:
        """Call back for everything that was posted. Does not wait."""
        self._route(self.mailbox.take())

    def _route(self, posts: list[tuple[int, LeaseLost | None]]) -> None:
        for number, loss in posts:
            if loss is None:
                self._tell(self._expected.pop(number, None))
            else:
                watch = self._watches.pop(number, None)
                self._tell(None if watch is None else watch.callback, loss)

    @staticmethod
    def _tell(callback: Callable[..., object] | None, *arguments: object) -> None:
        if callback is None:
            return
        try:
            callback(*arguments)
        except Exception:
            log.exception("a callback of a lock failed")


class Dispatcher(Post):
    """Calls back on a thread of its own, which the end of the interpreter does not wait for."""

    def __init__(self) -> None:
        super().__init__(bell=False)
        self._thread = threading.Thread(target=self._run, name="quorlock-callbacks", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread, unless a callback keeps it."""
        self.mailbox.close()
        if self._thread is not threading.current_thread():
            self._thread.join(_CALLBACK_GRACE)

    def _run(self) -> None:
        while (posts := self.mailbox.wait()) is not None:
            self._route(posts)


def dispatcher() -> Dispatcher:
    """The dispatcher of this process; a forked child gets its own."""
    global _dispatcher
    with _starting:
        if _dispatcher is None or _dispatcher.generation != generation():
            _dispatcher = Dispatcher()
        return _dispatcher


def _finish() -> None:
    """Lets the callbacks' thread go and gives withdrawals under way a moment to get out."""
    if _dispatcher is not None and _dispatcher.generation == generation():
        _dispatcher.close()
    drain(_WITHDRAWAL_GRACE)


def _renew_guard() -> None:
    """In a forked child the guard may be held by a thread that is not there."""
    global _starting
    _starting = threading.Lock()


_dispatcher: Dispatcher | None = None
_starting = threading.Lock()
_CALLBACK_GRACE = 0.1  # seconds
_WITHDRAWAL_GRACE = 0.1  # seconds
atexit.register(_finish)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_guard)
