"""Tests `run` in the background of a terminal that others around it use."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.cli.command import PROGRAM, is_alive, state
from tests.cli.terminal import STOPPED, Shell, Terminal
from tests.python.programs import is_free
from tests.support.cluster import Cluster
from tests.support.wait import eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
#: A pager, which reads the terminal.
PAGER = f"{sys.executable} -c 'import os; f = open(\"/dev/tty\"); os.read(f.fileno(), 1)'"


def _run(ttl: str = "20s", command: str = "exec sleep 60") -> str:
    return f"{PROGRAM[0]} run --ttl {ttl} job -- sh -c 'echo pid=$$ >/dev/tty; {command}'"


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _stand_still(child: int) -> bool:
    return state(child) == state(_parent(child)) == "T"


def test_a_pager_that_reads_in_the_background_stops_the_command(cluster3: Cluster) -> None:
    """The system stops the pager's group, to which `run` belongs: nobody renews the lock then."""
    with Shell(cluster3.urls) as shell:
        shell.type(f"{_run()} | {PAGER}\n")
        child = int(shell.expect(r"pid=(\d+)\n"))
        shell.type("\x1a")
        shell.expect(STOPPED)
        shell.type("bg\n")
        time.sleep(0.5)  # the job goes on for a moment that nobody may see
        eventually(lambda: _stand_still(child))
        shell.type("fg\n")
        eventually(lambda: state(child) != "T")
        shell.type("\x03")
        shell.prompt()
        eventually(lambda: not is_alive(child))
        eventually(lambda: is_free(cluster3, "job"))


def test_a_script_that_reads_in_the_background_stops_the_command(
    cluster3: Cluster, tmp_path: Path
) -> None:
    script = tmp_path / "script"
    script.write_text(f"{_run()} &\nsleep 0.3; read word </dev/tty; echo read=$word; wait\n")
    with Shell(cluster3.urls) as shell:
        shell.type(f"sh {script} &\n")
        child = int(shell.expect(r"pid=(\d+)\n"))
        eventually(lambda: _stand_still(child))
        shell.type("fg\n")
        eventually(lambda: state(child) != "T")
        shell.type("word\n")
        shell.expect("read=word\n")
        os.kill(child, signal.SIGKILL)
        shell.prompt()
    assert is_free(cluster3, "job")


@pytest.mark.parametrize("name", ["TTIN", "TTOU"])
def test_a_stop_of_run_by_the_terminal_stops_the_command(cluster3: Cluster, name: str) -> None:
    with Shell(cluster3.urls) as shell:
        shell.type(f"{_run()} &\n")
        child = int(shell.expect(r"pid=(\d+)\n"))
        os.kill(_parent(child), getattr(signal, f"SIG{name}"))
        eventually(lambda: _stand_still(child))
        shell.type("kill -CONT %1\n")
        eventually(lambda: state(child) != "T")
        shell.type("kill %1; wait %1; echo status=$?\n")
        assert shell.expect(r"status=(\d+)\n") == "143"
    assert is_free(cluster3, "job")


def _script(tmp_path: Path, begin: str, line: str) -> Path:
    """A script that starts a command in the background."""
    script = tmp_path / "script"
    script.write_text(f"{_run()} &\n{begin}; {line}\n")
    return script


def test_a_script_reads_the_terminal_beside_its_background(
    cluster3: Cluster, tmp_path: Path
) -> None:
    """As beside a command without `run`: a shell without jobs has both in one group."""
    script = _script(tmp_path, "sleep 0.5", "echo now; read word; echo read=$word; kill $!; wait")
    with Shell(cluster3.urls) as shell:
        shell.type(f"sh {script}\n")
        child = int(shell.expect(r"pid=(\d+)\n"))
        shell.expect("now\n")
        assert shell.foreground() == os.getpgid(_parent(child))
        shell.type("word\n")
        shell.expect("read=word\n")
        shell.prompt()
        assert not is_alive(child)
    assert is_free(cluster3, "job")


def test_ctrl_c_ends_a_script_and_not_its_background(cluster3: Cluster, tmp_path: Path) -> None:
    script = _script(tmp_path, "sleep 0.5", "echo now; sleep 60; echo next")
    with Shell(cluster3.urls) as shell:
        shell.type(f"sh {script}\n")
        child = int(shell.expect(r"pid=(\d+)\n"))
        shell.expect("now\n")
        time.sleep(0.3)  # until the script waits
        shell.type("\x03")
        assert "next" not in shell.expect(r"(?s)(.*)ready\$ ")
        assert is_alive(child)
        assert not is_free(cluster3, "job")


def test_a_command_whose_input_is_no_terminal_leaves_it_to_others(cluster3: Cluster) -> None:
    script = f"{_run()} </dev/null & sleep 0.5; read word; echo read=$word; kill $!; wait"
    with Terminal("-c", script, program=("sh",), nodes=cluster3.urls) as shown:
        shown.expect(r"pid=(\d+)\n")
        shown.type("word\n")
        shown.expect("read=word\n")
        assert shown.end()[0] == 0


