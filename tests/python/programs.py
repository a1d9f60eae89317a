"""Runs a test's program in an interpreter of its own, which can be forked, interrupted or ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.support.cluster import Cluster
from tests.support.processes import end_group
from tests.support.servers import APART
from tests.support.wait import eventually

ROOT = Path(__file__).parents[2]

#: A suite that runs in the background ignores Ctrl-C, and its children would, too. Pythons from
#: 3.12 on warn of forks in programs with threads: those are what is tested.
PRELUDE = """\
import signal, warnings
signal.signal(signal.SIGINT, signal.default_int_handler)
warnings.filterwarnings("ignore", ".*multi-threaded, use of fork", DeprecationWarning)
"""


class Program:
    """A running program. It is killed at the end of the `with` block if it still runs."""

    def __init__(self, code: str, *, nodes: list[str]) -> None:
        self._process: subprocess.Popen[str] = subprocess.Popen(
            self._command(textwrap.dedent(code)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "QUORLOCK_NODES": ",".join(nodes)},
            **APART,
        )

    def _command(self, code: str) -> list[str]:
        return [sys.executable, "-X", "dev", "-u", "-c", PRELUDE + code]

    @property
    def pid(self) -> int:
        return self._process.pid

    def line(self, within: float = 120.0) -> str:
        """The next line that it prints; empty if it prints none in time, and is killed."""
        assert self._process.stdout is not None
        limit = threading.Timer(within, self._process.kill)
        limit.daemon = True
        limit.start()
        try:
            return self._process.stdout.readline().rstrip("\n")
        finally:
            limit.cancel()

    def write(self, text: str) -> None:
        """Sends it to the program's standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(text)
        self._process.stdin.flush()

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def end(self, within: float = 20.0) -> tuple[int, str, str]:
        """Waits for its end: exit status, rest of the output, errors."""
        out, errors = self._process.communicate(timeout=within)
        return self._process.returncode, out, errors

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        end_group(self._process)


class NodeProgram(Program):
    """The same for a module of JavaScript."""

    def _command(self, code: str) -> list[str]:
        return ["node", "--input-type=module", "--eval", code]


def run(code: str, *, nodes: list[str], within: float = 20.0) -> str:
    """Runs a program to its end, which must be a good one; returns its output."""
    with Program(code, nodes=nodes) as program:
        status, out, errors = program.end(within)
    assert status == 0, f"exit status {status}\n{out}{errors}"
    assert not unexpected(errors), errors
    return out.strip()


def interrupt_the_wait(program: Program, cluster: Cluster, *, hung: bool) -> float:
    """Sends Ctrl-C once the program waits; tells when."""
    assert program.line() == "ready"
    if hung:
        for server in cluster:
            server.pause()
    program.write("\n")
    assert program.line() == "waiting"
    if hung:
        time.sleep(0.15)  # deep into the wait; neither the program nor a server can tell
    else:
        eventually(lambda: has_place(cluster, "r"))
    sent = time.monotonic()
    program.signal(signal.SIGINT)
    return sent


def has_place(cluster: Cluster, name: str) -> bool:
    """Whether a caller waits for the lock, as every server says."""
    return all(_places(cluster, name))


def has_no_place(cluster: Cluster, name: str) -> bool:
    """Whether nobody waits for the lock, as every server says."""
    return not any(_places(cluster, name))


def _places(cluster: Cluster, name: str) -> list[int]:
    return [server.command("ZCARD", f"quorlock:queue:{{{name}}}") for server in cluster]


def is_free(cluster: Cluster, name: str) -> bool:
    """Whether no server has the lock's key."""
    return cluster.values(name) == [None] * len(cluster)


def is_prompt(interrupt: Callable[[], float], *, within: float) -> None:
    """Ctrl-C works in time; several chances, for a machine that does other things too."""
    took: list[float] = []
    while not took or took[-1] >= within:
        assert len(took) < 5, f"Ctrl-C took too long: {took}"
        took.append(interrupt())


def unexpected(errors: str) -> str:
    """What stands on standard error beside the warnings of lost leases, which logging prints."""
    lines = errors.splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("the lease on "))
