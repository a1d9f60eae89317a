"""Waits for the blocking API: under gevent and eventlet only the greenlet waits, else the thread.

Owns that choice, and the same one for callbacks (`on_lost`): the hub calls them, or else a thread.
"""

from __future__ import annotations

from sys import modules
from typing import TYPE_CHECKING

from ._hubs import current_hub, router_of, router_of_hub
from ._notices import has_listener, listen
from ._router import CompletionRouter, dispatcher

if TYPE_CHECKING:
    from ._native import Operation


def wait(operation: Operation) -> None:
    """Wait until the operation has ended; in a thread with a hub, only the greenlet waits."""
    if not has_listener[0]:
        listen()
    if "gevent" in modules or "eventlet" in modules:
        hub = current_hub()
        if hub is not None:
            router_of(hub).wait(operation)
            return
    operation.wait()


def callbacks() -> CompletionRouter:
    """The router for the callbacks of blocking code: the hub's, or the dispatcher."""
    return router_of_hub() or dispatcher()
