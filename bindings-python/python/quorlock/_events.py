"""Tells events: to `on_event` callbacks, and to logging. Owns who is told, and by which thread.

Callbacks have another thread than what logs, or a greenlet: a slow one delays no warning.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
import os
import threading
import weakref
from collections import deque
from importlib import import_module
from typing import TYPE_CHECKING, Any, Callable

from ._errors import ConfigTypeError
from ._hubs import current_caller, router_of_hub
from ._native import report, take_events, wake_listener
from ._router import CompletionRouter, Dispatcher, log, log_failure

if TYPE_CHECKING:
    from ._native import Manager, Plan
    from .events import Event

    # : The manager's number, the name, the time, the text and the fields of an event.
    _Told = tuple[int, str, float, str, dict[str, Any]]

# : By the manager's number those that were not finalized.
_sources: dict[int, weakref.ref[EventSource]] = {}
# : By the manager's number those that nobody else keeps, until their last events were taken.
_leaving: dict[int, EventSource] = {}
# : What to call when the events up to now are told.
_asking: deque[Callable[[], object]] = deque()


class EventSource:
    """Who is told the events of one manager."""

    def __init__(self, manager: Manager, callback: Any) -> None:
        self._manager = manager
        self._callbacks: list[Callable[[Event], object]] = []
        _sources[manager.number] = weakref.ref(self)
        if callback is not None:
            if not callable(callback):
                raise ConfigTypeError(f"on_event must be callable, not {type(callback).__name__}")
            call = getattr(callback, "__call__", None)  # noqa: B004 - it may be async
            if any(is_other(it) for is_other in _OTHERS for it in (callback, call)):
                raise ConfigTypeError("on_event must be a function that is not async, nor yields")
            self.add(callback)

    # What it uses is bound here: while the interpreter ends, a module may be empty.
    def __del__(
        self,
        sources: dict[int, weakref.ref[EventSource]] = _sources,
        leaving: dict[int, EventSource] = _leaving,
        wake: Callable[[], bool | None] = wake_listener,
    ) -> None:
        """Stay until the events that were handed over by now are told."""
        number = self._manager.number
        if self._callbacks:
            leaving[number] = self
        sources.pop(number, None)
        if self._callbacks and wake() is None:
            leaving.pop(number, None)

    def add(self, callback: Callable[[Event], object], *, first: bool = False) -> None:
        """Call back with every event from now on, before all others if this is to be the first."""
        # Not by the thread that tells, which may have little time at the end of the process.
        import_module(".events", __package__)
        with _changing:
            callbacks = [callback, *self._callbacks] if first else [*self._callbacks, callback]
            self._change(callbacks)

    def remove(self, callback: Callable[[Event], object]) -> None:
        """Do not call this back any more."""
        with _changing:
            self._change([it for it in self._callbacks if it != callback])

    def _change(self, callbacks: list[Callable[[Event], object]]) -> None:
        self._callbacks = callbacks
        self._manager.hear_for_callbacks(bool(callbacks))

    def has_listeners(self) -> bool:
        """Whether there is anyone to call back."""
        return bool(self._callbacks)

    def call_when_told(self, then: Callable[[], object]) -> bool:
        """Call `then` once the callbacks were called with all events up to now.

        Not if there are none, nor in one of them: nothing else is told before it returns.
        """
        if not self._callbacks or is_telling():
            return False
        _asking.append(then)
        if wake_listener() is True:
            return True
        with contextlib.suppress(ValueError):  # it was taken
            _asking.remove(then)
        return False

    def tell(self, event: Event) -> None:
        """Call back. What a callback raises is logged, and stops nothing."""
        for callback in self._callbacks:
            _call(callback, event)


def _call(callback: Callable[[Event], object], event: Event) -> None:
    try:
        callback(event)
    except BaseException:  # noqa: BLE001 - whatever a callback raises, other callbacks are told
        log_failure("an on_event callback failed")


class _Teller:
    """Calls back with the events of this process, one after another."""

    def __init__(self) -> None:
        # : What to call: `tell` of a source with an event, or without one who waits for the rest.
        self._waiting: deque[tuple[Callable[..., object], Event | None]] = deque()
        self._router: CompletionRouter | None = None
        self._number = 0
        self._is_woken = self._is_telling = False
        # : The thread or greenlet that calls back now.
        self.caller: object = None
        # : Events that were dropped, and how many of them the log was told.
        self._dropped = self._said = 0

    def add(self, source: EventSource, event: Event) -> None:
        """Have it told; if callbacks are slower than the locks, the oldest ones are dropped."""
        if len(self._waiting) >= _MOST_WAITING:
            self._drop_oldest()
        self._put(source.tell, event)

    def add_end(self, then: Callable[[], object]) -> None:
        """Have `then` called once everything that was added is told."""
        self._put(then, None)

    def _put(self, call: Callable[..., object], event: Event | None) -> None:
        self._waiting.append((call, event))
        if not self._is_woken:
            self._is_woken = True
            self._wake()

    def _wake(self) -> None:
        if self._router is None:
            self._router = router_of_hub() or _dispatcher()
            if self._router is None:
                self._tell()  # on the thread of the notices, which is seen to its end
                return
            self._number = self._router.stand_by(self._tell)
        self._router.queue.post(self._number)

    def _drop_oldest(self) -> None:
        call, event = self._waiting.popleft()
        if event is None:
            call()
        else:
            self.drop(1)

    def drop(self, count: int) -> None:
        """Count events that nobody is told, and say so once."""
        if count and self._dropped == self._said:
            text = "on_event callbacks are too slow: %d events wait, so older ones are dropped"
            _warn_of_drops(text, _MOST_WAITING)
        self._dropped += count

    def _tell(self) -> None:
        self._is_woken = False
        if self._is_telling:
            return  # another greenlet goes on
        self._is_telling = True
        self.caller = current_caller()
        try:
            while self._waiting:
                call, event = self._waiting.popleft()
                call() if event is None else call(event)
        finally:
            self._is_telling = False
            self.caller = None
        if dropped := self._dropped - self._said:
            self._said += dropped
            text = "on_event callbacks have caught up: %d events were dropped"
            _warn_of_drops(text, dropped)


def _warn_of_drops(text: str, count: int) -> None:
    try:
        log.warning(text, count, extra={"notice": "events-dropped"})
    except BaseException as error:  # noqa: BLE001 - of the user's filters and handlers
        report(error)


def _dispatcher() -> Dispatcher | None:
    """A new thread; none once the interpreter ends."""
    try:
        dispatcher = Dispatcher("quorlock-events")
    except RuntimeError:
        return None
    return dispatcher if dispatcher.thread.is_alive() else None


def tell_events() -> None:
    """Log the events that came since the last call, and have them told."""
    # The events of these are among those that are taken now.
    leaving, asking = list(_leaving), [_asking.popleft() for _ in range(len(_asking))]
    told, dropped = take_events()
    _teller.drop(dropped)
    delayed = _delayed.copy()
    _delayed.clear()
    for event in delayed:
        _hand_over(event)
    for event in told:
        _log(event[1], event[3])
        _hand_over(event)
    for then in asking:
        _teller.add_end(then)
    for number in leaving:
        _leaving.pop(number, None)


def _hand_over(event: _Told) -> None:
    number, name, at, _, values = event
    known = _sources.get(number)
    source = _leaving.get(number) if known is None else known()
    if source is not None and source.has_listeners():
        from .events import _made  # here, so that importing quorlock stays quick

        _teller.add(source, _made(name, at, values))
    elif source is None and known is not None:
        _delayed.append(event)  # its `__del__` comes next, and wakes this thread


def is_telling() -> bool:
    """Whether this thread or greenlet calls back now: nothing else is told before it returns."""
    return _teller.caller == current_caller()


def hear_for_log(plan: Plan) -> None:
    """Let every event be told while the logger writes them down, and no longer."""
    plan.hear_for_log(log.isEnabledFor(logging.DEBUG))


def _log(name: str, text: str) -> None:
    level = logging.WARNING if name == "lost" else logging.DEBUG
    try:
        if log.isEnabledFor(level):
            log.log(level, text, extra={"event": name})
    except BaseException as error:  # noqa: BLE001 - of the user's filters and handlers
        report(error)


# : Taken, but the garbage collector finalizes the source just now.
_delayed: list[_Told] = []
_teller = _Teller()
# : Guards who is told. It may be taken again, by a signal handler.
_changing = threading.RLock()
_MOST_WAITING = 16_384
# : Kinds of functions whose body a call alone does not run.
_OTHERS: tuple[Callable[[Any], bool], ...] = (
    inspect.iscoroutinefunction,
    inspect.isgeneratorfunction,
    inspect.isasyncgenfunction,
)


def _renew() -> None:
    """In a forked child no other thread exists, and the events are its parent's."""
    global _teller, _changing
    _teller = _Teller()
    _changing = threading.RLock()
    _leaving.clear()
    _asking.clear()
    _delayed.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
