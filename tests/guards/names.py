"""Prints what locks with ever fresh names leave on nodes: `python -m tests.guards.names`.

A thousand names a second are locked and released over three servers for five minutes, each name
once. It fails if a node needs more than ten megabytes for that, or a key of a name is left.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time

from quorlock.aio import Redlock
from tests.support.cluster import Cluster, start_servers
from tests.support.servers import Server

#: What a node may have more than before, in bytes.
LIMIT = 10_000_000
#: How often in a second a batch of names is begun.
BATCHES = 50
#: Seconds.
TELL_EVERY = 30
#: The keys of the guards, and the table of fences.
OWN_KEYS = 4


def figures(server: Server) -> tuple[int, int]:
    """What the server has in use, in bytes, and how many keys."""
    memory = str(server.command("INFO", "memory"))
    used = next(line for line in memory.splitlines() if line.startswith("used_memory:"))
    return int(used.removeprefix("used_memory:")), int(server.command("DBSIZE"))


async def lock_once(locks: Redlock, name: str) -> None:
    """Takes a lock and gives it back."""
    async with locks.lock(name):
        pass


async def lock_names(cluster: Cluster, seconds: float, rate: int) -> int:
    """Locks fresh names at that rate; returns how many they were."""
    async with Redlock(cluster.urls, ttl=10) as locks, asyncio.TaskGroup() as tasks:
        await lock_once(locks, "first")
        before = [figures(server)[0] for server in cluster]
        began, count, told = time.monotonic(), 0, 0.0
        while (passed := time.monotonic() - began) < seconds:
            due = int(passed * rate)
            for number in range(count, due):
                tasks.create_task(lock_once(locks, f"fresh-{number}"))
            count = due
            if passed - told >= TELL_EVERY:
                told = passed
                tell(cluster, before, passed)
            await asyncio.sleep(1 / BATCHES)
        tell(cluster, before, passed)
        return count


def tell(cluster: Cluster, before: list[int], passed: float) -> None:
    """Prints a line; ends the program if a node has too much."""
    found = [figures(server) for server in cluster]
    more = max(used - then for (used, _), then in zip(found, before, strict=True))
    keys = max(keys for _, keys in found)
    print(f"after {passed:3.0f} s: {more / 1e6:.2f} MB more on a node, {keys} keys", flush=True)
    if more > LIMIT:
        sys.exit("that is too much")


def main() -> None:
    """The command line."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("seconds", type=int, nargs="?", default=300)
    options.add_argument("rate", type=int, nargs="?", default=1000)
    asked = options.parse_args()
    with start_servers(3) as cluster:
        count = asyncio.run(lock_names(cluster, asked.seconds, asked.rate))
        left = max(figures(server)[1] for server in cluster)
        print(f"{count} names; {left} keys are left on a node")
        if left > OWN_KEYS:
            sys.exit("keys of names are left")


if __name__ == "__main__":
    main()
