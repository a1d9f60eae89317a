"""Tells the tracers of a manager (see `otel`) when an acquisition begins, is won, or fails.

Owns which tracers a manager has. The blocking and the asyncio API call it at each acquisition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, Protocol

from ._native import generation

if TYPE_CHECKING:
    from ._native import LeaseState, Plan


class Attempt(Protocol):
    """One acquisition that is followed."""

    def won(self, lease: LeaseState) -> None:
        """It has this lease."""

    def failed(self, error: BaseException) -> None:
        """It has none."""


# : What begins to follow an acquisition, by the number of the manager: one for each tracer.
tracers: dict[int, tuple[Callable[[Plan], Attempt], ...]] = {}


def begin(plan: Plan) -> Attempt | None:
    """Follow an acquisition that begins now, in the caller's context."""
    attempts = [follow(plan) for follow in tracers.get(plan.manager.number, ())]
    return _Attempts(attempts) if attempts else None


def add(number: int, follow: Callable[[Plan], Attempt]) -> None:
    """Follow the acquisitions of the manager with this number from now on."""
    tracers[number] = (*tracers.get(number, ()), follow)


def remove(number: int, follow: Callable[[Plan], Attempt]) -> None:
    """Follow those that begin later no more."""
    left = tuple(it for it in tracers.get(number, ()) if it != follow)
    if left:
        tracers[number] = left
    else:
        tracers.pop(number, None)


class _Attempts:
    """One acquisition that each tracer follows, in the process in which it began."""

    def __init__(self, attempts: list[Attempt]) -> None:
        self._attempts = attempts
        self._generation = generation()

    def won(self, lease: LeaseState) -> None:
        """It has this lease."""
        for attempt in self._own():
            attempt.won(lease)

    def failed(self, error: BaseException) -> None:
        """It has none."""
        for attempt in self._own():
            attempt.failed(error)

    def _own(self) -> list[Attempt]:
        """None in a forked child, whose parent goes on with them."""
        return self._attempts if self._generation == generation() else []
