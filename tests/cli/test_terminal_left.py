"""Tests in what state `run` leaves its terminal to others."""

from __future__ import annotations

import signal
import sys
import termios
from pathlib import Path

import pytest

from tests.cli.command import PROGRAM
from tests.cli.terminal import SHELL, Shell, Terminal
from tests.python.programs import is_free
from tests.support.cluster import Cluster
from tests.support.wait import eventually

RUN = f"{PROGRAM[0]} run job --"
#: As `less` does: sets modes of its own, waits for a key, and undoes them.
PAGER = """
import os, termios, time, tty
terminal = os.open("/dev/tty", os.O_RDWR)
before = termios.tcgetattr(terminal)
tty.setraw(terminal)
os.write(terminal, b"in-pager")
os.read(terminal, 1)
termios.tcsetattr(terminal, termios.TCSANOW, before)
"""
#: Starts the command of its line, ends it by a signal, and goes on.
CALLER = """
import signal, subprocess, sys, time
process = subprocess.Popen(sys.argv[2:])
while not open(f"/proc/{process.pid}/task/{process.pid}/children").read():
    time.sleep(0.01)
time.sleep(0.5)  # for the command to be what it is
process.send_signal(int(sys.argv[1]))
print("status", process.wait(), flush=True)
time.sleep(0.3)
print("caller goes on", flush=True)
"""


def _is_canonical(shown: Terminal) -> bool:
    return bool(termios.tcgetattr(shown._master)[3] & termios.ICANON)


def test_the_modes_beside_a_pager_are_the_pagers(cluster3: Cluster, tmp_path: Path) -> None:
    (tmp_path / "pager.py").write_text(PAGER)
    with Shell(cluster3.urls) as shell:
        script = f"sleep 0.3; {sys.executable} {tmp_path}/pager.py"
        shell.type(f"{RUN} sh -c 'sleep 1; kill $$' | ({script})\n")
        shell.expect("in-pager")
        eventually(lambda: is_free(cluster3, "job"))
        with pytest.raises(TimeoutError):
            eventually(lambda: _is_canonical(shell), within=0.5)
        shell.type("q")
        shell.prompt()


@pytest.mark.parametrize("is_alone", [False, True], ids=["in a shell", "alone"])
def test_a_command_that_cannot_be_started_leaves_the_terminal(
    cluster3: Cluster, tmp_path: Path, is_alone: bool
) -> None:
    script = tmp_path / "script"
    script.write_text(f"{RUN} no-such-program; echo status=$?; read word; echo read=$word\n")
    program = ("sh", str(script)) if is_alone else SHELL
    with Terminal(program=program, nodes=cluster3.urls) as shown:
        if not is_alone:
            shown.expect(r"ready\$ ")
            shown.type(f"sh {script}\n")
        shown.expect("status=127\n")
        shown.type("word\n")
        shown.expect("read=word\n")
    assert is_free(cluster3, "job")


@pytest.mark.parametrize("name", ["INT", "QUIT"])
def test_a_signal_from_a_program_is_no_key(cluster3: Cluster, tmp_path: Path, name: str) -> None:
    """The terminal sends a key's signal to the command's group, and `run` gets none."""
    number = getattr(signal, f"SIG{name}")
    caller = tmp_path / "caller.py"
    caller.write_text(CALLER)
    script = f'{sys.executable} {caller} {int(number)} "$@"; echo script goes on'
    command = f"{RUN} sh -c 'echo begun; exec sleep 60'"
    with Terminal("-c", f"set -- {command}\n{script}", program=("sh",), nodes=cluster3.urls) as it:
        it.expect("begun\n")
        shown = it.end()[1]
    assert f"status {128 + number}" in shown
    assert "caller goes on" in shown
    assert "script goes on" in shown
    assert is_free(cluster3, "job")
