"""OpenTelemetry for a `Redlock`: spans and metrics.

    pip install quorlock[otel]

    from quorlock import otel

    otel.instrument(locks)

Owns the names of the spans and metrics; needs `opentelemetry-api`.

| | |
|---|---|
| span `quorlock.acquire` | an acquisition; child of the caller's span |
| span `quorlock.hold` | from the acquisition to the end of the lease; linked to the caller's span |
| `quorlock.acquire.duration` (s) | by `quorlock.outcome` |
| `quorlock.hold.duration` (s) | by `quorlock.outcome` |
| `quorlock.locks.held` | how many are held now |
| `quorlock.lost` | by `quorlock.reason` |
| `quorlock.degraded` | work that went on without its lock |
| `quorlock.renewal.slack` | the part of the validity that was left at an extension |
| `quorlock.node.state` | 1 for the state of a node, by server and `quorlock.node.state` |
| `quorlock.node.timeouts` | by server: `server.address` and `server.port` |
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Callable, Optional

try:
    from opentelemetry import context as contexts
    from opentelemetry import metrics, trace
    from opentelemetry.trace import Link, Span, Status, StatusCode
except ModuleNotFoundError as _error:
    _reason = "quorlock.otel needs opentelemetry-api: pip install quorlock[otel]"
    raise ModuleNotFoundError(_reason, name=_error.name) from _error

from . import _tracing, events
from ._base import RedlockBase
from ._errors import ConfigTypeError, LockNotAcquired, LockTimeout, QuorumUnreachable
from ._events import is_telling
from ._native import __version__
from ._otel_hold import Hold
from ._otel_observer import observer_of
from ._tracing import ErrorBoundary

if TYPE_CHECKING:
    from ._native import LeaseState, Plan
    from ._stats import Stats

__all__ = ["instrument"]

# : What a span says of an error: its type, and a text.
_Failure = tuple[str, str]


def instrument(
    locks: RedlockBase,
    *,
    resource_names: bool = False,
    tracer_provider: Optional[trace.TracerProvider] = None,
    meter_provider: Optional[metrics.MeterProvider] = None,
) -> Callable[[], None]:
    """Make spans and metrics of what `locks` does in this process from now on.

    `resource_names` says whether spans have the names of what is locked (`quorlock.resource`),
    which may hold personal data. The providers are the global ones unless others are given.
    Raises `ConfigError` for an argument of the wrong type. Returns a function that ends it. The
    spans of locks that are held then end with the outcome `held`; what has become of those that
    were released or lost just before, and everything else that is counted, is waited for, up to
    one second; not in an `on_event` callback, before whose return nothing else is told.

    >>> from quorlock import Redlock, otel
    >>> locks = Redlock(["memory://", "memory://", "memory://"])
    >>> stop = otel.instrument(locks)
    >>> with locks.lock("invoice:42"):
    ...     pass
    >>> stop()
    """
    _check(locks, resource_names, tracer_provider, meter_provider)
    tracer = trace.get_tracer("quorlock", __version__, tracer_provider)
    provider = meter_provider or metrics.get_meter_provider()
    meter = provider.get_meter("quorlock", __version__)
    instrumentation = _Instrumentation(locks, tracer, meter, resource_names)
    observer = observer_of(provider, meter)
    observer.join(locks, instrumentation)
    number = locks._manager.number
    _tracing.add(number, instrumentation.begin)
    # A callback of the user's may stop it: what that is told of has been counted then.
    locks._events.add(instrumentation.tell, first=True)
    instrumentation.counted_before = _counted(locks.stats())

    def stop() -> None:
        _tracing.remove(number, instrumentation.begin)
        observer.leave(locks, instrumentation)
        instrumentation.end(_counted(locks.stats()))
        locks._events.remove(instrumentation.tell)

    return stop


def _check(locks: Any, resource_names: Any, tracer_provider: Any, meter_provider: Any) -> None:
    if not isinstance(locks, RedlockBase):
        raise ConfigTypeError(f"instrument() needs a Redlock, not {type(locks).__name__}")
    if not isinstance(resource_names, bool):
        raise ConfigTypeError(f"resource_names must be True or False, not {resource_names!r}")
    providers = (
        ("tracer_provider", tracer_provider, "get_tracer"),
        ("meter_provider", meter_provider, "get_meter"),
    )
    for name, given, needed in providers:
        if given is not None and not callable(getattr(given, needed, None)):
            kind = type(given).__name__
            raise ConfigTypeError(f"{name} must be a provider of OpenTelemetry, not {kind}")


class _Instrumentation:
    """The spans and metrics of one manager."""

    def __init__(
        self, locks: RedlockBase, tracer: trace.Tracer, meter: metrics.Meter, resource_names: bool
    ) -> None:
        self._tracer = tracer
        self._names = resource_names
        self._is_over = False
        self.renew()
        _instrumentations.add(self)
        self.acquire = meter.create_histogram(
            "quorlock.acquire.duration",
            unit="s",
            description="How long acquisitions took",
            explicit_bucket_boundaries_advisory=_WAITS,
        )
        self._hold = meter.create_histogram(
            "quorlock.hold.duration",
            unit="s",
            description="How long locks were held",
            explicit_bucket_boundaries_advisory=_HOLDS,
        )
        self._lost = meter.create_counter(
            "quorlock.lost", unit="{lock}", description="Locks that were lost"
        )
        self._degraded = meter.create_counter(
            "quorlock.degraded",
            unit="{acquisition}",
            description="Work that went on without its lock",
        )
        self._slack = meter.create_histogram(
            "quorlock.renewal.slack",
            unit="1",
            description="The part of the validity that was left when a lock was prolonged",
            explicit_bucket_boundaries_advisory=_PARTS,
        )
        # A counter that begins with its first loss shows no increase then.
        for reason in locks.stats().losses:
            self._lost.add(0, {"quorlock.reason": reason})
        self._degraded.add(0)

    def renew(self) -> None:
        """Follow nothing. In a forked child, what was followed is its parent's."""
        # : The leases that are held, by the holder id.
        self._holds: dict[str, Hold] = {}
        # : Leases whose end was told before their span was made.
        self._ended: dict[str, tuple[float, str]] = {}
        # : How many events there had been before all, by name, how many were told, and how many
        # : were due when it ended.
        self.counted_before: Counter[str] = Counter()
        self._told: Counter[str] = Counter()
        self._due: Counter[str] = Counter()
        # : Set after `stop()`, once all events from before it were counted.
        self._is_settled = threading.Event()

    def begin(self, plan: Plan, boundary: ErrorBoundary) -> _TracedAcquisition:
        """Follow an acquisition that begins now."""
        return _TracedAcquisition(self, plan, boundary)

    def begin_span(self, boundary: ErrorBoundary, name: str, **options: Any) -> Span:
        """A span; one that is not recorded where a span processor fails."""
        return boundary.call(self._tracer.start_span, name, **options) or trace.INVALID_SPAN

    def attributes(self, resources: Iterable[str]) -> dict[str, Any]:
        return {"quorlock.resource": tuple(resources)} if self._names else {}

    def failure_of(self, error: BaseException) -> _Failure:
        """What a span says of an error, whose message has the names of resources."""
        kind = type(error).__name__
        return kind, str(error) if self._names else kind

    def held(self, lease: LeaseState, caller: contexts.Context, boundary: ErrorBoundary) -> None:
        """A lease begins to be held."""
        if self._is_over:
            return  # nobody would tell its end
        attributes = self.attributes(lease.resources)
        if lease.fencing_token is not None:
            attributes["quorlock.fencing_token"] = lease.fencing_token
        around = trace.get_current_span(caller).get_span_context()
        # The hold may outlast the caller's span, so it is linked as well.
        links = [Link(around)] if around.is_valid else []
        span = self.begin_span(
            boundary, "quorlock.hold", context=caller, attributes=attributes, links=links
        )
        token = lease.token
        self._holds[token] = Hold(span, lease)
        ended = self._ended.pop(token, None)
        if ended is not None:
            self._end(boundary, token, *ended)
        self._end_if_over(boundary, token)

    def _end_if_over(self, boundary: ErrorBoundary, token: str) -> None:
        """For a lease that begins to be held while another thread ends everything."""
        if self._is_over:
            self._end(boundary, token, time.time(), "held")
            self._settle()

    def end(self, counted: Counter[str]) -> None:
        """Begin no spans of leases any more, and end those that there are.

        Events come from another thread: of those that were `counted` until now, some may be under
        way.
        """
        if self._is_over:
            return
        boundary = ErrorBoundary()
        self._due = counted - self.counted_before
        self._is_over = True
        for token, hold in list(self._holds.items()):
            if hold.is_valid():
                self._end(boundary, token, time.time(), "held")
        if not self._is_all_told() and not is_telling():
            self._is_settled.wait(_PATIENCE)
        for token, hold in list(self._holds.items()):
            if hold.is_gone():
                self._end(boundary, token, time.time(), "unknown")
            else:
                self._end(boundary, token, hold.until, "expired")

    def _is_all_told(self) -> bool:
        is_end_due = any(hold.is_end_told() for hold in list(self._holds.values()))
        return not is_end_due and not self._due - self._told

    def _settle(self) -> None:
        if self._is_over and self._is_all_told():
            self._is_settled.set()

    def tell(self, event: events.Event) -> None:
        """An event of the manager."""
        if self._is_over and not self._is_of_before(event):
            return
        boundary = ErrorBoundary()
        boundary.call(self._count, event, boundary)
        self._told[event.name] += 1
        self._settle()

    def _count(self, event: events.Event, boundary: ErrorBoundary) -> None:
        if isinstance(event, events.Lost):
            boundary.call(self._lost.add, 1, {"quorlock.reason": event.reason})
            self._ended_as("lost", event, event.held_for, boundary)
        elif isinstance(event, events.Released):
            self._ended_as(event.outcome, event, event.held_for, boundary)
        elif isinstance(event, events.Extended):
            if event.token in self._holds:
                self._holds[event.token].until = event.at + event.validity
            self._slack.record(event.slack)
        elif isinstance(event, events.Degraded):
            self._degraded.add(1)

    def _is_of_before(self, event: events.Event) -> bool:
        """Whether it had happened before the end, or ends a lease that had ended then."""
        if self._told[event.name] < self._due[event.name]:
            return True
        return isinstance(event, events.LeaseEvent) and event.token in self._holds

    def _ended_as(
        self, outcome: str, event: events.LeaseEvent, held_for: float, boundary: ErrorBoundary
    ) -> None:
        boundary.call(self._hold.record, held_for, {"quorlock.outcome": outcome})
        hold = self._holds.get(event.token)
        if hold is not None:
            # Its end may be told late, and the clock be set meanwhile.
            self._end(boundary, event.token, hold.began + held_for, outcome)
        else:
            # A lease that was taken over has no span, so nobody asks for its end.
            while len(self._ended) >= _MOST_ENDED:
                self._ended.pop(next(iter(self._ended)), None)
            self._ended[event.token] = (event.at, outcome)

    def _end(self, boundary: ErrorBoundary, token: str, at: float, outcome: str) -> None:
        hold = self._holds.pop(token, None)
        if hold is None:
            return
        failure = ("LeaseLost", "the lock was lost") if outcome == "lost" else None
        boundary.call(_end_span, hold.span, outcome, failure, int(max(at, hold.began) * 1e9))


