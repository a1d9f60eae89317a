"""The fixtures of the command's tests: those of the Python suite, and the command itself."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.cli.command import Command
from tests.python.conftest import (  # noqa: F401  (fixtures)
    _three,
    certs,
    cluster3,
    fault_proxy,
    servers,
)
from tests.support.cluster import Cluster, start_servers
from tests.support.options import Options

Start = Callable[..., Command]


@pytest.fixture(scope="session")
def healthy() -> Iterator[Cluster]:
    """Three servers as the documentation wants them."""
    with start_servers(3, Options(appendonly=True)) as cluster:
        cluster.reset()
        yield cluster


@pytest.fixture
def start() -> Iterator[Start]:
    """`start("run", "job", "--", "true", nodes=cluster3.urls)`: the command, ended in the end."""
    with contextlib.ExitStack() as started:

        def start(*words: str | bytes, **options: Any) -> Command:
            return started.enter_context(Command(*words, **options))

        yield start
