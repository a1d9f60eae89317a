"""Tells the tracers of a manager (see `otel`) when an acquisition begins, is won, or fails.

Owns which tracers a manager has, and that none of them breaks an operation. The blocking and the
asyncio API call it at each acquisition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Protocol, TypeVar

from ._native import generation
from ._router import log_failure

if TYPE_CHECKING:
    from ._native import LeaseState, Plan

T = TypeVar("T")


class ErrorBoundary:
    """Calls what observes one operation, which goes on whatever that raises.

    The first error is logged. What is no `Exception`, as of Ctrl-C, is for the caller.
    """

    __slots__ = ("_has_failed",)

    def __init__(self) -> None:
        self._has_failed = False

    def call(self, function: Callable[..., T], *arguments: Any, **named: Any) -> T | None:
        """What the function returns, or `None` if it raises an error."""
        try:
            return function(*arguments, **named)
        except Exception:  # noqa: BLE001 - it is logged
            if not self._has_failed:
                self._has_failed = True
                log_failure("a tracer failed, and the lock goes on without it")
            return None


class TracedAcquisition(Protocol):
    """One acquisition that a tracer follows."""

    def won(self, lease: LeaseState) -> None:
        """It has this lease."""

    def failed(self, error: BaseException) -> None:
        """It has none."""


# : Begins to follow an acquisition. The boundary is for calls of its own that may raise errors.
Follow = Callable[["Plan", ErrorBoundary], TracedAcquisition]
# : What follows acquisitions, by the number of the manager: one for each tracer.
tracers: dict[int, tuple[Follow, ...]] = {}


def begin(plan: Plan) -> TracedAcquisition | None:
    """Follow an acquisition that begins now, in the caller's context."""
    boundary = ErrorBoundary()
    begun = [
        boundary.call(follow, plan, boundary) for follow in tracers.get(plan.manager.number, ())
    ]
    traced = [each for each in begun if each is not None]
    return _TracedByAll(traced, boundary) if traced else None


def add(number: int, follow: Follow) -> None:
    """Follow the acquisitions of the manager with this number from now on."""
    tracers[number] = (*tracers.get(number, ()), follow)


def remove(number: int, follow: Follow) -> None:
    """Follow those that begin later no more."""
    left = tuple(it for it in tracers.get(number, ()) if it != follow)
    if left:
        tracers[number] = left
    else:
        tracers.pop(number, None)


class _TracedByAll:
    """One acquisition that each tracer follows, in the process in which it began."""

    def __init__(self, traced: list[TracedAcquisition], boundary: ErrorBoundary) -> None:
        self._traced = traced
        self._boundary = boundary
        self._generation = generation()

    def won(self, lease: LeaseState) -> None:
        """It has this lease."""
        for each in self._own():
            self._boundary.call(each.won, lease)

    def failed(self, error: BaseException) -> None:
        """It has none."""
        for each in self._own():
            self._boundary.call(each.failed, error)

    def _own(self) -> list[TracedAcquisition]:
        """None in a forked child, whose parent goes on with them."""
        return self._traced if self._generation == generation() else []
