"""Makes the faults of a schedule come true, and notes when. Knows nothing of locks.

An action begins a fault and returns what ends it.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import time
from collections import Counter
from collections.abc import Callable, Sequence

from tests.chaos.fleet import Fleet
from tests.chaos.history import Harm, now
from tests.chaos.kinds import QUARANTINE, Target
from tests.chaos.plan import Fault
from tests.chaos.stage import Node, Stage
from tests.support.link import TO_CLIENT, TO_SERVER
from tests.support.proxy import BOTH
from tests.support.resp import ReplyError
from tests.support.servers import HOST, free_port
from tests.support.wait import eventually

Undo = Callable[[], object]


class Nemesis:
    """Carries out one schedule."""

    def __init__(self, stage: Stage, fleet: Fleet, *, guarded: bool, names: Sequence[str]) -> None:
        """`names` are those of the locks, for faults that wait for a command."""
        self.stage = stage
        self.fleet = fleet
        self.harms: list[Harm] = []
        self.injected: Counter[str] = Counter()
        #: The longest delay of a fault behind its schedule.
        self.behind = 0.0
        self._guarded = guarded
        self._names = names

    def run(self, faults: Sequence[Fault], seconds: float) -> None:
        """Returns when all have ended and the time is over."""
        start = now()
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

    def _begin(self, fault: Fault) -> Undo:
        name, targets = fault.kind.name, fault.targets
        if fault.kind.target is Target.CLIENT:
            return CLIENT_ACTIONS[name](self.fleet, targets[0], fault.strength)
        nodes = [self.stage.nodes[number] for number in targets]
        if name == "rolling":
            return _roll(nodes, self._names)
        if name == "lost reply":
            return _lose_reply(nodes[0], self._names[int(fault.strength * len(self._names))])
        undos = [NODE_ACTIONS[name](node, fault.strength) for node in nodes]
        return lambda: [undo() for undo in undos]

    def _note(self, fault: Fault, begun: float) -> None:
        kind = fault.kind
        if kind.harms:
            guard = self._guarded and (kind.restarts or kind.needs_guards)
            rest = max(kind.rest, QUARANTINE if guard else 0.0)
            self.harms.append(Harm(kind.name, frozenset(fault.targets), begun, now() + rest))


def _nothing() -> None:
    pass


def _kill(node: Node, _: float) -> Undo:
    node.server.kill()
    return node.server.restart


def _forget(node: Node, _: float) -> Undo:
    node.server.kill()
    node.forget()
    return node.server.restart


def _roll(nodes: Sequence[Node], names: Sequence[str]) -> Undo:
    # Not between two holders: somebody who has just come loses the ground under his feet.
    def held() -> bool:
        return any(all(_left(node, name) > 700 for node in nodes) for name in names)

    with contextlib.suppress(TimeoutError):
        eventually(held, 3)
    for node in nodes:
        _forget(node, 0)()
    return _nothing


def _left(node: Node, name: str) -> int:
    """Milliseconds that a key has left there."""
    return int(node.server.command("PTTL", name))


def _pause(node: Node, _: float) -> Undo:
    node.server.pause()
    return node.server.resume


def _reset(node: Node, _: float) -> Undo:
    node.proxy.reset()
    return _nothing


def _refuse(node: Node, _: float) -> Undo:
    node.proxy.refuse()
    return node.proxy.heal


def _half_close(node: Node, strength: float) -> Undo:
    node.proxy.half_close(TO_CLIENT if strength < 0.5 else TO_SERVER)
    return _nothing


def _half_open(node: Node, strength: float) -> Undo:
    node.proxy.stall((TO_CLIENT, TO_SERVER, BOTH)[int(strength * 3)])
    return node.proxy.heal


def _cut(node: Node, strength: float) -> Undo:
    node.proxy.cut_after(int(strength * 400))
    return node.proxy.heal


def _delay(node: Node, strength: float) -> Undo:
    node.proxy.delay(0.005 + strength * strength * 0.4)
    return node.proxy.heal


def _lose_reply(node: Node, name: str) -> Undo:
    node.proxy.swallow_reply(name)
    return node.proxy.heal


def _flush_scripts(node: Node, _: float) -> Undo:
    node.server.command("SCRIPT", "FLUSH")
    return _nothing


def _fill_memory(node: Node, _: float) -> Undo:
    node.server.command("CONFIG", "SET", "maxmemory", 1)
    return lambda: node.server.command("CONFIG", "SET", "maxmemory", 0)


def _fill_disk(node: Node, _: float) -> Undo:
    # A save that cannot put its file in place: a directory has the name. Works for root, too.
    (node.server.directory / "dump.rdb" / "in the way").mkdir(parents=True, exist_ok=True)
    node.server.command("CONFIG", "SET", "save", "3600 1000000")
    with contextlib.suppress(ReplyError):  # one is under way
        node.server.command("BGSAVE")
    eventually(
        lambda: "rdb_last_bgsave_status:err" in node.server.command("INFO", "persistence"), 10
    )
    return lambda: node.server.command("CONFIG", "SET", "save", "")


def _demote(node: Node, _: float) -> Undo:
    # A replica of a master that is not there: it keeps its data and refuses writes.
    node.server.command("REPLICAOF", HOST, free_port())
    return lambda: node.server.command("REPLICAOF", "NO", "ONE")


def _flush(node: Node, _: float) -> Undo:
    node.server.flush()
    return _nothing


def _set_back(node: Node, strength: float) -> Undo:
    node.clock.step(-(0.2 + strength * 2.5))
    return _nothing


def _set_ahead(node: Node, strength: float) -> Undo:
    node.clock.step(0.5 + strength * 40)
    return _nothing


NODE_ACTIONS: dict[str, Callable[[Node, float], Undo]] = {
    "kill": _kill,
    "power cut": _kill,
    "pause": _pause,
    "blackout": _pause,
    "reset": _reset,
    "refuse": _refuse,
    "half close": _half_close,
    "half open": _half_open,
    "cut": _cut,
    "delay": _delay,
    "script flush": _flush_scripts,
    "out of memory": _fill_memory,
    "disk full": _fill_disk,
    "read only": _demote,
    "clock back": _set_back,
    "forget": _forget,
    "flush": _flush,
    "clock ahead": _set_ahead,
}


def _pause_client(fleet: Fleet, number: int, _: float) -> Undo:
    fleet[number].pause()
    return fleet[number].resume


def _kill_client(fleet: Fleet, number: int, _: float) -> Undo:
    fleet[number].kill()
    return fleet[number].start


def _set_client_clock(fleet: Fleet, number: int, strength: float) -> Undo:
    clock = fleet[number].clock
    assert clock is not None, "this client's clock cannot be set"
    # Around the right time, so that it does not drift away for ever.
    clock.step((strength - 0.5) * 7200 - clock.offset)
    return _nothing


CLIENT_ACTIONS: dict[str, Callable[[Fleet, int, float], Undo]] = {
    "client pause": _pause_client,
    "client kill": _kill_client,
    "client clock": _set_client_clock,
}
