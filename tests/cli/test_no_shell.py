"""Tests `run` on a terminal where no shell could continue it once it is stopped."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.cli.command import PROGRAM, is_alive, state
from tests.cli.terminal import Shell, Terminal
from tests.python.programs import is_free
from tests.support.cluster import Cluster
from tests.support.wait import eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
LOOP = "while :; do sleep 0.05; done"


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _switches(pid: int) -> int:
    """How often its main thread has given up the processor by itself."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(it.split()[1]) for it in lines if it.startswith("voluntary"))


def _orphaned(shell: Shell, script: str) -> int:
    """Starts a command in the background, whose shell ends at once; returns its process id."""
    shell.type(f"( {PROGRAM[0]} run job -- sh -c '{script}' & )\n")
    return int(shell.expect(r"pid=(\d+)\n"))


def test_a_command_that_nobody_can_give_the_terminal_is_hung_up(cluster3: Cluster) -> None:
    with Shell(cluster3.urls) as shell:
        child = _orphaned(shell, "echo pid=$$; sleep 0.2; read word </dev/tty; exec sleep 60")
        eventually(lambda: not is_alive(child))
        eventually(lambda: is_free(cluster3, "job"))


def test_one_that_takes_no_notice_costs_little(cluster3: Cluster) -> None:
    script = 'trap "" HUP; echo pid=$$; sleep 0.2; exec cat </dev/tty'
    with Shell(cluster3.urls) as shell:
        run = _parent(_orphaned(shell, script))
        with contextlib.suppress(TimeoutError):
            eventually(lambda: False, within=1)
        before = _switches(run)
        with contextlib.suppress(TimeoutError):
            eventually(lambda: False, within=1)
        assert _switches(run) - before < 100
        os.kill(run, signal.SIGTERM)
        eventually(lambda: is_free(cluster3, "job"))


def test_ctrl_z_does_nothing_to_the_first_process_of_a_session(cluster3: Cluster) -> None:
    """As without `run`: the system stops no group that nobody could continue."""
    words = ("run", "job", "--", "sh", "-c", f"echo pid=$$; trap 'echo got' TSTP; {LOOP}")
    with Terminal(*words, nodes=cluster3.urls) as shown:
        child = int(shown.expect(r"pid=(\d+)\n"))
        for _ in range(3):
            shown.type("\x1a")
            with pytest.raises(TimeoutError):
                eventually(lambda: state(child) == "T" or state(shown.pid) == "T", within=0.2)
        shown.type("\x03")
        status, text = shown.end()
    assert (status, "got" in text) == (130, False)
    assert is_free(cluster3, "job")


@pytest.mark.parametrize("name", ["STOP", "TSTP"])
def test_sigterm_ends_it_in_any_case(cluster3: Cluster, name: str) -> None:
    script = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGTSTP, signal.SIG_DFL)\n"
        "print(f'pid={os.getpid()}', flush=True)\n"
        "time.sleep(60)\n"
    )
    words = ("run", "job", "--", sys.executable, "-c", script)
    with Terminal(*words, nodes=cluster3.urls) as shown:
        child = int(shown.expect(r"pid=(\d+)\n"))
        os.kill(child, getattr(signal, f"SIG{name}"))
        os.kill(shown.pid, signal.SIGTERM)
        assert shown.end()[0] == 143
    assert is_free(cluster3, "job")


def test_ctrl_z_does_nothing_under_a_script_that_is_the_first_process(cluster3: Cluster) -> None:
    """A shell that starts a program stands still for ever if Ctrl-Z stops its new process alone."""
    script = f"{PROGRAM[0]} run job -- sh -c 'echo pid=$$; while :; do /bin/true; done'; true"
    with Terminal("-c", script, program=("sh",), nodes=cluster3.urls) as shown:
        child = int(shown.expect(r"pid=(\d+)\n"))
        for _ in range(10):
            shown.type("\x1a")
            with pytest.raises(TimeoutError):
                eventually(lambda: state(child) == "T", within=0.1)
        shown.type("\x03")
        shown.end()
        assert not is_alive(child)
    assert is_free(cluster3, "job")
