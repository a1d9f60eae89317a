"""The fixtures of the Python suite: servers, proxies and workers of other lock libraries."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.python.overtaking import Tokens, next_holder, overtake
from tests.support import mariadb as mariadbs
from tests.support import postgres as postgreses
from tests.support.cluster import Cluster, start_servers
from tests.support.mariadb import MariaDb
from tests.support.peer_process import PeerProcess
from tests.support.postgres import Postgres
from tests.support.proxy import FaultProxy
from tests.support.servers import Options, Server
from tests.support.tls import Certificates, certificates


@pytest.fixture
def servers() -> Iterator[Callable[..., Cluster]]:
    """`servers(3, password="x")`: servers of this test's own; keywords are those of Options."""
    with contextlib.ExitStack() as started:

        def start(count: int = 1, **options: Any) -> Cluster:
            return started.enter_context(start_servers(count, Options(**options)))

        yield start


class _Shared:
    """Servers that tests share for as long as no client has a reason to hold one of them back: none
    was started anew, and either all or none are set up."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._cluster: Cluster | None = None
        self._processes: list[int] = []

    @contextlib.contextmanager
    def lent(self) -> Iterator[Cluster]:
        """The servers, running and without a key."""
        if self._cluster is None:
            self._cluster = start_servers(self._count)
            self._processes = [server.pid for server in self._cluster]
        cluster = self._cluster
        cluster.reset()
        try:
            yield cluster
        finally:
            is_as_it_was = [it.running and it.pid for it in cluster] == self._processes
            cluster.heal()
            if not is_as_it_was or not _are_alike(cluster):
                self.close()

    def close(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None


def _are_alike(cluster: Cluster) -> bool:
    canaries = cluster.values("quorlock:{node}:canary")
    is_trusted = all(server.is_trusted() for server in cluster)
    return is_trusted or canaries == [None] * len(cluster)


@pytest.fixture(scope="session")
def _three() -> Iterator[_Shared]:
    with contextlib.closing(_Shared(3)) as shared:
        yield shared


@pytest.fixture(scope="session")
def _five() -> Iterator[_Shared]:
    with contextlib.closing(_Shared(5)) as shared:
        yield shared


@pytest.fixture
def cluster3(_three: _Shared) -> Iterator[Cluster]:
    """Three servers without a key, shared by the session; a test may do to them what it likes."""
    with _three.lent() as cluster:
        yield cluster


@pytest.fixture
def cluster5(_five: _Shared) -> Iterator[Cluster]:
    """Five servers without a key, shared by the session; a test may do to them what it likes."""
    with _five.lent() as cluster:
        yield cluster


@pytest.fixture
def acquired(cluster3: Cluster) -> Iterator[Callable[[], int]]:
    """`acquired()`: waits for the lock, holds it, and returns the fencing token."""
    with next_holder(cluster3) as acquire:
        yield acquire


@pytest.fixture
def overtaken(cluster3: Cluster) -> Iterator[Tokens]:
    """The fencing tokens of a holder that paused for too long, and of the one that came after."""
    with overtake(cluster3) as tokens:
        yield tokens


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL server, shared by the session."""
    folder = postgreses.programs()
    if folder is None:
        pytest.skip(postgreses.MISSING)
    with contextlib.closing(Postgres(folder)) as server:
        yield server


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDb]:
    """A MariaDB server, shared by the session."""
    folder = mariadbs.programs()
    if folder is None:
        pytest.skip(mariadbs.MISSING)
    with contextlib.closing(MariaDb(folder)) as server:
        yield server


@pytest.fixture
def fault_proxy() -> Iterator[Callable[..., FaultProxy]]:
    """`fault_proxy(server)`: a proxy before a server, closed after the test."""
    with contextlib.ExitStack() as opened:

        def open_proxy(server: Server, **options: Any) -> FaultProxy:
            return opened.enter_context(FaultProxy(server, **options))

        yield open_proxy


@pytest.fixture
def peer() -> Iterator[Callable[[str, Cluster], PeerProcess]]:
    """`peer("redlock-py", cluster)`: another library in a process of its own."""
    with contextlib.ExitStack() as started:

        def start(name: str, cluster: Cluster) -> PeerProcess:
            return started.enter_context(PeerProcess(name, [node.address for node in cluster]))

        yield start


@pytest.fixture(scope="session")
def certs() -> Certificates:
    """Certificates of this run: `FaultProxy(server, tls=certs.server_context())` speaks TLS."""
    return certificates()
