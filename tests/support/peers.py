"""Workers that lock with other Python libraries, driven by lines of JSON.

    python -m tests.support.peers redlock-py 127.0.0.1:7001 127.0.0.1:7002 127.0.0.1:7003

    < {"peer": "redlock-py", "version": "1.0.8"}
    > {"do": "acquire", "resource": "a", "ttl": 5000}      one attempt; milliseconds
    < {"result": "token"}                                  null: held by another
    > {"do": "extend", "resource": "a", "ttl": 5000}
    > {"do": "release", "resource": "a"}

A library that can wait is told not to: each request is one attempt, so that a test decides what
happens between two. Not here: redlock-ng (its module is named `redlock` too, as redlock-py's, and
it needs redis-py before 6) and redlock-plus (needs redis-py 4).
"""

from __future__ import annotations

import asyncio
import json
import sys
import warnings
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, Protocol

# aioredis 1.3 is from 2019; its warnings are not ours to fix.
warnings.simplefilter("ignore")


class Peer(Protocol):
    """What a worker does. Milliseconds in, as on the wire."""

    def acquire(self, resource: str, ttl: int) -> str | None: ...
    def extend(self, resource: str, ttl: int) -> bool: ...
    def release(self, resource: str) -> bool: ...


class RedlockPy:
    """redlock-py: no extend; release never says whether it released."""

    package = "redlock-py"

    def __init__(self, nodes: Sequence[tuple[str, int]]) -> None:
        from redlock import Redlock

        # retry_count 0 would be taken as "default".
        connections = [{"host": host, "port": port, "db": 0} for host, port in nodes]
        self._locks = Redlock(connections, retry_count=1)
        self._held: dict[str, Any] = {}

    def acquire(self, resource: str, ttl: int) -> str | None:
        lock = self._locks.lock(resource, ttl)
        if not lock:
            return None
        self._held[resource] = lock
        token: str = lock.key.decode()
        return token

    def extend(self, resource: str, ttl: int) -> bool:
        raise NotImplementedError("redlock-py has no extend")

    def release(self, resource: str) -> bool:
        self._locks.unlock(self._held.pop(resource))
        return True


class RedisPy:
    """redis-py's Lock: one node only (the first is used); valkey-py's is the same code."""

    package = "redis"

    def __init__(self, nodes: Sequence[tuple[str, int]]) -> None:
        self._client = self._connect(*nodes[0])
        self._held: dict[str, Any] = {}

    def _connect(self, host: str, port: int) -> Any:
        from redis import Redis

        return Redis(host, port, decode_responses=True)

    def acquire(self, resource: str, ttl: int) -> str | None:
        lock = self._client.lock(resource, timeout=ttl / 1000, thread_local=False)
        if not lock.acquire(blocking=False):
            return None
        self._held[resource] = lock
        # The Lua script compares bytes, so the token is kept as bytes: a hexadecimal uuid1.
        token: str = lock.local.token.decode()
        return token

    def extend(self, resource: str, ttl: int) -> bool:
        return bool(self._held[resource].extend(ttl / 1000, replace_ttl=True))

    def release(self, resource: str) -> bool:
        # Raises LockNotOwnedError when it had expired.
        self._held.pop(resource).release()
        return True


class ValkeyPy(RedisPy):
    """valkey-py: redis-py's Lock under another name."""

    package = "valkey"

    def _connect(self, host: str, port: int) -> Any:
        from valkey import Valkey

        return Valkey(host, port, decode_responses=True)


