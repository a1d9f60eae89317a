"""Tests that notices are logged, as warnings of the logger `quorlock`."""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from quorlock import ConfigTypeError, Redlock, _notices
from tests.python.apis import Api, both_apis
from tests.python.programs import Program
from tests.support.cluster import Cluster, start_servers
from tests.support.servers import Options
from tests.support.wait import eventually

EVICTS = "may throw out the keys of locks while they are held: set it to noeviction"


@pytest.fixture
def evicting() -> Iterator[Cluster]:
    flags = ("--maxmemory", "100mb", "--maxmemory-policy", "volatile-ttl")
    with start_servers(1, Options(flags=flags)) as cluster:
        yield cluster


def told(caplog: pytest.LogCaptureFixture, name: str, cluster: Cluster) -> list[logging.LogRecord]:
    """The log is the process's: what managers of other tests have left is not meant."""
    records = [record for record in caplog.records if vars(record).get("notice") == name]
    return [record for record in records if vars(record)["node"] in cluster.urls]


def settle(managers: Sequence[Redlock]) -> None:
    """Waits until each of them has decided about every node."""
    for locks in managers:
        with locks.lock("r"):
            eventually(lambda: all(it.state == "healthy" for it in locks.nodes))  # noqa: B023


@both_apis
async def test_a_server_that_may_throw_locks_out_is_logged_once(
    api: Api, evicting: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    _notices._told.clear()
    for locks in [api.Redlock(evicting.urls) for _ in range(2)]:
        for _ in range(2):
            async with api.block(locks.lock("r")):
                pass
    await api.until(lambda: told(caplog, "may-evict", evicting))
    (record,) = told(caplog, "may-evict", evicting)
    assert (record.name, record.levelname) == ("quorlock", "WARNING")
    assert record.getMessage().startswith(f"{evicting[0].url}: its maxmemory-policy volatile-ttl")
    assert EVICTS in record.getMessage()
    assert vars(record)["node"] == evicting[0].url
    await api(locks.close())


@both_apis
async def test_a_node_that_is_quarantined_is_logged_and_shown(
    api: Api, servers: Callable[..., Cluster], caplog: pytest.LogCaptureFixture
) -> None:
    cluster = servers(3)
    locks = api.Redlock(cluster.urls, ttl=5)
    async with api.block(locks.lock("r")):
        pass
    await api.until(lambda: all(node.state == "healthy" for node in locks.nodes))
    assert not told(caplog, "quarantined", cluster)
    cluster[1].kill()
    cluster[1].restart()
    await api.until(lambda: locks.nodes[1].state == "quarantined")
    node = locks.nodes[1]
    assert node.detail == "it was restarted and may have forgotten locks"
    assert node.quarantine is not None
    # Of a lock that another client held nothing is known: ten seconds, and what clocks may drift.
    assert 0 < node.quarantine <= 10.2
    assert [locks.nodes[0].detail, locks.nodes[0].quarantine] == [None, None]
    await api.until(lambda: told(caplog, "quarantined", cluster))
    (record,) = told(caplog, "quarantined", cluster)
    assert record.getMessage().startswith(
        f"{cluster[1].url}: {node.detail}; its votes do not count until those locks are over, for "
    )
    await api.until(lambda: locks.nodes[1].state == "healthy")
    await api(locks.close())


@both_apis
async def test_a_node_is_logged_once_when_it_goes_and_comes_back(
    api: Api, servers: Callable[..., Cluster], caplog: pytest.LogCaptureFixture
) -> None:
    cluster = servers(3)
    locks = api.Redlock(cluster.urls, ttl=5)
    async with api.block(locks.lock("r")):
        await api.until(lambda: all(node.state == "healthy" for node in locks.nodes))
    cluster[1].kill()
    for _ in range(10):
        async with api.block(locks.lock("r")):
            pass
    await api.until(lambda: told(caplog, "node-down", cluster))
    async with api.block(locks.lock("r")):
        pass
    cluster[1].restart()
    await api.until(lambda: told(caplog, "node-up", cluster))
    for name, words in (("node-down", "it takes no part in locks"), ("node-up", "after ")):
        (record,) = told(caplog, name, cluster)
        assert (vars(record)["node"], record.levelname) == (cluster[1].url, "WARNING")
        assert words in record.getMessage()
    await api(locks.close())


@both_apis
async def test_a_node_is_logged_once_however_many_managers_use_it(
    api: Api, servers: Callable[..., Cluster], caplog: pytest.LogCaptureFixture
) -> None:
    cluster = servers(3)
    managers = [api.Redlock(cluster.urls) for _ in range(30)]
    for locks in managers:
        async with api.block(locks.lock("r")):
            pass
    cluster[1].kill()
    await api.until(lambda: told(caplog, "node-down", cluster))
    cluster[1].restart()
    await api.until(lambda: all(it.nodes[1].state == "quarantined" for it in managers))
    await api.until(lambda: told(caplog, "node-up", cluster))
    for name in ("node-down", "quarantined", "node-up"):
        (record,) = told(caplog, name, cluster)
        assert vars(record)["node"] == cluster[1].url
    for locks in managers:
        await api(locks.close())


def test_a_long_wait_is_told_once_by_all_managers(
    servers: Callable[..., Cluster], caplog: pytest.LogCaptureFixture
) -> None:
    cluster = servers(3)
    managers = [Redlock(cluster.urls) for _ in range(10)]
    settle(managers)
    with managers[0].lock("long", ttl=300):
        cluster[1].kill()
        cluster[1].restart()
        eventually(lambda: all(it.nodes[1].state == "quarantined" for it in managers))
    eventually(lambda: told(caplog, "long-wait", cluster))
    time.sleep(0.5)  # in which the others could tell it, too
    (record,) = told(caplog, "long-wait", cluster)
    assert vars(record)["node"] == cluster[1].url
    assert re.search(r"do not count for about 30\d\.\d s", record.getMessage())
    for locks in managers:
        locks.close()


def test_what_is_left_of_a_quarantine_is_no_news() -> None:
    node = "redis://nowhere"
    said = f"{node}: it is new; its votes do not count until those locks are over, for about"
    news = [_notices._is_news("quarantined", f"{said} {left}", node) for left in ("1.2 s", "39 ms")]
    assert news == [True, False]


def test_a_node_that_is_restarted_while_it_is_held_back_is_told_of_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Seen once a second: its server is restarted at 0, 4 and 6 seconds.
    left = [10.1, 9.1, 8.1, 7.1, 10.1, 9.1, 10.1, 9.1, 8.1]
    clock = SimpleNamespace(monotonic=iter(range(len(left))).__next__)
    monkeypatch.setattr("quorlock._notices.time", clock)
    said = "held back for about"
    news = [_notices._is_news("quarantined", f"{said} {it} s", "redis://two") for it in left]
    assert [place for place, is_news in enumerate(news) if is_news] == [0, 6]


def test_managers_that_follow_each_other_tell_once_what_lasts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def news(name: str, times: list[float]) -> list[bool]:
        clock = SimpleNamespace(monotonic=iter(times).__next__)
        monkeypatch.setattr("quorlock._notices.time", clock)
        return [_notices._is_news(name, "as before", "redis://one") for _ in times]

    held_back = news("quarantined", [0.0, 4.0, 8.0, 12.0, 20.0])
    assert held_back == [True, False, False, False, True]
    assert news("may-evict", [0.0, 600.0, 3500.0, 4000.0, 7000.0]) == [
        True,
        False,
        False,
        True,
        False,
    ]


def test_an_outage_that_lasts_is_told_soon_also_after_another(
    servers: Callable[..., Cluster], caplog: pytest.LogCaptureFixture
) -> None:
    cluster = servers(3)
    locks = Redlock(cluster.urls)
    with locks.lock("r"):
        eventually(lambda: all(node.state == "healthy" for node in locks.nodes))
    cluster[1].kill()
    eventually(lambda: told(caplog, "node-down", cluster))
    cluster[1].restart()
    eventually(lambda: told(caplog, "node-up", cluster))
    cluster[1].kill()
    before = time.monotonic()
    eventually(lambda: len(told(caplog, "node-down", cluster)) == 2)
    assert 5 < time.monotonic() - before < 15
    assert len(told(caplog, "node-up", cluster)) == 1
    locks.close()


@pytest.mark.parametrize("lives", [0.05, 2.5])
def test_an_outage_is_told_once_where_each_lock_has_a_manager_of_its_own(
    servers: Callable[..., Cluster], caplog: pytest.LogCaptureFixture, lives: float
) -> None:
    cluster = servers(3)
    with Redlock(cluster.urls) as locks:
        settle([locks])

    def work(name: str) -> bool:
        with Redlock(cluster.urls) as locks, locks.lock("r"):
            time.sleep(lives)
        return bool(told(caplog, name, cluster))

    cluster[1].kill()
    eventually(lambda: work("node-down"))
    before = time.monotonic()
    while time.monotonic() < before + 6:  # after five seconds the log would take it for news
        work("node-down")
    assert len(told(caplog, "node-down", cluster)) == 1
    cluster[1].restart()
    eventually(lambda: work("node-up"))
    assert len(told(caplog, "node-up", cluster)) == 1


def test_a_node_that_comes_and_goes_is_told_once_by_all_managers(
    servers: Callable[..., Cluster], caplog: pytest.LogCaptureFixture
) -> None:
    cluster = servers(3)
    managers = [Redlock(cluster.urls) for _ in range(20)]
    settle(managers)
    for _ in range(4):
        cluster[1].kill()
        time.sleep(2.6)
        cluster[1].restart()
        time.sleep(0.5)
    eventually(lambda: all(it.nodes[1].state not in {"down", "connecting"} for it in managers))
    time.sleep(1)
    assert len(told(caplog, "node-down", cluster)) == 1
    (record,) = told(caplog, "node-up", cluster)
    (lasted,) = re.findall(r"after (\d+\.\d) s", record.getMessage())
    down = told(caplog, "node-down", cluster)[0].created - 2
    assert abs(record.created - down - float(lasted)) < 0.5
    for locks in managers:
        locks.close()


@both_apis
async def test_it_is_told_when_it_happens_also_inside_a_block(
    api: Api, servers: Callable[..., Cluster], caplog: pytest.LogCaptureFixture
) -> None:
    cluster = servers(3)
    locks = api.Redlock(cluster.urls, ttl=20)
    # A client that asks the nodes who they are has a history with them.
    async with api.block(locks.lock("before")):
        await api.until(lambda: all(node.state == "healthy" for node in locks.nodes))
    async with api.block(locks.lock("r", raise_on_lost=False)):
        for server in cluster:
            before = time.time()
            server.kill()
            server.restart()

            def records(url: str = server.url) -> list[logging.LogRecord]:
                every = told(caplog, "quarantined", cluster)
                return [it for it in every if vars(it)["node"] == url]

            await api.until(records)
            (record,) = records()
            assert before <= record.created <= time.time()
            assert record.threadName == "quorlock-notices"
    await api(locks.close())


def test_what_logging_raises_harms_no_lock(
    evicting: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def filter_of_the_user(record: logging.LogRecord) -> bool:
        if vars(record)["node"] in evicting.urls:
            raise error
        return True

    def is_reported() -> bool:
        return bool(unraisable) and unraisable[-1].exc_value is error

    unraisable: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    logger = logging.getLogger("quorlock")
    logger.addFilter(filter_of_the_user)
    try:
        errors: list[BaseException] = [ValueError("a slip"), KeyboardInterrupt(), SystemExit()]
        for error in errors:  # noqa: B007 - the filter raises it
            _notices._told.clear()
            with Redlock(evicting.urls).lock("r") as lease:
                assert lease.is_valid
            eventually(is_reported)
        assert [it.exc_value for it in unraisable] == errors
    finally:
        logger.removeFilter(filter_of_the_user)


def test_a_program_that_knows_no_logging_shows_it(evicting: Cluster) -> None:
    code = "from quorlock import redlock\nwith redlock('r') as lease: print(lease.is_valid)"
    with Program(code, nodes=evicting.urls) as program:
        status, out, errors = program.end(20)
    assert (status, out.strip()) == (0, "True")
    assert errors.count(EVICTS) == 1


@both_apis
async def test_a_node_that_is_declared_durable_is_not_quarantined(api: Api) -> None:
    async def state_after_restart(node: str | dict[str, Any]) -> str:
        for _ in range(2):
            durable[0].kill()
            durable[0].restart()
            locks = api.Redlock([node, *others.urls], ttl=10)
            async with api.block(locks.lock("r")):
                pass
            await settled(api, locks)
            state: str = locks.nodes[0].state
            await api(locks.close())
        return state

    # As a managed service does, the server does not say how it writes to disk.
    hidden = Options(appendonly=True, flags=("--rename-command", "CONFIG", ""))
    with start_servers(1, hidden) as durable, start_servers(2) as others:
        parts = {"host": durable[0].host, "port": durable[0].port}
        url = durable[0].url
        assert await state_after_restart({**parts, "durable": True}) == "healthy"
        assert await state_after_restart(f"{url}?durable=true") == "healthy"
        assert await state_after_restart({**parts, "durable": False}) == "quarantined"
        assert await state_after_restart(url) == "quarantined"
    with pytest.raises(ConfigTypeError, match="durable must be True or False"):
        api.Redlock([{**parts, "durable": "yes"}])


async def settled(api: Api, locks: Any) -> None:
    await api.until(lambda: locks.nodes[0].state != "connecting")


def test_a_program_may_end_while_a_thread_of_it_logs(evicting: Cluster) -> None:
    code = """
        import contextlib, logging, os, threading, time, quorlock
        logged = threading.Semaphore(0)
        class Slow(logging.Handler):
            def emit(self, record):
                logged.release()
                time.sleep(0.05)  # a handler that takes long
        logging.getLogger("quorlock").addHandler(Slow())
        def managers():
            # What is under way at the end is withdrawn, and its thread is told if it still runs.
            with contextlib.suppress(quorlock.LockCancelled):
                while True:
                    quorlock._notices._told.clear()  # so that each manager has news
                    with quorlock.Redlock(os.environ["QUORLOCK_NODES"].split(",")) as locks:
                        locks.lock("r", ttl=1).acquire(blocking=False)
        for _ in range(3):
            threading.Thread(target=managers, daemon=True).start()
        for _ in range(6):
            logged.acquire()
    """
    with Program(code, nodes=evicting.urls) as program:
        status, _, errors = program.end(20)
    assert (status, errors) == (0, "")
