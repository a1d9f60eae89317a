"""Tests events, figures and the log lines of locks, for blocking code and asyncio."""

from __future__ import annotations

import dataclasses
import gc
import logging
import pickle
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from quorlock import ConfigTypeError, LeaseLost, QuorumUnreachable, Redlock, Stats, events
from quorlock._native import take_events
from tests.python.apis import Api, both_apis, memory_nodes
from tests.python.programs import run
from tests.support.cluster import Cluster
from tests.support.wait import eventually

OWN_NODES = ["memory://", "memory://", "memory://"]


class Told(list[events.Event]):
    """The events of one manager, in order."""

    def names(self) -> list[str]:
        return [event.name for event in self]

    def of(self, name: str) -> list[Any]:
        return [event for event in self if event.name == name]


@both_apis
async def test_a_lock_is_told_also_if_nobody_keeps_its_manager(api: Api) -> None:
    told = Told()
    lock = api.Redlock(OWN_NODES, on_event=told.append).lock("r")
    gc.collect()
    async with api.block(lock):
        pass
    await api.until(lambda: told.names() == ["acquired", "released"])


@both_apis
async def test_a_lock_is_told_from_its_acquisition_to_its_release(api: Api) -> None:
    told = Told()
    before = time.time()
    locks = api.Redlock(OWN_NODES, on_event=told.append)
    async with api.block(locks.lock("r")) as lease:
        token, number = lease.token, lease.fencing_token
    await api.until(lambda: told.names() == ["acquired", "released"])
    acquired, released = told
    assert isinstance(acquired, events.Acquired)
    assert isinstance(released, events.Released)
    assert (acquired.resource, acquired.resources) == ("r", ("r",))
    assert (acquired.token, acquired.fencing_token) == (token, number)
    assert (acquired.attempts, [vote.outcome for vote in acquired.votes]) == (1, ["granted"] * 3)
    assert before - 1 <= acquired.at <= released.at <= time.time() + 1
    assert 0 <= acquired.waited < 5
    assert (released.outcome, released.token) == ("released", token)
    assert token not in repr(acquired), "who knows it can release the lock"
    with pytest.raises(dataclasses.FrozenInstanceError):
        acquired.resource = "other"  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(acquired)) == acquired


@both_apis
async def test_figures_count_what_was_done(api: Api) -> None:
    locks = api.Redlock(OWN_NODES, ttl=5)
    nothing = locks.stats()
    assert isinstance(nothing, Stats)
    assert (nothing.held, nothing.rounds, nothing.nodes[0].state) == (0, 0, "connecting")
    lock = locks.lock("r")
    async with api.block(lock):
        assert locks.stats().held == 1
        assert not await api(locks.lock("r").acquire(blocking=False))
    await api.until(lambda: locks.stats().held == 0)
    stats = locks.stats()
    assert stats.acquisitions["acquired"] == 1
    assert stats.acquisitions["not_acquired"] == 1
    assert (stats.rounds, stats.futile_rounds) == (2, 1)
    assert stats.acquire_seconds.count == stats.hold_seconds.count == 1
    assert stats.releases["released"] == 1
    node = stats.nodes[0]
    assert (node.address, node.state, node.timeouts) == ("memory://", "healthy", 0)
    assert node.latency_seconds.count >= 3
    assert sum(node.latency_seconds.counts) == node.latency_seconds.count
    assert node.latency_seconds.quantile(0.5) in node.latency_seconds.bounds


@both_apis
async def test_contention_is_told(api: Api) -> None:
    told = Told()
    locks = api.Redlock(OWN_NODES, on_event=told.append)
    first = locks.lock("r", ttl=0.3)
    assert await api(first.acquire())
    async with api.block(locks.lock("r", retry_delay=0.05)):
        pass
    await api.until(lambda: told.of("released"))
    assert told.names()[:4] == ["acquired", "contended", "waiting", "woken"]
    assert 0 < told[1].holder_ends_in <= 0.3  # type: ignore[attr-defined]
    assert {event.by for event in told.of("woken")} == {"timer"}
    assert locks.stats().wakes["timer"] == locks.stats().waits == len(told.of("waiting"))


