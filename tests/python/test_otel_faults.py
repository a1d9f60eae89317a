"""Tests `quorlock.otel` where arguments are wrong, a tracer fails, or a child is forked."""

from __future__ import annotations

import time
from textwrap import dedent
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import SpanProcessor

from quorlock import ConfigError, Redlock, _tracing, otel
from tests.python.apis import Api, both_apis
from tests.python.exporters import Seen
from tests.python.programs import run
from tests.support.cluster import Cluster

OWN_NODES = ["memory://", "memory://", "memory://"]


class Failing(SpanProcessor):
    """Raises an error where spans begin, or where they end."""

    def __init__(self, where: str) -> None:
        setattr(self, where, self._fail)

    def _fail(self, *_: Any, **__: Any) -> None:
        raise RuntimeError("a slip of the processor")


class FailingTrace:
    """Raises an error at the end of an acquisition."""

    def __init__(self, *_: Any) -> None:
        """It begins without one."""

    def won(self, _: Any) -> None:
        raise RuntimeError("a slip at the end")

    def failed(self, error: BaseException) -> None:
        raise RuntimeError("a slip at the end") from error


def refuse_to_follow(*_: Any) -> Any:
    raise RuntimeError("a slip at the beginning")


def logged(caplog: pytest.LogCaptureFixture) -> int:
    """How many errors of tracers were logged."""
    return sum(record.getMessage().startswith("a tracer failed") for record in caplog.records)


@both_apis
@pytest.mark.parametrize(("where", "of_releases"), [("on_start", 0), ("on_end", 1)])
async def test_a_span_processor_that_fails_breaks_no_lock(
    api: Api, caplog: pytest.LogCaptureFixture, where: str, of_releases: int
) -> None:
    seen = Seen()
    seen.tracers.add_span_processor(Failing(where))
    locks = api.Redlock(OWN_NODES)
    stop = seen.instrument(locks)
    lock = locks.lock("r")
    assert await api(lock.acquire())
    assert logged(caplog) == 1, "for the spans of the acquisition and of the lease"
    assert not await api(locks.lock("r", timeout=0.01).acquire())
    assert logged(caplog) == 2
    await api(lock.release())
    await api.until(lambda: seen.points("quorlock.hold.duration"))
    await api.until(lambda: logged(caplog) == 2 + of_releases)
    before = time.monotonic()
    async with api.block(locks.lock("s")):
        stop()
    assert time.monotonic() - before < 0.5
    assert logged(caplog) == 3 + 2 * of_releases
    durations = seen.points("quorlock.acquire.duration")
    assert {it.attributes["quorlock.outcome"]: it.count for it in durations} == {
        "acquired": 2,
        "timed_out": 1,
    }
    seen.meters.shutdown()


class FailingMeters:
    """Makes meters whose histograms raise errors."""

    def __init__(self) -> None:
        self._meters = MeterProvider()

    def get_meter(self, name: str, *_: Any) -> Any:
        meter: Any = self._meters.get_meter(name)
        meter.create_histogram = lambda *_, **__: self
        return meter

    def record(self, *_: Any) -> None:
        raise RuntimeError("a slip of the meter")


