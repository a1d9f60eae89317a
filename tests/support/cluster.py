"""Several independent servers at once (not a Redis Cluster).

with start_servers(5) as cluster:
    cluster[0].pause()
    cluster[1].kill()
    cluster.urls          # ["redis://127.0.0.1:40001", ...]
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import overload

from tests.support.options import Options
from tests.support.servers import Server, ServerEnded


class Cluster(Sequence[Server]):
    """N independent servers (not a Redis Cluster), with what tests ask of all of them."""

    def __init__(self, servers: Sequence[Server]) -> None:
        """Takes over servers that run already."""
        self._servers = list(servers)

    @overload
    def __getitem__(self, index: int) -> Server: ...
    @overload
    def __getitem__(self, index: slice) -> list[Server]: ...
    def __getitem__(self, index: int | slice) -> Server | list[Server]:
        """The server or servers at a place."""
        return self._servers[index]

    def __len__(self) -> int:
        return len(self._servers)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def urls(self) -> list[str]:
        """URLs of all servers, in order."""
        return [server.url for server in self._servers]

    def values(self, key: str) -> list[str | None]:
        """What each running server holds under a name (None: nothing, or it cannot answer)."""
        return [
            server.command("GET", key) if server.running and not server.paused else None
            for server in self._servers
        ]

    def heal(self) -> None:
        """Every server runs and answers; keys stay."""
        for server in self._servers:
            server.heal()

    def reset(self) -> None:
        """Every server runs, answers and holds no lock; none is held back by the guards."""
        reset(self._servers)

    def close(self) -> None:
        """Ends all servers."""
        for server in self._servers:
            server.close()


def reset(servers: Sequence[Server]) -> None:
    """As `Cluster.reset`. Servers that all remember go on as they were, for clients that were
    there before; if one has forgotten, they are a cluster that has just been founded, for clients
    that come."""
    for server in servers:
        server.heal()
    remember = all(server.is_trusted() for server in servers)
    for server in servers:
        if remember:
            server.empty()
        else:
            server.flush()
            server.found()


def start_servers(count: int, options: Options | None = None) -> Cluster:
    """Starts servers with the same options; returns when each answers."""
    for _ in range(3):
        # A second port that a server takes by itself (the bus of a cluster) may be somebody's.
        with contextlib.suppress(ServerEnded):
            return _started(count, options)
    return _started(count, options)


def _started(count: int, options: Options | None) -> Cluster:
    with contextlib.ExitStack() as started:
        servers = [started.enter_context(Server(options, wait=False)) for _ in range(count)]
        for server in servers:
            server.wait_ready()
        started.pop_all()  # all came up: now they are the caller's to close
    return Cluster(servers)
