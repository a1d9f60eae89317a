"""Carries completions from the engine's queues to Python code.

Owns the routing and the threads that call back.

The engine's thread never touches Python: it posts a number to a queue. An event loop, a gevent hub
or a daemon thread empties the queue. There is one such thread for the callbacks of blocking code,
started when the first is registered, one for notices (see `_notices`) and one for events (see
`_events`).
"""

from __future__ import annotations

import atexit
import itertools
import logging
import os
import threading
import time
import weakref
from typing import TYPE_CHECKING, Callable

from ._native import CompletionQueue, Operations, end_operations, generation, report

if TYPE_CHECKING:
    from ._errors import LeaseLost
    from ._native import LeaseState, Operation

log = logging.getLogger("quorlock")


def log_failure(text: str) -> None:
    """Log the error that is being handled. One in logging itself stops nothing."""
    try:
        log.exception(text)  # noqa: LOG004 - its callers handle one
    except BaseException as error:  # noqa: BLE001 - of the user's filters and handlers
        report(error)


class Watch:
    """A callback for the loss of a lease. The lease keeps it, so both are dropped together."""

    __slots__ = ("__weakref__", "callback")

    def __init__(self, callback: Callable[[LeaseLost], object]) -> None:
        self.callback = callback


class CompletionRouter:
    """A queue of completions, and which code waits for each number in it."""

    def __init__(self, *, with_fd: bool) -> None:
        self.queue = CompletionQueue(with_fd=with_fd)
        self.generation = generation()
        self._ids = itertools.count(1)
        self._expected: dict[int, Callable[[], object]] = {}
        self._standing: dict[int, Callable[[], object]] = {}
        self._watches: weakref.WeakValueDictionary[int, Watch] = weakref.WeakValueDictionary()

    def expect(self, operation: Operation, then: Callable[[], object]) -> int:
        """Call `then` when the operation has ended; returns the number for `forget`."""
        number = next(self._ids)
        self._expected[number] = then
        operation.announce(self.queue, number)
        return number

    def forget(self, number: int) -> None:
        """Do not call back for this any more."""
        self._expected.pop(number, None)

    def stand_by(self, callback: Callable[[], object]) -> int:
        """Call back each time that the returned number is posted."""
        number = next(self._ids)
        self._standing[number] = self.allowed_to_wait(callback)
        return number

    def allowed_to_wait(self, callback: Callable[..., object]) -> Callable[..., object]:
        """The callback in a form that is allowed to wait: as it is, where a thread runs it."""
        return callback

    def watch(self, lease: LeaseState, watch: Watch) -> Watch:
        """Call back when the lease is lost, as long as the watch is kept."""
        watch.callback = self.allowed_to_wait(watch.callback)
        number = next(self._ids)
        self._watches[number] = watch
        lease.watch(self.queue, number)
        return watch

    def deliver(self) -> None:
        """Call back for everything that was posted. Does not wait."""
        self._route(self.queue.take())

    def _route(self, completions: list[tuple[int, LeaseLost | None]]) -> None:
        for number, loss in completions:
            if loss is None:
                self._tell(self._expected.pop(number, None) or self._standing.get(number))
            else:
                watch = self._watches.pop(number, None)
                self._tell(None if watch is None else watch.callback, loss)

    @staticmethod
    def _tell(callback: Callable[..., object] | None, *arguments: object) -> None:
        if callback is None:
            return
        try:
            callback(*arguments)
        except Exception:  # noqa: BLE001 - it is logged
            log_failure("a callback of a lock failed")


class WaitingRouter(CompletionRouter):
    """The router of an event loop or a hub, in which tasks or greenlets wait."""

    def __init__(self) -> None:
        super().__init__(with_fd=True)
        self.operations = Operations(self.queue)

    def end(self) -> None:
        """The loop or hub has ended: cancel what is under way for it, and close the descriptor."""
        self.operations.end()


class Dispatcher(CompletionRouter):
    """Calls back on a thread of its own, which does not delay the end of the interpreter."""

    def __init__(self, name: str) -> None:
        super().__init__(with_fd=False)
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)
        with _starting:
            if _is_finished:
                self.close()  # a thread that begins while the interpreter ends may crash it
                return
            self.thread.start()
            _dispatchers.append(self)

    def close(self) -> None:
        """End the thread once it has called back for everything that was posted so far."""
        self.queue.close()

    @staticmethod
    def _tell(callback: Callable[..., object] | None, *arguments: object) -> None:
        try:
            CompletionRouter._tell(callback, *arguments)
        except BaseException:  # noqa: BLE001 - whatever it raises, the thread goes on
            log_failure("a callback of a lock failed")

    def _run(self) -> None:
        while (completions := self.queue.wait()) is not None:
            self._route(completions)


def dispatcher() -> Dispatcher:
    """The dispatcher of this process for callbacks; a forked child gets its own."""
    global _callbacks
    with _starting:
        if _callbacks is None or _callbacks.generation != generation():
            _callbacks = Dispatcher("quorlock-callbacks")
        return _callbacks


def threads() -> list[threading.Thread]:
    """The threads of this process that call back."""
    return [it.thread for it in _dispatchers if it.generation == generation()]


def finish() -> None:
    """End those threads, and give withdrawals under way a moment to be sent."""
    global _is_finished
    with _starting:
        _is_finished = True
    ours = [it for it in _dispatchers if it.generation == generation()]
    until = time.monotonic() + _CALLBACK_GRACE
    for it in ours:  # the oldest first: the thread of the notices hands events to a later one
        it.close()
        if it.thread is not threading.current_thread():
            it.thread.join(max(0.0, until - time.monotonic()))
    end_operations()


def _renew() -> None:
    """In a forked child a thread that does not exist there may hold the mutex."""
    global _starting
    _starting = threading.RLock()
    _dispatchers.clear()


_callbacks: Dispatcher | None = None
_dispatchers: list[Dispatcher] = []
_starting = threading.RLock()
_is_finished = False
_CALLBACK_GRACE = 0.1  # seconds
atexit.register(finish)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
