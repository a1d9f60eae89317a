"""The nodes of a run, each with a proxy and a clock of its own. Decides nothing."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.cluster import Cluster, start_servers
from tests.support.old_data import Failback
from tests.support.proxy import FaultProxy
from tests.support.servers import Options, Server
from tests.support.wall_clock import WallClock


@dataclass
class Node:
    """One server, the network before it, and its clock."""

    number: int
    server: Server
    #: The way of each client to it.
    links: Sequence[FaultProxy]
    clock: WallClock
    #: What it held at the beginning of the run.
    beginning: Failback | None = None

    def each_link(self, fault: Callable[[FaultProxy], object]) -> None:
        """Something befalls the node's whole network."""
        for link in self.links:
            fault(link)

    def forget(self) -> None:
        """Removes what the server, which must be down, has saved."""
        shutil.rmtree(self.server.directory / "appendonlydir", ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):
            (self.server.directory / "appendonly.aof").unlink()


class Testbed:
    """The nodes, and a directory for everything else."""

    #: Its name begins like that of a class of tests, which it is not.
    __test__ = False

    #: Servers of the small cluster that one client uses besides.
    OTHERS = 3

    def __init__(self, count: int, clients: int = 1) -> None:
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
        links = [
            [self._things.enter_context(FaultProxy(server)) for _ in range(clients)]
            for server in servers
        ]
        self.nodes = [
            Node(number, *parts)
            for number, parts in enumerate(zip(servers, links, clocks, strict=True))
        ]

        self.others = self._things.enter_context(start_servers(self.OTHERS, Options(clock=True)))

    def urls_for(self, client: int) -> list[str]:
        """Where one client finds the nodes."""
        return [node.links[client].url for node in self.nodes]

    def keep(self) -> None:
        """Keeps what the nodes hold now, as their beginning."""
        for node in self.nodes:
            node.beginning = self._things.enter_context(Failback(node.server))

    def heal(self) -> None:
        """Everything runs and answers."""
        for node in self.nodes:
            node.each_link(FaultProxy.heal)
        self.cluster.heal()

    def close(self) -> None:
        """Ends it all."""
        self._things.close()

    def __enter__(self) -> Testbed:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
