"""What OpenTelemetry's meters get from managers when they are read. Owns who is asked."""

from __future__ import annotations

import os
import re
import threading
import time
import weakref
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, Optional, Union

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Observation

if TYPE_CHECKING:
    from ._base import RedlockBase
    from ._stats import Stats


class Observer:
    """What a meter asks for when it is read, over all managers: it knows a name once."""

    def __init__(self, meter: metrics.Meter) -> None:
        # : Who asks for each manager. Weak: the meter keeps its callbacks for ever.
        self._managers: weakref.WeakKeyDictionary[RedlockBase, set[object]]
        self._managers = weakref.WeakKeyDictionary()
        # : The timeouts by server of all managers, also those that are gone, and what was seen of
        # : each: a counter must not go down.
        self._timeouts: Counter[_Server] = Counter()
        self.renew()
        meter.create_observable_up_down_counter(
            "quorlock.locks.held",
            [self._look_held],
            unit="{lock}",
            description="Locks that are held now",
        )
        meter.create_observable_gauge(
            "quorlock.node.state",
            [self._look_states],
            description="1 for the state that a node is in",
        )
        meter.create_observable_counter(
            "quorlock.node.timeouts",
            [self._look_timeouts],
            unit="{timeout}",
            description="How often a node did not answer in time",
        )

    def renew(self) -> None:
        """In a forked child, managers count anew, and a thread of its parent may hold the lock."""
        self._seen: weakref.WeakKeyDictionary[RedlockBase, Counter[_Server]]
        self._seen = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()
        self._reading = _Reading(float("-inf"), [], set())

    def _look_held(self, _: CallbackOptions) -> Iterable[Observation]:
        seen = self._look("held")
        if seen:
            yield Observation(sum(stats.held for _, stats in seen))

    def _look_states(self, _: CallbackOptions) -> Iterable[Observation]:
        # A manager that is closed sees no node any more, and says of each that it is down.
        seen = [stats for locks, stats in self._look("states") if not locks.is_closed]
        # Managers with the same node may see it in two states for a moment.
        states = {(_Server.of(node.address), node.state) for stats in seen for node in stats.nodes}
        for server in dict.fromkeys(server for server, _ in states):
            for state in _STATES:
                attributes = {**server.attributes(), "quorlock.node.state": state}
                yield Observation(int((server, state) in states), attributes)

    def _look_timeouts(self, _: CallbackOptions) -> Iterable[Observation]:
        for locks, stats in self._look("timeouts"):
            self._count_timeouts(locks, stats)
        for server, count in self._timeouts.items():
            yield Observation(count, server.attributes())

    def _look(self, asker: str) -> list[tuple[RedlockBase, Stats]]:
        """The figures of all managers: those that another asker has got in this reading.

        A meter asks for each instrument by itself, one after another.
        """
        now = time.monotonic()
        with self._lock:
            reading = self._reading
            if asker in reading.askers or now - reading.at > _ONE_READING:
                figures = [(weakref.ref(locks), locks.stats()) for locks in list(self._managers)]
                reading = self._reading = _Reading(now, figures, set())
            reading.askers.add(asker)
        found = ((locks(), stats) for locks, stats in reading.figures)
        return [
            (locks, stats)
            for locks, stats in found
            if locks is not None and locks in self._managers
        ]

    def _count_timeouts(self, locks: RedlockBase, stats: Stats) -> None:
        now: Counter[_Server] = Counter()
        for node in stats.nodes:
            now[_Server.of(node.address)] += node.timeouts
        before = self._seen.get(locks, Counter())
        for server, count in now.items():
            self._timeouts[server] += max(0, count - before[server])
        self._seen[locks] = now

    def join(self, locks: RedlockBase, asker: object) -> None:
        """Ask this manager, once, however many want that."""
        self._managers.setdefault(locks, set()).add(asker)

    def leave(self, locks: RedlockBase, asker: object) -> None:
        """Ask this manager no more, if nobody else wants it. Doing it twice does nothing more."""
        askers = self._managers.get(locks)
        if askers is None:
            return
        askers.discard(asker)
        if not askers:
            self._count_timeouts(locks, locks.stats())
            del self._managers[locks]


class _Server(NamedTuple):
    """Where a node is, as the semantic conventions of OpenTelemetry name it."""

    address: str
    port: Optional[int]

    @classmethod
    def of(cls, node: str) -> _Server:
        """Without a port for a unix socket, and for a node in memory, which is named as a whole."""
        at = re.match(r"\w+://(?:\[(.+)\]|([^/]+)):(\d+)", node)
        if at:
            return cls(at[1] or at[2], int(at[3]))
        path = re.match(r"unix://([^?]+)", node)
        return cls(path[1] if path else node, None)

    def attributes(self) -> dict[str, Union[str, int]]:
        """What a measurement of it has."""
        if self.port is None:
            return {"server.address": self.address}
        return {"server.address": self.address, "server.port": self.port}


class _Reading(NamedTuple):
    """The figures at one time, and who has got them."""

    at: float
    figures: list[tuple[weakref.ref[RedlockBase], Stats]]
    askers: set[str]


def observer_of(provider: Any, meter: metrics.Meter) -> Observer:
    """The one of this provider, made by its first meter."""
    observer = _observers.get(provider)
    if observer is None:
        observer = _observers[provider] = Observer(meter)
    return observer


# : By the provider of the meter.
_observers: weakref.WeakKeyDictionary[Any, Observer] = weakref.WeakKeyDictionary()
_STATES = ("connecting", "healthy", "unresponsive", "quarantined", "refusing", "down")
# : How long it takes, at most, until all instruments were asked once, in seconds.
_ONE_READING = 0.2


def _renew() -> None:
    for observer in list(_observers.values()):
        observer.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