class RedisPyAsyncio:
    """redis.asyncio's Lock, on a loop of its own; one node only."""

    package = "redis"

    def __init__(self, nodes: Sequence[tuple[str, int]]) -> None:
        from redis.asyncio import Redis

        self._run = asyncio.Runner().run
        self._client = Redis(host=nodes[0][0], port=nodes[0][1], decode_responses=True)
        self._held: dict[str, Any] = {}

    def acquire(self, resource: str, ttl: int) -> str | None:
        async def work() -> str | None:
            lock = self._client.lock(resource, timeout=ttl / 1000, thread_local=False)
            if not await lock.acquire(blocking=False):
                return None
            self._held[resource] = lock
            token: str = lock.local.token.decode()
            return token

        return self._run(work())

    def extend(self, resource: str, ttl: int) -> bool:
        async def work() -> bool:
            return bool(await self._held[resource].extend(ttl / 1000, replace_ttl=True))

        return self._run(work())

    def release(self, resource: str) -> bool:
        async def work() -> None:
            await self._held.pop(resource).release()

        self._run(work())
        return True


class Aioredlock:
    """aioredlock 0.7 over aioredis 1.3: last released in 2022, still works on Python 3.11."""

    package = "aioredlock"

    def __init__(self, nodes: Sequence[tuple[str, int]]) -> None:
        import aioredlock

        self._run = asyncio.Runner().run
        self._errors = aioredlock.LockError
        addresses = [{"host": host, "port": port} for host, port in nodes]

        async def build() -> Any:
            return aioredlock.Aioredlock(addresses, retry_count=1)

        self._locks = self._run(build())
        self._held: dict[str, Any] = {}

    def acquire(self, resource: str, ttl: int) -> str | None:
        async def work() -> str | None:
            try:
                # Its keep-alive is a task per lock; none is started with a timeout of its own.
                lock = await self._locks.lock(resource, lock_timeout=ttl / 1000)
            except self._errors:
                return None
            self._held[resource] = lock
            token: str = lock.id
            return token

        return self._run(work())

    def extend(self, resource: str, ttl: int) -> bool:
        self._run(self._locks.extend(self._held[resource], ttl / 1000))
        return True

    def release(self, resource: str) -> bool:
        self._run(self._locks.unlock(self._held.pop(resource)))
        return True


class Pottery:
    """pottery's Redlock: its keys are `redlock:NAME`, so it excludes only locks of that name."""

    package = "pottery"

    def __init__(self, nodes: Sequence[tuple[str, int]]) -> None:
        from redis import Redis

        self._masters = {Redis(host, port) for host, port in nodes}
        self._held: dict[str, Any] = {}

    def acquire(self, resource: str, ttl: int) -> str | None:
        from pottery import Redlock

        key = resource.removeprefix("redlock:")
        lock = Redlock(key=key, masters=self._masters, auto_release_time=ttl / 1000)
        if not lock.acquire(blocking=False):
            return None
        self._held[resource] = lock
        uuid: str = lock._uuid
        return uuid

    def extend(self, resource: str, ttl: int) -> bool:  # noqa: ARG002
        # Always by its own auto_release_time, three times at most unless told otherwise.
        self._held[resource].extend()
        return True

    def release(self, resource: str) -> bool:
        self._held.pop(resource).release()
        return True


PEERS: dict[str, Any] = {
    "redlock-py": RedlockPy,
    "redis-py": RedisPy,
    "redis-py-asyncio": RedisPyAsyncio,
    "valkey-py": ValkeyPy,
    "aioredlock": Aioredlock,
    "pottery": Pottery,
}


def main() -> None:
    """The command line: a peer's name and the nodes."""
    name, *addresses = sys.argv[1:]
    kind = PEERS[name]
    nodes = [(host, int(port)) for host, port in (item.rsplit(":", 1) for item in addresses)]
    peer: Peer = kind(nodes)
    _say({"peer": name, "version": version(kind.package)})
    for line in sys.stdin:
        request = json.loads(line)
        action = getattr(peer, request.pop("do"))
        try:
            _say({"result": action(**request)})
        except Exception as error:  # noqa: BLE001 - whatever it is, the other side is told
            _say({"error": f"{type(error).__name__}: {error}"})


def _say(message: dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)


if __name__ == "__main__":
    main()
