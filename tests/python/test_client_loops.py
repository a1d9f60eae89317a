"""Tests managers over clients of asyncio whose connections belong to other event loops than the
lock: they are asked on their own loops, or not at all."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from quorlock import ConfigError, QuorumUnreachable, aio
from tests.python.client_objects import ASYNCIO, SELECTED, told
from tests.support.cluster import Cluster

Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture
def elsewhere() -> Iterator[Run]:
    """Runs coroutines on the loop of another thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield lambda work: asyncio.run_coroutine_threadsafe(work, loop).result(20)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


async def acquire(client: Any) -> Any:
    """What the first lock over a client comes to."""
    lock = aio.Redlock([client]).lock("r")
    try:
        return await lock.acquire(timeout=5) and await lock.release()
    except Exception as error:  # noqa: BLE001 - to be looked at
        return error


async def connection(client: Any) -> tuple[int, int]:
    """The connection that a client uses, and its database."""
    info = await client.client_info()
    return info["id"], info["db"]


@pytest.mark.parametrize("kind", ASYNCIO)
@pytest.mark.parametrize("database", [0, 3])
def test_a_client_of_another_loop_is_asked_there(
    cluster3: Cluster,
    elsewhere: Run,
    kind: Any,
    database: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def connected() -> Any:
        client = kind.from_url(cluster3.urls[0])
        await client.select(database)
        return client

    client = elsewhere(connected())
    before = elsewhere(connection(client))
    outcome = asyncio.run(acquire(client))
    if database == 0:
        assert outcome == "released"
    else:
        assert SELECTED in str(outcome)
    assert elsewhere(connection(client)) == before
    assert told(caplog, "unknown-database") == []
    elsewhere(client.aclose())


@pytest.mark.parametrize("kind", ASYNCIO)
def test_a_client_of_a_loop_that_is_closed_has_no_connection(cluster3: Cluster, kind: Any) -> None:
    client = kind.from_url(cluster3.urls[0])

    async def leave() -> Any:
        await client.select(3)
        (connection,) = client.connection_pool._available_connections
        connection._writer.transport.abort()
        return connection

    connection = asyncio.run(leave())
    assert connection.is_connected
    assert asyncio.run(acquire(client)) == "released"
    connection._reader = connection._writer = None


@pytest.mark.parametrize("kind", ASYNCIO)
def test_a_client_of_a_loop_that_stands_still_is_asked_when_it_runs(
    cluster3: Cluster, kind: Any, caplog: pytest.LogCaptureFixture
) -> None:
    client = kind.from_url(cluster3.urls[0])
    loop = asyncio.new_event_loop()
    loop.run_until_complete(client.select(3))
    assert asyncio.run(acquire(client)) == "released", "nobody can use it now"
    assert loop.run_until_complete(connection(client))[1] == 3
    assert SELECTED in str(loop.run_until_complete(acquire(client)))
    assert told(caplog, "unknown-database") == []
    loop.run_until_complete(client.aclose())
    loop.close()


@pytest.mark.parametrize("kind", ASYNCIO)
def test_a_question_on_a_loop_that_stands_still_holds_up_nobody(
    cluster3: Cluster, kind: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "asyncio")
    client = kind.from_url(cluster3.urls[0])
    loop = asyncio.new_event_loop()
    loop.run_until_complete(client.ping())
    cluster3[0].pause()
    try:
        locks = aio.Redlock([client])
        with pytest.raises(QuorumUnreachable):
            loop.run_until_complete(locks.lock("r").acquire(timeout=0.2))
    finally:
        cluster3[0].resume()
    assert asyncio.run(acquire(client)) == "released"
    assert loop.run_until_complete(acquire(client)) == "released"
    loop.run_until_complete(client.aclose())
    loop.close()


@pytest.mark.parametrize("kind", ASYNCIO)
def test_hung_clients_of_asyncio_are_waited_for_within_the_callers_time(
    cluster3: Cluster, kind: Any
) -> None:
    async def acquire() -> None:
        clients = [kind.from_url(url) for url in cluster3.urls]
        for client in clients:
            await client.ping()
        locks = aio.Redlock(clients)
        cluster3[0].pause()
        cluster3[1].pause()
        try:
            before = time.monotonic()
            with pytest.raises(QuorumUnreachable):
                await locks.lock("r").acquire(timeout=0.2)
            # Without a limit they are waited for a second, and the lock beyond that.
            assert time.monotonic() - before < 0.9
        finally:
            cluster3[0].resume()
            cluster3[1].resume()
        for client in clients:
            await client.aclose()

    asyncio.run(acquire())


@pytest.mark.parametrize("kind", ASYNCIO)
@pytest.mark.parametrize("options", [{"blocking": False}, {"timeout": 0.2}])
def test_a_busy_loop_makes_nobody_lock_in_an_unknown_database(
    cluster3: Cluster, kind: Any, options: dict[str, Any]
) -> None:
    async def acquire() -> None:
        clients = [kind.from_url(url) for url in cluster3.urls]
        for client in clients:
            await client.select(3)
        locks = aio.Redlock(clients)
        call = asyncio.ensure_future(locks.lock("r").acquire(**options))
        await asyncio.sleep(0)
        time.sleep(0.6)  # the loop is busy, and all timers are over
        with pytest.raises((ConfigError, QuorumUnreachable)):
            await call
        for client in clients:
            await client.aclose()

    asyncio.run(acquire())
    assert cluster3.values("r") == [None] * 3
