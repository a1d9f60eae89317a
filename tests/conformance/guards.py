"""The guards in a golden schedule that is played with a real library: what happens to the servers
behind the scripted nodes, and what is expected of the clients that look at them.

The library looks whenever it connects; so that is how a client is made to look.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence

from tests.conformance.clients import Json
from tests.conformance.player import GRACE, LIMIT, Actor, Failed, Player
from tests.conformance.schedule import Line

#: Milliseconds of the file by which a quarantine may end later than written, as everything comes
#: late here, and earlier, as the file counts from the moment that it looks.
LATE, EARLY = 50, 10


def is_theirs(line: Line) -> bool:
    """Whether a line tells what happens to a server, or to what a client knows of the servers."""
    is_answer = "->" in line.words
    return line.words[0] in {"look", "still"} or (line.words[0] == "node" and not is_answer)


async def happen(player: Player, line: Line) -> None:
    """Does what happens."""
    actor = player.actors[line.client]
    if line.words[0] == "still":
        # The time that a client does not see pass does not pass here: the servers' clocks tell it.
        lost = int(line.words[1]) * player.scale / 1000
        player.began -= lost
        for site in player.sites:
            site.ahead += lost
    await player.until_due(line)
    match line.words:
        case ("look", *node):
            every = range(len(actor.nodes))
            await look(player, actor, [int(index) for index in node] or every)
        case ("node", index, "restarted"):
            player.sites[int(index)].restart()
            looks = (look(player, each, [int(index)]) for each in player.actors.values())
            await asyncio.gather(*looks)
        case ("node", index, "flushed"):
            player.sites[int(index)].flush()
        case ("node", index, "clock", step):
            player.sites[int(index)].ahead += int(step) * player.scale / 1000
        case ("still", _):
            pass
        case _:
            raise Failed(f"nothing that can happen: {' '.join(line.words)}")
    player.has_happened(line)


async def prepare(player: Player, line: Line) -> None:
    """Before a lock is asked for: what is left of an earlier release is done, as a node that owes
    an answer would be taken for hung; and what ends then by the file ends a little later here.
    """
    if not player.sites or line.words[0] != "acquire":
        return
    await player.until_due(line)
    actor = player.actors[line.client]
    for node in actor.nodes:
        node.takes_back = True
        for command in node.commands:
            if command.kind == "revoke" and not command.is_answered:
                node.answer(command, [1, 0, -2, 0])
    await settle(player, actor, ends=LATE)


async def look(player: Player, actor: Actor, nodes: Sequence[int]) -> None:
    """A client looks at these nodes, and knows what to make of each node then."""
    nodes = [index for index in nodes if index not in actor.down]
    before = {index: actor.nodes[index].looks for index in nodes}
    for index in nodes:
        actor.nodes[index].cut()
    await player.until(
        actor, lambda: all(actor.nodes[index].looks > before[index] for index in nodes), "it looks"
    )
    await settle(player, actor)


async def settle(player: Player, actor: Actor, ends: float = 0) -> None:
    """Waits until a client knows what to make of each node, and until what is to end within so many
    milliseconds of the file has ended.
    """

    def is_settled(state: Json) -> bool:
        quarantined = state["state"] == "quarantined"
        if quarantined and (state["quarantine"] or 0) * 1000 < ends * player.scale:
            return False
        return state["state"] not in {"connecting", "down"}

    end = time.monotonic() + LIMIT
    looks = -1
    while time.monotonic() < end and not owes_a_look(actor):
        states = await actor.session.nodes()
        count = sum(node.looks for node in actor.nodes)
        live = [state for index, state in enumerate(states) if index not in actor.down]
        if count == looks and all(map(is_settled, live)):
            return
        looks = count
        await asyncio.sleep(GRACE)
    if not owes_a_look(actor):
        raise Failed(f"it does not know what to make of the nodes: {states}")


def must_wait(player: Player, line: Line) -> bool:
    """Whether what is expected can be seen only after the next happening, as a look lies on a wire
    behind a command that has no answer yet.
    """
    is_theirs_to_tell = line.words[0] == "trusts" or line.words[:2] == ("holds", "back")
    return is_theirs_to_tell and owes_a_look(player.actors[line.client])


def owes_a_look(actor: Actor) -> bool:
    """Whether a look lies on a wire behind a command that the file answers later."""
    return any(node.owes_a_look for node in actor.nodes)


async def expect_trusted(player: Player, actor: Actor, nodes: list[int]) -> None:
    """The grants of these nodes count, and of no others."""
    end = time.monotonic() + LATE * player.scale / 1000
    while True:
        states = await actor.session.nodes()
        trusted = [index for index, state in enumerate(states) if state["state"] == "healthy"]
        if trusted == nodes:
            return
        if time.monotonic() > end:
            raise Failed(f"it trusts {trusted}: {states}")
        await asyncio.sleep(GRACE / 3)


async def expect_quarantined(player: Player, actor: Actor, index: int, millis: int) -> None:
    """Expects the node to be in quarantine for this long after the last event."""
    assert player.last is not None
    assert player.last.at is not None
    end = time.monotonic() + LATE * player.scale / 1000
    while (state := (await actor.session.nodes())[index])["state"] != "quarantined":
        if time.monotonic() > end:
            raise Failed(f"it is {state}")
        await asyncio.sleep(GRACE / 3)
    ends = time.monotonic() + state["quarantine"]
    away = (ends - player.real(player.last.at + millis)) * 1000 / player.scale
    if not -EARLY < away < LATE:
        raise Failed(f"it is held back until {away:.1f} ms from then")


def expect_said(player: Player, message: str, words: str) -> None:
    """The sentence has these words in it; times in them are those of the file."""
    pattern = re.sub(r"(\d+) ms", r"([\\d.]+) (m?s)", re.escape(words).replace(r"\ ", " "))
    found = re.search(pattern, message)
    if found is None:
        raise Failed(f"it says: {message}")
    for written, told, unit in zip(
        re.findall(r"(\d+) ms", words), found.groups()[::2], found.groups()[1::2], strict=True
    ):
        millis = float(told) * (1 if unit == "ms" else 1000) / player.scale
        # It is told with one digit after the point.
        if abs(millis - int(written)) > LATE:
            raise Failed(f"it says {millis:.0f} ms: {message}")
