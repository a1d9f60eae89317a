"""What a run takes place on: nodes with proxies and clocks of their own. Decides nothing."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.support.proxy import FaultProxy
from tests.support.servers import Cluster, Options, Server
from tests.support.wall_clock import WallClock


@dataclass
class Node:
    """One server, the network before it, and its clock."""

    number: int
    server: Server
    proxy: FaultProxy
    clock: WallClock

    def forget(self) -> None:
        """Removes what the server, which must be down, has saved."""
        shutil.rmtree(self.server.directory / "appendonlydir", ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):
            (self.server.directory / "appendonly.aof").unlink()


class Stage:
    """The nodes, and a directory for everything else."""

    def __init__(self, count: int) -> None:
        """Starts the servers, which write every change to disk before they answer."""
        self._things = contextlib.ExitStack()
        self.directory = Path(self._things.enter_context(tempfile.TemporaryDirectory()))
        clocks = [WallClock(self.directory, f"clock-{number}") for number in range(count)]
        servers = [
            Server(Options(appendonly=True, env=clock.variables), wait=False) for clock in clocks
        ]
        self.cluster = self._things.enter_context(Cluster(servers))
        for server in servers:
            server.wait_ready()
        proxies = [self._things.enter_context(FaultProxy(server)) for server in servers]
        self.nodes = [
            Node(number, *parts)
            for number, parts in enumerate(zip(servers, proxies, clocks, strict=True))
        ]

    @property
    def urls(self) -> list[str]:
        """Where clients find the nodes."""
        return [node.proxy.url for node in self.nodes]

    def heal(self) -> None:
        """Everything runs and answers."""
        for node in self.nodes:
            node.proxy.heal()
        self.cluster.heal()

    def close(self) -> None:
        """Ends it all."""
        self._things.close()

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