def _reads_from_terminal(shell: Shell, run: str) -> None:
    shell.type(f"{run} </dev/null\n")
    child = int(shell.expect(r"pid=(\d+)\n"))
    eventually(lambda: shell.foreground() == child)
    shell.type("word\n")
    shell.expect("\nread=word\n")
    shell.prompt()


def test_a_command_whose_input_is_no_terminal_gets_it_when_it_asks(cluster3: Cluster) -> None:
    run = _run(command="read word </dev/tty; echo read=$word")
    with Shell(cluster3.urls) as shell:
        _reads_from_terminal(shell, run)
    assert is_free(cluster3, "job")


def test_a_command_under_two_locks_gets_the_terminal_when_it_asks(cluster3: Cluster) -> None:
    """The outer `run` is told for what the inner one has stopped."""
    run = f"{PROGRAM[0]} run outer -- {_run(command='read word </dev/tty; echo read=$word')}"
    with Shell(cluster3.urls) as shell:
        _reads_from_terminal(shell, run)
    assert is_free(cluster3, "outer")


def test_a_command_under_two_locks_gets_the_terminal_at_once(
    cluster3: Cluster, tmp_path: Path
) -> None:
    """The inner `run` waits no longer than until the outer one has given it the terminal."""
    (tmp_path / "asks.py").write_text(
        "import os, termios, time\n"
        "terminal = os.open('/dev/tty', os.O_RDWR)\n"
        "modes, began = termios.tcgetattr(terminal), time.monotonic()\n"
        "termios.tcsetattr(terminal, termios.TCSANOW, modes)\n"
        "print(f'asked={time.monotonic() - began:.3f}', flush=True)\n"
    )
    inner = f"{PROGRAM[0]} run job -- {sys.executable} {tmp_path}/asks.py"
    with Shell(cluster3.urls) as shell:
        times = []
        for _ in range(5):
            shell.type(f"{PROGRAM[0]} run outer -- {inner} </dev/null\n")
            times.append(float(shell.expect(r"asked=([0-9.]+)\n")))
            shell.prompt()
    assert min(times) < 0.06


ASKS = "read word </dev/tty; echo read=$word >/dev/tty; exec sleep 60"


def test_a_pager_gets_the_terminal_that_the_command_has_asked_for(cluster3: Cluster) -> None:
    """As `ssh` asks for a password, and its output goes into a pager."""
    pager = f"{sys.executable} -c 'print(\"got\", input(), flush=True)' </dev/tty"
    with Shell(cluster3.urls) as shell:
        shell.type(f"{_run(command=ASKS)} | (sleep 1; {pager})\n")
        child = int(shell.expect(r"pid=(\d+)\n"))
        eventually(lambda: shell.foreground() == child)
        shell.type("one\n")
        shell.expect("read=one\n")
        eventually(lambda: shell.foreground() == os.getpgid(_parent(child)))
        shell.type("two\n")
        shell.expect("got two\n")
        assert is_alive(child)
        shell.type("\x03")
        shell.prompt()
    assert is_free(cluster3, "job")


def test_a_script_gets_the_terminal_that_its_background_has_asked_for(
    cluster3: Cluster, tmp_path: Path
) -> None:
    script = tmp_path / "script"
    script.write_text(
        f"{_run(command=ASKS)} &\nsleep 1; echo now; read word; echo got=$word; kill $!; wait\n"
    )
    with Shell(cluster3.urls) as shell:
        shell.type(f"sh {script}\n")
        child = int(shell.expect(r"pid=(\d+)\n"))
        eventually(lambda: shell.foreground() == child)
        shell.type("one\n")
        shell.expect("read=one\n")
        shell.expect("now\n")
        time.sleep(0.5)
        if shell.foreground() == shell.pid:  # it has seen that the script was stopped for a moment
            shell.type("fg\n")
            eventually(lambda: shell.foreground() != shell.pid)
        time.sleep(0.3)
        shell.type("two\n")
        shell.expect("got=two\n")
        shell.prompt()
    assert is_free(cluster3, "job")


def test_a_command_in_a_substitution_reads_the_terminal(cluster3: Cluster) -> None:
    """bash ignores SIGTTIN there, and with it a read from the background fails."""
    run = _run(command="read word </dev/tty; echo read=$word")
    with Shell(cluster3.urls) as shell:
        shell.type(f"shown=$({run}); echo shown=$shown\n")
        child = int(shell.expect(r"pid=(\d+)\n"))
        eventually(lambda: shell.foreground() == child)
        shell.type("word\n")
        shell.expect("shown=read=word\n")
    assert is_free(cluster3, "job")