@both_apis
async def test_a_loss_is_told_and_logged_as_a_warning(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    told = Told()
    locks = api.Redlock(OWN_NODES, on_event=told.append)
    lock = locks.lock("lost-in-the-log", ttl=0.1, on_lost=lambda: None)
    assert await api(lock.acquire())
    await api.until(lambda: told.of("lost"))
    (lost,) = told.of("lost")
    assert (lost.reason, lost.resource) == ("expired", "lost-in-the-log")
    assert lost.held_for >= 0.05
    with pytest.raises(LeaseLost):
        await api(lock.release())
    (line,) = [it for it in caplog.records if "lost-in-the-log" in it.getMessage()]
    assert (line.levelname, line.name, vars(line)["event"]) == ("WARNING", "quorlock", "lost")
    assert "its validity passed without a renewal" in line.getMessage()
    assert locks.stats().losses == {"expired": 1, "gone": 0, "held-too-long": 0}


@both_apis
async def test_each_lock_is_a_line_at_the_level_debug(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    locks = api.Redlock(OWN_NODES)

    def lines() -> list[str]:
        mine = [it for it in caplog.records if "'a-line'" in it.getMessage()]
        assert all(it.levelname == "DEBUG" for it in mine)
        return [it.getMessage() for it in mine]

    async with api.block(locks.lock("a-line")):
        pass
    with caplog.at_level(logging.DEBUG, logger="quorlock"):
        async with api.block(locks.lock("a-line")) as lease:
            token = lease.token
        await api.until(lambda: len(lines()) == 2)
    first, second = lines()
    assert first.startswith("'a-line' acquired after ")
    assert second.startswith("'a-line' given back after ")
    assert token not in "".join(lines())


@both_apis
async def test_a_lease_that_outlasts_its_manager_is_a_line_at_the_level_debug(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, logger="quorlock"):
        locks = api.Redlock(OWN_NODES)
        lock = locks.lock("alone")
        assert await api(lock.acquire())
        lease = lock.lease
        assert lease
        del locks, lock
        gc.collect()
        assert await api(lease.release()) == "released"
        await api.until(lambda: "'alone' given back" in caplog.text)


@both_apis
async def test_events_are_made_only_while_somebody_listens(
    api: Api, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    monkeypatch.setattr("quorlock._events.take_events", lambda: _noted(made))
    locks, first, second = api.Redlock(OWN_NODES), Told(), Told()

    async def made_of_a_lock() -> list[str]:
        made.clear()
        count = locks.stats().hold_seconds.count
        async with api.block(locks.lock("r")):
            pass
        await api.until(lambda: locks.stats().hold_seconds.count > count)
        await api.sleep(0.05)  # none may come any more; there is nothing to wait for
        return made.copy()

    both = ["acquired", "released"]
    assert await made_of_a_lock() == []
    for told in (first, second):
        locks._events.add(told.append)
    assert await made_of_a_lock() == both
    locks._events.remove(first.append)
    assert await made_of_a_lock() == both, "one still listens"
    locks._events.remove(second.append)
    assert await made_of_a_lock() == []
    with caplog.at_level(logging.DEBUG, logger="quorlock"):
        assert await made_of_a_lock() == both
        locks._events.add(first.append)
        locks._events.remove(first.append)
        assert await made_of_a_lock() == both, "the log still has them"
    assert await made_of_a_lock() == []
    locks._events.add(first.append)
    assert await made_of_a_lock() == both, "one listens again"


def _noted(made: list[str]) -> Any:
    told, dropped = take_events()
    made.extend(name for _, name, *_ in told)
    return told, dropped


@both_apis
async def test_a_loss_is_told_after_the_last_listener(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    told = Told()
    locks = api.Redlock(OWN_NODES, on_event=told.append)
    locks._events.remove(told.append)
    lock = locks.lock("in-silence", ttl=0.1, on_lost=lambda: None)
    assert await api(lock.acquire())
    await api.until(lambda: "'in-silence'" in caplog.text)
    assert told == []
    with pytest.raises(LeaseLost):
        await api(lock.release())


@both_apis
@pytest.mark.parametrize("error", [ValueError, SystemExit])
async def test_a_callback_that_fails_is_logged_and_stops_nothing(
    api: Api, caplog: pytest.LogCaptureFixture, error: type[BaseException]
) -> None:
    told = Told()

    def fail(event: events.Event) -> None:
        told.append(event)
        raise error("of this test")

    locks = api.Redlock(OWN_NODES, on_event=fail)
    async with api.block(locks.lock("r")):
        pass
    await api.until(lambda: told.names() == ["acquired", "released"])
    await api.until(lambda: "an on_event callback failed" in caplog.text)


@both_apis
async def test_a_slow_callback_delays_no_warning_and_events_beyond_a_bound_are_dropped(
    api: Api, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quorlock._events._MOST_WAITING", 8)
    told, entered, free = Told(), threading.Event(), threading.Event()

    def wait(event: events.Event) -> None:
        entered.set()
        free.wait(10)
        told.append(event)

    locks = api.Redlock(OWN_NODES, on_event=wait)
    others = api.Redlock(OWN_NODES)
    try:
        async with api.block(locks.lock("r")):
            await api.until(entered.is_set)
        for _ in range(10):
            async with api.block(locks.lock("r")):
                pass
        lock = others.lock("lost-meanwhile", ttl=0.1, on_lost=lambda: None)
        assert await api(lock.acquire())
        await api.until(lambda: "'lost-meanwhile'" in caplog.text)
        await api.until(lambda: "on_event callbacks are too slow: 8 events wait" in caplog.text)
        assert not told
    finally:
        free.set()
    await api.until(lambda: "have caught up: 13 events were dropped" in caplog.text)
    assert told.names() == ["acquired", *["acquired", "released"] * 4]
    with pytest.raises(LeaseLost):
        await api(lock.release())


def test_an_on_event_that_cannot_be_called_is_refused() -> None:
    with pytest.raises(ConfigTypeError, match="on_event must be callable, not int"):
        Redlock(memory_nodes("events"), on_event=3)  # type: ignore[arg-type]

    async def later(_: events.Event) -> None: ...

    def yields(event: events.Event) -> Iterator[events.Event]:
        yield event

    async def yields_later(event: events.Event) -> AsyncIterator[events.Event]:
        yield event

    for it in (later, yields, yields_later):
        for callback in (it, type("Called", (), {"__call__": staticmethod(it)})()):
            with pytest.raises(ConfigTypeError, match="must be a function that is not async"):
                Redlock(memory_nodes("events"), on_event=callback)
    with pytest.raises(ConfigTypeError, match="there is no option 'on_event'"):
        Redlock(memory_nodes("events")).lock("r", on_event=print)  # type: ignore[call-arg]


@both_apis
async def test_nodes_are_told_by_their_states(api: Api, servers: Callable[..., Cluster]) -> None:
    cluster = servers(3)
    told = Told()
    locks = api.Redlock(cluster.urls, on_event=told.append)
    async with api.block(locks.lock("r")):
        pass
    await api.until(lambda: len(told.of("node")) == 3)
    node = told.of("node")[0]
    assert (getattr(node, "from"), node.from_, node.to) == ("connecting", "connecting", "healthy")
    await api.until(lambda: all(it.offset_seconds is not None for it in locks.stats().nodes))
    assert all(abs(it.offset_seconds) < 1 for it in locks.stats().nodes)
    cluster[1].restart()
    await api.until(lambda: told.of("quarantined"))
    (quarantined,) = told.of("quarantined")
    assert (quarantined.address, quarantined.reason) == (cluster[1].url, "restarted")
    assert 1 < quarantined.lasts <= 11
    await api(locks.close())


@both_apis
async def test_the_end_of_a_manager_says_nothing_of_its_nodes(api: Api, cluster3: Cluster) -> None:
    told = Told()
    locks = api.Redlock(cluster3.urls, on_event=told.append)
    async with api.block(locks.lock("r")):
        pass
    await api.until(lambda: len([node for node in told.of("node") if node.to == "healthy"]) == 3)
    await api(locks.close())
    await api.until(lambda: all(node.state == "down" for node in locks.nodes))
    await api.sleep(0.1)  # no event comes; there is nothing to wait for
    assert "down" not in {node.to for node in told.of("node")}


@both_apis
async def test_without_a_quorum_work_that_needs_no_lock_goes_on(
    api: Api, servers: Callable[..., Cluster], caplog: pytest.LogCaptureFixture
) -> None:
    cluster = servers(3)
    told = Told()
    locks = api.Redlock(cluster.urls, on_event=told.append)
    async with api.block(locks.lock("cache")) as lease:
        assert not lease.degraded
    for server in list(cluster)[:2]:
        server.kill()
    with pytest.raises(QuorumUnreachable):
        async with api.block(locks.lock("cache", blocking=False)):
            raise AssertionError("the default raises")
    lock = locks.lock("cache", blocking=False, on_unreachable="proceed")
    async with api.block(lock) as lease:
        assert lease.degraded
        assert (lease.is_valid, lease.validity) == (False, 0.0)
        for use in ("token", "fencing_token"):
            with pytest.raises(QuorumUnreachable, match="no quorum for 'cache'"):
                getattr(lease, use)
        with pytest.raises(QuorumUnreachable):
            await api(lease.extend())
        assert "degraded" in repr(lease)
        assert len(lease.votes) == 3
    await api.until(lambda: told.of("degraded"))
    told_by = [it for it in caplog.records if "NOT locked" in it.getMessage()]
    (line,) = [it for it in told_by if it.levelno >= logging.WARNING]
    assert vars(line)["notice"] == "degraded"
    assert line.levelname == "WARNING"
    assert line.getMessage().startswith("'cache' is NOT locked, and the work goes on without it")
    counted = locks.stats().acquisitions
    assert (counted["degraded"], counted["unreachable"]) == (1, 1), "each is counted once"
    with pytest.raises(ValueError, match='on_unreachable must be "raise" or "proceed"'):
        locks.lock("cache", on_unreachable="ignore")
    await api(locks.close())


def test_what_logging_raises_ends_no_events(monkeypatch: pytest.MonkeyPatch) -> None:
    def filter_of_the_user(_: logging.LogRecord) -> bool:
        raise error

    def fail_at_first(event: events.Event) -> None:
        told.append(event)
        if len(told) == 1:
            raise RuntimeError("a slip of the callback")

    error = ValueError("a slip of the filter")
    unraisable: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    told = Told()
    locks = Redlock(OWN_NODES, on_event=fail_at_first)
    logger = logging.getLogger("quorlock")
    logger.addFilter(filter_of_the_user)
    try:
        with locks.lock("r"):
            pass
        eventually(lambda: told.names() == ["acquired", "released"])
        assert [it.exc_value for it in unraisable] == [error]
    finally:
        logger.removeFilter(filter_of_the_user)
    locks.close()


def test_events_come_to_the_end_of_the_program() -> None:
    code = """
        from quorlock import Redlock
        locks = Redlock(["memory://"] * 3, on_event=lambda event: print(event.name, flush=True))
        with locks.lock("r"):
            pass
    """
    assert run(code, nodes=[]).split() == ["acquired", "released"]
