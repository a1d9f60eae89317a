"""Tests the command of the wheel and of the npm package: one code, whatever runs it.

An interpreter has signal handlers and threads of its own, which must not be in the way.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command import PROGRAM, ROOT, call, is_alive, state
from tests.cli.conftest import Start
from tests.cli.terminal import STOPPED, Shell, Terminal
from tests.support.cluster import Cluster
from tests.support.wait import eventually

PIP = (str(Path(sys.executable).with_name("quorlock")),)
NPM = ("node", str(ROOT / "bindings-node" / "command.js"))
SLEEPER = ("sh", "-c", "echo $$; exec sleep 60")

pytestmark = pytest.mark.parametrize("program", [PIP, NPM], ids=["pip", "npm"])
Program = tuple[str, ...]


def test_the_same_command(program: Program) -> None:
    for words in (["--version"], ["--help"], ["run", "--help"]):
        assert call(*words, program=program) == call(*words)


def test_streams_and_status(cluster3: Cluster, start: Start, program: Program) -> None:
    words = ("run", "job", "--", "sh", "-c", "read it; echo $it; echo err >&2; exit 7")
    command = start(*words, nodes=cluster3.urls, program=program)
    eventually(lambda: None not in cluster3.values("job"))
    command._process.stdin.write(b"word\n")  # type: ignore[union-attr]
    ended = command.end()
    assert (ended.code, ended.out, ended.err) == (7, "word\n", "err\n")
    assert cluster3.values("job") == [None] * 3


@pytest.mark.parametrize("name", ["TERM", "INT", "HUP", "USR1", "USR2"])
def test_signals_are_passed_on(
    cluster3: Cluster, start: Start, program: Program, name: str
) -> None:
    script = f"trap 'echo got; exit 9' {name}; echo ready; while :; do sleep 0.02; done"
    words = ("run", "job", "--", "sh", "-c", script)
    command = start(*words, nodes=cluster3.urls, program=program)
    assert command.line() == "ready"
    command.signal(getattr(signal, f"SIG{name}"))
    ended = command.end()
    assert (ended.code, ended.out) == (9, "got\n")


def test_ctrl_c_ends_the_wait(cluster3: Cluster, start: Start, program: Program) -> None:
    for server in cluster3:
        server.command("SET", "job", "another", "PX", 60_000)
    before = len(str(cluster3[0].command("CLIENT", "LIST")).splitlines())
    words = ("run", "job", "--", "echo", "ran")
    command = start(*words, nodes=cluster3.urls, program=program)
    eventually(lambda: len(str(cluster3[0].command("CLIENT", "LIST")).splitlines()) > before)
    command.signal(signal.SIGINT)
    ended = command.end()
    assert (ended.code, ended.out, ended.err) == (130, "", "")


def test_a_lost_lock_ends_the_command(cluster3: Cluster, start: Start, program: Program) -> None:
    words = ("run", "--ttl", "1s", "job", "--", *SLEEPER)
    command = start(*words, nodes=cluster3.urls, program=program)
    child = int(command.line())
    for server in cluster3:
        server.command("SET", "job", "another", "PX", 60_000)
    ended = command.end()
    assert ended.code == 76
    assert "the lease on 'job' is lost" in ended.err
    assert not is_alive(child)


@pytest.mark.skipif(sys.platform != "linux", reason="other kernels tell no child")
def test_the_command_is_told_when_run_is_killed(
    cluster3: Cluster, start: Start, program: Program
) -> None:
    command = start("run", "job", "--", *SLEEPER, nodes=cluster3.urls, program=program)
    child = int(command.line())
    command.signal(signal.SIGKILL)
    eventually(lambda: not is_alive(child))


def test_wrong_command_lines(cluster3: Cluster, program: Program) -> None:
    for words, told in (
        (["run", "job"], "run needs a command"),
        (["run", b"a\xff", "--", "true"], "not UTF-8"),
        (["run", "job", "--", "no-such-program"], "command not found"),
    ):
        ended = call(*words, nodes=cluster3.urls, program=program)
        assert ended.code == (127 if told == "command not found" else 64)
        assert told in ended.err
    assert all(not server.keys() for server in cluster3)


def test_ctrl_z_and_fg_and_ctrl_c(cluster3: Cluster, program: Program) -> None:
    with Shell(cluster3.urls) as shell:
        shell.type(f"{' '.join(program)} run job -- sh -c 'echo pid=$$; exec cat'\n")
        child = int(shell.expect(r"pid=(\d+)\n"))
        eventually(lambda: shell.foreground() == child)
        shell.type("\x1a")
        shell.expect(STOPPED)
        assert state(child) == "T"
        shell.type("fg\n")
        eventually(lambda: shell.foreground() == child)
        shell.type("word\n")
        shell.expect("word\nword\n")
        shell.type("\x03")
        shell.prompt()
        shell.type("echo status=$?\n")
        assert shell.expect(r"status=(\d+)\n") == "130"
    assert cluster3.values("job") == [None] * 3


def test_ctrl_c_ends_a_view_that_is_shown_again(cluster3: Cluster, program: Program) -> None:
    words = ("nodes", "--watch")
    with Terminal(*words, nodes=cluster3.urls, program=program, size=(24, 160)) as shown:
        shown.expect("healthy")
        shown.type("\x03")
        assert shown.end()[0] == -signal.SIGINT


def test_the_script_of_cargo_is_the_default(program: Program) -> None:
    assert program != PROGRAM
    assert shutil.which(program[0])
    assert os.access(program[-1], os.X_OK)
    words = [*program, "verify", "nothing", "--nodes", "redis://a"]
    assert subprocess.run(words, capture_output=True, check=False).returncode == 64
