"""Checks the expectations of a golden schedule against what a real library did.

Owns the tolerances: what a user relies on is exact (a lease never ends too late, a loss is never
told too early), what only a busy machine delays has room.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter

from tests.conformance import guards
from tests.conformance.player import GRACE, HUNG_AFTER, LIMIT, Actor, Failed, Player
from tests.conformance.schedule import Line
from tests.support.scripted_node import Command

#: In milliseconds of the file: by how much the end of a lease may come earlier than it is written,
#: and a renewal at another time (it keeps to a grid of a thirty-second of the ttl).
ROOM = 50
#: What the library says of a loss or an outcome for which its users get one error.
_PHRASES = {
    "expired": ("its validity passed", "had expired"),
    "gone": ("a quorum of nodes no longer holds it",),
    "held-too-long": ("as long as max_hold allows", "as long as maxHold allows"),
    "taken": ("was held by another",),
}


class Judge:
    """Looks at one player."""

    def __init__(self, player: Player) -> None:
        """See `Player`."""
        self._player = player

    async def expect(self, line: Line) -> None:
        """Returns if it is true, or becomes true in time."""
        player = self._player
        actor = player.actors[line.client]
        match line.words:
            case ("sent", "nothing"):
                await asyncio.sleep(GRACE)
                self._nothing_unexpected(actor)
            case ("sent", kind, *nodes):
                await self._sent(actor, kind, [int(node) for node in nodes])
            case ("fresh", "holder"):
                holders = self._holders(actor)
                _check(len(set(holders)) == len(holders) > 1, f"the holders are {holders}")
            case ("revoked", "round", place):
                last = [command.holder for _, command in actor.commands if command.kind == "revoke"]
                wanted = self._holders(actor)[int(place) - 1]
                _check(last[-1:] == [wanted], f"revoked were {last}, not {wanted}")
            case ("proposed", token):
                await self._proposed(actor, int(token))
            case ("asked", millis):
                self._asked(actor, int(millis))
            case ("pending",) | ("outcome", "none"):
                await self._pending(actor)
            case ("won" | "extended" as word, *rest):
                ended = await self._ended(actor, word)
                await self._lease(actor, ended, list(rest))
            case ("until", _):
                await self._lease(actor, {}, list(line.words))
            case ("error", code):
                ended = await self._ended(actor, "error")
                _check(ended["code"] == code, f"it ended with {ended}")
            case ("outcome", word):
                await self._outcome(actor, word)
            case ("lost", reason):
                await self._lost(actor, reason)
            case ("at", "rest"):
                await self._at_rest(actor)
            case ("trusts", *nodes):
                await guards.expect_trusted(player, actor, [int(node) for node in nodes])
            case ("holds", "back", node, millis):
                await guards.expect_quarantined(player, actor, int(node), int(millis))
            case ("says", *words):
                message = str((actor.session.ended or {}).get("message"))
                guards.expect_said(player, message, " ".join(words))
            case _:
                raise Failed("nothing that can be expected")

    # -- what was sent ---------------------------------------------------------------------------

    async def _sent(self, actor: Actor, kind: str, nodes: list[int]) -> None:
        wanted = Counter(node for node in nodes if node not in actor.down)
        cutoff = self._cutoff()

        def fits() -> bool:
            found = Counter(index for index, _ in self._unexpected(actor, kind, cutoff))
            if kind == "revoke":
                return set(found) == set(
                    wanted
                )  # how often it is repeated is not the file's matter
            if kind == "grant" or kind == "extend":
                silent = {index for index in wanted if self._is_hung(actor, index)}
                return all(found[index] == wanted[index] or (index in silent and found[index] <=
                           wanted[index]) for index in found | wanted)  # fmt: skip
            return found == wanted

        try:
            await self._player.until(actor, fits, f"{kind} goes to {nodes}")
            await asyncio.sleep(self._grace())  # no others
            _check(fits(), f"{kind} went to others than {nodes}")
        except Failed as problem:
            went = [index for index, _ in self._unexpected(actor, kind, cutoff)]
            raise Failed(f"{problem}: it went to {sorted(went)}") from None
        actor.expected += [command for _, command in self._unexpected(actor, kind, cutoff)]

    def _grace(self) -> float:
        """How long there is until the next thing must happen."""
        coming = self._player.next
        if coming is None or coming.at is None:
            return GRACE
        return min(max(self._player.real(coming.at) - time.monotonic(), GRACE / 3), GRACE)

    def _cutoff(self) -> float:
        """What comes later than this is not the expectation's matter: time has brought it."""
        player = self._player
        coming = player.next
        if coming is None or coming.at is None or not coming.is_by_clock:
            return float("inf")
        return max(player.real(coming.at), player.done_at + GRACE)

    @staticmethod
    def _unexpected(actor: Actor, kind: str, cutoff: float) -> list[tuple[int, Command]]:
        return [
            (index, command)
            for index, command in actor.commands
            if command.kind == kind
            and command.arrived <= cutoff
            and not any(command is each for each in actor.expected)
        ]

    def _nothing_unexpected(self, actor: Actor) -> None:
        # A lease that is lost is taken back by the library by itself.
        kinds = {"grant", "restore", "extend", "raise"} | (
            {"revoke"} if not self._is_over(actor) else set()
        )
        left = [(index, kind) for kind in sorted(kinds)
                for index, _ in self._unexpected(actor, kind, float("inf"))]  # fmt: skip
        _check(not left, f"sent {left}")

    @staticmethod
    def _is_over(actor: Actor) -> bool:
        return actor.session.ended is not None and actor.session.ended["word"] == "error"

    @staticmethod
    def _is_hung(actor: Actor, index: int) -> bool:
        """Whether a node has owed an answer for so long that it may get no more grants."""
        waits = [command.arrived for command in actor.nodes[index].commands
                 if not command.is_answered]  # fmt: skip
        return bool(waits) and time.monotonic() - waits[0] > HUNG_AFTER

    @staticmethod
    def _holders(actor: Actor) -> list[str]:
        return [round_[0].holder for round_ in actor.rounds("grant")]

    async def _proposed(self, actor: Actor, token: int) -> None:
        player = self._player
        grants = [command for _, command in actor.commands if command.kind == "grant"]
        if token == player.case.settings.wall:
            await player.until(actor, lambda: bool(actor.rounds("grant")), "there is a grant")
            ahead = abs((actor.rounds("grant")[0][0].proposal or 0) / 1e6 - time.time())
            return _check(ahead < 60, f"the proposal is {ahead} s from the clock")
        before = {command.holder for command in grants if command.is_answered}

        def last() -> Command:
            return [command for _, command in actor.commands if command.kind == "grant"][-1]

        await player.until(actor, lambda: last().holder not in before, "there is another round")
        wanted = player.token(token)
        return _check(last().proposal == wanted, f"proposed {last().proposal}, not {wanted}")

    def _asked(self, actor: Actor, millis: int) -> None:
        sent = [command.ttl for _, command in actor.commands if command.kind in {"grant", "extend"}]
        _check(bool(sent), "no node was asked to keep anything")
        asked = (sent[-1] or 0) / self._player.scale
        _check(abs(asked - millis) < ROOM, f"it was asked for {asked:.0f} ms")

    async def _at_rest(self, actor: Actor) -> None:
        count = -1
        quiet = 2 * self._player.case.settings.node_timeout * self._player.scale / 1000 + 0.1
        for _ in range(10):
            revokes = [it for _, it in actor.commands if it.kind == "revoke"]
            if len(revokes) == count:
                return
            count = len(revokes)
            await asyncio.sleep(quiet)
        raise Failed("it goes on revoking")

    # -- what came of it -------------------------------------------------------------------------

    async def _pending(self, actor: Actor) -> None:
        player, session = self._player, actor.session
        last, coming = player.last, player.next
        deadline = player.done_at + GRACE
        if last is not None and last.at is not None and last.is_by_clock:
            deadline = player.real(last.at)
        elif coming is not None and coming.at is not None and coming.is_by_clock:
            deadline = min(deadline, max(player.real(coming.at), player.done_at))
        if actor.is_held:
            # Renewals come at other times than written: the end of the lease is what counts.
            await session.until()
            deadline = min(deadline, session.trusted)
        await asyncio.sleep(max(deadline - time.monotonic(), 0))
        told = session.lost if actor.is_held else session.ended
        _check(told is None or told["at"] >= deadline, f"it ended: {told}")

    async def _ended(self, actor: Actor, word: str) -> dict[str, object]:
        player, session = self._player, actor.session
        await player.until(actor, lambda: session.ended is not None, f"it ends: {word}")
        ended = session.ended or {}
        _check(ended["word"] == word, f"it ended with {ended}")
        self._in_time(float(ended["at"]))
        return ended

    def _in_time(self, at: float) -> None:
        """What an answer decides is told when it comes, not when others have had their time; what
        the clock decides, at its time.
        """
        player = self._player
        is_by_clock = player.last is not None and player.last.is_by_clock
        allowed = ROOM if is_by_clock else player.case.settings.node_timeout / 2
        late = (at - player.done_at) * 1000
        _check(late < allowed * player.scale, f"told {late:.0f} ms after what decided it")

    async def _lease(self, actor: Actor, ended: dict[str, object], rest: list[str]) -> None:
        facts = dict(zip(rest[::2], rest[1::2], strict=True))
        if "token" in facts:
            wanted = self._player.token(int(facts["token"]))
            _check(ended["token"] == wanted, f"the token is {ended['token']}, not {wanted}")
        if "until" in facts:
            await self._until(actor, int(facts["until"]))

    async def _until(self, actor: Actor, written: int) -> None:
        """Never later than the round that it comes from allows, and hardly earlier."""
        end, problem = time.monotonic() + LIMIT, None
        while problem is None or time.monotonic() < end:
            until = await actor.session.until()
            try:
                return self._check_until(actor, written, until)
            except Failed as failed:
                # The library may not have taken in yet what has just happened.
                if problem is not None and until is None:
                    break
                problem = failed
            await asyncio.sleep(GRACE)
        raise problem

    def _check_until(self, actor: Actor, written: int, until: float | None) -> None:
        player, settings = self._player, self._player.case.settings
        ends = []
        for kind in ("grant", "extend"):
            for command in (round_[0] for round_ in actor.rounds(kind)):
                ttl = actor.ttls[command.ttl or 0]
                kept = (ttl - ttl * settings.drift_factor) * player.scale / 1000
                ends.append(command.arrived + kept - 0.002)
        wanted = min(ends, key=lambda end: abs(end - player.real(written)))
        away = (wanted - player.real(written)) / player.scale * 1000
        _check(abs(away) < ROOM, f"no round ends then; the nearest is {away:.0f} ms away")
        _check(until is not None, "it is over")
        left = wanted - (until or 0)
        _check(left >= 0, f"trusted {-left * 1000:.1f} ms longer than the nodes may keep the keys")
        room = ROOM * player.scale
        _check(left * 1000 < room, f"trusted {left * 1000:.1f} ms less than it could be")

    async def _outcome(self, actor: Actor, word: str) -> None:
        player, session = self._player, actor.session
        await player.until(actor, lambda: session.ended is not None, f"the outcome is {word}")
        ended = session.ended or {}
        if ended["word"] == "error":
            _check(ended["code"] == "LEASE_LOST", f"it ended with {ended}")
            _check(_says(ended["message"], word), f"the outcome is {ended['message']}")
        else:
            _check(ended["word"] == word, f"the outcome is {ended}")
        self._in_time(float(ended["at"]))

    async def _lost(self, actor: Actor, reason: str) -> None:
        player, session = self._player, actor.session
        await player.until(actor, lambda: session.lost is not None, f"it is lost: {reason}")
        lost = session.lost or {}
        _check(_says(lost["message"], reason), f"it is lost: {lost['message']}")
        self._in_time(float(lost["at"]))


def _says(message: object, word: str) -> bool:
    return any(phrase in str(message) for phrase in _PHRASES.get(word, ()))


def _check(holds: bool, problem: str) -> None:
    if not holds:
        raise Failed(problem)
