"""Starts the servers that all contestants lock on, and links that delay what they carry."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator, Sequence

from bench import prepare
from bench.machine import SERVERS, placed
from tests.support import watchdog
from tests.support.cluster import Cluster, start_servers
from tests.support.servers import Server


@contextlib.contextmanager
def servers(count: int) -> Iterator[Cluster]:
    """Fresh servers on the core that is theirs."""
    with placed(SERVERS):
        cluster = start_servers(count)
    with cluster:
        yield cluster


def ports(nodes: Sequence[Server]) -> list[int]:
    """What contestants are told of them."""
    return [node.port for node in nodes]


@contextlib.contextmanager
def far_away(nodes: Sequence[Server], micros: int) -> Iterator[list[int]]:
    """Ports behind which the nodes answer a round trip of `micros` later."""
    words = [str(prepare.TARGET / "delay"), str(micros), *map(str, ports(nodes))]
    with placed(SERVERS):
        link = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    watchdog.register(link.pid)
    with contextlib.suppress(AttributeError, OSError):
        # A network does not wait for a processor.
        os.sched_setscheduler(link.pid, os.SCHED_FIFO, os.sched_param(1))
    assert link.stdin is not None
    assert link.stdout is not None
    try:
        yield json.loads(link.stdout.readline())["ports"]
    finally:
        watchdog.forget(link.pid)
        link.stdin.close()  # which ends it
        link.stdout.close()
        link.wait()


def restart(node: Server) -> None:
    """Up again after it was killed, on its own core."""
    with placed(SERVERS):
        node.heal()


def load(node: Server) -> tuple[int, int, float]:
    """Commands that clients have sent so far, reads from their connections, processor seconds.

    A script counts as one command, whatever it calls; all that renew do so by script.
    """
    scripts = 0
    for line in str(node.command("INFO", "commandstats")).splitlines():
        name, _, fields = line.removeprefix("cmdstat_").partition(":")
        if name in ("eval", "evalsha", "fcall"):
            scripts += int(fields.split(",")[0].removeprefix("calls="))
    told = dict(
        line.partition(":")[::2]
        for section in ("stats", "cpu")
        for line in str(node.command("INFO", section)).splitlines()
    )
    processor = float(told["used_cpu_sys"]) + float(told["used_cpu_user"])
    return scripts, int(told["total_reads_processed"]), processor
