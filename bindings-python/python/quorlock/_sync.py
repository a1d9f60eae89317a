"""The lock for blocking code. Owns how a thread waits and what a `with` block means."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
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
from ._errors import LockNotAcquired
from ._events import hear_for_log
from ._greenlets import callbacks, wait
from ._hints import Self, Unpack
from ._native import Plan, begin_record, begin_verify
from ._options import (
    USUAL,
    LockOptions,
    ManagerOptions,
    Settings,
    check_wait,
    telling,
)
from ._owner import Holder, holder_of
from ._router import Watch
from ._settling import wait_until_told
from ._signatures import shows
from ._tracing import begin, tracers
from ._wrong_blocks import ForBlocking

if TYPE_CHECKING:
    from . import _async
    from ._errors import LeaseLost
    from ._native import Operation
    from ._options import Behaviour

F = TypeVar("F", bound=Callable[..., Any])


class Lease(LeaseBase):
    """A lock that is held. May be used from any thread.

    A lease that is garbage-collected is no longer renewed and expires.

    >>> from quorlock import Redlock
    >>> locks = Redlock(["memory://a", "memory://b", "memory://c"])
    >>> with locks.lock("invoice:42", ttl=5) as lease:
    ...     lease.is_valid, lease.validity > 4, lease.fencing_token > 0
    (True, True, True)
    >>> lease.is_valid
    False
    """

    # No annotation: the class says that its module is another one, which does not have the name.
    _watch = cast("Watch | None", None)
    _raise_on_lost: bool = True
    __reduce__ = refuse_to_pickle_a_lease

    def extend(self, ttl: Optional[Union[float, timedelta]] = None) -> float:
        """Keep the lock for `ttl` seconds (or as long as before) from now on.

        If more is left, the validity gets shorter, but the servers keep the lock for what is left.

        Returns the new validity in seconds. Raises `LeaseLost` if it has ended, `QuorumUnreachable`
        if too few nodes answer (what is left of the validity stays good), `LockNotHeld` after a
        release.

        >>> from quorlock import Redlock
        >>> locks = Redlock(["memory://a", "memory://b", "memory://c"])
        >>> with locks.lock("invoice:42", ttl=5) as lease:
        ...     lease.extend(20) > 19
        True
        """
        operation = self.begin_extend(ttl)
        wait(operation)
        return cast("float", operation.result())

    def check(self) -> float:
        """Ask the nodes whether a quorum still holds the lease; returns the validity in seconds.

        Raises `LeaseLost` if it does not, `QuorumUnreachable` if too few nodes answer to tell,
        `LockNotHeld` after a release.
        """
        operation = self.begin_check()
        wait(operation)
        return cast("float", operation.result())

    def record_sequencer(self) -> bool:
        """Write to the nodes which holder has the fencing token, so that `locks.verify()` can tell.

        It is written again with each renewal, and deleted by the release. Returns whether a quorum
        has it, at the latest after the `node_timeout`; if the wait is interrupted, it is written
        all the same. `False` with nodes of `memory://`, which keep no records. Raises
        `QuorumUnreachable` for a lease that is `degraded`.
        """
        operation = begin_record(self)
        wait(operation)
        return cast("bool", operation.result())

    def release(self) -> str:
        """Release the lock; returns `released`, or `unknown` if too few nodes answered to tell.

        Nodes that could not be reached are asked again in the background until their keys have
        expired. Before `min_hold` has passed since the acquisition, the nodes keep the lock from
        others until then. Raises `LeaseLost` if the lease had expired or was taken (with
        `raise_on_lost=False` the outcome is returned instead: `expired` or `taken`), and
        `LockNotHeld` if it was released before.
        """
        operation = self.begin_release()
        wait(operation)
        return operation.released(self._raise_on_lost)


class Lock(ForBlocking, LockBase[Lease]):
    """A lock to be acquired: by `with`, by `acquire()` or as a decorator.

    One object may be shared by threads: every acquisition has a lease of its own. It is not
    reentrant: acquired again while it is held, it waits as for any other holder.

    >>> from quorlock import Redlock
    >>> locks = Redlock(["memory://a", "memory://b", "memory://c"])
    >>> lock = locks.lock("invoice:42")
    >>> lock.acquire(timeout=5)
    True
    >>> lock.locked(), lock.owned()
    (True, True)
    >>> lock.release()
    'released'
    """

    def acquire(
        self, blocking: bool = True, timeout: Optional[Union[float, timedelta]] = -1
    ) -> bool:
        """Acquire the lock as `threading.Lock` does; returns whether it is held.

        `timeout` is the longest wait in seconds: -1 stands for the lock's own `timeout`, `None` for
        no limit. `False` means that another holds the lock; broken nodes raise `QuorumUnreachable`.
        The lease is not renewed unless the lock has `auto_extend=True`. Ctrl-C ends the wait: the
        nodes are asked at once to delete its keys, without a wait for their answers. A node that
        answers has none a moment later (about a round trip), and elsewhere the ttl ends them.
        """
        if blocking is not True or timeout != -1:
            check_wait(blocking, timeout)
        plan, behaviour = self._planned()
        blocking = bool(blocking) and behaviour.blocking
        operation = plan.acquire(blocking, timeout, False)
        if behaviour.clients is not None:
            behaviour.clients.check(lambda: plan.patience(blocking, timeout))
        try:
            self._obtain(operation, behaviour, False)
        except LockNotAcquired:
            return False
        return True

    def release(self) -> str:
        """Release the lease that this thread acquired last; see `Lease.release`.

        A thread that never acquired through this object releases the latest lease. Raises
        `LockNotHeld` if there is none.
        """
        taken = None
        try:
            taken = self._acquisitions.release() or self._refuse_release()
            wait(taken[1])
            return taken[1].released(taken[0]._raise_on_lost)
        except BaseException:
            let_go_on(taken)
            raise

    def holder(self) -> Optional[Holder]:
        """Who holds the lock (the first of several resources), by a quorum of the nodes.

        What its holder says of itself if its `Redlock` has an `owner`. `None` if nobody holds it,
        or too few nodes tell. Nodes of `memory://` keep no such records.
        """
        return holder_of(self._ask(Plan.holder))

    def locked(self) -> bool:
        """Whether anyone holds the lock, as far as the nodes tell.

        Raises `QuorumUnreachable` if too few nodes answer.
        """
        return cast("bool", self._ask(Plan.ask))

    def waiters(self) -> int:
        """How many acquisitions wait for the lock in the nodes' queues: a hint.

        It is the middle one of the nodes' counts, and may be out of date when it is returned. The
        callers of one process that wait for the same lock by equal nodes and settings count once;
        those with `wait="poll"` do not count. Raises `QuorumUnreachable` if too few nodes answer.
        """
        return cast("int", self._ask(Plan.ask_waiters))

    def __enter__(self) -> Lease:
        plan, behaviour = self._planned()
        operation = plan.acquire(behaviour.blocking, -1, True)
        if behaviour.clients is not None:
            behaviour.clients.check(lambda: plan.patience(behaviour.blocking, -1))
        return self._obtain(operation, behaviour, True)

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        left = None
        try:
            left = self._acquisitions.leave_block()
            if left is None or left[1] is None:
                return  # released inside the block, or held by the parent of this process
            wait(left[1])
            loss: Optional[LeaseLost] = left[1].result()[1]
        except BaseException:
            let_go_on(left)
            raise
        if loss is not None:
            tell_loss(loss, self._planned()[1], error)

    def __call__(self, function: F) -> F:
        """Decorate a function: every call acquires the lock for itself and runs inside it.

        A coroutine function waits without blocking its event loop.
        """
        refuse_generators(function)
        if inspect.iscoroutinefunction(function):
            return self._for_asyncio()(function)

        @wraps(function)
        def locked(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return cast("F", locked)

    def _for_asyncio(self) -> _async.Lock:
        from . import _async

        # One view, even if several threads ask for it at once.
        view: _async.Lock = self.__dict__.setdefault("_async_view", _async._AsyncView(self))
        return view

    def _ask(self, begin: Callable[[Plan], Operation]) -> Any:
        plan, behaviour = self._planned()
        if behaviour.clients is not None:
            behaviour.clients.check()
        operation = begin(plan)
        wait(operation)
        return operation.result()

    def _obtain(self, operation: Operation, behaviour: Behaviour, is_block: bool) -> Lease:
        hear_for_log(self._planned()[0])
        traced = begin(self._planned()[0]) if tracers else None
        try:
            wait(operation)
            lease = self._acquisitions.take(operation, Lease, is_block)
            if traced is not None:
                traced.won(lease)
            if behaviour is not USUAL:
                adapt(lease, behaviour)
            return lease
        except BaseException as error:
            # If any exception came in between, as Ctrl-C can at any line, no lease stays behind.
            self._acquisitions.undo(operation)
            if traced is not None:
                traced.failed(error)
            raise


class Redlock(ForBlocking, RedlockBase):
    """Locks over independent Redis or Valkey masters. May be shared by threads.

    `nodes` are URLs (`redis://user:password@host:6379/0`, `rediss://`, `unix:///path`, `memory://`
    for a node inside the process, `memory://name` for one that all managers share), `host:port`,
    `(host, port)`, dicts of connection settings, or redis-py and valkey-py clients. Nothing is
    connected before the first operation. All managers of a process use the same connection to a
    server, if address, user, password, database and TLS are the same; a forked child has its own.
    `options` are what its locks start from, and the guards: see `ManagerOptions`. Raises
    `ConfigError` for what is wrong.

    Of a client the settings are read as they stand now: address, database, login, TLS. Its
    connections are not used for locks. It is refused if its database or keys cannot be told: with a
    connection of its own (`single_connection_client`), a connect function, or commands that it
    overrides, as wrappers do that put a prefix before keys. The connections that it has made are
    asked for their databases (`CLIENT INFO`, one second at most). If one has selected another than
    that of the settings, or these change later, `ConfigError` is raised; see `docs/guide.md`.

    Nodes must be independent: the first operation raises `ConfigError` if two addresses lead to one
    server, a node is the replica of another, or two belong to one Redis Cluster. What a person
    should know (a node that may have forgotten locks, a clock that was set, a server that may
    throw locks out, a ttl of more than an hour without a `max_ttl`) is a warning of
    `logging.getLogger("quorlock")`, logged when it is seen, by a thread of this package.

    It may be pickled, for other processes to connect by themselves: with its passwords.

    >>> from quorlock import Redlock
    >>> with Redlock(["memory://a", "memory://b", "memory://c"], ttl=5) as locks:
    ...     with locks.lock("invoice:42") as lease:
    ...         lease
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
        adapt(lease, behaviour)
        return lease

    def verify(self, sequencer: str) -> bool:
        """Whether the lease behind a `Sequencer` (or its text) is still the one that is held.

        `False` too if its holder has not called `record_sequencer()`. It may be out of date: work
        that must never overlap checks the fencing token where it writes. Raises `ConfigError` for a
        text that is none, `QuorumUnreachable` if too few nodes answer (`memory://` cannot tell).
        """
        if self._behaviour.clients is not None:
            self._behaviour.clients.check()
        operation = begin_verify(self._manager, sequencer)
        wait(operation)
        return cast("bool", operation.result())

    def close(self) -> None:
        """Give up the connections; later calls raise, other than a release.

        What is still held is no longer renewed; its release connects once more. Closed are those
        that no other manager of the process uses (five seconds later if this one is only dropped),
        not clients that it was given. Waits a second at most for `on_event` to be told the rest.
        """
        wait_until_told(self._close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def adapt(lease: Lease, behaviour: Behaviour) -> None:
    """Prepare a lease for what its lock does about a loss."""
    lease._raise_on_lost = behaviour.raise_on_lost
    if behaviour.on_lost is not None:
        lease._watch = callbacks().watch(lease, Watch(telling(behaviour.on_lost)))
