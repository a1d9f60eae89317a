"""A lease that has a span, as the instrumentation follows it. Owns how its end is known."""

from __future__ import annotations

import time
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from ._native import LeaseState


class Hold:
    """A lease that is held, which is not kept by this, with its span."""

    def __init__(self, span: Span, lease: LeaseState) -> None:
        self.span = span
        self._lease = weakref.ref(lease)
        # : When it began, and when its validity ends, in seconds since 1970.
        self.began = time.time()
        self.until = self.began + lease.validity

    def is_valid(self) -> bool:
        lease = self._lease()
        return lease is not None and not lease.is_released and lease.is_valid

    def is_gone(self) -> bool:
        """Whether it was given back, or nobody has it any more."""
        lease = self._lease()
        return lease is None or lease.is_released

    def is_end_told(self) -> bool:
        """Whether an event tells its end; none does if it ran out and nobody watched it."""
        lease = self._lease()
        return lease is None or lease.is_released or lease._is_watched
