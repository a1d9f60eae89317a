"""Tests that fair locks are had in the order of arrival, over processes and languages."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from quorlock import ConfigError, Redlock
from tests.python.programs import NodeProgram, Program
from tests.support.cluster import Cluster
from tests.support.servers import Server
from tests.support.wait import eventually

#: How many processes of each language stand in the ring, and how often each acquires.
PROCESSES, ROUNDS = 5, 30
#: In nanoseconds: what lies no further apart has come at the same time, for different processes.
AT_ONCE = 5_000_000

#: Acquires again and again; a line for each: who, when it came, with which token it was let in.
RING = f"""
    import os, sys, time, quorlock
    locks = quorlock.Redlock(os.environ["QUORLOCK_NODES"].split(","), ttl=20)
    with locks.lock(f"own:{{os.getpid()}}", fair=True):  # makes every connection
        pass
    print("ready", flush=True)
    path, name = sys.stdin.readline().split()
    file = os.open(path, os.O_WRONLY | os.O_APPEND)
    for _ in range({ROUNDS}):
        arrived = time.monotonic_ns()
        with locks.lock("fair", fair=True, timeout=100) as lease:
            os.write(file, f"{{name}} {{arrived}} {{lease.fencing_token}}\\n".encode())
            time.sleep(0.003)
"""
NODE_RING = f"""
    import {{ openSync, writeSync }} from 'node:fs'
    import {{ createInterface }} from 'node:readline'
    import {{ setTimeout as sleep }} from 'node:timers/promises'
    import {{ Redlock }} from 'quorlock'

    const redlock = new Redlock(process.env.QUORLOCK_NODES.split(','))
    const options = {{ fair: true, timeout: 100_000 }}
    await redlock.using(`own:${{process.pid}}`, 20_000, {{ fair: true }}, async () => {{}})
    console.log('ready')
    for await (const line of createInterface({{ input: process.stdin }})) {{
      const [path, name] = line.split(' ')
      const file = openSync(path, 'a')
      for (let round = 0; round < {ROUNDS}; round++) {{
        const arrived = process.hrtime.bigint()
        await redlock.using('fair', 20_000, options, async (_, {{ lock }}) => {{
          writeSync(file, `${{name}} ${{arrived}} ${{lock.fencingToken}}\\n`)
          await sleep(3)
        }})
      }}
      process.exit()
    }}
"""
#: Acquires once, and says so.
WAITER = """
    import os, sys, time, quorlock
    locks = quorlock.Redlock(os.environ["QUORLOCK_NODES"].split(","), ttl=20)
    with locks.lock("fair", fair=True):
        print(time.monotonic(), flush=True)
        sys.stdin.readline()
"""
NODE_WAITER = """
    import { once } from 'node:events'
    import { Redlock } from 'quorlock'

    const redlock = new Redlock(process.env.QUORLOCK_NODES.split(','))
    await redlock.using('fair', 20_000, { fair: true, retryCount: -1 }, async () => {
      console.log(Number(process.hrtime.bigint()) / 1e9)
      await once(process.stdin, 'data')
    })
    process.exit()
