"""Tests what `run` does about processes of its command that have left the command's group."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

from tests.cli.command import PROGRAM, Command, Ended, is_alive, state
from tests.cli.conftest import Start
from tests.cli.terminal import STOPPED, Shell, Terminal
from tests.python.programs import is_free
from tests.support.cluster import Cluster
from tests.support.wait import eventually

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="orphans become children on Linux"),
    pytest.mark.skipif(shutil.which("bash") is None, reason="bash has job control in scripts"),
]

#: Steps that tell their process ids, and leave the streams of the command alone.
STEP = "sh -c 'echo $$; exec sleep 60 >/dev/null 2>&1'"
STUBBORN = "sh -c 'trap \"\" TERM; echo $$; exec sleep 60 >/dev/null 2>&1'"
STEP_TOLD = 'sh -c "echo step=\\$\\$; exec sleep 60 >/dev/null 2>&1"'
#: What starts a step in a group of its own.
TIMEOUT = "timeout 60 {}; true"
JOB = "set -m; {} & wait"
LEFT_BEHIND = "set -m; {} & exit 3"
WAYS = [TIMEOUT, JOB, LEFT_BEHIND]
each_way = pytest.mark.parametrize("way", WAYS, ids=["timeout", "set -m", "left behind"])


#: Of a test in which the lock is lost, which the next renewal tells.
SHORT = ("--ttl", "1s")


def _started(start: Start, cluster: Cluster, script: str, *options: str) -> tuple[Command, int]:
    """`run`, and the process id of the step, which is in another group than the command."""
    words = ("bash", "-c", f"echo $$; {script}")
    command = start("run", *options, "job", "--", *words, nodes=cluster.urls)
    group, step = int(command.line()), int(command.line())
    assert os.getpgid(step) != group
    return command, step


def _lose(cluster: Cluster) -> None:
    for server in cluster:
        server.command("SET", "job", "another", "PX", 60_000)


def _is_renewed(cluster: Cluster) -> bool:
    """Returns once the lock was renewed, by the holder that it has now."""
    holders, last = cluster.values("job"), [0, 0, 0]

    def has_risen() -> bool:
        before, last[:] = last[:], [int(str(it.command("PTTL", "job"))) for it in cluster]
        return any(after > earlier > 0 for earlier, after in zip(before, last, strict=True))

    eventually(has_risen)
    return cluster.values("job") == holders and None not in holders


@each_way
def test_a_lost_lock_ends_a_step_in_a_group_of_its_own(
    cluster3: Cluster, start: Start, way: str
) -> None:
    command, step = _started(start, cluster3, way.format(STEP), *SHORT, "--grace", "60s")
    _lose(cluster3)
    ended = command.end()
    assert ended.code == 76
    assert "the command is being ended" in ended.err
    assert not is_alive(step)


@each_way
def test_a_step_that_ignores_sigterm_is_killed(cluster3: Cluster, start: Start, way: str) -> None:
    command, step = _started(start, cluster3, way.format(STUBBORN), *SHORT, "--grace", "300ms")
    _lose(cluster3)
    assert command.end().code == 76
    assert not is_alive(step)


def test_a_step_that_is_found_after_the_grace_has_one_of_its_own(
    cluster3: Cluster, start: Start
) -> None:
    """The script ignores SIGTERM, so that its step is found when it was killed."""
    script = f"trap '' TERM; {TIMEOUT.format(STUBBORN)}"
    command, step = _started(start, cluster3, script, *SHORT, "--grace", "300ms")
    _lose(cluster3)
    assert command.end().code == 76
    assert not is_alive(step)


def test_groups_that_are_found_later_do_not_put_off_the_end_of_others(
    cluster3: Cluster, start: Start
) -> None:
    """The step starts groups again and again, each within the grace of the one before."""
    step = "bash -c 'trap \"\" TERM; echo $$; while :; do {}; sleep 0.2; done' 2>/dev/null"
    step = step.format("(set -m; sleep 60 >/dev/null &)")
    command, pid = _started(start, cluster3, LEFT_BEHIND.format(step), *SHORT, "--grace", "1s")
    _lose(cluster3)
    assert command.end().code == 76
    assert not is_alive(pid)


@pytest.mark.parametrize("name", ["TERM", "INT", "HUP", "QUIT"])
@each_way
def test_a_signal_that_ends_reaches_the_step(
    cluster3: Cluster, start: Start, way: str, name: str
) -> None:
    if way != LEFT_BEHIND:
        # bash itself would wait for its step after SIGINT and SIGQUIT.
        way = f"trap 'exit 9' {name}; {way.replace('; true', ' & wait')}"
    command, step = _started(start, cluster3, way.format(STEP))
    assert is_alive(step)
    command.signal(getattr(signal, f"SIG{name}"))
    assert command.end().code == (3 if way == LEFT_BEHIND else 9)
    assert not is_alive(step)
    assert is_free(cluster3, "job")


def test_sigterm_ends_what_timeout_has_started(cluster3: Cluster, start: Start) -> None:
    command, step = _started(start, cluster3, TIMEOUT.format(STEP))
    command.signal(signal.SIGTERM)
    assert command.end().code == 128 + signal.SIGTERM
    assert not is_alive(step)
    assert is_free(cluster3, "job")


def test_the_lock_is_held_until_a_job_that_is_left_has_ended(
    cluster3: Cluster, start: Start
) -> None:
    command, step = _started(start, cluster3, LEFT_BEHIND.format(STEP), "--ttl", "3s")
    assert _is_renewed(cluster3)
    assert _is_renewed(cluster3)
    os.kill(step, signal.SIGTERM)
    assert command.end().code == 3
    assert is_free(cluster3, "job")


@pytest.mark.parametrize("script", [
    "setsid {} & exit 3",
    "set -m; setsid {} & exit 3",
    "timeout 60 setsid --fork {}; exit 3",
])  # fmt: skip
def test_a_process_with_a_session_of_its_own_is_left_alone(
    cluster3: Cluster, start: Start, script: str
) -> None:
    words = ("bash", "-c", script.format(STEP))
    command = start("run", "job", "--", *words, nodes=cluster3.urls)
    step = int(command.line())
    try:
        assert command.end().code == 3
        assert is_alive(step)
        assert is_free(cluster3, "job")
    finally:
        os.kill(step, signal.SIGKILL)


def test_a_job_that_calls_setsid_late_is_left_alone(cluster3: Cluster, start: Start) -> None:
    """Nobody tells `run` that it has a session of its own now."""
    daemon = (
        "import os, sys; print(os.getpid(), flush=True); os.fork() and os._exit(0);"
        "print(os.getpid(), flush=True); sys.stdin.readline(); os.setsid(); os.close(1);"
        "os.execvp('sleep', ['sleep', '60'])"
    )
    words = ("bash", "-c", f'set -m; {sys.executable} -c "{daemon}" <&0 2>/dev/null & exit 3')
    command = start("run", "--ttl", "3s", "job", "--", *words, nodes=cluster3.urls)
    command.line()
    daemon_id = int(command.line())
    try:
        assert _is_renewed(cluster3)
        command.type("\n")
        assert command.end().code == 3
        assert is_alive(daemon_id)
    finally:
        os.kill(daemon_id, signal.SIGKILL)


def test_children_from_before_are_left_alone(cluster3: Cluster, start: Start) -> None:
    """A shell that has become `run` leaves it what it has started."""
    helper = "sleep 60 >/dev/null 2>&1 & echo $!"
    script = f'set -m; {helper}; set +m; {helper}; exec "$@"'
    command = start("run", "job", "--", "true", nodes=cluster3.urls,
                    program=("bash", "-c", script, "bash", *PROGRAM))  # fmt: skip
    helpers = [int(command.line()) for _ in range(2)]
    try:
        assert command.end().code == 0
        assert all(is_alive(helper) for helper in helpers)
    finally:
        for pid in helpers:
            os.kill(pid, signal.SIGKILL)


def test_ctrl_c_ends_a_script_and_its_job(cluster3: Cluster) -> None:
    """A shell around `run` is interrupted, too, although the command's group has gone before."""
    run = f"{PROGRAM[0]} run job -- bash -c 'set -m; {STEP_TOLD} & wait'"
    with Terminal(program=("bash", "-c", f"{run}; echo next"), nodes=cluster3.urls) as shown:
        step = int(shown.expect(r"step=(\d+)\n"))
        eventually(lambda: shown.foreground() not in (0, shown.pid))
        shown.type("\x03")
        status, text = shown.end()
    assert status != 0
    assert "next" not in text
    assert not is_alive(step)
    assert is_free(cluster3, "job")


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _has_terminal(shell: Shell, pid: int) -> bool:
    """Whether the process is `run`, and in the foreground."""
    is_run = Path(f"/proc/{pid}/comm").read_text() == "quorlock\n"
    return is_run and shell.foreground() == os.getpgid(pid)