def _end_span(
    span: Span, outcome: str, failure: Optional[_Failure], at: Optional[int] = None
) -> None:
    span.set_attribute("quorlock.outcome", outcome)
    if failure is not None:
        kind, text = failure
        span.set_attribute("error.type", kind)
        span.set_status(Status(StatusCode.ERROR, text))
    span.end(at)


def _counted(stats: Stats) -> Counter[str]:
    """How many events there have been that are counted here, by name."""
    return Counter(
        {
            "lost": sum(stats.losses.values()),
            "released": sum(stats.releases.values()),
            "extended": stats.extensions,
            "degraded": stats.acquisitions["degraded"],
        }
    )


class _TracedAcquisition:
    """One acquisition, with its span."""

    def __init__(
        self, instrumentation: _Instrumentation, plan: Plan, boundary: ErrorBoundary
    ) -> None:
        self._own = instrumentation
        self._boundary = boundary
        self._caller = contexts.get_current()
        self._begun = time.monotonic()
        attributes = instrumentation.attributes(plan.resources)
        self._span = instrumentation.begin_span(boundary, "quorlock.acquire", attributes=attributes)

    def won(self, lease: LeaseState) -> None:
        """It has this lease."""
        self._end("degraded" if lease.degraded else "acquired")
        if not lease.degraded:
            self._own.held(lease, self._caller, self._boundary)

    def failed(self, error: BaseException) -> None:
        """It has none."""
        self._end(_outcome_of(error), self._own.failure_of(error))

    def _end(self, outcome: str, failure: Optional[_Failure] = None) -> None:
        self._boundary.call(_end_span, self._span, outcome, failure)
        took = time.monotonic() - self._begun
        self._boundary.call(self._own.acquire.record, took, {"quorlock.outcome": outcome})


def _outcome_of(error: BaseException) -> str:
    if isinstance(error, LockTimeout):
        return "timed_out"
    if isinstance(error, LockNotAcquired):
        return "not_acquired"
    if isinstance(error, QuorumUnreachable):
        return "unreachable"
    return "error" if isinstance(error, Exception) else "cancelled"


# : Bounds of the histograms: the SDK's own are for milliseconds.
_WAITS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_HOLDS = (0.01, 0.05, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)
_PARTS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
# : How long the events that are under way are waited for in the end, in seconds.
_PATIENCE = 1.0
# : Events come from another thread, at most this many before the span of their lease.
_MOST_ENDED = 4096
_instrumentations: weakref.WeakSet[_Instrumentation] = weakref.WeakSet()


def _renew() -> None:
    """In a forked child the spans are its parent's, which ends them."""
    for instrumentation in list(_instrumentations):
        instrumentation.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
