"""Tests that locks stay closed after the end of their lease: `lock_delay` and `min_hold`."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from quorlock import Lease, LeaseLost, Redlock
from tests.python.apis import Api, async_apis, both_apis, every_api
from tests.python.programs import is_free
from tests.support.cluster import Cluster

ROOT = Path(__file__).parents[2]
LONG = 30


def left(cluster: Cluster) -> list[int]:
    """For how many milliseconds every server keeps the key; -2 where it has none."""
    told = [server.command("PTTL", "r") for server in cluster]
    return [number for number in told if isinstance(number, int)]


def is_kept(cluster: Cluster, token: str, least: float, most: float) -> bool:
    """Whether every server keeps the key for this many seconds."""
    stays = all(least * 1000 <= number <= most * 1000 for number in left(cluster))
    return stays and cluster.values("r") == [token] * len(cluster)


@both_apis
async def test_the_nodes_keep_a_lock_longer_than_it_is_trusted(api: Api, cluster3: Cluster) -> None:
    lock = api.Redlock(cluster3.urls, lock_delay=timedelta(seconds=LONG)).lock("r", ttl=10)
    assert await api(lock.acquire())
    lease = lock.lease
    await api.until(lambda: is_kept(cluster3, lease.token, LONG, LONG + 10))
    assert lease.validity < 10
    assert lease.ttl == 10
    assert await api(lease.extend(20)) < 20
    await api.until(lambda: is_kept(cluster3, lease.token, LONG + 10, LONG + 20))
    assert await api(lock.release()) == "released"
    await api.until(lambda: is_free(cluster3, "r"))


@every_api
@pytest.mark.parametrize("options", [{}, {"auto_extend": True, "max_hold": 0.2}], ids=repr)
async def test_a_lost_lock_stays_closed_until_its_holder_releases_it(
    api: Api, cluster3: Cluster, options: dict[str, Any]
) -> None:
    told: list[LeaseLost] = []
    locks = api.Redlock(cluster3.urls)
    lock = locks.lock("r", ttl=0.4, lock_delay=LONG, on_lost=told.append, **options)
    assert await api(lock.acquire())
    lease = lock.lease
    await api.until(lambda: told)
    assert is_kept(cluster3, lease.token, LONG - 10, LONG + 0.4)
    assert not await api(locks.lock("r").acquire(blocking=False))
    with pytest.raises(LeaseLost):
        await api(lock.release())
    await api.until(lambda: is_free(cluster3, "r"))


@every_api
async def test_the_end_of_the_block_ends_the_delay(api: Api, cluster3: Cluster) -> None:
    seen: list[bool] = []
    told: list[LeaseLost] = []
    locks = api.Redlock(cluster3.urls, ttl=0.4, lock_delay=LONG, auto_extend=False)
    with pytest.raises(LeaseLost):
        async with api.block(locks.lock("r", on_lost=told.append)) as lease:
            try:
                await api.until(lambda: told)
                await api.sleep(1)  # with asyncio: until the cancellation
            finally:
                seen.append(is_kept(cluster3, lease.token, LONG - 10, LONG + 0.4))
    assert seen == [True]
    await api.until(lambda: is_free(cluster3, "r"))


def test_a_process_that_dies_leaves_the_lock_closed(cluster3: Cluster) -> None:
    program = (
        "import sys, time\n"
        "from quorlock import Redlock\n"
        f"with Redlock(sys.argv[1:]).lock('r', ttl=0.5, lock_delay={LONG}) as lease:\n"
        "    print(lease.token, flush=True)\n"
        "    time.sleep(60)\n"
    )
    command = [sys.executable, "-c", program, *cluster3.urls]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as child:
        assert child.stdout is not None
        token = child.stdout.readline().strip()
        child.send_signal(signal.SIGKILL)
    time.sleep(0.6)  # the ttl; nobody can tell that it is over
    assert is_kept(cluster3, token, LONG - 10, LONG + 0.5)
    assert not Redlock(cluster3.urls).lock("r").acquire(blocking=False)


@every_api
async def test_an_early_release_keeps_the_lock_closed(api: Api, cluster3: Cluster) -> None:
    locks = api.Redlock(cluster3.urls, min_hold=1.5)
    lock = locks.lock("r")
    begun = time.monotonic()
    assert await api(lock.acquire())
    lease = lock.lease
    assert await api(lock.release()) == "released"
    assert lease.is_released
    assert not lease.is_valid
    refused = not await api(locks.lock("r").acquire(blocking=False))
    assert refused or time.monotonic() - begun >= 1.5
    await api.until(lambda: is_free(cluster3, "r"))
    assert time.monotonic() - begun >= 1.5


@both_apis
async def test_so_does_a_block_whose_body_raises(api: Api, cluster3: Cluster) -> None:
    with pytest.raises(KeyError, match="the body's own"):
        async with api.block(api.Redlock(cluster3.urls).lock("r", min_hold=LONG)) as lease:
            raise KeyError("the body's own")
    await api.until(lambda: is_kept(cluster3, lease.token, LONG - 10, LONG + 1))


@both_apis
async def test_a_later_release_deletes(api: Api, cluster3: Cluster) -> None:
    lock = api.Redlock(cluster3.urls).lock("r", ttl=60, min_hold=0.002)
    assert await api(lock.acquire())
    await api.sleep(0.005)  # longer than min_hold
    assert await api(lock.release()) == "released"
    await api.until(lambda: is_free(cluster3, "r"))


@both_apis
async def test_an_acquisition_that_is_given_up_keeps_nothing(api: Api, cluster3: Cluster) -> None:
    lock = api.Redlock(cluster3.urls).lock("r", min_hold=LONG, lock_delay=LONG)
    plan = lock._planned()[0]
    for takes in (False, True):
        operation = plan.acquire(blocking=True, timeout=-1, block=False)
        operation.wait()
        if takes:  # interrupted between winning and handing out
            assert Lease(operation).is_valid
        operation.cancel()
        await api.until(lambda: is_free(cluster3, "r"))


@async_apis
async def test_a_cancelled_task_keeps_nothing(api: Api, cluster3: Cluster) -> None:
    lock = api.Redlock(cluster3.urls).lock("r", min_hold=LONG, lock_delay=LONG, node_timeout=5)
    assert not await lock.locked()  # connected
    cluster3[0].pause()
    cluster3[1].pause()
    task = asyncio.ensure_future(lock.acquire())
    await api.until(lambda: cluster3[2].command("EXISTS", "r") == 1)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    cluster3[0].resume()
    cluster3[1].resume()
    await api.until(lambda: is_free(cluster3, "r"))


def test_out_of_bounds_together(cluster3: Cluster) -> None:
    with pytest.raises(ValueError, match="ttl and lock_delay together must be below 2"):
        Redlock(cluster3.urls, ttl=10, lock_delay=2**53 / 1000 - 9)
