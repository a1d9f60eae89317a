"""Tests many processes that want one resource: no overlap, growing tokens, no key left behind.

The full size (200 tasks, 10,000 acquisitions) runs with QUORLOCK_FULL_CONTENTION=1.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from tests.python.programs import Program
from tests.support.cluster import Cluster

FULL = bool(os.environ.get("QUORLOCK_FULL_CONTENTION"))
PROCESSES, TASKS, ROUNDS = (4, 50, 50) if FULL else (3, 8, 12)
#: Seconds between two tries of one task, so that together they try some 300 times a second.
DELAY = PROCESSES * TASKS / 300

WORKER = f"""
    import asyncio, os, sys, quorlock.aio
    path, number = sys.stdin.readline().split()
    locks = quorlock.aio.Redlock(
        os.environ["QUORLOCK_NODES"].split(","), ttl=20, retry_delay={DELAY}, retry_jitter={DELAY})
    file = os.open(path, os.O_WRONLY | os.O_APPEND)

    async def work(task):
        for _ in range({ROUNDS}):
            async with locks.lock("contended", timeout=1800) as lease:
                # A whole line each: O_APPEND keeps the lines of all processes in order.
                os.write(file, f"in {{number}}.{{task}} {{lease.fencing_token}}\\n".encode())
                await asyncio.sleep(0)
                os.write(file, f"out {{number}}.{{task}} {{lease.fencing_token}}\\n".encode())

    async def main():
        await asyncio.gather(*(work(task) for task in range({TASKS})))

    asyncio.run(main())
"""


@pytest.mark.parametrize("killed", [False, True], ids=["healthy", "one-node-killed"])
def test_processes_exclude_each_other(cluster5: Cluster, tmp_path: Path, killed: bool) -> None:
    log = tmp_path / "log"
    log.touch()
    with contextlib.ExitStack() as started:
        programs = [
            started.enter_context(Program(WORKER, nodes=cluster5.urls)) for _ in range(PROCESSES)
        ]
        for number, program in enumerate(programs):
            program.write(f"{log} {number}\n")
        if killed:
            cluster5[0].kill()
        for program in programs:
            status, _, errors = program.end(1800 if FULL else 60)
            assert status == 0, errors
    lines = [line.split() for line in log.read_text().splitlines()]
    assert len(lines) == 2 * PROCESSES * TASKS * ROUNDS
    entries, exits = lines[::2], lines[1::2]
    for entry, leave in zip(entries, exits, strict=True):
        assert (entry[0], leave[0]) == ("in", "out")
        assert entry[1:] == leave[1:], "two were inside at once"
    tokens = [int(entry[2]) for entry in entries]
    assert tokens == sorted(set(tokens)), "a token did not grow"
    if not killed:
        assert cluster5.values("contended") == [None] * 5
