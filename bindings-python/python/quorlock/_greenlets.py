"""Waiting inside a gevent or eventlet hub without freezing it."""

from __future__ import annotations

from sys import modules
from typing import TYPE_CHECKING

from ._hubs import current_hub, router_of, router_of_hub
from ._notices import is_heard, listen
from ._router import CompletionRouter, dispatcher

if TYPE_CHECKING:
    from ._native import Operation


def wait(operation: Operation) -> None:
    """Wait until the operation has ended; where a hub is at work, only the greenlet waits."""
    if not is_heard[0]:
        listen()
    if "gevent" in modules or "eventlet" in modules:
        hub = current_hub()
        if hub is not None:
            router_of(hub).wait(operation)
            return
    operation.wait()


def callbacks() -> CompletionRouter:
    """Where callbacks of blocking code are called from: the hub's thread, or the dispatcher's."""
    return router_of_hub() or dispatcher()
