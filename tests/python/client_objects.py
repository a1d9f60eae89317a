"""What the tests of client objects share: the four kinds of clients, and what is done with each."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Coroutine
from typing import Any

import pytest
import redis
import redis.asyncio
import valkey
import valkey.asyncio

from quorlock import Redlock, aio
from tests.support.cluster import Cluster

BLOCKING = [redis.Redis, valkey.Valkey]
ASYNCIO = [redis.asyncio.Redis, valkey.asyncio.Valkey]
ALL = [*BLOCKING, *ASYNCIO]
SELECTED = "has selected database 3, on one of its connections"


async def result(value: Any) -> Any:
    """The result of a call of either kind of client."""
    return await value if inspect.isawaitable(value) else value


async def close(*clients: Any) -> None:
    """Closes these clients with their connections."""
    for client in clients:
        await result(getattr(client, "aclose", client.close)())
        await result(client.connection_pool.disconnect())


def run(kind: Any, test: Coroutine[Any, Any, None]) -> None:
    """Runs a test of either kind of client: with a blocking one it never suspends."""
    if kind in ASYNCIO:
        asyncio.run(test)
        return
    with pytest.raises(StopIteration):
        test.send(None)


def manager(kind: Any, clients: list[Any]) -> Any:
    return (aio.Redlock if kind in ASYNCIO else Redlock)(clients)


async def locked(kind: Any, cluster: Cluster) -> tuple[Any, Any]:
    """A client of the first node, and the lock "r" over it alone, which is held."""
    client = kind.from_url(cluster.urls[0])
    lock = manager(kind, [client]).lock("r")
    assert await result(lock.acquire())
    return client, lock


async def busy(client: Any) -> Any:
    """A pipeline that has taken a connection, and keeps it until its `reset()`."""
    pipeline = client.pipeline()
    await result(pipeline.watch("x"))
    return pipeline


def open_elsewhere(connection: Any, pool: Any) -> None:
    """Does what another thread may: opens a connection of the pool, and selects on it."""
    connection.connect()
    connection.send_command("SELECT", 3)
    connection.read_response()
    pool.release(connection)


def told(caplog: pytest.LogCaptureFixture, notice: str) -> list[str]:
    """The messages of the notices of this kind that were logged."""
    records: list[logging.LogRecord] = caplog.records
    return [it.getMessage() for it in records if getattr(it, "notice", None) == notice]
