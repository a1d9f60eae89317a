"""Tests the command as the first process of a container, for which signals have no default."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cli.command import PROGRAM, Command, call
from tests.cli.conftest import Start
from tests.cli.terminal import SHELL, Terminal
from tests.cli.test_entry_points import NPM, PIP
from tests.python.programs import is_free
from tests.support.cluster import Cluster
from tests.support.wait import eventually

AS_FIRST = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")


def _is_possible() -> bool:
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*AS_FIRST, "true"], capture_output=True, check=False).returncode == 0


pytestmark = pytest.mark.skipif(not _is_possible(), reason="makes no namespace of processes")


def _child(command: Command) -> int:
    """The first process of the namespace."""
    return int(Path(f"/proc/{command.pid}/task/{command.pid}/children").read_text())


def _connections(cluster: Cluster) -> int:
    return len(str(cluster[0].command("CLIENT", "LIST")).splitlines())


@pytest.mark.parametrize("name", ["TERM", "INT"])
@pytest.mark.parametrize("words", [("nodes", "--watch"), ("bench", "--seconds", "60")])
@pytest.mark.parametrize("program", [PROGRAM, PIP, NPM], ids=["cargo", "pip", "npm"])
def test_a_signal_ends_the_first_process(
    cluster3: Cluster, start: Start, program: Sequence[str], words: Sequence[str], name: str
) -> None:
    before = _connections(cluster3)
    command = start(*words, nodes=cluster3.urls, program=(*AS_FIRST, *program))
    eventually(lambda: _connections(cluster3) > before)
    number = getattr(signal, f"SIG{name}")
    os.kill(_child(command), number)
    assert command.end().code == 128 + number


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash has job control in scripts")
@pytest.mark.parametrize("is_left", [True, False], ids=["left", "none left"])
def test_it_says_what_it_cannot_find(cluster3: Cluster, is_left: bool) -> None:
    """The numbers in /proc are those of another namespace."""
    blind = ("unshare", "--pid", "--fork", "--kill-child", *PROGRAM)
    script = "set -m; sleep 60 >/dev/null 2>&1 & exit 3" if is_left else "exit 3"
    ended = call("run", "job", "--", "bash", "-c", script, nodes=cluster3.urls, program=blind)
    assert (ended.code, ended.err.count("may be left")) == (3, int(is_left))


def test_a_script_around_the_namespace_reads_its_terminal(cluster3: Cluster) -> None:
    """Its group has no number inside, by which it could get the terminal back."""
    run = " ".join([*AS_FIRST, *PROGRAM, "run", "job", "--", "true"])
    script = f"{run}; echo status=$?; read word; echo read=$word"
    with Terminal("-c", script, program=("sh",), nodes=cluster3.urls) as shown:
        shown.expect("status=0\n")
        shown.type("word\n")
        shown.expect("read=word\n")
        assert shown.end()[0] == 0


def _processor_time(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_command_that_asks_for_the_terminal_costs_little_without_proc(cluster3: Cluster) -> None:
    """It is not known there that no shell could continue `run`."""
    ask = "echo pid=$$; sleep 0.2; exec cat </dev/tty"
    with Terminal(*SHELL, program=("unshare", "--mount"), nodes=cluster3.urls) as shell:
        shell.expect(r"ready\$ ")
        shell.type("mount -t tmpfs none /proc\n")
        shell.expect(r"ready\$ ")
        shell.type(f"( {PROGRAM[0]} run job -- sh -c '{ask}' & )\n")
        child = int(shell.expect(r"pid=(\d+)\n"))
        run = int(Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[1])
        time.sleep(0.5)
        before = _processor_time(run)
        time.sleep(1)
        assert _processor_time(run) - before < 0.2
        os.kill(run, signal.SIGTERM)
        eventually(lambda: is_free(cluster3, "job"))
