"""Lets a tracer follow acquisitions. Owns where it is told; does nothing while there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, Protocol

if TYPE_CHECKING:
    from ._native import LeaseState, Plan


class Attempt(Protocol):
    """One acquisition that is followed."""

    def won(self, lease: LeaseState) -> None:
        """It has this lease."""

    def failed(self, error: BaseException) -> None:
        """It has none."""


# : What begins to follow an acquisition, by the number of the manager.
tracers: dict[int, Callable[[Plan], Attempt]] = {}


def begin(plan: Plan) -> Attempt | None:
    """Follow an acquisition that begins now, in the caller's context."""
    tracer = tracers.get(plan.manager.number)
    return None if tracer is None else tracer(plan)
