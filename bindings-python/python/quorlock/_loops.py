"""Waits inside asyncio. Owns the routers of event loops, and how a block is interrupted."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, Callable

from ._native import Finalizer, Operations, generation
from ._notices import has_listener, listen
from ._options import telling
from ._router import WaitingRouter, Watch, dispatcher, log

if TYPE_CHECKING:
    from ._errors import LeaseLost
    from ._native import LeaseState, Operation
    from ._options import Behaviour


def started(operation: Operation) -> bool:
    """Start the operation now; tells whether this thread, which runs a loop, drives it."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        is_driven = False
    else:
        is_driven = operation.begin_on_loop()
    if not is_driven:
        operation.start()
    return is_driven


async def finished(operation: Operation, is_driven: bool | None = None) -> None:
    """Wait until the operation has ended. Cancelling the wait cancels the operation.

    `is_driven` is what `started` has told of an operation that is under way already.
    """
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError(_FORKED if _fork.is_in_coroutine else _NO_LOOP) from None
    if not has_listener[0]:
        listen()
    router = router_of(loop)
    number = 0
    try:
        router.operations.add(operation)
        if is_driven is None:
            is_driven = operation.begin_on_loop()
        if not is_driven or not await _ended_here(operation):
            future: asyncio.Future[None] = loop.create_future()
            number = router.expect_on_loop(operation, future)
            await future
    except BaseException:
        router.forget(number)
        operation.cancel()
        raise
    finally:
        router.operations.discard(operation)


async def _ended_here(operation: Operation) -> bool:
    """Drive the operation on this thread unless it takes long; tells whether it has ended."""
    while True:
        await asyncio.sleep(0)  # all other tasks run before this thread waits
        has_ended = operation.drive_on_loop()
        if has_ended is not None:
            return has_ended


def watch_loss(lease: Any, behaviour: Behaviour, *, is_block: bool) -> None:
    """Register what is called, or which task is cancelled, on this loop when the lease is lost."""
    told = None if behaviour.on_lost is None else telling(behaviour.on_lost)
    task = asyncio.current_task() if is_block and behaviour.raise_on_lost else None
    if task is not None:
        lease._watch = Interruption(task, told)
        router_of(asyncio.get_running_loop()).watch(lease, lease._watch)
    elif told is not None:
        loop = asyncio.get_running_loop()
        lease._watch = router_of(loop).watch(lease, Watch(told))


class LoopRouter(WaitingRouter):
    """The router of one event loop: calls everything back on the loop's own thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self.loop = weakref.ref(loop)
        reader = _Reader(self)
        self._reader = weakref.ref(reader)
        fileno = self.queue.fileno()
        assert fileno is not None  # noqa: S101 - it was made with a descriptor
        loop.add_reader(fileno, reader)

    def expect_on_loop(self, operation: Operation, future: asyncio.Future[None]) -> int:
        """Resolve the future when the operation has ended; returns what `forget` takes."""
        number = next(self._ids)
        self._futures()[number] = future
        operation.announce(self.queue, number)
        return number

    def forget(self, number: int) -> None:
        """Do not resolve this future any more."""
        self._futures().pop(number, None)

    def deliver(self) -> None:
        """Resolve and call back for every completion that was posted. Does not wait."""
        futures = self._futures()
        losses: list[tuple[int, LeaseLost | None]] = []
        for number, loss in self.queue.take():
            if loss is not None:
                losses.append((number, loss))
                continue
            future = futures.pop(number, None)
            if future is not None:
                _resolve(future)
        if losses:
            self._route(losses)

    def watch(self, lease: LeaseState, watch: Watch) -> Watch:
        """Call back on the loop; if the callback returns a coroutine, run it as a task."""
        watch.callback = _running(watch.callback)
        return super().watch(lease, watch)

    def _futures(self) -> dict[int, asyncio.Future[None]]:
        reader = self._reader()
        return {} if reader is None else reader.futures


class _Reader:
    """What the loop calls when completions were posted.

    Only the loop keeps it, so it goes when the loop is closed or dropped, and with it what refers
    to the loop.
    """

    def __init__(self, router: LoopRouter) -> None:
        self.futures: dict[int, asyncio.Future[None]] = {}
        self._router = router
        self._finalizer = Finalizer(router.operations)

    def __call__(self) -> None:
        self._router.deliver()


class ThreadRouter:
    """For a loop that watches no file descriptors: the dispatcher's thread calls into it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = weakref.ref(loop)
        self.operations = Operations(None)
        self._router = dispatcher()
        self.generation = self._router.generation

    def expect_on_loop(self, operation: Operation, future: asyncio.Future[None]) -> int:
        """As `LoopRouter.expect_on_loop`."""

        def tell() -> None:
            if not self._soon(lambda: _resolve(future)):
                operation.cancel()

        return self._router.expect(operation, tell)

    def forget(self, number: int) -> None:
        """As `CompletionRouter.forget`."""
        self._router.forget(number)

    def watch(self, lease: LeaseState, watch: Watch) -> Watch:
        """As `LoopRouter.watch`."""
        callback = _running(watch.callback)
        watch.callback = lambda loss: self._soon(lambda: callback(loss))
        return self._router.watch(lease, watch)

    def end(self) -> None:
        """The loop is closed: cancel what is under way for it."""
        self.operations.end()

    def _soon(self, call: Callable[[], object]) -> bool:
        """Whether the loop will call it: not if it is closed."""
        loop = self.loop()
        if loop is None:
            return False
        try:
            loop.call_soon_threadsafe(call)
        except RuntimeError:
            return False
        return True


