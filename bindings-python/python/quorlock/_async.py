"""`Redlock`, `Lock` and `Lease` of the asyncio API, which users import from `quorlock.aio`.

Owns what a task awaits of them, and what an `async with` block means.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Coroutine, Iterable
from datetime import timedelta
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Optional, TypeVar, Union, cast

from ._base import (
    LeaseBase,
    LockBase,
    RedlockBase,
    let_go_on,
    names_of,
    refuse_generators,
    refuse_to_pickle_a_lease,
    tell_loss,
)
from ._errors import (
    ConfigTypeError,
    LeaseLost,
    LockNotAcquired,
)
from ._events import hear_for_log
from ._hints import Self, Unpack
from ._loops import Interruption, finished, is_thrown_away, started, watch_loss
from ._native import Plan, begin_record, begin_verify
from ._options import USUAL, LockOptions, ManagerOptions, Settings, check_wait
from ._owner import Holder, holder_of
from ._settling import UntilTold
from ._signatures import returns_coroutine, shows
from ._tracing import begin, tracers
from ._wrong_blocks import ForAsyncio

if TYPE_CHECKING:
    from ._native import Operation
    from ._options import Behaviour
    from ._router import Watch

F = TypeVar("F", bound=Callable[..., Any])


class Lease(LeaseBase):
    """A lock that is held.

    A lease that is garbage-collected is no longer renewed and expires.
    """

    # No annotation: the class says that its module is another one, which does not have the name.
    _watch = cast("Watch | None", None)
    _raise_on_lost: bool = True
    __reduce__ = refuse_to_pickle_a_lease

    async def extend(self, ttl: Optional[Union[float, timedelta]] = None) -> float:
        """Keep the lock for `ttl` seconds (or as long as before) from now on.

        If more is left, the validity gets shorter, but the servers keep the lock for what is left.

        Returns the new validity in seconds. Raises `LeaseLost` if it has ended, `QuorumUnreachable`
        if too few nodes answer (what is left of the validity stays good), `LockNotHeld` after a
        release.
        """
        operation = self.begin_extend(ttl)
        await finished(operation)
        return cast("float", operation.result())

    async def check(self) -> float:
        """Ask the nodes whether a quorum still holds the lease; returns the validity in seconds.

        Raises `LeaseLost` if it does not, `QuorumUnreachable` if too few nodes answer to tell,
        `LockNotHeld` after a release.
        """
        operation = self.begin_check()
        await finished(operation)
        return cast("float", operation.result())

    async def record_sequencer(self) -> bool:
        """Write to the nodes which holder has the fencing token, so that `locks.verify()` can tell.

        It is written again with each renewal, and deleted by the release. Returns whether a quorum
        has it, at the latest after the `node_timeout`; if it is cancelled, it is written all the
        same. `False` with nodes of `memory://`, which keep no records. Raises `QuorumUnreachable`
        for a lease that is `degraded`.
        """
        operation = begin_record(self)
        await finished(operation)
        return cast("bool", operation.result())

    @returns_coroutine
    def release(self) -> Coroutine[Any, Any, str]:
        """Release the lock; returns `released`, or `unknown` if too few nodes answered to tell.

        It is released from the call on, also if what it returns is cancelled before it is awaited,
        or the `Redlock` is closed. Raises `LeaseLost` if the lease had expired or was taken (with
        `raise_on_lost=False` the outcome is returned instead: `expired` or `taken`), and
        `LockNotHeld` if it was released before.
        """
        operation = self.begin_release()
        return _released(self, operation, started(operation))


async def _released(lease: Lease, operation: Operation, is_driven: bool) -> str:
    try:
        await finished(operation, is_driven)
        return operation.released(lease._raise_on_lost)
    except BaseException:
        let_go_on((lease, operation))
        raise


# What Python names where it was never awaited.
_released.__qualname__ = "release"


class Lock(ForAsyncio, LockBase[Lease]):
    """A lock to be acquired: by `async with`, by `await acquire()` or as a decorator.

    One object may be shared by tasks: every acquisition has a lease of its own. It is not
    reentrant: acquired again while it is held, it waits as for any other holder.

    If the lease is lost, the task that is in the block is cancelled and the block raises
    `LeaseLost`.
    """

    async def acquire(
        self, blocking: bool = True, timeout: Optional[Union[float, timedelta]] = -1
    ) -> bool:
        """Acquire the lock; returns whether it is held.

        `timeout` is the longest wait in seconds: -1 stands for the lock's own `timeout`, `None` for
        no limit. `False` means that another holds the lock; broken nodes raise `QuorumUnreachable`.
        The lease is not renewed unless the lock has `auto_extend=True`. If it is cancelled, the
        nodes are asked at once to delete its keys, without a wait for their answers: a node that
        answers has none a moment later (about a round trip), and elsewhere the ttl ends them.
        """
        if blocking is not True or timeout != -1:
            check_wait(blocking, timeout)
        plan, behaviour = self._planned()
        blocking = bool(blocking) and behaviour.blocking
        # The timeout counts from here.
        operation = plan.acquire(blocking, timeout, False)
        if behaviour.clients is not None:
            await behaviour.clients.ask(lambda: plan.patience(blocking, timeout))
        try:
            await self._obtain(operation, behaviour, False)
        except LockNotAcquired:
            return False
        return True

    @returns_coroutine
    def release(self) -> Coroutine[Any, Any, str]:
        """Release the lease that this task acquired last; see `Lease.release`.

        A task that never acquired through this object releases the latest lease. Raises
        `LockNotHeld` if there is none.
        """
        taken = self._acquisitions.release()
        return _released(*taken, started(taken[1])) if taken else self._refused()

    async def _refused(self) -> str:
        self._refuse_release()

    _refused.__qualname__ = "release"

    async def holder(self) -> Optional[Holder]:
        """Who holds the lock (the first of several resources), by a quorum of the nodes.

        What its holder says of itself if its `Redlock` has an `owner`. `None` if nobody holds it,
        or too few nodes tell. Nodes of `memory://` keep no such records.
        """
        return holder_of(await self._ask(Plan.holder))

    async def locked(self) -> bool:
        """Whether anyone holds the lock, as far as the nodes tell.

        Raises `QuorumUnreachable` if too few nodes answer.
        """
        return cast("bool", await self._ask(Plan.ask))

    async def waiters(self) -> int:
        """How many acquisitions wait for the lock in the nodes' queues: a hint.

        It is the middle one of the nodes' counts, and may be out of date when it is returned. The
        callers of one process that wait for the same lock by equal nodes and settings count once;
        those with `wait="poll"` do not count. Raises `QuorumUnreachable` if too few nodes answer.
        """
        return cast("int", await self._ask(Plan.ask_waiters))

    async def __aenter__(self) -> Lease:
        plan, behaviour = self._planned()
        operation = plan.acquire(behaviour.blocking, -1, True)
        if behaviour.clients is not None:
            await behaviour.clients.ask(lambda: plan.patience(behaviour.blocking, -1))
        return await self._obtain(operation, behaviour, True)

    async def __aexit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        left = None
        try:
            left = self._acquisitions.leave_block()
            if left is None:
                return
            watch = left[0]._watch
            is_left_alone = is_thrown_away(kind, watch)
            ours = isinstance(watch, Interruption) and watch.end(error)
            if left[1] is None:
                return  # released inside the block, or held by the parent of this process
            if is_left_alone:
                let_go_on(left)
                return
            await finished(left[1])
            loss: Optional[LeaseLost] = left[1].result()[1]
        except BaseException:
            let_go_on(left)
            raise
        if loss is not None:
            if ours:
                raise loss from error
            tell_loss(loss, self._planned()[1], error)

    def __call__(self, function: F) -> F:
        """Decorate a coroutine function: every call acquires the lock for itself."""
        refuse_generators(function)
        if not inspect.iscoroutinefunction(function):
            raise ConfigTypeError(
                f"{function.__qualname__} is not a coroutine function (async def): use a lock of "
                f"quorlock.Redlock"
            )

        @wraps(function)
        async def locked(*args: Any, **kwargs: Any) -> Any:
            async with self:
                return await function(*args, **kwargs)

        return cast("F", locked)

    async def _ask(self, begin: Callable[[Plan], Operation]) -> Any:
        plan, behaviour = self._planned()
        if behaviour.clients is not None:
            await behaviour.clients.ask()
        operation = begin(plan)
        await finished(operation)
        return operation.result()

    async def _obtain(self, operation: Operation, behaviour: Behaviour, is_block: bool) -> Lease:
        hear_for_log(self._planned()[0])
        traced = begin(self._planned()[0]) if tracers else None
        try:
            await finished(operation)
            lease = self._acquisitions.take(operation, Lease, is_block)
            if traced is not None:
                traced.won(lease)
            if is_block or behaviour is not USUAL:
                lease._raise_on_lost = behaviour.raise_on_lost
                watch_loss(lease, behaviour, is_block=is_block)
            return lease
        except BaseException as error:
            self._acquisitions.undo(operation)
            if traced is not None:
                traced.failed(error)
            raise


class _AsyncView(Lock):
    """The asyncio view of a lock that serves both APIs: the same settings, nodes and leases."""

    def __init__(self, lock: Any) -> None:
        self._lock = lock
        self._acquisitions = lock._acquisitions

    def _planned(self) -> tuple[Plan, Behaviour]:
        planned: tuple[Plan, Behaviour] = self._lock._planned()
        return planned


class Redlock(ForAsyncio, RedlockBase):
    """Locks over independent Redis or Valkey masters, for asyncio.

    Takes what `quorlock.Redlock` takes. May be shared by event loops and threads.

    >>> import asyncio
    >>> from quorlock.aio import Redlock
    >>> locks = Redlock(["memory://a", "memory://b", "memory://c"], ttl=5)
    >>> async def main():
    ...     async with locks.lock("invoice:42") as lease:
    ...         print(lease)
    >>> asyncio.run(main())
    <Lease 'invoice:42' held 4.9s left 3/3 nodes>
    """

    @shows(ManagerOptions)
    def __init__(self, nodes: Iterable[Any], **options: Unpack[ManagerOptions]) -> None:
        try:
            super().__init__(nodes, dict(options))
        finally:
            del nodes, options  # as in the base

    @shows(Settings)
    def lock(
        self,
        resource: Optional[Union[str, Iterable[str]]] = None,
        ttl: Optional[Union[float, timedelta]] = None,
        *,
        resources: Optional[Iterable[str]] = None,
        **options: Unpack[Settings],
    ) -> Lock:
        """A lock on one or several resources (all or nothing); nothing is asked of the nodes yet.

        `ttl` is how many seconds the nodes keep it unless it is extended, by default 10.
        """
        return Lock(self._plan_for(resource, ttl, resources, options), self._events)

    @shows(LockOptions)
    def lease(
        self, resource: Union[str, Iterable[str]], token: str, **options: Unpack[LockOptions]
    ) -> Lease:
        """Take over a lease by the `token` that its holder handed over.

        Its validity is 0.0 until `extend()` or `check()` has proved it. That holder must have
        stopped working: it goes by its own validity, also after a `release()` here.
        """
        plan, behaviour = self._plan(names_of(resource, None), dict(options))
        lease = Lease(plan.adopt(token))
        lease._raise_on_lost = behaviour.raise_on_lost
        watch_loss(lease, behaviour, is_block=False)
        return lease

    async def verify(self, sequencer: str) -> bool:
        """Whether the lease behind a `Sequencer` (or its text) is still the one that is held.

        `False` too if its holder has not called `record_sequencer()`. It may be out of date: work
        that must never overlap checks the fencing token where it writes. Raises `ConfigError` for a
        text that is none, `QuorumUnreachable` if too few nodes answer (`memory://` cannot tell).
        """
        if self._behaviour.clients is not None:
            await self._behaviour.clients.ask()
        operation = begin_verify(self._manager, sequencer)
        await finished(operation)
        return cast("bool", operation.result())

    def close(self) -> Awaitable[None]:
        """Give up the connections; awaiting the result is optional.

        What is still held is no longer renewed. Its release connects once more; other later calls
        raise. Closed are those that no other manager of the process uses (five seconds later if
        this one is only dropped). Clients that it was given are left as they are. If it is awaited,
        `on_event` was called then with all events up to now; that takes one second at most.
        """
        return UntilTold(self._close())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
