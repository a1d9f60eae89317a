"""Tells events: to `on_event` callbacks, and to logging. Owns who is told, and by which thread.

Callbacks have another thread than what logs, or a greenlet: a slow one delays no warning.
"""

from __future__ import annotations

import inspect
import logging
import os
import threading
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, Callable

from ._errors import ConfigTypeError
from ._hubs import router_of_hub
from ._native import report, take_events
from ._router import CompletionRouter, Dispatcher, log, log_failure

if TYPE_CHECKING:
    from ._native import Manager, Plan
    from .events import Event


class EventSource:
    """Who is told the events of one manager."""

    def __init__(self, manager: Manager, callback: Any) -> None:
        self._manager = manager
        self._callbacks: list[Callable[[Event], object]] = []
        _sources[manager.number] = self
        if callback is not None:
            if not callable(callback):
                raise ConfigTypeError(f"on_event must be callable, not {type(callback).__name__}")
            if inspect.iscoroutinefunction(callback):
                raise ConfigTypeError("on_event must be a function that is not async")
            self.add(callback)

    def add(self, callback: Callable[[Event], object], *, first: bool = False) -> None:
        """Call back with every event from now on, before all others if this is to be the first."""
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
        self._waiting: deque[tuple[EventSource, Event]] = deque()
        self._router: CompletionRouter | None = None
        self._number = 0
        self._is_woken = self._is_telling = False
        # : The thread that calls back now.
        self.thread: int | None = None
        # : Events that were dropped, and how many of them the log was told.
        self._dropped = self._said = 0

    def add(self, source: EventSource, event: Event) -> None:
        """Have it told; if callbacks are slower than the locks, the oldest ones are dropped."""
        if len(self._waiting) >= _MOST_WAITING:
            self._waiting.popleft()
            self.drop(1)
        self._waiting.append((source, event))
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
        self.thread = threading.get_ident()
        try:
            while self._waiting:
                source, event = self._waiting.popleft()
                source.tell(event)
        finally:
            self._is_telling = False
            self.thread = None
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
    told, dropped = take_events()
    _teller.drop(dropped)
    for number, name, at, text, values in told:
        _log(name, text)
        source = _sources.get(number)
        if source is not None and source.has_listeners():
            # Imported only for those who listen, so that importing quorlock stays quick.
            from .events import _made

            _teller.add(source, _made(name, at, values))


def is_telling() -> bool:
    """Whether this thread calls back now: then no other event is told before it returns."""
    return _teller.thread == threading.get_ident()


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


# : By the manager's number.
_sources: weakref.WeakValueDictionary[int, EventSource] = weakref.WeakValueDictionary()
_teller = _Teller()
# : Guards who is told. It may be taken again, by a signal handler.
_changing = threading.RLock()
_MOST_WAITING = 16_384


def _renew() -> None:
    """In a forked child no other thread exists, and the events are its parent's."""
    global _teller, _changing
    _teller = _Teller()
    _changing = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
