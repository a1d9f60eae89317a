"""Tests managers over clients of redis-py and valkey-py that the program uses elsewhere, too."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import redis
import redis.asyncio
import valkey
import valkey.asyncio

from quorlock import ConfigError, QuorumUnreachable, Redlock, aio
from quorlock._asking import Connections, connections_of
from quorlock._questions import Question, wait_for_one
from quorlock._selections import Selections
from tests.python.client_objects import ASYNCIO, BLOCKING, open_elsewhere
from tests.python.programs import run
from tests.support.cluster import Cluster
from tests.support.wait import eventually


@pytest.mark.parametrize("kind", BLOCKING)
def test_the_first_lock_of_a_client_that_other_threads_use(cluster3: Cluster, kind: Any) -> None:
    clients = [kind.from_url(url) for url in cluster3.urls]
    has_ended = threading.Event()

    def use(client: Any) -> None:
        while not has_ended.is_set():
            assert client.get("x") is None

    users = [threading.Thread(target=use, args=(client,)) for client in clients for _ in range(2)]
    for user in users:
        user.start()
    try:
        for _ in range(10):
            with Redlock(clients) as locks, locks.lock("r", timeout=20):
                assert cluster3.values("r").count(None) <= 1
            for client in clients:  # the next manager asks again
                vars(client.connection_pool).pop("_quorlock_connections")
    finally:
        has_ended.set()
        for user in users:
            user.join()


@pytest.mark.parametrize("kind", ASYNCIO)
def test_the_first_lock_of_a_client_that_other_tasks_use(cluster3: Cluster, kind: Any) -> None:
    async def test() -> None:
        for _ in range(10):
            clients = [kind.from_url(url) for url in cluster3.urls]
            has_ended = asyncio.Event()
            for client in clients:
                await asyncio.gather(*[client.get("x") for _ in range(5)])
            users = [asyncio.ensure_future(use(it, has_ended)) for it in clients for _ in range(2)]
            await asyncio.sleep(0)
            async with aio.Redlock(clients) as locks, locks.lock("r", timeout=20):
                assert cluster3.values("r").count(None) <= 1
            has_ended.set()
            await asyncio.gather(*users)
            for client in clients:
                await client.aclose()

    async def use(client: Any, has_ended: asyncio.Event) -> None:
        while not has_ended.is_set():
            assert await client.get("x") is None
            await asyncio.sleep(0.001)

    asyncio.run(test())


@pytest.mark.parametrize("kind", BLOCKING)
def test_threads_that_give_one_client_to_managers_of_their_own(
    cluster3: Cluster, kind: Any
) -> None:
    for _ in range(10):
        client = kind.from_url(cluster3.urls[0])
        client.select(3)
        outcomes: list[object] = []
        start = threading.Barrier(4)

        def lock(client: Any, start: threading.Barrier, outcomes: list[object]) -> None:
            start.wait()
            try:
                outcomes.append(Redlock([client]).lock("r").acquire(timeout=20))
            except ConfigError as error:
                outcomes.append(str(error))

        threads = [threading.Thread(target=lock, args=(client, start, outcomes)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert ["has selected database 3" in str(it) for it in outcomes] == [True] * 4
        client.close()


@pytest.mark.parametrize("kind", ASYNCIO)
@pytest.mark.parametrize("turns", range(6))
def test_tasks_that_give_one_client_to_managers_of_their_own(
    cluster3: Cluster, kind: Any, turns: int
) -> None:
    async def test() -> None:
        client = kind.from_url(cluster3.urls[0])
        await client.select(3)
        first = asyncio.ensure_future(aio.Redlock([client]).lock("r").acquire(timeout=20))
        for _ in range(turns):
            await asyncio.sleep(0)
        second = asyncio.ensure_future(aio.Redlock([client]).lock("r").acquire(timeout=20))
        outcomes = await asyncio.gather(first, second, return_exceptions=True)
        assert [type(it) for it in outcomes] == [ConfigError, ConfigError]
        await client.aclose()

    asyncio.run(test())


@pytest.mark.parametrize("kind", BLOCKING)
def test_a_server_that_is_busy_has_not_refused_the_question(
    servers: Callable[..., Cluster], kind: Any
) -> None:
    cluster = servers(1)
    admin, client = kind.from_url(cluster.urls[0]), kind.from_url(cluster.urls[0])
    admin.config_set("lua-time-limit", 1)
    client.select(3)

    def is_busy() -> bool:
        try:
            return bool(admin.get("x") == "busy")
        except (redis.ResponseError, valkey.ResponseError) as error:
            return "BUSY" in str(error)

    def keep_busy() -> None:
        with pytest.raises(Exception, match="killed"):
            kind.from_url(cluster.urls[0]).eval("while true do end", 0)

    script = threading.Thread(target=keep_busy)
    script.start()
    eventually(is_busy)
    locks = Redlock([client])
    admin.script_kill()
    script.join()
    with pytest.raises(ConfigError, match="has selected database 3"):
        locks.lock("r").acquire(timeout=20)
    for it in (admin, client):
        it.close()


@pytest.mark.parametrize("kind", BLOCKING)
def test_a_connection_that_was_being_made_is_watched_as_well(cluster3: Cluster, kind: Any) -> None:
    client = kind.from_url(cluster3.urls[0])
    usual = client.connection_pool.connection_class
    locks = Redlock([client])
    client.ping()
    # As if it had been made before, and was listed only now.
    (connection,) = client.connection_pool._available_connections
    connection.__class__ = usual
    client.select(3)
    with pytest.raises(ConfigError, match="has selected database 3"):
        locks.lock("r").acquire(timeout=20)
    client.close()


@pytest.mark.parametrize("kind", BLOCKING)
@pytest.mark.parametrize("database", [0, 3])
def test_a_name_that_looks_like_an_answer(cluster3: Cluster, kind: Any, database: int) -> None:
    client = kind.from_url(cluster3.urls[0], client_name="app-db=0")
    client.select(database)
    if database == 0:
        with Redlock([client]) as locks, locks.lock("r", timeout=20):
            assert cluster3.values("r")[0] is not None
    else:
        with pytest.raises(ConfigError, match="has selected database 3"):
            Redlock([client])
    client.close()


@pytest.mark.parametrize("kind", BLOCKING)
def test_a_forked_child_asks_nothing_over_the_connections_of_its_parent(
    cluster3: Cluster, kind: Any
) -> None:
    client = kind.from_url(cluster3.urls[0])
    pipelines = [client.pipeline() for _ in range(3)]
    for pipeline in pipelines:
        pipeline.watch("x")
    locks = Redlock([client])
    for pipeline in pipelines:
        pipeline.reset()  # idle from now on, and not asked yet
    child = os.fork()
    if child == 0:
        try:
            locks.lock("r").acquire(timeout=20)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert not [it for it in client.client_list() if it["cmd"] == "client|info"]
    client.close()


@pytest.mark.parametrize("library", ["redis", "valkey"])
@pytest.mark.parametrize("pool", ["ConnectionPool", "BlockingConnectionPool"])
@pytest.mark.parametrize("hub", ["gevent", "eventlet"])
def test_greenlets_that_make_managers_over_clients(
    cluster3: Cluster, library: str, pool: str, hub: str
) -> None:
    start = "spawn" if hub == "gevent" else "spawn_n"
    patch = "from gevent import monkey; monkey.patch_all()"
    out = run(
        f"""
        import os, warnings
        import quorlock
        warnings.simplefilter("ignore")  # eventlet warns of itself
        {patch if hub == "gevent" else "import eventlet; eventlet.monkey_patch()"}
        import {hub}
        import {library} as library

        # Their queues of blocking pools are those of the hub.
        pools = [
            library.{pool}.from_url(url, max_connections=12)
            for url in os.environ["QUORLOCK_NODES"].split(",")
        ]
        kind = getattr(library, "{library}".title())
        ended = []

        def lock(number):
            clients = [kind(connection_pool=pool) for pool in pools]
            for client in clients:
                client.ping()
            with quorlock.Redlock(clients) as locks, locks.lock(f"r{{number}}", timeout=20):
                ended.append("held")

        for number in range(4):
            {hub}.{start}(lock, number)
        while len(ended) < 4:
            {hub}.sleep(0.01)
        print(*ended)
        """,
        nodes=cluster3.urls,
    )
    assert out == "held held held held"


@pytest.mark.parametrize("kind", BLOCKING)
@pytest.mark.parametrize("name", ["begin", "_start"])
def test_a_signal_handler_begins_the_question_of_the_caller_that_it_has_interrupted(
    cluster3: Cluster, kind: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = kind.from_url(cluster3.urls[0])
    client.ping()
    usual, waited = getattr(Question, name), list[float]()

    def interrupted(question: Question, *arguments: Any) -> None:
        if not waited:
            waited.append(0.0)
            before = time.monotonic()
            Redlock([client])  # as in a handler
            waited[0] = time.monotonic() - before
        usual(question, *arguments)

    monkeypatch.setattr(Question, name, interrupted)
    Redlock([client])
    assert waited[0] < 0.5
    client.close()


@pytest.mark.parametrize("kind", BLOCKING)
@pytest.mark.parametrize("name", ["__init__", "begin", "_watch_made"])
@pytest.mark.parametrize("is_late", [False, True])
def test_a_signal_handler_may_give_the_client_as_well_that_it_has_interrupted_the_giving_of(
    cluster3: Cluster, kind: Any, name: str, is_late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = kind.from_url(cluster3.urls[0])
    client.ping()
    usual, managers, calls = getattr(Connections, name), list[Redlock](), list[Any]()

    def interrupted(connections: Connections, *arguments: Any) -> None:
        calls.append(connections)
        is_first = len(calls) == 1
        if is_first and not is_late:
            managers.append(Redlock([client]))  # as in a handler
        usual(connections, *arguments)
        if is_first and is_late:
            managers.append(Redlock([client]))

    monkeypatch.setattr(Connections, name, interrupted)
    managers += [Redlock([client]), Redlock([client])]
    for locks in managers:
        with locks.lock("r", timeout=5):
            assert client.get("r")
    client.select(3) if hasattr(client, "select") else client.execute_command("SELECT", 3)
    for locks in managers:
        with pytest.raises(ConfigError, match=r"has run select\(\)"):
            locks.lock("r").acquire()
    client.close()


@pytest.mark.parametrize("kind", BLOCKING)
def test_a_connection_that_is_opened_while_its_client_is_given_has_to_tell(
    cluster3: Cluster, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = kind.from_url(cluster3.urls[0])
    pool = client.connection_pool
    pool._in_use_connections.add(pool.make_connection())  # as by another thread, which opens it now
    usual = Selections.watch

    def watch(selections: Selections, connection: Any) -> None:
        open_elsewhere(connection, pool)
        usual(selections, connection)

    monkeypatch.setattr(Selections, "watch", watch)
    with pytest.raises(ConfigError, match="has selected database 3"):
        Redlock([client])
    client.close()


@pytest.mark.parametrize("kind", BLOCKING)
def test_a_signal_handler_that_raises_leaves_the_question_of_another_thread_to_it(
    cluster3: Cluster, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = kind.from_url(cluster3.urls[0])
    client.ping()
    connections = connections_of(client)
    question = Question(connections, None)
    connections._questions.append(question)  # of a thread that is about to begin it

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Question, "_start", interrupted)
        Redlock([client])
    question.begin()
    eventually(question.is_over)
    assert not connections.are_untold()
    client.close()


@pytest.mark.parametrize("kind", BLOCKING)
def test_a_signal_handler_hears_of_the_end_also_if_it_has_interrupted_a_look_at_the_answer(
    cluster3: Cluster, kind: Any
) -> None:
    client = kind.from_url(cluster3.urls[0])
    client.ping()
    question = Question(connections_of(client), None)
    with question.answered._condition:  # which this thread holds while it looks
        question.begin()
        wait_for_one([question], 5)
        assert question.is_over()
    client.close()


@pytest.mark.parametrize("kind", BLOCKING)
def test_calls_that_time_out_leave_nothing_to_wake(cluster3: Cluster, kind: Any) -> None:
    client = kind.from_url(cluster3.urls[0], socket_timeout=None)
    client.ping()
    cluster3[0].pause()
    try:
        lock = Redlock([client]).lock("r")
        for _ in range(3):
            with pytest.raises(QuorumUnreachable):
                lock.acquire(timeout=0.01)
        (question,) = connections_of(client)._questions
        assert question._wakers == []
    finally:
        cluster3[0].resume()
    eventually(lambda: lock.acquire(timeout=5))
    client.close()


@pytest.mark.parametrize("kind", BLOCKING)
def test_no_thread_is_started_when_the_interpreter_ends(
    cluster3: Cluster, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = kind.from_url(cluster3.urls[0])
    client.ping()
    monkeypatch.setattr(sys, "is_finalizing", lambda: True)
    lock = Redlock([client]).lock("r")
    with pytest.raises(QuorumUnreachable, match=r"which database it uses \(the interpreter ends\)"):
        lock.acquire(timeout=0.1)
    monkeypatch.undo()
    client.close()
