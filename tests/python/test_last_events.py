"""Tests that events are told that happened before the end of a manager or of the process."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections import Counter

import pytest

from quorlock import Redlock, _events, events
from tests.python.apis import Api, both_apis
from tests.python.exporters import Seen
from tests.python.programs import run
from tests.support.cluster import Cluster
from tests.support.wait import eventually

OWN_NODES = ["memory://", "memory://", "memory://"]


class Told(list[str]):
    """The names of the events of locks."""

    def note(self, event: events.Event) -> None:
        if isinstance(event, events.LockEvent):
            self.append(event.name)


class Owner:
    """Who has a manager and listens to it, so that only a collection finds the two."""

    def __init__(self, api: Api, nodes: list[str], told: list[str]) -> None:
        self.locks = api.Redlock(nodes, on_event=self.note)
        self._told = told

    def note(self, event: events.Event) -> None:
        self._told.append(event.name)


@both_apis
async def test_the_events_of_a_manager_that_nobody_keeps_are_told(
    api: Api, cluster3: Cluster
) -> None:
    told = Told()

    async def use(number: int) -> None:
        locks = api.Redlock(cluster3.urls, on_event=told.note)
        async with api.block(locks.lock(f"r{number}")):
            pass

    for number in range(30):
        await use(number)
    await api.until(lambda: told == ["acquired", "released"] * 30)


@both_apis
async def test_the_events_of_a_manager_that_is_collected_are_told_and_nothing_stays(
    api: Api,
) -> None:
    told: list[str] = []
    owners: list[weakref.ref[Owner]] = []

    async def use() -> None:
        owner = Owner(api, OWN_NODES, told)
        owners.append(weakref.ref(owner))
        async with api.block(owner.locks.lock("r")):
            pass

    gc.disable()
    try:
        for _ in range(30):
            await use()
            gc.collect()
    finally:
        gc.enable()
    await api.until(lambda: Counter(told)["released"] == 30)
    await api.until(lambda: gc.collect() >= 0 and not any(owner() for owner in owners))


def test_managers_made_and_dropped_are_not_kept() -> None:
    told = Told()
    with Redlock(OWN_NODES, on_event=told.note).lock("r"):
        pass  # from now on a thread tells
    eventually(lambda: told == ["acquired", "released"])
    for number in range(10_000):
        locks = Redlock(OWN_NODES, on_event=told.note)
        if number % 100 == 0:
            with locks.lock("r"):
                pass
        del locks
    eventually(lambda: not _events._leaving)
    assert told == ["acquired", "released"] * 101
    eventually(lambda: gc.collect() >= 0 and _living(told) == 0)


def _living(told: Told) -> int:
    sources = [source() for source in list(_events._sources.values())]
    return sum(source is not None and source._callbacks == [told.note] for source in sources)


def test_nobody_is_kept_where_no_thread_tells(cluster3: Cluster) -> None:
    out = run(
        """
        import quorlock
        from quorlock import _events
        before = len(_events._sources)
        for _ in range(100):
            quorlock.Redlock(["memory://"], on_event=print)
        print(len(_events._leaving), len(_events._sources) - before)
        """,
        nodes=cluster3.urls,
    )
    assert out == "0 0"


@both_apis
async def test_the_spans_of_a_manager_that_nobody_keeps_end(api: Api, cluster3: Cluster) -> None:
    seen = Seen()

    async def use(number: int) -> None:
        locks = api.Redlock(cluster3.urls)
        seen.instrument(locks)
        async with api.block(locks.lock(f"r{number}")):
            pass

    for number in range(20):
        await use(number)
    await api.until(lambda: len(seen.spans("quorlock.hold")) == 20)
    (durations,) = seen.points("quorlock.hold.duration")
    assert durations.count == 20
    seen.meters.shutdown()


@both_apis
async def test_a_close_waits_until_the_events_are_told(api: Api, cluster3: Cluster) -> None:
    told = Told()

    def note_slowly(event: events.Event) -> None:
        free.wait(0.05)
        told.note(event)

    free = threading.Event()
    locks = api.Redlock(cluster3.urls, on_event=note_slowly)
    async with api.block(locks.lock("r")):
        pass
    await api(locks.close())
    assert told == ["acquired", "released"]
    await api(locks.close())
    assert told == ["acquired", "released"]


@both_apis
async def test_a_close_does_not_wait_for_a_callback_for_long(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quorlock._settling._PATIENCE", 0.05)
    free = threading.Event()
    locks = api.Redlock(OWN_NODES, on_event=lambda _: free.wait(60))
    try:
        async with api.block(locks.lock("r")):
            pass
        await api(locks.close())
        assert locks.is_closed
    finally:
        free.set()


def test_a_close_in_a_callback_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quorlock._settling._PATIENCE", 3600)
    closed = threading.Event()

    def close(_: events.Event) -> None:
        locks.close()
        closed.set()

    locks = Redlock(OWN_NODES, on_event=close)
    with locks.lock("r"):
        pass
    assert closed.wait(20)


@both_apis
async def test_a_close_is_told_also_if_events_are_dropped(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quorlock._settling._PATIENCE", 3600)
    monkeypatch.setattr("quorlock._events._MOST_WAITING", 2)
    entered, free = threading.Event(), threading.Event()

    def wait(_: events.Event) -> None:
        entered.set()
        free.wait(60)

    locks, others = api.Redlock(OWN_NODES, on_event=wait), api.Redlock(OWN_NODES, on_event=wait)
    try:
        async with api.block(locks.lock("r")):
            await api.until(entered.is_set)
        closed = threading.Event()
        assert locks._events.call_when_told(closed.set)
        until = time.monotonic() + 20
        while not closed.is_set() and time.monotonic() < until:
            async with api.block(others.lock("other")):
                pass
        assert closed.is_set()
    finally:
        free.set()
    await api(locks.close())


HUBS = {
    "gevent": "import gevent; spawn = gevent.spawn; join = lambda it: it.join()",
    "patched gevent": (
        "import gevent.monkey; gevent.monkey.patch_all();"
        "import gevent; spawn = gevent.spawn; join = lambda it: it.join()"
    ),
    "eventlet": (
        "import warnings; warnings.simplefilter('ignore');"
        "import eventlet; spawn = eventlet.spawn; join = lambda it: it.wait()"
    ),
}


@pytest.mark.parametrize("hub", HUBS)
def test_a_close_in_a_greenlet_waits_until_the_events_are_told(cluster3: Cluster, hub: str) -> None:
    code = f"""
        {HUBS[hub]}
        import os, quorlock, quorlock._settling
        quorlock._settling._PATIENCE = 3600

        def use():
            told = []
            locks = quorlock.Redlock(
                os.environ["QUORLOCK_NODES"].split(","), on_event=lambda it: told.append(it.name)
            )
            with locks.lock("r"):
                pass
            locks.close()
            print(*[name for name in told if name != "node"])

        join(spawn(use))
        """
    assert run(code, nodes=cluster3.urls) == "acquired released"


def test_a_close_waits_beside_the_callback_of_another_greenlet(cluster3: Cluster) -> None:
    code = f"""
        {HUBS["gevent"]}
        import os, quorlock, quorlock._settling
        from gevent.event import Event
        quorlock._settling._PATIENCE = 3600
        nodes = os.environ["QUORLOCK_NODES"].split(",")
        entered, free, told = Event(), Event(), []

        def wait(_):
            entered.set()
            free.wait()

        def use():
            locks = quorlock.Redlock(nodes, on_event=wait)
            others = quorlock.Redlock(nodes, on_event=lambda it: told.append(it.name))
            with locks.lock("r"):
                entered.wait()
                with others.lock("other"):
                    pass
                gevent.spawn(free.set)
                others.close()
                print(*[name for name in told if name != "node"])

        join(spawn(use))
        """
    assert run(code, nodes=cluster3.urls) == "acquired released"


ENDS = {
    "blocking": """
        def use():
            locks = quorlock.Redlock(nodes, on_event=note)
            with locks.lock("r"):
                pass
        use()
    """,
    "asyncio": """
        async def use():
            asyncio.get_running_loop().slow_callback_duration = 60
            locks = quorlock.aio.Redlock(nodes, on_event=note)
            async with locks.lock("r"):
                pass
        asyncio.run(use())
    """,
}


@pytest.mark.parametrize("api", ENDS)
def test_events_are_told_at_the_end_of_the_interpreter(cluster3: Cluster, api: str) -> None:
    head = """
        import asyncio, os, quorlock, quorlock.aio
        nodes = os.environ["QUORLOCK_NODES"].split(",")

        def note(event):
            if event.name != "node":
                print(event.name, flush=True)
    """
    for _ in range(10):
        out = run(head + ENDS[api], nodes=cluster3.urls)
        assert out.split() == ["acquired", "released"]
