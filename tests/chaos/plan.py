"""Draws the schedule of faults from a seed, as a pure function. Carries out nothing.

Of the nodes never more than a minority is in trouble at one time, except by the kinds that say
that they hit more; those come alone.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from tests.chaos.kinds import KINDS, QUARANTINE, Kind, Target

#: Seconds between the begins of two faults, on average.
PACE = 0.7
#: Seconds from the end of a fault to the next on the same target: its end must have been made.
PAUSE = 0.1
#: Seconds at the beginning and at the end without any.
QUIET = (1.5, 3.0)


@dataclass(frozen=True)
class Fault:
    """One fault to come. Times are in seconds from the beginning of the run."""

    begin: float
    end: float
    kind: Kind
    #: Numbers of nodes, or of clients; of a link, its client and its node.
    targets: tuple[int, ...]
    #: Between 0 and 1: how strong it is, where it has a strength.
    strength: float


@dataclass(frozen=True)
class World:
    """What there is to break."""

    nodes: int
    clients: int
    #: Clients whose clock can be set.
    clocks: tuple[int, ...] = ()
    guarded: bool = False


def schedule(seed: int, seconds: float, kinds: Sequence[str], world: World) -> list[Fault]:
    """The faults of a run, by their begin."""
    return _Scheduler(random.Random(seed), kinds, world).faults(seconds)


class _Scheduler:
    def __init__(self, dice: random.Random, kinds: Sequence[str], world: World) -> None:
        self._dice = dice
        self._kinds = [KINDS[name] for name in kinds]
        self._world = world
        self._deck: list[Kind] = []
        # When each is whole again, and when it can be hit again.
        self._whole = [0.0] * world.nodes
        self._free = {
            Target.NODE: [0.0] * world.nodes,
            Target.CLIENT: [0.0] * world.clients,
            Target.LINK: [0.0] * world.clients,
        }

    def faults(self, seconds: float) -> list[Fault]:
        faults = []
        at, last = QUIET[0], seconds - QUIET[1]
        while at < last:
            kind = self._draw()
            fault = self._place(kind, at)
            if fault is None:
                # Its turn comes again soon, and something else comes now.
                self._deck.insert(max(0, len(self._deck) - 3), kind)
                at += PACE / 10
                continue
            if fault.end <= last:
                faults.append(fault)
            at = fault.begin + self._dice.uniform(0.2, 1.8) * PACE
        return sorted(faults, key=lambda fault: fault.begin)

    def _draw(self) -> Kind:
        """Every kind once, in some order, before any comes again."""
        if not self._deck:
            self._deck = list(self._kinds)
            self._dice.shuffle(self._deck)
        return self._deck.pop()

    def _place(self, kind: Kind, at: float) -> Fault | None:
        lasts, strength = self._dice.uniform(*kind.lasts), self._dice.random()
        rest = QUARANTINE if self._world.guarded and (kind.restarts or kind.needs_guards) else 0.0
        rest = max(rest, kind.rest)
        if at < kind.not_before:
            return None
        if kind.target in (Target.CLIENT, Target.LINK):
            return self._hit_client(kind, at, lasts, strength)
        if kind.target is Target.OTHER:
            return Fault(at, at + lasts, kind, (), strength)
        nodes = range(self._world.nodes)
        majority = self._world.nodes // 2 + 1
        if kind.target is Target.NODE:
            hurt = sum(whole > at for whole in self._whole)
            free = [node for node in nodes if self._free[Target.NODE][node] <= at]
            if not free or (kind.harms and hurt >= self._world.nodes - majority):
                return None
            targets = [self._dice.choice(free)]
        else:
            at = max(at, *self._free[Target.NODE], *self._whole)
            count = majority if kind.target is Target.MAJORITY else self._world.nodes
            targets = sorted(self._dice.sample(nodes, count))
        for node in nodes:
            if node in targets or kind.target is not Target.NODE:
                self._free[Target.NODE][node] = at + lasts + PAUSE
        for node in targets:
            if kind.harms:
                self._whole[node] = at + lasts + rest
        return Fault(at, at + lasts, kind, tuple(targets), strength)

    def _hit_client(self, kind: Kind, at: float, lasts: float, strength: float) -> Fault | None:
        free = self._free[kind.target]
        among = self._world.clocks if kind.name == "client clock" else range(self._world.clients)
        able = [client for client in among if free[client] <= at]
        # Somebody must be there to acquire.
        if not able or sum(until > at for until in free) >= self._world.clients // 2:
            return None
        client = self._dice.choice(able)
        free[client] = at + lasts + PAUSE
        is_link = kind.target is Target.LINK
        targets = (client, self._dice.randrange(self._world.nodes)) if is_link else (client,)
        return Fault(at, at + lasts, kind, targets, strength)
