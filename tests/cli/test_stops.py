"""Tests that nothing of the command goes on while `run` is stopped, and its lock is not renewed."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.cli.command import PROGRAM, is_alive, state
from tests.cli.terminal import STOPPED, TOLD_FIRST, Shell
from tests.python.programs import is_free
from tests.support.cluster import Cluster
from tests.support.wait import eventually

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc"),
    pytest.mark.skipif(shutil.which("bash") is None, reason="bash has job control in scripts"),
]

TELL = "echo pid=\\$\\$"
#: Ways in which Ctrl-Z does not reach a step, or does not stop it.
STEPS = {
    "timeout": f'timeout 60 sh -c "{TELL}; exec sleep 60"; true',
    "set -m": f'set -m; sh -c "{TELL}; exec sleep 60" & wait',
    "two groups deep": f'timeout 60 timeout 60 sh -c "{TELL}; exec sleep 60"; true',
    "trapped": f'sh -c "trap : TSTP; {TELL}; sleep 60; :" & wait',
    "ignored": f'sh -c "trap \\"\\" TSTP; {TELL}; exec sleep 60" & wait',
}


def _begun(shell: Shell, script: str, ttl: str = "20s") -> int:
    """Types a command under the lock; returns the process id of its step."""
    shell.type(f"{PROGRAM[0]} run --ttl {ttl} job -- bash -c '{script}'\n")
    return int(shell.expect(r"pid=(\d+)\n"))


@pytest.mark.parametrize("way", list(STEPS))
def test_ctrl_z_stops_all_steps_and_fg_continues_them(cluster3: Cluster, way: str) -> None:
    with Shell(cluster3.urls) as shell:
        step = _begun(shell, STEPS[way])
        for _ in range(2):
            shell.type("\x1a")
            shell.expect(STOPPED)
            eventually(lambda: state(step) == "T", within=1)
            shell.type("fg\n")
            eventually(lambda: state(step) != "T")
            time.sleep(0.1)  # the command itself goes on after its steps
        os.killpg(os.getpgid(step), signal.SIGKILL)
        shell.prompt()
    assert is_free(cluster3, "job")


def test_ctrl_z_stops_a_command_that_has_just_been_continued(
    cluster3: Cluster, tmp_path: Path
) -> None:
    """What tells `run` of `fg` comes late, and must not undo the next stop."""
    program = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGCONT, lambda *_: print('again', flush=True))\n"
        "print(f'pid={os.getpid()}', flush=True)\n"
        "while True:\n    time.sleep(0.01)\n"
    )
    (tmp_path / "continued.py").write_text(program)
    with Shell(cluster3.urls) as shell:
        _begun(shell, f"exec {sys.executable} {tmp_path}/continued.py", "60s")
        for _ in range(20):
            shell.type("\x1a")
            shell.expect(STOPPED)
            shell.type("fg\n")
            shell.expect("again\n")


def test_a_step_in_another_group_is_told_of_a_loss_before_it_goes_on(
    cluster3: Cluster, tmp_path: Path
) -> None:
    (tmp_path / "told.py").write_text(TOLD_FIRST)
    with Shell(cluster3.urls) as shell:
        step = _begun(shell, f"timeout 60 {sys.executable} {tmp_path}/told.py; true", "500ms")
        shell.type("\x1a")
        shell.expect(STOPPED)
        eventually(lambda: state(step) == "T", within=1)
        eventually(lambda: is_free(cluster3, "job"))
        shell.type("fg\n")
        shown = shell.expect(r"(?s)(.*)ready\$ ")
        assert "the lease on 'job' is lost" in shown
        assert "told" in shown
        assert "worked" not in shown
        assert not is_alive(step)


def test_a_program_undoes_its_modes_before_it_stops(cluster3: Cluster, tmp_path: Path) -> None:
    """It needs a moment, in which the others of its group stand still."""
    program = (
        "import os, signal, time\n"
        "def stop(*_):\n"
        "    time.sleep(0.03); print('undone', flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGSTOP); print('again', flush=True)\n"
        "signal.signal(signal.SIGTSTP, stop)\n"
        "print(f'pid={os.getpid()}', flush=True)\n"
        "while True:\n    time.sleep(0.01)\n"
    )
    (tmp_path / "pager.py").write_text(program)
    with Shell(cluster3.urls) as shell:
        step = _begun(shell, f"{sys.executable} {tmp_path}/pager.py & wait")
        shell.type("\x1a")
        assert "undone" in shell.expect(r"(?s)(.*?Stopped.*?\n)ready\$ ")
        eventually(lambda: state(step) == "T", within=1)
        shell.type("fg\n")
        shell.expect("again\n")


def test_two_commands_of_a_pipeline_are_continued_by_one_fg(cluster3: Cluster) -> None:
    """Each `run` has followed the same Ctrl-Z: none of them stops the other once more."""
    step = f'sh -c "{TELL} >/dev/tty; exec sleep 60"'
    line = " | ".join(f"{PROGRAM[0]} run --ttl 20s {name} -- {step}" for name in ("job", "other"))
    with Shell(cluster3.urls) as shell:
        shell.type(line + "\n")
        steps = [int(shell.expect(r"pid=(\d+)\n")) for _ in range(2)]
        for _ in range(3):
            time.sleep(0.2)  # for each step to be what it is
            shell.type("\x1a")
            shell.expect(STOPPED)
            eventually(lambda: all(state(step) == "T" for step in steps), within=1)
            shell.type("fg\n")
            eventually(lambda: all(state(step) != "T" for step in steps))
            time.sleep(0.3)
            assert shell.foreground() != shell.pid
            assert all(state(step) != "T" for step in steps)
        shell.type("\x03")
        shell.prompt()
    assert is_free(cluster3, "job")
    assert is_free(cluster3, "other")


def test_the_inner_command_is_told_of_the_loss_of_an_outer_lock_before_it_goes_on(
    cluster3: Cluster, tmp_path: Path
) -> None:
    (tmp_path / "told.py").write_text(TOLD_FIRST)
    inner = f"{PROGRAM[0]} run --ttl 20s inner -- {sys.executable} {tmp_path}/told.py"
    for _ in range(8):  # it was told too late in one of five
        with Shell(cluster3.urls) as shell:
            shell.type(f"{PROGRAM[0]} run --ttl 1s job -- {inner}\n")
            shell.expect(r"pid=(\d+)\n")
            shell.type("\x1a")
            shell.expect(STOPPED)
            eventually(lambda: is_free(cluster3, "job"))
            shell.type("fg\n")
            shown = shell.expect(r"(?s)(.*)ready\$ ")
            assert "told" in shown
            assert "worked" not in shown
        eventually(lambda: is_free(cluster3, "inner"))


def test_an_fg_at_once_continues_all_runs_of_a_group(cluster3: Cluster) -> None:
    """The shell sees the script stop before the other `run` has: that must not stop alone."""
    step = f'sh -c "{TELL}; exec sleep 60"'
    run = f"{PROGRAM[0]} run --ttl 20s"
    script = f"{run} other -- {step} </dev/null & sleep 0.5; {run} job -- {step}; wait"
    with Shell(cluster3.urls) as shell:
        shell.type(f"sh -c '{script}'\n")
        steps = [int(shell.expect(r"pid=(\d+)\n")) for _ in range(2)]
        parents = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2] for pid in steps]
        all_of_them = [*steps, *(int(it.split()[1]) for it in parents)]
        for _ in range(6):
            eventually(lambda: shell.foreground() == steps[1])
            time.sleep(0.2)
            shell.type("\x1a")
            shell.expect(STOPPED)
            shell.type("fg\n")
            time.sleep(0.5)
            assert [it for it in all_of_them if state(it) == "T"] == []
        for pid in steps:
            os.kill(pid, signal.SIGKILL)
        shell.prompt()


def test_a_second_ctrl_z_does_not_stop_run_again_after_fg(cluster3: Cluster) -> None:
    """It comes while `run` waits for a step that ignores it. No shell would tell of that stop."""
    step = f'sh -c "{TELL} >/dev/tty; (trap \\"\\" TSTP; exec sleep 60) & wait"'
    with Shell(cluster3.urls) as shell:
        shell.type(f"{PROGRAM[0]} run --ttl 20s job -- {step} | cat\n")
        worker = int(shell.expect(r"pid=(\d+)\n"))
        run = int(Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[1])
        for _ in range(3):
            time.sleep(0.3)  # for the step to ignore it
            shell.type("\x1a")
            time.sleep(0.03)
            shell.type("\x1a")
            shell.expect(STOPPED)
            shell.type("fg\n")
            time.sleep(0.5)
            assert [it for it in (run, worker) if state(it) == "T"] == []
        os.killpg(worker, signal.SIGKILL)
        shell.prompt()
    assert is_free(cluster3, "job")
