"""The queues that hubs of gevent and eventlet watch. Owns what is known of the two."""

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
    """The queue of the hub that this thread's greenlets have."""
    monkey = modules.get("gevent.monkey")
    if monkey is not None and monkey.is_module_patched("threading"):
        # A thread would be a greenlet there, and freeze the hub once there is one.
        import_module("gevent").get_hub()
    hub = current_hub()
    router: CompletionRouter | None = None if hub is None else router_of(hub)
    return router


class _GeventRouter(CompletionRouter):
    """A queue that a gevent hub watches."""

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
        """In a greenlet of its own: the hub itself must not wait."""
        return partial(import_module("gevent").spawn, callback)

    def _hold(self, step: int) -> None:
        """The hub gives up when nothing is left to come: it must know that someone waits."""
        self._waiting += step
        self._watcher.ref = self._waiting > 0


class _EventletRouter(CompletionRouter):
    """A queue that an eventlet hub watches."""

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
        """In a greenlet of its own: the hub itself must not wait."""
        return partial(import_module("eventlet").spawn_n, callback)

    def _ready(self, _fileno: int) -> None:
        self.deliver()


def current_hub() -> Any | None:
    """The hub of this thread, if one is at work and the caller can wait for it."""
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
    """The queue's end of a socket pair is never closed while it is watched."""


_routers: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
