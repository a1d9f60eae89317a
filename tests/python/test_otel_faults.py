"""Tests what `quorlock.otel` does in a forked child."""

from __future__ import annotations

from textwrap import dedent

from tests.python.programs import run
from tests.support.cluster import Cluster

FORKING = """
    import asyncio, os, time, quorlock, quorlock.aio
    from quorlock import _tracing
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
            seen.instrument(locks)
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
        seen.instrument(locks)
        observer = observer_of(seen.meters, seen.meters.get_meter("quorlock"))

        def as_child():
            print([point.value for point in seen.points("quorlock.locks.held")], flush=True)

        with locks.lock("r"), observer._lock:
            forked(as_child)
    """
    assert outcome_of(code, cluster3) == "[0]"
