"""Tests managers over clients of redis-py and valkey-py of which some connections are silent: their
peer is gone, their server hangs, the way is long, or the program closes them meanwhile."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
import redis
import redis.asyncio
import valkey
import valkey.asyncio

from quorlock import QuorumUnreachable, Redlock
from quorlock._asking import connections_of
from quorlock._questions import Question
from tests.python.client_objects import (
    ALL,
    ASYNCIO,
    BLOCKING,
    busy,
    close,
    manager,
    result,
    run,
    told,
)
from tests.support.cluster import Cluster
from tests.support.forgetting import ForgettingWay
from tests.support.proxy import FaultProxy
from tests.support.wait import eventually

CLOSED = "its connection was closed: the next begins with database 0"
LIBRARIES = {
    redis.Redis: redis,
    valkey.Valkey: valkey,
    redis.asyncio.Redis: redis.asyncio,
    valkey.asyncio.Valkey: valkey.asyncio,
}


async def with_idle(kind: Any, url: str, count: int, **options: Any) -> Any:
    """A client with this number of idle connections."""
    client = kind.from_url(url, socket_timeout=None, **options)
    await give_idle(client, count)
    return client


async def give_idle(client: Any, count: int) -> None:
    pipelines = [await busy(client) for _ in range(count)]
    for pipeline in pipelines:
        await result(pipeline.reset())


async def soon(condition: Callable[[], object]) -> None:
    """As `eventually`, while a loop goes on."""
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(None, eventually, condition)


async def soon_acquired(lock: Any) -> None:
    """Acquires a lock within three calls, which wait a second each for clients."""
    for _ in range(2):
        try:
            assert await result(lock.acquire(timeout=5))
        except QuorumUnreachable:
            continue
        return
    assert await result(lock.acquire(timeout=5))


def ids(url: str) -> set[int]:
    """The connections at a server."""
    with redis.Redis.from_url(url) as admin:
        return {int(it["id"]) for it in admin.client_list()} - {admin.client_id()}


def in_use(client: Any) -> int:
    """How many connections are out of a client's pool."""
    pool = client.connection_pool
    if hasattr(pool, "_in_use_connections"):
        return len(pool._in_use_connections)
    return int(pool.max_connections - pool.pool.qsize())


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize(("most", "number"), [(3, 2), (None, 0)])
def test_a_connection_whose_peer_is_gone_is_closed(
    cluster3: Cluster,
    kind: Any,
    most: int | None,
    number: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(way: ForgettingWay) -> None:
        client = await with_idle(kind, way.url, 3, max_connections=most)
        way.forget(number)
        await soon_acquired(manager(kind, [client]).lock("r"))
        (warning,) = told(caplog, "unknown-database")
        assert CLOSED in warning
        assert in_use(client) == 0
        await close(client)

    with ForgettingWay(cluster3[0]) as way:
        run(kind, test(way))


@pytest.mark.parametrize("kind", ALL)
def test_one_that_was_made_later_shows_that_the_only_one_is_dead(
    cluster3: Cluster, kind: Any
) -> None:
    async def test(way: ForgettingWay) -> None:
        client = await with_idle(kind, way.url, 1)
        way.forget()
        lock = manager(kind, [client]).lock("r")
        if kind in ASYNCIO:
            with pytest.raises(QuorumUnreachable):
                await lock.acquire(timeout=0.1)
        await give_idle(client, 1)
        await soon_acquired(lock)
        await close(client)

    with ForgettingWay(cluster3[0]) as way:
        run(kind, test(way))


@pytest.mark.parametrize("kind", ALL)
def test_no_connection_to_a_server_that_hangs_is_closed(
    cluster3: Cluster, kind: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        client = await with_idle(kind, cluster3.urls[0], 6)
        before = ids(cluster3.urls[0])
        cluster3[0].pause()
        try:
            lock = manager(kind, [client]).lock("r")
            for _ in range(2):
                with pytest.raises(QuorumUnreachable):
                    await result(lock.acquire(timeout=1.5))
        finally:
            cluster3[0].resume()
        await result(client.get("x"))
        if kind in ASYNCIO:
            await soon(lambda: in_use(client) == 0)
        else:
            eventually(lambda: in_use(client) == 0)
        assert await result(lock.acquire(timeout=5))
        assert before - ids(cluster3.urls[0]) == set()
        assert not [it for it in told(caplog, "unknown-database") if CLOSED in it]
        await close(client)

    run(kind, test())


@pytest.mark.parametrize("kind", ALL)
def test_the_first_lock_of_clients_with_many_idle_connections(cluster3: Cluster, kind: Any) -> None:
    async def test(proxies: list[FaultProxy]) -> None:
        clients = [await with_idle(kind, proxy.url, 60) for proxy in proxies]
        for proxy in proxies:
            proxy.delay(0.025)
        assert await result(manager(kind, clients).lock("r").acquire(timeout=5))
        for proxy in proxies:
            proxy.heal()
        await close(*clients)

    with ExitStack() as stack:
        run(kind, test([stack.enter_context(FaultProxy(it)) for it in cluster3]))


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize(
    ("pool", "most", "expected"),
    [
        ("ConnectionPool", None, 8),
        ("ConnectionPool", 12, 1),
        ("ConnectionPool", 30, 3),
        ("BlockingConnectionPool", 12, 6),
        ("BlockingConnectionPool", 1, 1),
    ],
)
def test_how_many_are_asked_at_a_time(
    cluster3: Cluster,
    kind: Any,
    pool: str,
    most: int | None,
    expected: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("quorlock._questions._SILENCE", 60.0)

    async def test() -> None:
        options = {} if most is None else {"max_connections": most}
        made = getattr(LIBRARIES[kind], pool).from_url(
            cluster3.urls[0], socket_timeout=None, **options
        )
        client = kind(connection_pool=made)
        await give_idle(client, min(most or 12, 12))
        cluster3[0].pause()
        try:
            call = asking(kind, client)
            limit = time.monotonic() + 20
            while in_use(client) < expected and time.monotonic() < limit:
                await pause(kind, 0.01)
            await pause(kind, 0.3)  # for more, which must not be
            assert in_use(client) == expected
        finally:
            cluster3[0].resume()
        if kind in ASYNCIO:
            await call
        else:
            call.join()
        await close(client)

    run(kind, test())


async def pause(kind: Any, seconds: float) -> None:
    """Let others go on."""
    if kind in ASYNCIO:
        await asyncio.sleep(seconds)
    else:
        time.sleep(seconds)


def asking(kind: Any, client: Any) -> Any:
    """A lock, or a manager, that asks a client meanwhile."""
    if kind in ASYNCIO:
        return asyncio.ensure_future(manager(kind, [client]).lock("r").acquire(timeout=5))
    maker = threading.Thread(target=Redlock, args=([client],))
    maker.start()
    return maker


@pytest.mark.parametrize("kind", BLOCKING)
def test_a_question_connects_none_that_the_program_has_closed(cluster3: Cluster, kind: Any) -> None:
    async def test() -> None:
        client = await with_idle(kind, cluster3.urls[0], 12, client_name="prog")
        cluster3[0].pause()
        try:
            Redlock([client])
            client.close()
        finally:
            cluster3[0].resume()
        eventually(lambda: not connections_of(client).is_asking())
        with redis.Redis.from_url(cluster3.urls[0]) as admin:
            eventually(lambda: not [it for it in admin.client_list() if it["name"] == "prog"])

    run(kind, test())


@pytest.mark.parametrize("kind", BLOCKING)
def test_a_node_comes_back_whose_client_has_a_connection_in_use(
    cluster3: Cluster, kind: Any
) -> None:
    clients = [kind.from_url(url) for url in cluster3.urls]
    for client in clients:
        client.ping()
    in_use, idle = clients[2].pipeline(), clients[2].pipeline()
    in_use.watch("x")
    idle.watch("x")
    idle.reset()
    cluster3[2].pause()
    try:
        lock = Redlock(clients).lock("r", ttl=0.6, auto_extend=True)
        assert lock.acquire(timeout=5)
    finally:
        cluster3[2].resume()
    eventually(lambda: cluster3.values("r")[2] is not None, within=5)
    lock.release()
    in_use.reset()
    for client in clients:
        client.close()


@pytest.mark.parametrize("kind", ASYNCIO)
def test_calls_that_time_out_leave_nothing(cluster3: Cluster, kind: Any) -> None:
    async def test() -> None:
        client = await with_idle(kind, cluster3.urls[0], 1)
        cluster3[0].pause()
        try:
            lock = manager(kind, [client]).lock("r")
            for _ in range(20):
                with pytest.raises(QuorumUnreachable):
                    await lock.acquire(timeout=0.002)
            (question,) = connections_of(client)._questions
            assert len(question.answered._done_callbacks) == 1  # type: ignore[attr-defined]
        finally:
            cluster3[0].resume()
        assert await lock.acquire(timeout=5)
        await close(client)

    run(kind, test())


@pytest.mark.parametrize("kind", BLOCKING)
def test_why_nobody_could_ask_is_told(
    cluster3: Cluster, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(thread: threading.Thread) -> None:
        raise RuntimeError(f"can't start new thread at interpreter shutdown: {thread.name}")

    client = kind.from_url(cluster3.urls[0])
    client.ping()
    monkeypatch.setattr(threading.Thread, "start", fail)
    with pytest.raises(QuorumUnreachable, match="can't start new thread at interpreter shutdown"):
        Redlock([client]).lock("r").acquire(timeout=0.1)
    monkeypatch.undo()
    client.close()


@pytest.mark.parametrize("kind", BLOCKING)
def test_a_question_that_was_interrupted_before_it_began_is_asked_again(
    cluster3: Cluster, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: Any) -> None:
        raise KeyboardInterrupt

    client = kind.from_url(cluster3.urls[0])
    client.ping()
    monkeypatch.setattr(Question, "begin", interrupt)
    with pytest.raises(KeyboardInterrupt):
        Redlock([client])
    monkeypatch.undo()
    lock = Redlock([client]).lock("r")
    assert lock.acquire(timeout=5)
    lock.release()
    client.close()
