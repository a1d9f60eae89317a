"""A wall clock that is set, by hand or by a time server, changes nothing for a holder.

A small library before libc sets the clock of one process only.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.python.programs import run
from tests.support.servers import Cluster

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="LD_PRELOAD is Linux's")

CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>

static long offset;

void step(long seconds) { offset += seconds; }

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, now);
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) now->tv_sec += offset;
    return result;
}

int gettimeofday(struct timeval *now, void *zone) {
    struct timespec precise;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *place) {
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (place) *place = precise.tv_sec;
    return precise.tv_sec;
}
"""

HEAD = """
    import ctypes, os, time, quorlock
    real_step = ctypes.CDLL(None).step
    real_step.argtypes = [ctypes.c_long]

    def step(seconds):
        before = time.time()
        real_step(seconds)
        assert abs(time.time() - before - seconds) < 60, "the clock was not set"

    locks = quorlock.Redlock(os.environ["QUORLOCK_NODES"].split(","))
"""
HOUR = 3600


@pytest.fixture
def _settable_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, library = tmp_path / "clock.c", tmp_path / "clock.so"
    source.write_text(CLOCK)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    monkeypatch.setenv("LD_PRELOAD", str(library))


@pytest.mark.usefixtures("_settable_clock")
def test_the_validity_goes_by_time_that_has_passed(cluster3: Cluster) -> None:
    out = run(
        HEAD
        + f"""
    for seconds in ({HOUR}, -{HOUR}, -{HOUR}, {HOUR}):
        lock = locks.lock("r", ttl=0.5, timeout=5)
        assert lock.acquire()
        start, last = time.monotonic(), lock.lease.validity
        step(seconds)
        while lock.lease.is_valid:
            left = lock.lease.validity
            assert left <= last, "it grew"
            last = left
            time.sleep(0.005)
        took = time.monotonic() - start
        assert 0.3 < took < 0.55, took
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
    with locks.lock("r", ttl=0.6, on_lost=lost.append) as lease:
        for seconds in ({HOUR}, -2 * {HOUR}, {HOUR}):
            step(seconds)
            end = time.monotonic() + 0.8
            while time.monotonic() < end:
                assert lease.is_valid
                time.sleep(0.01)
            lease.check()
    assert not lost, lost
    # The time that a wait may take is time that passes, too.
    with locks.lock("r"):
        real_step({HOUR})
        start = time.monotonic()
        assert not locks.lock("r").acquire(timeout=0.3)
        assert 0.2 < time.monotonic() - start < 2
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