def test_keys_reach_a_job_that_is_left(cluster3: Cluster) -> None:
    """Nothing of the command's group is left that could have the terminal."""
    run = f"{PROGRAM[0]} run --ttl 2s job -- bash -c 'set -m; {STEP_TOLD} & exit 3'"
    with Shell(cluster3.urls) as shell:
        shell.type(f"{run}\n")
        step = int(shell.expect(r"step=(\d+)\n"))
        eventually(lambda: _has_terminal(shell, _parent(step)))
        shell.type("\x1a")
        shell.expect(STOPPED)
        eventually(lambda: state(step) == "T")
        shell.type("fg\n")
        eventually(lambda: state(step) != "T")
        shell.type("\x03")
        shell.type("echo status=$?\n")
        assert shell.expect(r"status=(\d+)\n") == "3"
        assert not is_alive(step)
    assert is_free(cluster3, "job")


def test_keys_reach_what_is_left_of_the_group(cluster3: Cluster) -> None:
    """The command itself has ended, and its group has the terminal."""
    step = (
        "import os, time; os.fork() and os._exit(3); print(os.getpid(), flush=True); time.sleep(60)"
    )
    with Shell(cluster3.urls) as shell:
        shell.type(f"{PROGRAM[0]} run --ttl 2s job -- {sys.executable} -c '{step}'\n")
        pid = int(shell.expect(r"\n(\d+)\n"))
        eventually(lambda: Path(f"/proc/{_parent(pid)}/comm").read_text() == "quorlock\n")
        shell.type("\x1a")
        shell.expect(STOPPED)
        assert state(pid) == "T"
        shell.type("fg\n")
        eventually(lambda: state(pid) != "T" and shell.foreground() == os.getpgid(pid))
        shell.type("\x03")
        shell.type("echo status=$?\n")
        assert shell.expect(r"status=(\d+)\n") == "3"
        assert not is_alive(pid)
    assert is_free(cluster3, "job")


