"""Tests many tasks whose grants share calls, while servers forget scripts, cut off and hang.

A shared grant that is not done is asked for again by itself: never twice, nor after its revoke.
"""

from __future__ import annotations

import asyncio
import random

import quorlock
import quorlock.aio
from tests.support.cluster import Cluster
from tests.support.servers import Server
from tests.support.wait import eventually
from tests.torture.counts import times

TASKS = 64
RESOURCES = 40
LOCKS = times(3_000, 60_000)


class Callers:
    """Tasks that take locks by chance, and what they saw."""

    def __init__(self, locks: quorlock.aio.Redlock, seed: int) -> None:
        """The number of locks over all of them."""
        self.locks = locks
        self.dice = random.Random(seed)
        self.inside: dict[str, int] = {}
        self.last: dict[str, int] = {}
        self.left = LOCKS
        self.taken = 0

    async def run(self) -> None:
        """Until all are taken."""
        await asyncio.gather(*(self._task() for _ in range(TASKS)))

    async def _task(self) -> None:
        while self.left > 0:
            self.left -= 1
            name = f"shared {self.dice.randrange(RESOURCES)}"
            try:
                async with self.locks.lock(name, ttl=20, timeout=30) as lease:
                    token = lease.fencing_token
                    assert self.inside.get(name, 0) == 0, "two are in"
                    assert token is not None
                    assert token > self.last.get(name, 0), "tokens grow"
                    self.inside[name], self.last[name] = 1, token
                    await asyncio.sleep(self.dice.random() / 200)
                    self.inside[name] = 0
                    self.taken += 1
            except quorlock.LockNotAcquired:
                pass


async def trouble(servers: list[Server], dice: random.Random) -> None:
    """One server after another, never more than one at a time."""
    while True:
        server = dice.choice(servers)
        match dice.randrange(4):
            case 0 | 1:
                server.command("SCRIPT", "FLUSH")
            case 2:
                server.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            case _:
                server.pause()
                try:
                    await asyncio.sleep(0.05)  # hung for this long
                finally:
                    server.resume(wait=False)
        await asyncio.sleep(dice.random() / 20)  # faults at random moments


def test_callers_with_shared_grants_keep_out_of_each_others_way(cluster3: Cluster) -> None:
    async def main() -> Callers:
        async with quorlock.aio.Redlock(cluster3.urls, retry_delay=0.01) as locks:
            callers = Callers(locks, seed=7)
            faults = asyncio.ensure_future(trouble(list(cluster3), random.Random(7)))
            try:
                await callers.run()
            finally:
                faults.cancel()
            return callers

    callers = asyncio.run(main(), debug=False)
    assert callers.taken > LOCKS // 2
    # Long before their ttl.
    eventually(lambda: not any(server.keys("shared*") for server in cluster3), within=5.0)
