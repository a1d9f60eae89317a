"""Tests the spans and metrics of `quorlock.otel` with the SDK's in-memory exporters."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import SpanProcessor
from opentelemetry.trace import StatusCode

from quorlock import LeaseLost, QuorumUnreachable, Redlock, __version__, events
from tests.python.apis import Api, both_apis
from tests.python.exporters import Seen
from tests.support.cluster import Cluster
from tests.support.wait import eventually

OWN_NODES = ["memory://", "memory://", "memory://"]


class Beginnings(SpanProcessor):
    """The names of the spans that have begun."""

    def __init__(self, names: list[Any]) -> None:
        self._names = names

    def on_start(self, span: Any, parent_context: Any = None) -> None:  # noqa: ARG002
        self._names.append(span.name)


@pytest.fixture
def seen() -> Iterator[Seen]:
    seen = Seen()
    yield seen
    seen.meters.shutdown()


@both_apis
async def test_a_lock_makes_spans_and_metrics(api: Api, seen: Seen) -> None:
    locks = api.Redlock(OWN_NODES)
    stop = seen.instrument(locks)
    tracer = seen.tracers.get_tracer("test")
    with tracer.start_as_current_span("caller") as caller:
        async with api.block(locks.lock("r")) as lease:
            (held,) = seen.points("quorlock.locks.held")
            assert held.value == 1
            assert not await api(locks.lock("r").acquire(blocking=False))
            number = lease.fencing_token
    await api.until(lambda: seen.spans("quorlock.hold"))
    own = caller.get_span_context()
    won, refused = seen.spans("quorlock.acquire")
    assert won.parent.span_id == own.span_id
    assert dict(won.attributes) == {"quorlock.outcome": "acquired"}
    assert refused.attributes["quorlock.outcome"] == "not_acquired"
    assert refused.status.status_code is StatusCode.ERROR
    assert refused.status.description == "LockNotAcquired", "no name is told"
    assert refused.attributes["error.type"] == "LockNotAcquired"
    assert won.instrumentation_scope.version == __version__
    (hold,) = seen.spans("quorlock.hold")
    assert [link.context.span_id for link in hold.links] == [own.span_id]
    assert dict(hold.attributes) == {
        "quorlock.outcome": "released",
        "quorlock.fencing_token": number,
    }
    assert hold.start_time <= hold.end_time
    durations = seen.points("quorlock.acquire.duration")
    assert {it.attributes["quorlock.outcome"]: it.count for it in durations} == {
        "acquired": 1,
        "not_acquired": 1,
    }
    (held_for,) = seen.points("quorlock.hold.duration")
    assert held_for.count == 1
    states = [point for point in seen.points("quorlock.node.state") if point.value == 1]
    assert {it.attributes["quorlock.node.state"] for it in states} == {"healthy"}
    stop()
    async with api.block(locks.lock("r")):
        pass
    assert len(seen.spans("quorlock.acquire")) == 2, "it was stopped"
    await api.until(lambda: locks.stats().hold_seconds.count == 2)
    await api.sleep(0.05)  # no event comes any more; there is nothing to wait for
    (held_for,) = seen.points("quorlock.hold.duration")
    assert held_for.count == 1


@both_apis
async def test_managers_of_one_meter_are_shown_together(api: Api, seen: Seen) -> None:
    managers = [api.Redlock(OWN_NODES), api.Redlock(["memory://x", "memory://y", "memory://z"])]
    stops = [seen.instrument(locks) for locks in managers]
    async with api.block(managers[0].lock("r")), api.block(managers[1].lock("r")):
        assert [point.value for point in seen.points("quorlock.locks.held")] == [2]
        states = seen.points("quorlock.node.state")
        healthy = {"quorlock.node.state": "healthy"}.items()
        shown = {
            it.attributes["server.address"] for it in states if healthy <= it.attributes.items()
        }
        assert shown == {"memory://", "memory://x", "memory://y", "memory://z"}
        stops[0]()
        assert [point.value for point in seen.points("quorlock.locks.held")] == [1]
    stops[1]()
    assert seen.points("quorlock.locks.held") == []


@both_apis
async def test_a_loss_is_counted_and_names_are_told_if_asked_for(api: Api, seen: Seen) -> None:
    locks = api.Redlock(OWN_NODES)
    seen.instrument(locks, resource_names=True)
    lock = locks.lock(resources=["a", "b"], ttl=0.1, on_lost=lambda: None)
    assert await api(lock.acquire())
    await api.until(lambda: seen.spans("quorlock.hold"))
    (hold,) = seen.spans("quorlock.hold")
    assert hold.attributes["quorlock.resource"] == ("a", "b")
    assert hold.attributes["error.type"] == "LeaseLost"
    assert hold.status.status_code is StatusCode.ERROR
    lost = {it.attributes["quorlock.reason"]: it.value for it in seen.points("quorlock.lost")}
    assert lost == {"expired": 1, "gone": 0, "held-too-long": 0}
    (acquired,) = seen.spans("quorlock.acquire")
    assert acquired.attributes["quorlock.resource"] == ("a", "b")


@both_apis
async def test_what_is_held_at_the_end_has_its_span_ended(api: Api, seen: Seen) -> None:
    locks = api.Redlock(OWN_NODES)
    stop = seen.instrument(locks)
    async with api.block(locks.lock("r")):
        stop()
        (hold,) = seen.spans("quorlock.hold")
        assert dict(hold.attributes)["quorlock.outcome"] == "held"
        assert hold.status.status_code is StatusCode.UNSET
    assert len(seen.spans("quorlock.hold")) == 1


@both_apis
async def test_what_ended_just_before_the_end_has_its_own_outcome(api: Api, seen: Seen) -> None:
    """Its event is still under way."""
    locks = api.Redlock(OWN_NODES, on_event=lambda _: time.sleep(0.1))
    stop = seen.instrument(locks)
    held = locks.lock("held")
    assert await api(held.acquire())
    async with api.block(locks.lock("r")):
        pass
    lost = locks.lock("lost", ttl=0.1, on_lost=lambda: None)
    assert await api(lost.acquire())
    await api.until(lambda: lost.lease and not lost.lease.is_valid)
    stop()
    outcomes = [span.attributes["quorlock.outcome"] for span in seen.spans("quorlock.hold")]
    assert sorted(outcomes) == ["held", "lost", "released"]
    durations = seen.points("quorlock.hold.duration")
    assert {it.attributes["quorlock.outcome"]: it.count for it in durations} == {
        "released": 1,
        "lost": 1,
    }
    assert sum(point.value for point in seen.points("quorlock.lost")) == 1
    await api(held.release())
    assert len(seen.spans("quorlock.hold")) == 3


@both_apis
async def test_what_happened_just_before_the_end_is_counted(api: Api, seen: Seen) -> None:
    locks = api.Redlock(
        ["redis://127.0.0.1:1"], on_unreachable="proceed", on_event=lambda _: time.sleep(0.02)
    )
    stop = seen.instrument(locks)
    for _ in range(3):
        async with api.block(locks.lock("r", timeout=0.05)):
            pass
    before = time.monotonic()
    stop()
    assert time.monotonic() - before < 0.8
    assert [point.value for point in seen.points("quorlock.degraded")] == [3]
    async with api.block(locks.lock("r", timeout=0.05)):
        pass
    await api.sleep(0.3)
    assert [point.value for point in seen.points("quorlock.degraded")] == [3], "it has ended"
    others = api.Redlock(OWN_NODES, on_event=lambda _: time.sleep(0.1))
    stop = seen.instrument(others)
    async with api.block(others.lock("r")) as lease:
        await api(lease.extend())
        stop()
    assert [point.count for point in seen.points("quorlock.renewal.slack")] == [1]


def test_the_end_within_a_callback_waits_for_no_other(seen: Seen) -> None:
    took: list[float] = []

    def watch(event: events.Event) -> None:
        if event.name == "released" and not took:
            before = time.monotonic()
            stop()
            took.append(time.monotonic() - before)

    locks = Redlock(OWN_NODES, on_event=watch)
    stop = seen.instrument(locks)
    with locks.lock("r"):
        pass
    eventually(lambda: took)
    assert took[0] < 0.5
    (hold,) = seen.spans("quorlock.hold")
    assert hold.attributes["quorlock.outcome"] == "released", "what the callback was told of"


@both_apis
async def test_a_lease_that_has_run_out_has_expired(api: Api, seen: Seen) -> None:
    """Its span ends with its validity, released late, lost or not at all; nothing is waited for."""
    locks = api.Redlock(OWN_NODES)
    stop = seen.instrument(locks)
    lock, extended = (locks.lock(name, ttl=0.2, auto_extend=False) for name in ("r", "extended"))
    lost = locks.lock("lost", ttl=0.6, auto_extend=False)
    assert [await api(it.acquire()) for it in (lock, extended, lost)] == [True, True, True]
    assert extended.lease
    await api(extended.lease.extend(0.4))
    await api.until(lambda: lost.lease and not lost.lease.is_valid)
    await api.sleep(0.3)
    for end in (extended.lease.release, lost.lease.extend):
        with pytest.raises(LeaseLost):
            await api(end())
    before = time.monotonic()
    stop()
    assert time.monotonic() - before < 0.5
    spans = sorted(seen.spans("quorlock.hold"), key=lambda span: span.end_time - span.start_time)
    assert [span.attributes["quorlock.outcome"] for span in spans] == ["expired", "expired", "lost"]
    first, second, third = ((span.end_time - span.start_time) / 1e9 for span in spans)
    assert 0.1 < first < 0.25
    assert 0.3 < second < 0.5
    assert 0.5 < third < 0.7


def test_a_node_is_named_by_the_address_and_port_of_its_server(seen: Seen) -> None:
    nodes = [
        "redis://127.0.0.1:1/3?key_prefix=a:",
        "rediss://user:pass@[::1]:2",
        "unix:///tmp/none.sock?db=2",
    ]
    managers = [
        Redlock(nodes),
        Redlock(["redis://127.0.0.1:1/4"]),
        Redlock(["redis://localhost", "memory://x"]),
    ]
    stops = [seen.instrument(locks) for locks in managers]
    for name in ("quorlock.node.state", "quorlock.node.timeouts"):
        shown = [
            (it.attributes["server.address"], it.attributes.get("server.port"))
            for it in seen.points(name)
            if it.attributes.get("quorlock.node.state", "down") == "down"
        ]
        assert sorted(shown, key=str) == [
            ("/tmp/none.sock", None),
            ("127.0.0.1", 1),
            ("::1", 2),
            ("localhost", 6379),
            ("memory://x", None),
        ]
    for stop in stops:
        stop()


@both_apis
async def test_a_manager_that_is_closed_shows_no_nodes(
    api: Api, seen: Seen, cluster3: Cluster
) -> None:
    managers = [api.Redlock(cluster3.urls), api.Redlock(["memory://x"])]
    stops = [seen.instrument(locks) for locks in managers]
    for locks in managers:
        async with api.block(locks.lock("r")):
            pass
    await api(managers[0].close())
    shown = {it.attributes["server.address"] for it in seen.points("quorlock.node.state")}
    assert shown == {"memory://x"}
    await api(managers[1].close())
    assert seen.points("quorlock.node.state") == []
    for stop in stops:
        stop()


@both_apis
async def test_a_reading_asks_each_manager_once(
    api: Api, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks = api.Redlock(OWN_NODES)
    stop = seen.instrument(locks)
    asked: list[Any] = []
    ask = locks.stats

    def stats() -> Any:
        asked.append(0)
        return ask()

    monkeypatch.setattr(locks, "stats", stats)
    for count in (1, 2):
        assert seen.points("quorlock.locks.held")
        assert len(asked) == count
    stop()


@both_apis
async def test_the_end_of_one_instrumentation_leaves_others_alone(api: Api, seen: Seen) -> None:
    locks = api.Redlock(OWN_NODES)

    async def see() -> tuple[list[Any], int]:
        """What is shown of a lock: as held, and how many spans more."""
        before = len(seen.spans("quorlock.acquire"))
        async with api.block(locks.lock("r")):
            held = [point.value for point in seen.points("quorlock.locks.held")]
        return held, len(seen.spans("quorlock.acquire")) - before

    first, second = seen.instrument(locks), seen.instrument(locks)
    assert await see() == ([1], 2), "the manager is asked once, and each makes its spans"
    first()
    assert await see() == ([1], 1)
    third = seen.instrument(locks)
    first()
    third()
    assert await see() == ([1], 1), "the later one or the earlier one"
    second()
    assert await see() == ([], 0)
    fourth = seen.instrument(locks)
    second()
    assert await see() == ([1], 1), "an old end does nothing"
    fourth()


@both_apis
async def test_timeouts_of_nodes_are_counted_beyond_the_end_of_a_manager(
    api: Api, seen: Seen, servers: Callable[..., Cluster]
) -> None:
    cluster = servers(3)
    managers = [api.Redlock(cluster.urls, node_timeout=0.1) for _ in range(2)]
    stops = [seen.instrument(locks) for locks in managers]
    for locks in managers:
        async with api.block(locks.lock("r")):
            pass
    for server in cluster[:2]:
        server.pause()
    for locks in managers:
        with pytest.raises(QuorumUnreachable):
            await api(locks.lock("r", blocking=False).acquire())

    def counted() -> int:
        return sum(point.value for point in seen.points("quorlock.node.timeouts"))

    before = counted()
    assert before >= 4
    stops[0]()
    await api(managers[0].close())
    assert counted() == before, "a counter never goes down"
    again = seen.instrument(managers[1])
    assert counted() == before, "nor is anything counted twice"
    for stop in (again, stops[1]):
        stop()
    for server in cluster[:2]:
        server.resume()
    await api(managers[1].close())


@both_apis
async def test_what_is_acquired_after_the_end_has_no_span(
    api: Api, seen: Seen, cluster3: Cluster
) -> None:
    locks, others = api.Redlock(cluster3.urls), Redlock(cluster3.urls)
    held = others.lock("r")
    assert held.acquire()
    begun: list[Any] = []
    seen.tracers.add_span_processor(Beginnings(begun))
    stop = seen.instrument(locks, resource_names=True)

    def stop_and_release() -> None:
        eventually(lambda: "quorlock.acquire" in begun)
        stop()
        held.release()

    thread = threading.Thread(target=stop_and_release)
    thread.start()
    async with api.block(locks.lock("r")):
        pass
    thread.join()
    assert begun == ["quorlock.acquire"]
    (span,) = seen.spans("quorlock.acquire")
    assert span.attributes["quorlock.outcome"] == "acquired"
    others.close()
    await api(locks.close())
