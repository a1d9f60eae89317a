"""Runs one try of one row, with servers, proxies and processes of its own, which it ends."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import prepare
from bench.worker import Failed, TimedOut, Worker
from tests.support.cluster import Cluster, start_servers
from tests.support.proxy import FaultProxy
from tests.support.servers import Options, Server
from tests.support.wall_clock import WallClock

Json = dict[str, Any]
RESOURCE = "invoice"
#: What every process locks first, so that it is connected.
WARM_UP = "warm-up"
#: Seconds for one request, which is at most one acquisition and one release.
LIMIT = 10.0
_NODE = ("node-redlock 5", "redlock-universal")


@dataclass(frozen=True)
class Library:
    """A library as COMPARE.md names it."""

    name: str
    style: str = ""
    environment: dict[str, str] = field(default_factory=dict)

    def command(self) -> Sequence[str | Path]:
        """Its program; the nodes come after it."""
        if self.name in _NODE:
            return ["node", prepare.HERE / "compare" / "peers" / "node.mjs", self.name]
        return [sys.executable, "-m", "bench.compare.peers.worker", self.name]

    def variables(self) -> dict[str, str]:
        """Of its environment, beside those that it inherits."""
        return self.environment


class Trial(contextlib.ExitStack):
    """What a row's program needs."""

    def __init__(self, library: str) -> None:
        super().__init__()
        self.library = library

    def servers(self, count: int = 3, **options: Any) -> Cluster:
        """Fresh ones."""
        return self.enter_context(start_servers(count, Options(**options)))

    def proxies(self, cluster: Cluster) -> list[FaultProxy]:
        """One before each server."""
        return [self.enter_context(FaultProxy(server)) for server in cluster]

    def peer(self, nodes: Sequence[str], clock: WallClock | None = None) -> Peer:
        """A process of the library that has locked on these nodes once."""
        library = Library(self.library, environment=clock.variables if clock else {})
        peer = Peer(self.enter_context(Worker(library, nodes)))
        peer.acquire(WARM_UP)
        peer.release(WARM_UP)
        return peer

    def clock(self) -> WallClock:
        """A wall clock for a peer."""
        return WallClock(Path(self.enter_context(tempfile.TemporaryDirectory())))


class Peer:
    """A process of a library, with its own defaults. `ttl` in milliseconds."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def begin(self, do: str, resource: str = RESOURCE, **request: Any) -> None:
        """Asks without waiting."""
        self._worker.begin({"do": do, "resource": resource, **request})

    def finish(self, limit: float = LIMIT) -> Json | None:
        """The next answer; None if there is none within `limit` seconds."""
        try:
            return self._worker.finish(limit)
        except TimedOut:
            return None

    def acquire(
        self, resource: str = RESOURCE, ttl: int = 20_000, *, once: bool = False
    ) -> Json | None:
        """`held`, and `raised` or `valid_for` (seconds); None if it takes more than `LIMIT`."""
        self.begin("acquire", resource, ttl=ttl, once=once)
        return self.finish()

    def release(self, resource: str = RESOURCE) -> Json | None:
        """`told`, what came back, and `raised`."""
        self.begin("release", resource)
        return self.finish()

    def pair(self) -> tuple[Json | None, float]:
        """An acquisition, and the seconds that it and its release took."""
        answer = self.acquire()
        if answer is None or not answer["held"]:
            return answer, LIMIT
        released = self.release()
        if released is None:
            return None, LIMIT
        return answer, answer["seconds"] + released["seconds"]


def addresses(nodes: Sequence[Server | FaultProxy]) -> list[str]:
    """What peers are told of nodes."""
    return [node.address for node in nodes]


def key_of(server: Server, resource: str = RESOURCE) -> str | None:
    """The key that a library keeps for a resource; pottery puts a word before it."""
    names = (resource, f"redlock:{resource}")
    return next((name for name in names if server.command("EXISTS", name)), None)


def steal(cluster: Sequence[Server]) -> None:
    """Gives every key of the resource to another holder."""
    for server in cluster:
        if key := key_of(server):
            server.command("SET", key, "another", "PX", 60_000)


__all__ = [
    "LIMIT",
    "RESOURCE",
    "WARM_UP",
    "Failed",
    "Library",
    "Peer",
    "Trial",
    "addresses",
    "key_of",
    "steal",
]
