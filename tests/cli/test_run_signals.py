"""Tests which of its command's processes `run` passes a signal to; none is lost at the start."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.command import PROGRAM, WITHIN, call, is_alive
from tests.cli.conftest import Start
from tests.cli.terminal import Terminal
from tests.python.programs import is_free
from tests.support.cluster import Cluster
from tests.support.wait import eventually

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
#: Talks to the command; a process that does nothing about one is ended by it.
TALK = ["USR1", "USR2", "ALRM", *(["RTMIN", "RTMAX"] if sys.platform == "linux" else [])]
#: A step of a script, which ends after a line.
STEP = "sh -c 'echo step; read line; echo \"$line\"' <&3"
#: The command is looked for in all of these folders, which do not exist, before it is executed.
LONG_PATH = {"PATH": "x:" * 40_000 + os.environ["PATH"]}


def _number(name: str) -> int:
    return int(getattr(signal, f"SIG{name}"))


@pytest.mark.parametrize("name", TALK)
def test_a_signal_by_which_programs_talk_reaches_the_command_alone(
    cluster3: Cluster, start: Start, name: str
) -> None:
    """As it would without `run`: the step that the command has started knows nothing of it."""
    script = f"exec 3<&0; trap 'echo got' {_number(name)}; {STEP} & wait; wait $!; exit 5"
    command = start("run", "job", "--", "sh", "-c", script, nodes=cluster3.urls)
    assert command.line() == "step"
    command.signal(_number(name))
    assert command.line() == "got"
    command._process.stdin.write(b"line\n")  # type: ignore[union-attr]
    ended = command.end()
    assert (ended.code, ended.out) == (5, "line\n")
    assert is_free(cluster3, "job")


def test_a_signal_by_which_programs_talk_ends_a_command_that_does_not_know_it(
    cluster3: Cluster, start: Start
) -> None:
    command = start("run", "job", "--", "sh", "-c", "echo on; exec sleep 60", nodes=cluster3.urls)
    assert command.line() == "on"
    command.signal(signal.SIGALRM)
    assert command.end().code == 128 + signal.SIGALRM
    assert is_free(cluster3, "job")


def test_it_does_not_reach_the_group_once_the_command_has_ended(
    cluster3: Cluster, start: Start
) -> None:
    step = "trap 'echo ended; exit 0' TERM; echo step; while :; do sleep 0.02; done"
    script = f'echo $$; sh -c "{step}" & exit 4'
    command = start("run", "job", "--", "sh", "-c", script, nodes=cluster3.urls)
    leader = int(command.line())
    assert command.line() == "step"
    eventually(lambda: not is_alive(leader))
    command.signal(signal.SIGUSR1)
    command.signal(signal.SIGTERM)  # passed on after the other
    ended = command.end()
    assert (ended.code, ended.out) == (4, "ended\n")


@pytest.mark.parametrize("name", ["TERM", "INT", "QUIT", "HUP"])
def test_a_signal_that_ends_reaches_the_group(cluster3: Cluster, start: Start, name: str) -> None:
    step = f"trap 'echo step got {name}; exit 0' {name}; echo step; while :; do sleep 0.02; done"
    script = f"trap 'echo got {name}; wait; exit 9' {name}; sh -c \"{step}\" & wait"
    # Without job control, a shell lets what it starts in the background ignore SIGINT and SIGQUIT.
    words = ("bash", "-c", script) if name in ("TERM", "HUP") else ("bash", "-c", step)
    command = start("run", "job", "--", *words, nodes=cluster3.urls)
    assert command.line() == "step"
    command.signal(_number(name))
    ended = command.end()
    assert f"step got {name}" in ended.out
    assert ended.code == (9 if name in ("TERM", "HUP") else 0)


def test_an_ignored_signal_stays_ignored(cluster3: Cluster) -> None:
    for name in ("USR1", "INT", "RTMIN"):
        script = f"kill -{_number(name)} $$; echo alive"
        ignoring = ("sh", "-c", f'trap "" {_number(name)}; exec "$@"', "sh")
        ended = call("run", "job", "--", "sh", "-c", script, nodes=cluster3.urls,
                     program=(*ignoring, *PROGRAM))  # fmt: skip
        assert (name, ended.code, ended.out) == (name, 0, "alive\n")


def _children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in text.split()]


def _soon(condition: Callable[[], object]) -> None:
    """As `eventually`, but returns within a millisecond."""
    limit = time.monotonic() + WITHIN
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.0005)


@on_linux
def test_the_end_of_run_is_not_lost_while_the_command_is_looked_for(
    cluster3: Cluster, start: Start
) -> None:
    command = start("run", "--ttl", "1s", "job", "--", "sleep", "60", nodes=cluster3.urls,
                    env=LONG_PATH)  # fmt: skip
    _soon(lambda: _children(command.pid))
    (child,) = _children(command.pid)
    os.kill(command.pid, signal.SIGKILL)
    try:
        eventually(lambda: not is_alive(child), within=5)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    eventually(lambda: is_free(cluster3, "job"))


@on_linux
def test_ctrl_c_is_not_lost_while_the_command_is_looked_for(cluster3: Cluster) -> None:
    words = ("run", "job", "--", "sleep", "60")
    with Terminal(*words, nodes=cluster3.urls, env=LONG_PATH) as shown:
        _soon(lambda: shown.foreground() not in (0, shown.pid))
        shown.type("\x03")
        assert shown.end()[0] == 130
    assert is_free(cluster3, "job")
