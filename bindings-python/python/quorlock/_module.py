"""`redlock(...)`: a lock over the nodes of the process. Owns which nodes those are."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Optional, Union

from ._base import names_of
from ._errors import ConfigError
from ._hints import Unpack
from ._native import Acquisitions
from ._options import ManagerOptions, Settings
from ._signatures import shows
from ._sync import Lock, Redlock

if TYPE_CHECKING:
    from ._async import Lease as AsyncLease
    from ._native import Plan
    from ._options import Behaviour
else:
    AsyncLease = Any  # to `typing.get_type_hints`: asyncio is imported only where it is used


@shows(ManagerOptions)
def configure(nodes: Optional[Iterable[Any]], **options: Unpack[ManagerOptions]) -> None:
    """Say which nodes `redlock(...)` uses, and what its locks start from.

    Takes what `Redlock` takes. `None` forgets them, so that the environment variable
    `QUORLOCK_NODES` (separated by commas or blanks) counts again.

    >>> import quorlock
    >>> quorlock.configure(["memory://a", "memory://b", "memory://c"], ttl=5)
    """
    global _configured
    try:
        _configured = None if nodes is None else Redlock(nodes, **options)
    finally:
        del nodes, options  # as in the manager


class ModuleLock(Lock):
    """What `redlock(...)` returns: a `Lock` for `with`, `async with` and both kinds of functions.

    Which nodes it uses is looked up when it is acquired.
    """

    def __init__(self, names: list[Any], options: dict[str, Any]) -> None:
        self._names = names
        self._options = options
        self._last: Optional[tuple[Redlock, tuple[Plan, Behaviour]]] = None
        self._acquisitions = Acquisitions()

    def _planned(self) -> tuple[Plan, Behaviour]:
        redlock = _nodes_of_the_process()
        if self._last is None or self._last[0] is not redlock:
            self._last = (redlock, redlock._plan(self._names, self._options))
        return self._last[1]

    async def __aenter__(self) -> AsyncLease:
        return await self._for_asyncio().__aenter__()

    async def __aexit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        await self._for_asyncio().__aexit__(kind, error, traceback)


@shows(Settings)
def redlock(
    resource: Optional[Union[str, Iterable[str]]] = None,
    ttl: Optional[Union[float, timedelta]] = None,
    *,
    resources: Optional[Iterable[str]] = None,
    **options: Unpack[Settings],
) -> ModuleLock:
    """A lock over the nodes of `quorlock.configure([...])`, or of the variable `QUORLOCK_NODES`.

    Takes what `Redlock.lock` takes, and serves `with`, `async with`, and as a decorator of plain
    and coroutine functions, where every call acquires the lock for itself.

    >>> import quorlock
    >>> quorlock.configure(["memory://a", "memory://b", "memory://c"])
    >>> with quorlock.redlock("invoice:42", ttl=5) as lease:
    ...     lease.is_valid
    True
    >>> @quorlock.redlock("nightly", ttl=60, blocking=False)
    ... def nightly():
    ...     return "done"
    >>> nightly()
    'done'
    """
    lock = ModuleLock(names_of(resource, resources), {"ttl": ttl, **options})
    _checker._plan(lock._names, lock._options)
    return lock


class _Checker(Redlock):
    def _mind(self, plan: Plan) -> None:
        """The manager that is used gives the warning."""


def _made_of(text: str) -> Redlock:
    nodes = [node for node in re.split(r"[,\s]+", text) if node]
    if not nodes:
        raise ConfigError(
            "redlock(...) knows no nodes: call quorlock.configure([...]) or set QUORLOCK_NODES"
        )
    try:
        return Redlock(nodes)
    finally:
        del nodes, text  # as in the manager


def _nodes_of_the_process() -> Redlock:
    global _from_environment
    if _configured is not None:
        return _configured
    text = os.environ.get("QUORLOCK_NODES", "")
    if _from_environment is None or _from_environment[0] != text:
        try:
            _from_environment = (text, _made_of(text))
        finally:
            del text
    return _from_environment[1]


_configured: Optional[Redlock] = None
_from_environment: Optional[tuple[str, Redlock]] = None
# : Checks a lock's settings before it is acquired; never connects.
_checker = _Checker(["memory://"])