@both_apis
async def test_a_meter_that_fails_keeps_no_span_from_its_end(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    seen = Seen()
    locks = api.Redlock(OWN_NODES)
    meters: Any = FailingMeters()
    stop = otel.instrument(locks, tracer_provider=seen.tracers, meter_provider=meters)
    async with api.block(locks.lock("r")) as lease:
        await api(lease.extend())
    await api.until(lambda: locks.stats().releases["released"])
    before = time.monotonic()
    stop()
    assert time.monotonic() - before < 0.5, "what was told is not waited for"
    assert logged(caplog) == 3, "of the acquisition, the extension and the release"
    (hold,) = seen.spans("quorlock.hold")
    assert hold.attributes["quorlock.outcome"] == "released"


@both_apis
@pytest.mark.parametrize("follow", [refuse_to_follow, FailingTrace])
async def test_tracers_that_fail_are_logged_once_an_acquisition(
    api: Api, caplog: pytest.LogCaptureFixture, follow: Any
) -> None:
    locks = api.Redlock(OWN_NODES)
    for _ in range(2):
        _tracing.add(locks._manager.number, follow)
    async with api.block(locks.lock("r")):
        assert not await api(locks.lock("r").acquire(blocking=False))
    assert logged(caplog) == 2
    _tracing.remove(locks._manager.number, follow)


@both_apis
async def test_what_ctrl_c_raises_in_a_tracer_is_raised_by_the_acquisition(api: Api) -> None:
    def interrupt(*_: Any) -> Any:
        raise KeyboardInterrupt

    locks = api.Redlock(OWN_NODES)
    _tracing.add(locks._manager.number, interrupt)
    with pytest.raises(KeyboardInterrupt):
        await api(locks.lock("r").acquire())
    _tracing.remove(locks._manager.number, interrupt)
    async with api.block(locks.lock("r", timeout=5)):
        pass


FORKING = """
    import asyncio, os, time, quorlock, quorlock.aio
    from tests.python.exporters import Seen

    urls, seen = os.environ["QUORLOCK_NODES"].split(","), Seen()

    def outcomes(name):
        return [span.attributes["quorlock.outcome"] for span in seen.spans(name)]

    def forked(as_child):
        child = os.fork()
        if not child:
            try:
                as_child()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
"""


def outcome_of(code: str, cluster: Cluster) -> str:
    """What a program that forks prints."""
    return run(dedent(FORKING) + dedent(code), nodes=cluster.urls)


def test_a_forked_child_leaves_its_parents_spans_alone(cluster3: Cluster) -> None:
    code = """
        locks = quorlock.Redlock(urls)
        stop = seen.instrument(locks)
        with locks.lock("before"):
            pass
        lock = locks.lock("r")
        lock.acquire()

        def as_child():
            before = time.monotonic()
            stop()
            print(time.monotonic() - before < 0.5, outcomes("quorlock.hold"), flush=True)

        def as_child_with_locks():
            with locks.lock("child"):
                pass
            stop()
            print(outcomes("quorlock.hold"), flush=True)

        while len(outcomes("quorlock.hold")) < 1:
            time.sleep(0.01)
        forked(as_child)
        forked(as_child_with_locks)
        lock.release()
        stop()
        print(outcomes("quorlock.hold"))
    """
    assert outcome_of(code, cluster3).splitlines() == [
        "True ['released']",
        "['released', 'released']",
        "['released', 'released']",
    ]


def test_a_forked_child_leaves_an_acquisition_of_its_parent_alone(cluster3: Cluster) -> None:
    code = """
        async def main():
            locks = quorlock.aio.Redlock(urls)
            stop = seen.instrument(locks)
            async with locks.lock("r", ttl=5):
                waiting = asyncio.ensure_future(locks.lock("r").acquire())
                await asyncio.sleep(0.2)
                child = os.fork()
                if not child:
                    waiting.cancel()
                    try:
                        await waiting
                    except BaseException:
                        print(outcomes("quorlock.acquire"), flush=True)
                    finally:
                        os._exit(0)
                os.waitpid(child, 0)
            print(await waiting, outcomes("quorlock.acquire"))
            stop()

        asyncio.run(main())
    """
    assert outcome_of(code, cluster3).splitlines() == [
        "['acquired']",
        "True ['acquired', 'acquired']",
    ]


def test_a_forked_child_reads_its_own_figures(cluster3: Cluster) -> None:
    """Also if a thread of its parent was reading them."""
    code = """
        from quorlock._otel_observer import observer_of
        locks = quorlock.Redlock(urls)
        stop = seen.instrument(locks)
        observer = observer_of(seen.meters, seen.meters.get_meter("quorlock"))

        def as_child():
            print([point.value for point in seen.points("quorlock.locks.held")], flush=True)

        with locks.lock("r"), observer._lock:
            forked(as_child)
        stop()
    """
    assert outcome_of(code, cluster3) == "[0]"


def test_without_the_api_it_is_said_what_to_install() -> None:
    code = """
        import sys

        sys.modules["opentelemetry"] = None
        try:
            from quorlock import otel
        except ModuleNotFoundError as error:
            print(error)
    """
    assert "pip install quorlock[otel]" in run(code, nodes=OWN_NODES)


@pytest.mark.parametrize(
    ("locks", "options", "message"),
    [
        (None, {}, "instrument() needs a Redlock, not NoneType"),
        ("redis://a", {}, "instrument() needs a Redlock, not str"),
        (..., {"resource_names": "x"}, "resource_names must be True or False, not 'x'"),
        (
            ...,
            {"tracer_provider": 5},
            "tracer_provider must be a provider of OpenTelemetry, not int",
        ),
        (..., {"meter_provider": 5}, "meter_provider must be a provider of OpenTelemetry, not int"),
    ],
)
def test_arguments_of_wrong_types_are_refused(locks: Any, options: Any, message: str) -> None:
    given = Redlock(OWN_NODES) if locks is ... else locks
    with pytest.raises(ConfigError) as caught:
        otel.instrument(given, **options)
    assert str(caught.value) == message