def router_of(loop: asyncio.AbstractEventLoop) -> LoopRouter | ThreadRouter:
    """The loop's router; made at the first call, and again in a forked child."""
    latest = _latest.router()
    if latest is not None and latest.loop() is loop and latest.generation == generation():
        return latest
    router = _routers.get(loop)
    if router is None or router.generation != generation():
        with _making:
            _end_closed()
            try:
                router = LoopRouter(loop)
            except (NotImplementedError, OSError):
                router = ThreadRouter(loop)
            _routers[loop] = router
    _latest.router = weakref.ref(router)
    return router


class _Latest(threading.local):
    """The router of the loop that this thread ran last, which is usually the one it runs now."""

    router: Callable[[], LoopRouter | ThreadRouter | None] = staticmethod(lambda: None)


class Interruption(Watch):
    """Cancels the task in the block when the lease is lost, as `asyncio.timeout` does."""

    __slots__ = ("_fired", "_others", "_task", "_told")

    def __init__(self, task: asyncio.Task[Any], told: Callable[[LeaseLost], object] | None) -> None:
        super().__init__(self._fire)
        self._task: asyncio.Task[Any] | None = task
        self._told = told
        self._fired = False
        # : How many cancellations of the task others had requested before.
        self._others = task.cancelling() if hasattr(task, "cancelling") else 0

    def is_for(self, task: asyncio.Task[Any] | None) -> bool:
        """Whether this is the task that would be cancelled."""
        return self._task is task

    def end(self, error: BaseException | None) -> bool:
        """Stop cancelling: the block has ended.

        Tells whether `error` is the cancellation made here.
        """
        task, self._task = self._task, None
        if task is None or not self._fired:
            return False
        if hasattr(task, "uncancel"):
            return task.uncancel() <= self._others and isinstance(error, asyncio.CancelledError)
        # Before Python 3.11 only a cancellation's message tells one from another, where it is kept.
        return isinstance(error, asyncio.CancelledError) and error.args in ((), (_MESSAGE,))

    def _fire(self, loss: LeaseLost) -> object:
        if self._task is not None:
            self._fired = True
            self._task.cancel(_MESSAGE)
        return None if self._told is None else self._told(loss)


def is_thrown_away(kind: type[BaseException] | None, watch: Watch | None) -> bool:
    """Whether a block ends because its coroutine is being closed: nothing can be awaited there."""
    if kind is not GeneratorExit:
        return False
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return True
    return isinstance(watch, Interruption) and not watch.is_for(task)


def _end_closed() -> None:
    """End the routers of loops that are closed and have not told so."""
    for loop, router in list(_routers.items()):
        if loop.is_closed():
            router.end()


def _resolve(future: asyncio.Future[None]) -> None:
    # Between the check and this step Ctrl-C may cancel it, and the other futures still need
    # results.
    try:
        future.set_result(None)
    except asyncio.InvalidStateError:
        assert future.done()  # noqa: S101 - cancelled


def _running(callback: Callable[[LeaseLost], object]) -> Callable[[LeaseLost], object]:
    def call(loss: LeaseLost) -> None:
        result = callback(loss)
        if asyncio.iscoroutine(result):
            task = asyncio.get_running_loop().create_task(result)
            _tasks.add(task)
            task.add_done_callback(_finished)

    return call


def _finished(task: asyncio.Task[Any]) -> None:
    _tasks.discard(task)
    if not task.cancelled() and task.exception() is not None:
        log.error("a callback of a lock failed", exc_info=task.exception())


def _renew_mutex() -> None:
    """In a forked child a thread that does not exist there may hold the mutex.

    The same holds for the routers, without a GIL; the parent's routers are useless here.
    """
    global _making, _routers
    _making, _routers = threading.Lock(), weakref.WeakKeyDictionary()
    _fork.is_in_coroutine = _fork.is_in_coroutine or _fork.loop_runs


class _Fork(threading.local):
    """Whether this thread was running a coroutine when it forked."""

    # : At the latest fork that this thread has made, in the parent as well.
    loop_runs = False
    is_in_coroutine = False

    def note(self) -> None:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            self.loop_runs = False
        else:
            self.loop_runs = True


_routers: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, LoopRouter | ThreadRouter] = (
    weakref.WeakKeyDictionary()
)
_latest = _Latest()
_fork = _Fork()
_making = threading.Lock()
_tasks: set[asyncio.Task[Any]] = set()
_NO_LOOP = (
    "quorlock.aio works on an event loop of asyncio (uvloop's, too), and none runs here: under "
    "trio or another framework, use quorlock.Redlock in a thread, as by trio.to_thread.run_sync"
)
_FORKED = (
    "quorlock.aio works on an event loop of asyncio, and none runs here: this process was forked "
    "inside a coroutine, whose loop runs in the parent alone. Start another loop, as by "
    "asyncio.run(), or use quorlock.Redlock"
)
_MESSAGE = "the lease of the block is lost"
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_fork.note, after_in_child=_renew_mutex)
