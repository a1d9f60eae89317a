"""The completion routers for gevent and eventlet hubs.

Owns everything that is specific to these two.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from sys import modules
from threading import get_ident
from typing import TYPE_CHECKING, Any, Callable

from ._native import Finalizer, generation
from ._router import CompletionRouter, WaitingRouter

if TYPE_CHECKING:
    from ._native import Operation


def router_of_hub() -> CompletionRouter | None:
    """The router of the hub that runs this thread's greenlets."""
    monkey = modules.get("gevent.monkey")
    if monkey is not None and monkey.is_module_patched("threading"):
        # With a hub, a thread would be a greenlet, and block all others.
        import_module("gevent").get_hub()
    hub = current_hub()
    return None if hub is None else router_of(hub)


class _HubRouter(WaitingRouter):
    """A router whose descriptor a hub watches."""

    def __init__(self, hub: Any) -> None:
        super().__init__()
        self.hub = hub

    def wait(self, operation: Operation) -> None:
        wake, sleep = self._pause()
        number = 0
        try:
            self.operations.add(operation)
            number = self.expect(operation, wake)
            sleep()
        except BaseException:
            self.forget(number)
            operation.cancel()
            raise
        finally:
            self.operations.discard(operation)

    def _pause(self) -> tuple[Callable[[], object], Callable[[], object]]:
        """What wakes the greenlet from a wait, and what lets it wait."""
        raise NotImplementedError


class _GeventRouter(_HubRouter):
    def __init__(self, hub: Any) -> None:
        super().__init__(hub)
        self._watcher = hub.loop.io(self.queue.fileno(), 1, ref=False)
        self._watcher.start(self.deliver)
        self._waiting = 0
        self._hold(0)
        hub.destroy = partial(self._destroy, hub.destroy)

    def allowed_to_wait(self, callback: Callable[..., object]) -> Callable[..., object]:
        """In a greenlet of its own: the hub's greenlet must not wait."""
        return partial(import_module("gevent").spawn, callback)

    def _pause(self) -> tuple[Callable[[], object], Callable[[], object]]:
        waiter = import_module("gevent.hub").Waiter()
        return partial(waiter.switch, None), partial(self._get, waiter)

    def _get(self, waiter: Any) -> None:
        """Count the waiting greenlets: a gevent hub stops when it expects no event."""
        self._hold(1)
        try:
            waiter.get()
        finally:
            self._hold(-1)

    def _hold(self, step: int) -> None:
        self._waiting += step
        if self._watcher is not None:
            # With libuv, only the `ref` of what is behind the watchers of a descriptor counts.
            behind = getattr(self._watcher, "_watcher_ref", self._watcher)
            behind.ref = self._waiting > 0

    def _destroy(self, destroy: Callable[..., object], *arguments: Any, **named: Any) -> object:
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            # An active watcher keeps a hub with libuv from its end. It goes before its descriptor.
            watcher.stop()
            watcher.close()
        self.end()
        return destroy(*arguments, **named)


class _EventletRouter(_HubRouter):
    def __init__(self, hub: Any) -> None:
        super().__init__(hub)
        hub.add(hub.READ, self.queue.fileno(), self._ready, _no_error, _no_error)

    def allowed_to_wait(self, callback: Callable[..., object]) -> Callable[..., object]:
        """In a greenlet of its own: the hub's greenlet must not wait."""
        return partial(import_module("eventlet").spawn_n, callback)

    def _pause(self) -> tuple[Callable[[], object], Callable[[], object]]:
        event = import_module("eventlet.event").Event()
        return event.send, event.wait

    def _ready(self, _fileno: int) -> None:
        self.deliver()


class _RouterOfThread:
    """Ends a router when its thread ends or has another hub.

    A hub is not collected: the greenlets that wait in it refer to it, and nobody ends them.
    """

    def __init__(self, router: _HubRouter) -> None:
        self.router = router
        self._finalizer = Finalizer(router.operations)


def current_hub() -> Any | None:
    """The hub of this thread, if it runs and the caller is a greenlet that can wait."""
    if _is_imported("gevent"):
        hub = import_module("gevent._hub_local").get_hub_if_exists()
        if hub is not None:
            return None if modules["greenlet"].getcurrent() is hub else hub
    if _is_imported("eventlet.hubs"):
        hub = getattr(modules["eventlet.hubs"]._threadlocal, "hub", None)
        if hub is not None:
            return None if modules["greenlet"].getcurrent() is hub.greenlet else hub
    return None


def current_caller() -> object:
    """The greenlet that runs, or the number of the thread where nothing has greenlets."""
    if _is_imported("greenlet"):
        return modules["greenlet"].getcurrent()
    return get_ident()


def sleep_of_hub() -> Callable[[float], object] | None:
    """What lets this greenlet wait for some seconds; `None` if this thread runs no hub."""
    hub = current_hub()
    if hub is None:
        return None
    package = "gevent" if type(hub).__module__.startswith("gevent") else "eventlet"
    sleep: Callable[[float], object] = import_module(package).sleep
    return sleep


def _is_imported(name: str) -> bool:
    """Whether it is imported whole: another thread may be in the middle of that."""
    spec = getattr(modules.get(name), "__spec__", None)
    return spec is not None and not getattr(spec, "_initializing", False)


def router_of(hub: Any) -> _HubRouter:
    """The hub's router; made at the first call, and again in a forked child."""
    made = _GeventRouter if type(hub).__module__.startswith("gevent") else _EventletRouter
    of_thread = _of_threads.get(made)
    if of_thread is None:
        of_thread = _of_threads.setdefault(made, _local(made)())
    kept = getattr(of_thread, "kept", None)
    if kept is None or kept.router.hub is not hub or kept.router.generation != generation():
        kept = of_thread.kept = _RouterOfThread(made(hub))
    router: _HubRouter = kept.router
    return router


def _local(made: type[_HubRouter]) -> Any:
    """The class of objects with attributes for each thread, not for each greenlet."""
    if made is _GeventRouter:
        return import_module("gevent.monkey").get_original("_thread", "_local")
    return type(import_module("eventlet.hubs")._threadlocal)


def _no_error(*_: object) -> None:
    """The handler for errors of the descriptor, which is never closed while it is watched."""


#: For each kind of hub the router of each thread, with what ends it.
_of_threads: dict[type[_HubRouter], Any] = {}
