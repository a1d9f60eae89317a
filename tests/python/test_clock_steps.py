"""Tests that setting the wall clock, by hand or by a time server, changes nothing for a holder."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.python.programs import run
from tests.support.cluster import Cluster
from tests.support.wall_clock import WallClock

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="LD_PRELOAD is Linux's")

HEAD = """
    import os, time, quorlock
    from pathlib import Path
    from tests.support.wall_clock import WallClock
    clock = WallClock(Path(os.environ["QUORLOCK_WALL_CLOCK"]).parent)

    def step(seconds):
        before = time.time()
        clock.step(seconds)
        assert abs(time.time() - before - seconds) < 60, "the clock was not set"

    locks = quorlock.Redlock(os.environ["QUORLOCK_NODES"].split(","))
"""
HOUR = 3600


@pytest.fixture
def _settable_clock(cluster3: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cluster3, "the servers run by their own clock: they are there before"
    for name, value in WallClock(tmp_path).variables.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("_settable_clock")
def test_the_validity_goes_by_time_that_has_passed(cluster3: Cluster) -> None:
    out = run(
        HEAD
        + f"""
    for seconds in ({HOUR}, -{HOUR}, -{HOUR}, {HOUR}):
        lock = locks.lock("r", ttl=0.5, timeout=5)
        assert lock.acquire()
        start, trusted = time.monotonic(), lock.lease.validity
        last = trusted
        step(seconds)
        while lock.lease.is_valid:
            left = lock.lease.validity
            assert left <= last, "it grew"
            last = left
            time.sleep(0.005)
        took = time.monotonic() - start
        assert trusted - 0.05 < took < trusted + 10, took
    print("done")
    """,
        nodes=cluster3.urls,
    )
    assert out == "done"


@pytest.mark.usefixtures("_settable_clock")
def test_renewal_and_the_loss_do_not_heed_it(cluster3: Cluster) -> None:
    out = run(
        HEAD
        + f"""
    lost = []
    with locks.lock("r", ttl=2, on_lost=lost.append) as lease:
        for seconds in ({HOUR}, -2 * {HOUR}, {HOUR}):
            step(seconds)
            end = time.monotonic() + 0.9
            while time.monotonic() < end:
                assert lease.is_valid
                time.sleep(0.01)
            lease.check()
    assert not lost, lost
    # The time that a wait may take is time that passes, too.
    with locks.lock("r"):
        clock.step({HOUR})
        start = time.monotonic()
        assert not locks.lock("r").acquire(timeout=0.3)
        assert 0.3 <= time.monotonic() - start < 10
    print("done")
    """,
        nodes=cluster3.urls,
    )
    assert out == "done"


@pytest.mark.usefixtures("_settable_clock")
def test_fencing_tokens_grow_whatever_the_clock_says(cluster3: Cluster) -> None:
    out = run(
        HEAD
        + f"""
    true = time.time()
    tokens = []
    for seconds in (0, {HOUR}, -2 * {HOUR}, 0, 10 * 365 * 24 * {HOUR}, -10 * 365 * 24 * {HOUR}):
        step(seconds)
        # A manager of its own knows no token of the others.
        for manager in (locks, quorlock.Redlock(os.environ["QUORLOCK_NODES"].split(","))):
            with manager.lock("r") as lease:
                tokens.append(lease.fencing_token)
    assert tokens == sorted(set(tokens)), tokens
    # A clock that is years ahead does not use the tokens up.
    assert tokens[-1] < (true + 60) * 1_000_000, tokens
    print("done")
    """,
        nodes=cluster3.urls,
    )
    assert out == "done"


@pytest.mark.usefixtures("_settable_clock")
def test_the_span_of_a_hold_lasts_as_long_as_the_hold(cluster3: Cluster) -> None:
    out = run(
        HEAD
        + f"""
    from tests.python.exporters import Seen
    seen = Seen()
    stop = seen.instrument(locks)
    for seconds in (-{HOUR}, {HOUR}):
        with locks.lock("r"):
            step(seconds)
            time.sleep(0.3)
    stop()
    took = [(span.end_time - span.start_time) / 1e9 for span in seen.spans("quorlock.hold")]
    assert len(took) == 2 and all(0.25 < seconds < 20 for seconds in took), took
    print("done")
    """,
        nodes=cluster3.urls,
    )
    assert out == "done"