"""


def places(cluster: Sequence[Server]) -> list[object]:
    return [server.command("ZCARD", "quorlock:queue:{fair}") for server in cluster]


def start_waiters(started: contextlib.ExitStack, cluster: Cluster, count: int) -> list[Program]:
    """Starts `count` programs that wait, one after the other; Python and Node take turns."""
    waiting = []
    for number in range(count):
        kind, code = [(Program, WAITER), (NodeProgram, NODE_WAITER)][number % 2]
        waiting.append(started.enter_context(kind(code, nodes=cluster.urls)))
        eventually(lambda: places(cluster) == [number + 1] * len(cluster))  # noqa: B023 - called at once
    return waiting


def test_processes_are_let_in_by_their_order_of_arrival(cluster3: Cluster, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    with contextlib.ExitStack() as started:
        ring = [
            started.enter_context(kind(code, nodes=cluster3.urls))
            for kind, code in [(Program, RING), (NodeProgram, NODE_RING)]
            for _ in range(PROCESSES)
        ]
        for program in ring:
            assert program.line() == "ready"
        for number, program in enumerate(ring):
            program.write(f"{log} {number}\n")
        for program in ring:
            status, _, errors = program.end(100)
            assert status == 0, errors
    lines = [[int(word) for word in line.split()] for line in log.read_text().splitlines()]
    assert len(lines) == 2 * PROCESSES * ROUNDS
    tokens = [token for _, _, token in lines]
    assert tokens == sorted(tokens)
    # At the start the first to be ready is let in, while the others' places are on their way.
    arrivals = [arrived for _, arrived, _ in lines[2 * PROCESSES :]]
    late = [
        (number, arrived - min(arrivals[number + 1 :]))
        for number, arrived in enumerate(arrivals[:-1])
        if arrived - min(arrivals[number + 1 :]) > AT_ONCE
    ]
    assert not late, late
    assert places(cluster3) == [0, 0, 0]


def test_waiters_are_let_in_one_by_one(cluster3: Cluster) -> None:
    with contextlib.ExitStack() as started, Redlock(cluster3.urls, ttl=60) as locks:
        holder = locks.lock("fair", fair=True)
        assert holder.acquire()
        waiting = start_waiters(started, cluster3, 6)
        assert locks.lock("fair").waiters() == 6
        # The first came before it, so it has to wait.
        late = locks.lock("fair", fair=True, timeout=0.2)
        holder.release()
        for program in waiting:
            assert float(program.line()) > 0
            assert not late.acquire()
            program.write("\n")
            assert program.end()[0] == 0
        assert late.acquire()
        late.release()


def test_hung_and_dead_waiters_are_passed_over(cluster3: Cluster) -> None:
    took: list[float] = []
    # Several chances, for a machine that does other things too.
    while not took or took[-1] > 0.5:
        assert len(took) < 3, took
        took.append(passed_over(cluster3, signal.SIGKILL))


def test_two_that_hang_one_behind_the_other_cost_a_refresh(cluster3: Cluster) -> None:
    took = passed_over(cluster3, signal.SIGSTOP)
    assert took < 3 + 2, took  # a refresh is 3 s; the rest is for a busy machine


def passed_over(cluster: Cluster, second: int) -> float:
    """Seconds until the third waiter's turn; the first hangs, the second gets a signal."""
    with contextlib.ExitStack() as started, Redlock(cluster.urls, ttl=60) as locks:
        holder = locks.lock("fair", fair=True)
        assert holder.acquire()
        waiting = start_waiters(started, cluster, 3)
        alive = waiting.pop()
        waiting[0].signal(signal.SIGSTOP)
        waiting[1].signal(second)
        if second == signal.SIGKILL:
            waiting.pop().end()
        released = time.monotonic()
        holder.release()
        took = float(alive.line()) - released
        for hung in waiting:
            hung.signal(signal.SIGCONT)
        # Each takes its place again: were the lock free before, the second might get it first.
        eventually(lambda: places(cluster) == [len(waiting)] * len(cluster))
        alive.write("\n")
        assert alive.end()[0] == 0
        # They have lost their turns, and nothing else.
        for hung in waiting:
            assert float(hung.line()) > released
            hung.write("\n")
            assert hung.end()[0] == 0
    return took


def test_fair_is_for_one_resource_and_for_places(cluster3: Cluster) -> None:
    with Redlock(cluster3.urls, fair=True) as locks:
        with pytest.raises(ConfigError, match="'a', 'b' would each have a queue"):
            locks.lock(["a", "b"])
        with pytest.raises(ConfigError, match='leave wait at "push"'):
            locks.lock("a", wait="poll")
        with locks.lock(["a", "b"], fair=False):
            pass
        with locks.lock("a") as lease:
            assert lease.fencing_token
