"""The nemesis (the term of Jepsen): makes the faults of a schedule in time, and records them.

Knows nothing of locks.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import time
from collections import Counter
from collections.abc import Callable, Sequence

from tests.chaos.actions import (
    CLIENT_ACTIONS,
    GROUP_ACTIONS,
    NODE_ACTIONS,
    Undo,
    cut_link,
    lose_reply,
    set_all_ahead,
)
from tests.chaos.clients import Clients
from tests.chaos.history import Harm, now
from tests.chaos.kinds import QUARANTINE, Target
from tests.chaos.plan import Fault
from tests.chaos.testbed import Testbed
from tests.support.wait import eventually


class Nemesis:
    """Carries out one schedule."""

    def __init__(
        self, testbed: Testbed, clients: Clients, *, guarded: bool, names: Sequence[str]
    ) -> None:
        """`names` are those of the locks, for faults that wait for a command."""
        self.testbed = testbed
        self.clients = clients
        self.harms: list[Harm] = []
        self.injected: Counter[str] = Counter()
        #: The longest delay of a fault behind its schedule.
        self.behind = 0.0
        self._guarded = guarded
        self._names = names

    def run(self, faults: Sequence[Fault], seconds: float) -> None:
        """Returns when all have ended and the time is over."""
        start = now()
        if any(fault.kind.not_before for fault in faults):
            self._keep()
        order = itertools.count()
        agenda: list[tuple[float, int, Callable[[], None]]] = []

        def begin(fault: Fault) -> None:
            begun, undo = now(), self._begin(fault)
            self.injected[fault.kind.name] += 1
            heapq.heappush(agenda, (fault.end, next(order), lambda: end(fault, begun, undo)))

        def end(fault: Fault, begun: float, undo: Undo) -> None:
            undo()
            self._note(fault, begun)

        for fault in faults:
            heapq.heappush(agenda, (fault.begin, next(order), lambda it=fault: begin(it)))  # type: ignore[misc]
        while agenda:
            at, _, act = heapq.heappop(agenda)
            time.sleep(max(0.0, start + at - now()))
            self.behind = max(self.behind, now() - start - at)
            act()
        time.sleep(max(0.0, start + seconds - now()))

    def _keep(self) -> None:
        # Not before clients have been there: what they leave on the nodes is to come back, too.
        with contextlib.suppress(TimeoutError):
            eventually(lambda: all(node.server.command("DBSIZE") for node in self.testbed.nodes), 3)
        self.testbed.keep()

    def _begin(self, fault: Fault) -> Undo:
        name, targets = fault.kind.name, fault.targets
        if fault.kind.target is Target.CLIENT:
            return CLIENT_ACTIONS[name](self.clients, targets[0], fault.strength)
        if fault.kind.target is Target.LINK:
            client, node = targets
            return cut_link(self.testbed.nodes[node].links[client], fault.strength)
        if fault.kind.target is Target.OTHER:
            return set_all_ahead(self.testbed.others, fault.strength)
        nodes = [self.testbed.nodes[number] for number in targets]
        if name in GROUP_ACTIONS:
            return GROUP_ACTIONS[name](nodes, self._names, fault.end - fault.begin)
        if name == "lost reply":
            return lose_reply(nodes[0], self._names[int(fault.strength * len(self._names))])
        undos = [NODE_ACTIONS[name](node, fault.strength) for node in nodes]
        return lambda: [undo() for undo in undos]

    def _note(self, fault: Fault, begun: float) -> None:
        kind = fault.kind
        if kind.harms:
            guard = self._guarded and (kind.restarts or kind.needs_guards)
            rest = max(kind.rest, QUARANTINE if guard else 0.0)
            self.harms.append(Harm(kind.name, frozenset(fault.targets), begun, now() + rest))
