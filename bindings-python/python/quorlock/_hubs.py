"""The completion routers for gevent and eventlet hubs.

Owns everything that is specific to these two.
"""

from __future__ import annotations

import weakref
from functools import partial
from importlib import import_module
from sys import modules
from typing import TYPE_CHECKING, Any, Callable

from ._native import generation
from ._router import CompletionRouter

if TYPE_CHECKING:
    from ._native import Operation


def router_of_hub() -> CompletionRouter | None:
    """The router of the hub that runs this thread's greenlets."""
    monkey = modules.get("gevent.monkey")
    if monkey is not None and monkey.is_module_patched("threading"):
        # With a hub, a thread would be a greenlet, and block all others.
        import_module("gevent").get_hub()
    hub = current_hub()
    router: CompletionRouter | None = None if hub is None else router_of(hub)
    return router


class _GeventRouter(CompletionRouter):
    """A router whose descriptor a gevent hub watches."""

    def __init__(self, hub: Any) -> None:
        super().__init__(with_fd=True)
        self._watcher = hub.loop.io(self.queue.fileno(), 1, ref=False)
        self._watcher.start(self.deliver)
        self._waiting = 0

    def wait(self, operation: Operation) -> None:
        waiter = import_module("gevent.hub").Waiter()
        number = self.expect(operation, lambda: waiter.switch(None))
        self._hold(1)
        try:
            waiter.get()
        except BaseException:
            self.forget(number)
            operation.cancel()
            raise
        finally:
            self._hold(-1)

    def aside(self, callback: Callable[..., object]) -> Callable[..., object]:
        """In a greenlet of its own: the hub's greenlet must not wait."""
        return partial(import_module("gevent").spawn, callback)

    def _hold(self, step: int) -> None:
        """Count the waiting operations: a gevent hub stops when it expects no event."""
        self._waiting += step
        self._watcher.ref = self._waiting > 0


class _EventletRouter(CompletionRouter):
    """A router whose descriptor an eventlet hub watches."""

    def __init__(self, hub: Any) -> None:
        super().__init__(with_fd=True)
        hub.add(hub.READ, self.queue.fileno(), self._ready, _no_error, _no_error)

    def wait(self, operation: Operation) -> None:
        event = import_module("eventlet.event").Event()
        number = self.expect(operation, event.send)
        try:
            event.wait()
        except BaseException:
            self.forget(number)
            operation.cancel()
            raise

    def aside(self, callback: Callable[..., object]) -> Callable[..., object]:
        """In a greenlet of its own: the hub's greenlet must not wait."""
        return partial(import_module("eventlet").spawn_n, callback)

    def _ready(self, _fileno: int) -> None:
        self.deliver()


def current_hub() -> Any | None:
    """The hub of this thread, if it runs and the caller is a greenlet that can wait."""
    if "gevent" in modules:
        hub = import_module("gevent._hub_local").get_hub_if_exists()
        if hub is not None:
            return None if modules["greenlet"].getcurrent() is hub else hub
    hubs = modules.get("eventlet.hubs")
    if hubs is not None:
        hub = getattr(hubs._threadlocal, "hub", None)
        if hub is not None:
            return None if modules["greenlet"].getcurrent() is hub.greenlet else hub
    return None


def router_of(hub: Any) -> Any:
    router = _routers.get(hub)
    if router is None or router.generation != generation():
        made = _GeventRouter if type(hub).__module__.startswith("gevent") else _EventletRouter
        router = _routers[hub] = made(hub)
    return router


def _no_error(*_: object) -> None:
    """The handler for errors of the descriptor, which is never closed while it is watched."""


_routers: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