@pytest.mark.parametrize("name", ["by a key", "INT", "QUIT", "HUP"])
def test_a_job_that_is_left_and_stopped_ends(cluster3: Cluster, name: str) -> None:
    """It reads the terminal, which stops it, as it is not in the foreground."""
    reader = 'sh -c "echo step=\\$\\$; sleep 0.3; exec cat"'
    run = f"{PROGRAM[0]} run job -- bash -c 'set -m; {reader} & exit 3'"
    with Shell(cluster3.urls) as shell:
        shell.type(f"{run}\n")
        step = int(shell.expect(r"step=(\d+)\n"))
        eventually(lambda: _has_terminal(shell, _parent(step)))
        eventually(lambda: state(step) == "T")
        if name == "by a key":
            shell.type("\x03")
        else:
            os.kill(_parent(step), getattr(signal, f"SIG{name}"))
        eventually(lambda: not is_alive(step))
        shell.prompt()
    assert is_free(cluster3, "job")


@pytest.mark.skipif(shutil.which("dash") is None, reason="bash ends its stopped jobs itself")
def test_a_stopped_job_does_not_keep_the_lock_when_its_shell_has_ended(cluster3: Cluster) -> None:
    """As zsh and dash leave it: the system hangs up on it, if it has no other parent than `run`."""
    with Shell(cluster3.urls) as shell:
        shell.type(f"PS1='in$ ' {PROGRAM[0]} run job -- dash -i\n")
        shell.expect(r"in\$ ")
        shell.type('sh -c "echo step=\\$\\$; exec sleep 60"\n')
        step = int(shell.expect(r"step=(\d+)\n"))
        eventually(lambda: Path(f"/proc/{step}/comm").read_text() == "sleep\n")
        shell.type("\x1a")
        eventually(lambda: state(step) == "T")
        shell.expect(r"in\$ ")
        for _ in range(2):  # dash tells of the job first
            shell.type("exit\n")
        shell.prompt()
        assert not is_alive(step)
    assert is_free(cluster3, "job")


def test_a_job_that_goes_on_is_not_hung_up_on(start: Start, cluster3: Cluster) -> None:
    """Processes of it end while `run` looks for stopped ones."""
    loop = '(trap "" HUP; i=0; while [ $i -lt 12 ]; do /bin/true; i=$((i+1)); done) &'
    job = f"trap 'echo hung up' HUP; {loop * 60} wait; wait"
    for _ in range(8):  # 6 of 15 were hung up on
        words = ("bash", "-c", 'set -m; sh -c "$1" & sleep 0.05; exit 3', "bash", job)
        command = start("run", "job", "--", *words, nodes=cluster3.urls)
        assert command.end() == Ended(3, "", "")


def test_a_lost_lock_ends_a_shell_and_its_job(cluster3: Cluster) -> None:
    """The job has the terminal, and an interactive shell ignores SIGTERM."""
    inner = "bash --norc --noprofile --noediting -i"
    run = f"{PROGRAM[0]} run --ttl 1s --grace 500ms job -- {inner}"
    with Shell(cluster3.urls) as shell:
        shell.type(f"{run}\n")
        shell.prompt()
        shell.type(f"{STEP_TOLD}\n")
        step = int(shell.expect(r"step=(\d+)\n"))
        _lose(cluster3)
        shell.prompt()
        shell.type("echo status=$?\n")
        assert shell.expect(r"status=(\d+)\n") == "76"
        assert not is_alive(step)
