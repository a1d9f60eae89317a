"""Tests that `run` passes the news of a window's new size to its command, and to nothing else."""

from __future__ import annotations

import contextlib
import os
import signal
import sys

import pytest

from tests.cli.command import PROGRAM
from tests.cli.conftest import Start
from tests.cli.terminal import Shell
from tests.python.programs import is_free
from tests.support.cluster import Cluster
from tests.support.wait import eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
LOOP = "while :; do sleep 0.02; done"
#: The terminal tells its foreground, which `run` itself is in a pipeline.
RUN = f"{PROGRAM[0]} run job --"


def test_a_command_in_a_pipeline_hears_of_a_new_size(cluster3: Cluster) -> None:
    script = f'trap "stty size </dev/tty; exit 5" WINCH; echo pid=$$; {LOOP}'
    with Shell(cluster3.urls) as shell:
        shell.type(f"{RUN} sh -c '{script}' | cat; echo status=${{PIPESTATUS[0]}}\n")
        child = int(shell.expect(r"pid=(\d+)\n"))
        assert shell.foreground() not in (child, shell.pid)
        shell.resize(30, 100)
        shell.expect("30 100\n")
        assert shell.expect(r"status=(\d+)\n") == "5"
    assert is_free(cluster3, "job")


def test_a_job_that_fg_has_brought_back_hears_of_a_new_size(cluster3: Cluster) -> None:
    """A shell tells a running job nothing at `fg`, so `run` keeps the foreground."""
    script = f'trap "stty size </dev/tty; exit 5" WINCH; echo pid=$$; {LOOP}'
    with Shell(cluster3.urls) as shell:
        shell.type(f"{RUN} sh -c '{script}' &\n")
        child = int(shell.expect(r"pid=(\d+)\n"))
        shell.type("fg\n")
        eventually(lambda: shell.foreground() not in (0, shell.pid))
        assert shell.foreground() != child
        shell.resize(30, 100)
        shell.expect("30 100\n")
        shell.prompt()
    assert is_free(cluster3, "job")


def test_a_command_hears_of_it_once(cluster3: Cluster) -> None:
    """Where the command has the foreground, the terminal tells it, and not `run`."""
    script = (
        f'n=0; trap "n=\\$((n + 1))" WINCH; trap "echo n=\\$n; exit 5" USR1; echo pid=$$; {LOOP}'
    )
    with Shell(cluster3.urls) as shell:
        shell.type(f"{RUN} sh -c '{script}'\n")
        child = int(shell.expect(r"pid=(\d+)\n"))
        assert shell.foreground() == child
        shell.resize(30, 100)
        with contextlib.suppress(TimeoutError):
            eventually(lambda: False, within=0.5)  # a second one would come by then
        os.kill(child, signal.SIGUSR1)
        assert shell.expect(r"n=(\d+)\n") == "1"


def test_it_reaches_the_command_alone(cluster3: Cluster, start: Start) -> None:
    """A step would be told by the terminal if it were in the foreground."""
    step = "trap 'echo step' WINCH; echo ready; read line; echo \\$line"
    script = f'exec 3<&0; trap "echo got" WINCH; sh -c "{step}" <&3 & wait; wait $!; exit 5'
    command = start("run", "job", "--", "sh", "-c", script, nodes=cluster3.urls)
    assert command.line() == "ready"
    command.signal(signal.SIGWINCH)
    assert command.line() == "got"
    command.type("line\n")
    ended = command.end()
    assert (ended.code, ended.out) == (5, "line\n")
    assert is_free(cluster3, "job")


def test_one_that_is_ignored_stays_ignored(cluster3: Cluster, start: Start) -> None:
    script = 'kill -WINCH $$; echo alive; trap "echo got; exit 5" WINCH; kill -WINCH $$; exit 4'
    ignoring = ("sh", "-c", 'trap "" WINCH; exec "$@"', "sh", *PROGRAM)
    command = start("run", "job", "--", "sh", "-c", script, nodes=cluster3.urls, program=ignoring)
    assert command.line() == "alive"
    # A shell cannot trap what it was started to ignore.
    assert command.end().code == 4
