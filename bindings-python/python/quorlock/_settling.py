"""Lets `close()` wait until the events of what has happened before are told. Owns for how long."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from ._hubs import sleep_of_hub

if TYPE_CHECKING:
    from ._events import EventSource


def wait_until_told(source: EventSource | None) -> None:
    """Wait until `on_event` was called with all events up to now, one second at most."""
    told = threading.Event()
    if source is None or not source.call_when_told(told.set):
        return
    sleep = sleep_of_hub()
    if sleep is None:
        told.wait(_PATIENCE)
        return
    until = time.monotonic() + _PATIENCE
    while not told.is_set() and time.monotonic() < until:
        sleep(_STEP)  # the hub tells them


class UntilTold:
    """What `close()` of asyncio returns: awaiting it waits as `wait_until_told` does."""

    def __init__(self, source: EventSource | None) -> None:
        self._source = source

    def __await__(self) -> Generator[Any, None, None]:
        if self._source is not None and self._source.has_listeners():
            yield from self._wait(self._source).__await__()

    @staticmethod
    async def _wait(source: EventSource) -> None:
        import asyncio  # here, so that importing quorlock stays quick

        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # of a child that was forked in a coroutine
        told = asyncio.Event()

        def tell() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(told.set)

        if source.call_when_told(tell):
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(told.wait(), _PATIENCE)


# : In seconds.
_PATIENCE = 1.0
_STEP = 0.001
