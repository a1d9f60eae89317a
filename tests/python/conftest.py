"""Fixtures of the Python suite: servers, proxies and workers of peer libraries."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.peer_process import PeerProcess
from tests.support.proxy import FaultProxy
from tests.support.servers import Cluster, Options, Server, start_servers
from tests.support.tls import Certificates, certificates


@pytest.fixture
def servers() -> Iterator[Callable[..., Cluster]]:
    """`servers(3, password="x")`: servers of this test's own; keywords are those of Options."""
    with contextlib.ExitStack() as started:

        def start(count: int = 1, **options: Any) -> Cluster:
            return started.enter_context(start_servers(count, Options(**options)))

        yield start


@pytest.fixture(scope="session")
def _three() -> Iterator[Cluster]:
    with start_servers(3) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def _five() -> Iterator[Cluster]:
    with start_servers(5) as cluster:
        yield cluster


@pytest.fixture
def cluster3(_three: Cluster) -> Iterator[Cluster]:
    """Three servers without a key, shared by the session; a test may do to them what it likes."""
    _three.reset()
    yield _three
    _three.heal()


@pytest.fixture
def cluster5(_five: Cluster) -> Iterator[Cluster]:
    """Five servers without a key, shared by the session; a test may do to them what it likes."""
    _five.reset()
    yield _five
    _five.heal()


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
