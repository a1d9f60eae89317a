"""Many Python clients that hold a lock each, for test_restart_under_many.py.

They use the blocking API, or that for asyncio (`aio`); many_clients.mjs does the same in Node.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import Any

from quorlock import Redlock, aio


def say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def is_seen(managers: list[Any]) -> bool:
    return all(locks.nodes[1].state == "quarantined" for locks in managers)


def blocking(count: int, urls: list[str]) -> None:
    managers = [Redlock(urls, auto_extend=True) for _ in range(count)]
    held = [locks.lock(f"{os.getpid()}-{index}") for index, locks in enumerate(managers)]
    assert all(lock.acquire() for lock in held)
    say("held")
    while not is_seen(managers):
        time.sleep(0.01)
    say("seen")
    sys.stdin.read()
    for lock in held:
        lock.release()


async def with_asyncio(count: int, urls: list[str]) -> None:
    managers = [aio.Redlock(urls, auto_extend=True) for _ in range(count)]
    held = [locks.lock(f"{os.getpid()}-{index}") for index, locks in enumerate(managers)]
    assert all(await asyncio.gather(*(lock.acquire() for lock in held)))
    say("held")
    while not is_seen(managers):  # noqa: ASYNC110 - a state has no event to wait for
        await asyncio.sleep(0.01)
    say("seen")
    await asyncio.to_thread(sys.stdin.read)
    await asyncio.gather(*(lock.release() for lock in held))


if __name__ == "__main__":
    kind, count, *urls = sys.argv[1:]
    if kind == "aio":
        asyncio.run(with_asyncio(int(count), urls))
    else:
        blocking(int(count), urls)
