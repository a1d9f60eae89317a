"""Plays one golden schedule with a real library on scripted nodes. Owns time, and what the
happenings mean; what is expected of them is judged in `judge.py`.

One millisecond of the file takes `scale` milliseconds here. A happening never comes early and may
come late: on a busy machine everything does.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.conformance.clients import Library, Process, Session
from tests.conformance.schedule import Case, Line
from tests.support.scripted_node import WARM_UP, Command, ScriptedNode
from tests.support.scripted_site import Site

#: How long something may take that must happen, in seconds.
LIMIT = 10.0
#: How long to look whether something happens that must not.
GRACE = 0.03
#: After this many seconds without an answer the library takes a node for hung (`hang_after`), less
#: some for commands that are under way: it gets no new grants then.
HUNG_AFTER = 0.15
#: Tokens of the file above the proposal are this many microseconds ahead, where no clock is.
_AHEAD = 900_000
#: What a server says that has this fault.
_ERRORS = {
    "UNAUTHENTICATED": "NOAUTH Authentication required.",
    "NOT_PERMITTED": "NOPERM this user has no permissions to run the 'evalsha' command",
    "WRONG_TYPE": "WRONGTYPE Operation against a key holding the wrong kind of value",
    "REPLICA": "READONLY You can't write against a read only replica.",
    "UNWRITABLE": "OOM command not allowed when used memory > 'maxmemory'.",
    "BUSY": "BUSY Redis is busy running a script.",
    "OTHER": "ERR as the schedule says",
}

PROVES_NOTHING = b"-BUSY Redis is busy running a script.\r\n"


class Failed(AssertionError):
    """The schedule does not hold."""


@dataclass
class Actor:
    """One client of the case, with its own nodes."""

    session: Session
    nodes: list[ScriptedNode]
    #: Nodes that cannot be reached from the beginning.
    down: set[int]
    #: The ttl of every grant and extend, in milliseconds of the file, by what was asked here.
    ttls: dict[int, int]
    #: What was expected already.
    expected: list[Command] = field(default_factory=list)
    sleeps: bool = False
    #: Whether the lease is renewed by now, so that its loss is what there is to tell.
    is_held: bool = False

    @property
    def commands(self) -> list[tuple[int, Command]]:
        """Everything that arrived, with the number of its node, in the order in which it came."""
        every = [(i, command) for i, node in enumerate(self.nodes) for command in node.commands]
        return sorted(every, key=lambda each: each[1].arrived)

    def rounds(self, kind: str) -> list[list[Command]]:
        """The rounds of grants, or of extensions, in the order in which they began."""
        rounds: dict[object, list[Command]] = {}
        seen: dict[int, int] = {}
        for index, command in self.commands:
            if command.kind == kind:
                seen[index] = seen.get(index, 0) + 1
                key = command.holder if kind == "grant" else seen[index]
                rounds.setdefault(key, []).append(command)
        return list(rounds.values())


class Player:
    """One run of a case."""

    def __init__(self, case: Case, library: Library, scale: int) -> None:
        """Nothing is started yet."""
        self.case = case
        self.scale = scale
        self.actors: dict[str, Actor] = {}
        #: The servers behind the nodes of all clients, where the guards look at them.
        self.sites = [Site() for _ in range(case.settings.nodes)] if case.settings.guards else []
        self.began = 0.0
        #: When the last happening was done, and what it was.
        self.done_at = 0.0
        self.last: Line | None = None
        self.next: Line | None = None
        self._library = library

    def real(self, at: float) -> float:
        """When a time of the file comes, on the monotonic clock."""
        return self.began + at * self.scale / 1000

    def token(self, written: int) -> int:
        """A token of the file, as this run has it: the wall clock cannot be made to stand still."""
        wall = self.case.settings.wall
        every = (command for actor in self.actors.values() for _, command in actor.commands)
        first = min((it for it in every if it.proposal), key=lambda it: it.arrived).proposal or 0
        return first + (written - wall) + (_AHEAD if written > wall else 0)

    async def open(self, name: str, process: Process) -> None:
        """A client with its nodes, connected."""
        settings, scale = self.case.settings, self.scale
        down = {int(line.words[1]) for line in self.case.happenings(name)
                if line.words[-2:] == ("fault", "NOT_SENT")}  # fmt: skip
        sites: list[Site | None] = [*self.sites] or [None] * settings.nodes
        nodes = [await ScriptedNode.open(site) for site in sites]
        for index in down:
            await nodes[index].close()
        session = process.session()
        asked = [settings.ttl, *(int(line.words[2]) for line in self.case.happenings(name)
                                 if line.words[1:2] == ("ttl",))]  # fmt: skip
        kept = {(ttl + settings.lock_delay) * scale: ttl for ttl in asked}
        actor = Actor(session, nodes, down, kept)
        self.actors[name] = actor
        # Scaled like the rest, also its 2 ms that do not depend on the ttl.
        drift_factor = (settings.drift(settings.ttl) - 2 / scale) / settings.ttl
        limit = settings.timeout
        session.do(
            "open",
            urls=[node.url for node in nodes],
            settings={
                "ttl": settings.ttl * scale,
                "node_timeout": settings.node_timeout * scale,
                "drift_factor": drift_factor,
                "retry_limit": settings.retry_limit,
                "retry_delay": settings.retry_delay * scale,
                "retry_jitter": 0,
                "timeout": None if limit is None else limit * scale,
                "unreachable_timeout": settings.patience * scale,
                "fencing": settings.fencing,
                "max_hold": min(settings.max_hold * scale, 86_400_000),
                "lock_delay": settings.lock_delay * scale,
                "min_hold": settings.min_hold * scale,
                "max_ttl": None if settings.max_ttl is None else settings.max_ttl * scale,
                "auto_extend": self.case.does(name, "hold"),
                "restart_guard": "auto" if settings.guards else "off",
                "clock_guard": settings.guards,
            },
        )
        session.do("warm", resource=WARM_UP)
        live = [node for index, node in enumerate(nodes) if index not in down]

        def is_warm() -> bool:
            has_quorum = len(live) > settings.nodes // 2
            return all(node.is_warm for node in live) and (session.is_warm or not has_quorum)

        await self.until(actor, is_warm, "it connects")

    async def happen(self, line: Line) -> None:
        """Does what happens."""
        actor, words = self.actors[line.client], line.words
        session = actor.session
        await self.until_due(line)
        if actor.sleeps and line.words[0] != "node" and line.words != ("asleep",):
            self._wake(actor)
        if words[0] in {"extend", "hold", "release"}:
            await self._settle(actor)
        match words:
            case ("wait",) | ("asleep",):
                pass
            case ("hold",):
                actor.is_held = True  # `auto_extend` does it, from the moment that the lock is won
            case ("acquire", *rest):
                ttl = int(rest[1]) if rest else self.case.settings.ttl
                session.begin("acquire", ttl=ttl * self.scale)
            case ("extend", *rest):
                ttl = int(rest[1]) if rest else self.case.settings.ttl
                session.begin("extend", ttl=ttl * self.scale)
            case ("release",):
                for node in actor.nodes:
                    node.takes_back = False
                session.begin("release")
            case ("cancel",):
                session.do("cancel")
            case ("node", node, command, "->", *answer):
                await self._answer(actor, int(node), command, answer)
            case _:
                raise Failed(f"nothing that can happen: {' '.join(words)}")
        self.has_happened(line)

    async def until_due(self, line: Line) -> None:
        """Waits for the time of a line."""
        assert line.at is not None
        moment = self.real(line.at) + (0.1 if line.words == ("asleep",) else 0)
        await asyncio.sleep(max(moment - time.monotonic(), 0))

    def has_happened(self, line: Line) -> None:
        """Notes that the event has happened: its effects come from now on."""
        self.last, self.done_at = line, time.monotonic()

    async def doze(self, name: str, rest: list[Line]) -> None:
        """Stops the process of a client whose next happening is that it was asleep."""
        actor = self.actors[name]
        coming = next((line for line in rest if line.client == name), None)
        if coming is not None and coming.words == ("asleep",) and not actor.sleeps:
            await asyncio.sleep(GRACE)  # for what has come to be taken in
            actor.sleeps = True
            actor.session.process.stop()

    def awake(self, name: str) -> None:
        """Wakes a client that sleeps, so that it sees what has come meanwhile."""
        if self.actors[name].sleeps:
            self._wake(self.actors[name])

    async def until(self, actor: Actor, condition: Callable[[], bool], what: str) -> None:
        """Waits for what must come true."""
        end = time.monotonic() + LIMIT
        watched: list[Session | ScriptedNode] = [actor.session, *actor.nodes]
        while not condition():
            if actor.session.is_gone:
                raise Failed("the library's process ended")
            left = end - time.monotonic()
            if left <= 0:
                raise Failed(f"it did not come: {what}")
            news = [asyncio.ensure_future(each.news.wait())
                    for each in watched]  # fmt: skip
            await asyncio.wait(news, timeout=min(left, 0.1), return_when=asyncio.FIRST_COMPLETED)
            for each in news:
                each.cancel()

    def trace(self) -> str:
        """What arrived and when, for finding the reason of a failure."""
        return "".join(
            f"\n  {name} at {(command.arrived - self.began) * 1000 / self.scale:.0f}: node {index} "
            f"{command.kind} by {command.holder[:4]}{'' if command.is_answered else ', unanswered'}"
            for name, actor in self.actors.items()
            for index, command in actor.commands
        )

    async def close(self) -> None:
        """Ends the sessions, and then the nodes: nobody connects to them any more."""
        for actor in self.actors.values():
            actor.session.do("close")
        await asyncio.sleep(GRACE)
        for actor in self.actors.values():
            for node in actor.nodes:
                await node.close()

    @staticmethod
    async def _settle(actor: Actor) -> None:
        """A vote that never came is over with its round. The wire keeps the order, so that it comes
        all the same, before what the node is asked next: as one that proves nothing.
        """
        for node in actor.nodes:
            for command in node.commands:
                if not command.is_answered and not command.breaks:
                    node.answer(command, PROVES_NOTHING)
        await asyncio.sleep(GRACE)

    async def _answer(self, actor: Actor, index: int, name: str, answer: list[str]) -> None:
        if index in actor.down:
            return
        node = actor.nodes[index]
        kind, _, place = name.partition("#")

        def found() -> Command | None:
            fitting = [command for command in node.commands if command.kind == kind]
            number = int(place) - 1 if place else len(fitting) - 1
            return fitting[number] if 0 <= number < len(fitting) else None

        await self.until(actor, lambda: _is_open(found()), f"node {index} gets a {name}")
        command = found()
        assert command is not None
        for earlier in node.unanswered_before(command):
            node.answer(earlier, PROVES_NOTHING)  # see _settle
        *answer, last = answer
        if last == "again":
            node.cut()
            await self.until(actor, lambda: command.copies == 2, f"{name} is sent again")
        else:
            answer.append(last)
        if answer == ["fault", "BROKEN"]:
            command.breaks = True
            node.cut()
        elif answer != ["fault", "TIMED_OUT"]:
            node.answer(command, self._reply(node.site, command, answer))

    def _reply(self, site: Site | None, command: Command, answer: list[str]) -> bytes | list[int]:
        match answer:
            case ["ours", *token]:
                number = self.token(int(token[0])) if token else 0
                if site is None:
                    return [1, number, -2, int(time.time() * 1_000_000)]
                is_known = command.kind != "grant" or site.stands(command.relied)
                return [1, number, -2, site.micros] if is_known else site.forgot()
            case ["fault", "QUARANTINED"] if site is not None:
                return site.forgot()
            case ["gone"]:
                return [2, 0, -2, 0]
            case ["theirs", *details]:
                facts = dict(zip(details[::2], details[1::2], strict=True))
                free = facts.get("free")
                left = -2 if free is None else -1 if free == "never" else int(free) * self.scale
                floor = self.token(int(facts["floor"])) if "floor" in facts else 0
                return [3, floor, left, 0]
            case ["fault", "GARBLED"]:
                return b"+what?\r\n"
            case ["fault", code] if code in _ERRORS:
                return b"-%s\r\n" % _ERRORS[code].encode()
        raise Failed(f"not an answer: {' '.join(answer)}")

    @staticmethod
    def _wake(actor: Actor) -> None:
        actor.sleeps = False
        actor.session.process.go_on()


def _is_open(command: Command | None) -> bool:
    return command is not None and not command.is_answered
