"""Tests that nothing is locked on the node of a redis-py or valkey-py client before each of its
connections has told its database: not while its server hangs, nor while one is in use."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
import redis.asyncio

from quorlock import ConfigError, LockError, QuorumUnreachable, Redlock, aio
from quorlock._asking import Connections, connections_of
from quorlock._pools import idle_of, take
from quorlock._selections import Selections
from tests.python.client_objects import (
    ALL,
    ASYNCIO,
    BLOCKING,
    SELECTED,
    busy,
    manager,
    open_elsewhere,
    result,
    run,
    told,
)
from tests.support.cluster import Cluster
from tests.support.wait import eventually


@pytest.mark.parametrize("kind", ALL)
def test_every_connection_that_is_idle_is_asked(cluster3: Cluster, kind: Any) -> None:
    async def test() -> None:
        client = kind.from_url(cluster3.urls[0])
        lower, middle, upper = [await busy(client) for _ in range(3)]
        await result(lower.execute_command("SELECT", 3))
        for pipeline in (lower, middle, upper):
            await result(pipeline.reset())
        with pytest.raises(ConfigError, match=SELECTED):
            await result(manager(kind, [client]).lock("r").acquire())
        assert cluster3.values("r") == [None] * 3
        await result(getattr(client, "aclose", client.close)())

    run(kind, test())


@pytest.mark.parametrize("kind", ALL)
def test_a_connection_in_use_is_asked_once_it_is_idle(cluster3: Cluster, kind: Any) -> None:
    async def test() -> None:
        client = kind.from_url(cluster3.urls[0])
        usual, selecting = await busy(client), await busy(client)
        await result(selecting.execute_command("SELECT", 3))
        lock = manager(kind, [client]).lock("r")
        for _ in range(2):
            assert await result(lock.acquire())
            await result(lock.release())
            await result(usual.reset())
        await result(selecting.reset())
        with pytest.raises(ConfigError, match=SELECTED):
            await result(lock.acquire())
        await result(getattr(client, "aclose", client.close)())

    run(kind, test())


@pytest.mark.parametrize("kind", BLOCKING)
def test_a_late_answer_of_a_blocking_client_is_judged(cluster3: Cluster, kind: Any) -> None:
    usual, selected = kind.from_url(cluster3.urls[0]), kind.from_url(cluster3.urls[0])
    usual.ping()
    selected.select(3)
    cluster3[0].pause()
    try:
        managers = [Redlock([usual]), Redlock([selected])]
        before = time.monotonic()
        for locks in managers:
            with pytest.raises(QuorumUnreachable, match=r"has not told within 0\.1 s which"):
                locks.lock("r").acquire(timeout=0.1)
        assert time.monotonic() - before < 1.2, "each call keeps its own timeout"
    finally:
        cluster3[0].resume()
    with pytest.raises(ConfigError, match=SELECTED):
        once_told(managers[1].lock("r").acquire)
    assert cluster3.values("r") == [None] * 3
    assert once_told(managers[0].lock("r").acquire)
    usual.close()
    selected.close()


@pytest.mark.parametrize("kind", BLOCKING)
def test_work_goes_on_unlocked_where_a_client_has_not_told(cluster3: Cluster, kind: Any) -> None:
    client = kind.from_url(cluster3.urls[0])
    client.ping()
    cluster3[0].pause()
    try:
        locks = Redlock([client], on_unreachable="proceed")
        with locks.lock("r", timeout=0.1) as lease:
            assert lease.degraded
        with pytest.raises(QuorumUnreachable):
            locks.lock("r", timeout=0.1, on_unreachable="raise").acquire()
    finally:
        cluster3[0].resume()
    assert cluster3.values("r") == [None] * 3
    client.close()


@pytest.fixture
def _many_changes_of_threads() -> Iterator[None]:
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.usefixtures("_many_changes_of_threads")
@pytest.mark.parametrize("kind", BLOCKING)
def test_threads_that_ask_at_the_same_time_lock_nothing(cluster3: Cluster, kind: Any) -> None:
    results: list[Any] = []
    start = threading.Barrier(16)

    def acquire(lock: Any) -> None:
        start.wait()
        try:
            results.append(lock.acquire(timeout=20))
        except LockError as error:
            results.append(type(error))

    for _ in range(10):
        client = kind.from_url(cluster3.urls[0])
        selecting = client.pipeline()
        selecting.watch("x")
        selecting.execute_command("SELECT", 3)
        locks = Redlock([client])
        selecting.reset()
        threads = [
            threading.Thread(target=acquire, args=(locks.lock(str(number)),))
            for number in range(start.parties)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        client.close()
    assert results == [ConfigError] * 10 * start.parties


@pytest.mark.parametrize("kind", ASYNCIO)
def test_a_busy_loop_still_reads_the_answers(cluster3: Cluster, kind: Any) -> None:
    async def test() -> None:
        clients = [kind.from_url(url) for url in cluster3.urls]
        for client in clients:
            await client.ping()
        call = asyncio.ensure_future(aio.Redlock(clients).lock("r").acquire())
        await asyncio.sleep(0)
        time.sleep(1.2)  # longer than clients are waited for
        assert await call
        for client in clients:
            await client.aclose()

    asyncio.run(test())


@pytest.mark.parametrize("kind", ASYNCIO)
@pytest.mark.parametrize("options", [{"timeout": 5}, {}, {"blocking": False}])
def test_a_late_answer_of_an_asyncio_client_is_judged(
    cluster3: Cluster, kind: Any, options: dict[str, Any]
) -> None:
    async def test() -> None:
        client = kind.from_url(cluster3.urls[0])
        await asyncio.gather(client.select(3), client.select(3))
        locks = aio.Redlock([client])
        cluster3[0].pause()
        try:
            with pytest.raises(QuorumUnreachable, match="has not told within 1 s which database"):
                await locks.lock("r").acquire(**options)
        finally:
            cluster3[0].resume()
        with pytest.raises(ConfigError, match=SELECTED):
            await locks.lock("r").acquire(timeout=20)
        await client.aclose()

    asyncio.run(test())
    assert cluster3.values("r") == [None] * 3


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("has_selected", [True, False])
def test_a_majority_is_enough_and_the_others_get_no_keys(
    cluster3: Cluster, kind: Any, has_selected: bool
) -> None:
    async def lock_again(locks: Any) -> bool:
        """Whether a lock has a key on the last node."""
        lock = locks.lock("again")
        assert await result(lock.acquire(timeout=5))
        has_key = cluster3.values("again")[2] is not None
        await result(lock.release())
        return has_key

    async def test() -> None:
        clients = [kind.from_url(url) for url in cluster3.urls]
        for client in clients:
            await result(client.ping())
        if has_selected:
            await result(clients[2].select(3))
        cluster3[2].pause()
        try:
            locks = manager(kind, clients)
            for name in ("r", "s"):
                assert await result(locks.lock(name, ttl=60).acquire(timeout=5))
        finally:
            cluster3[2].resume()
        assert [cluster3.values(name)[2] for name in ("r", "s")] == [None, None]
        deadline = time.monotonic() + 20
        if has_selected:
            with pytest.raises(ConfigError, match=SELECTED):
                while time.monotonic() < deadline:
                    await lock_again(locks)
        else:
            while not await lock_again(locks):
                assert time.monotonic() < deadline
        for client in clients:
            await result(getattr(client, "aclose", client.close)())

    run(kind, test())


@pytest.mark.parametrize("kind", BLOCKING)
def test_a_lock_that_is_held_gets_its_key_where_a_client_tells_late(
    cluster3: Cluster, kind: Any
) -> None:
    clients = [kind.from_url(url) for url in cluster3.urls]
    for client in clients:
        client.ping()
    cluster3[2].pause()
    try:
        locks = Redlock(clients)
        lock = locks.lock("r", ttl=0.6, auto_extend=True)
        assert lock.acquire(timeout=5)
    finally:
        cluster3[2].resume()
    eventually(lambda: cluster3.values("r")[2] is not None)
    lock.release()
    for client in clients:
        client.close()


@pytest.mark.parametrize("kind", ASYNCIO)
@pytest.mark.parametrize("turns", [1, 2, 3, 20])
def test_a_question_that_others_cancel_is_not_taken_for_answered(
    cluster3: Cluster, kind: Any, turns: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        client = kind.from_url(cluster3.urls[0])
        await client.select(3)
        locks = aio.Redlock([client])
        cluster3[0].pause()
        try:
            call = asyncio.ensure_future(locks.lock("r").acquire(timeout=20))
            for _ in range(turns):
                await asyncio.sleep(0)
            for task in asyncio.all_tasks() - {call, asyncio.current_task()}:
                task.cancel()
            await asyncio.sleep(0)
        finally:
            cluster3[0].resume()
        (outcome,) = await asyncio.gather(call, return_exceptions=True)
        if isinstance(outcome, ConfigError):
            assert SELECTED in str(outcome)
        else:
            assert outcome is True
            # The connection that was asked was closed: the lock and the client use one database.
            assert len(told(caplog, "unknown-database")) == 1
            assert await client.set("x", "1")
            assert cluster3.values("x")[0] == "1"
        await client.aclose()

    asyncio.run(test())


@pytest.mark.parametrize("kind", ALL)
def test_a_server_that_refuses_the_question_is_locked_with_a_warning(
    servers: Callable[..., Cluster], kind: Any, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = servers(1)
    with redis.Redis.from_url(cluster.urls[0]) as admin:
        rights = ["on", ">p", "~*", "&*", "+@all", "-client"]
        admin.execute_command("ACL", "SETUSER", "u", *rights)

    async def test() -> None:
        client = kind.from_url(cluster.urls[0].replace("redis://", "redis://u:p@"))
        await result(client.ping())
        lock = manager(kind, [client]).lock("r")
        for _ in range(2):
            assert await result(lock.acquire())
            await result(lock.release())
        (warning,) = told(caplog, "unknown-database")
        assert "(NoPermissionError); taken is database 0, as in its settings" in warning
        await result(getattr(client, "aclose", client.close)())

    run(kind, test())


def once_told(acquire: Callable[[], Any]) -> Any:
    """What a call ends with once the client has told."""
    deadline = time.monotonic() + 20
    while True:
        try:
            return acquire()
        except QuorumUnreachable:
            if time.monotonic() > deadline:
                raise


@pytest.mark.parametrize("kind", BLOCKING)
def test_a_question_that_ends_without_an_answer_while_somebody_looks(
    cluster3: Cluster, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = kind.from_url(cluster3.urls[0])
    client.ping()
    connections, pool = connections_of(client), client.connection_pool
    (taken,) = idle_of(pool)
    assert take(pool, taken)  # as a question does

    def end(_: Connections) -> bool:
        pool.release(taken)
        return False

    monkeypatch.setattr(Connections, "is_asking", end)
    assert connections.are_untold()
    client.close()


@pytest.mark.parametrize("kind", BLOCKING)
def test_a_connection_that_is_opened_while_two_threads_lock_has_to_tell(
    cluster3: Cluster, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = kind.from_url(cluster3.urls[0])
    pool, connections = client.connection_pool, connections_of(client)
    locks = Redlock([client])
    late = pool.connection_class.__base__(**pool.connection_kwargs)
    pool._in_use_connections.add(late)  # it was being made when the client was given
    usual = Selections.watch

    def watch(selections: Selections, connection: Any) -> None:
        connections.any_is_open()  # by one thread, while another opens the connection
        open_elsewhere(connection, pool)
        usual(selections, connection)

    monkeypatch.setattr(Selections, "watch", watch)
    with pytest.raises(ConfigError, match="has selected database 3"):
        locks.lock("r", ttl=5).acquire()
    client.close()
