"""Tells events: to `on_event` callbacks, and to logging. Owns who is told."""

from __future__ import annotations

import logging
import weakref
from typing import TYPE_CHECKING, Any, Callable

from ._errors import ConfigTypeError
from ._native import report, take_events
from ._router import log

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
            self.add(callback)

    def add(self, callback: Callable[[Event], object]) -> None:
        """Call back with every event from now on."""
        self._callbacks = [*self._callbacks, callback]
        self._manager.hear_all()

    def remove(self, callback: Callable[[Event], object]) -> None:
        """Do not call this back any more."""
        self._callbacks = [it for it in self._callbacks if it != callback]

    def tell(self, event: Event) -> None:
        """Call back. What a callback raises is logged, and stops nothing."""
        for callback in self._callbacks:
            _call(callback, event)


def _call(callback: Callable[[Event], object], event: Event) -> None:
    try:
        callback(event)
    except BaseException:  # noqa: BLE001 - whatever a callback raises, other callbacks are told
        log.exception("an on_event callback failed")


def tell_events() -> None:
    """Tell the events that came since the last call."""
    for number, name, at, text, values in take_events():
        _log(name, text)
        source = _sources.get(number)
        if source is not None and source._callbacks:
            # Imported only for those who listen, so that importing quorlock stays quick.
            from .events import _made

            source.tell(_made(name, at, values))


def hear_for_log(plan: Plan) -> None:
    """Let every event be told, if the logger writes them down."""
    if log.isEnabledFor(logging.DEBUG):
        plan.hear_all()


def _log(name: str, text: str) -> None:
    level = logging.WARNING if name in _WARNINGS else logging.DEBUG
    try:
        if log.isEnabledFor(level):
            log.log(level, text, extra={"event": name})
    except BaseException as error:  # noqa: BLE001 - of the user's filters and handlers
        report(error)


# : By the manager's number.
_sources: weakref.WeakValueDictionary[int, EventSource] = weakref.WeakValueDictionary()
_WARNINGS = ("lost", "degraded")
