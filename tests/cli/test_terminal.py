"""Tests `quorlock run` on a terminal: Ctrl-C, Ctrl-Z and fg, pipelines, a window's new size."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import PROGRAM, is_alive, state
from tests.cli.terminal import STOPPED, TOLD_FIRST, Shell, Terminal
from tests.python.programs import is_free
from tests.support.cluster import Cluster
from tests.support.wait import eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

Open = Callable[..., Terminal]
LOOP = "while :; do sleep 0.05; done"
RUN = f"{PROGRAM[0]} run --ttl 2s job --"


@pytest.fixture
def terminal() -> Iterator[Open]:
    with contextlib.ExitStack() as opened:

        def open_terminal(*words: str, **options: Any) -> Terminal:
            return opened.enter_context(Terminal(*words, **options))

        yield open_terminal


@pytest.fixture
def shell(cluster3: Cluster) -> Iterator[Shell]:
    with Shell(cluster3.urls) as shell:
        yield shell


def _parent(pid: int) -> int:
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])


def _name(pid: int) -> str:
    with open(f"/proc/{pid}/comm") as file:
        return file.read().strip()


def _begin(shell: Shell, script: str, tail: str = "", *, traps: str = ":") -> int:
    """Types a command under the lock, which sets its traps and then tells its process id."""
    shell.type(f"{RUN} sh -c '{traps}; echo pid=$$; {script}'{tail}\n")
    return int(shell.expect(r"pid=(\d+)\n"))


def _has_stopped(shell: Shell) -> bool:
    """Whether the shell knows that its job was stopped."""
    shell.type("jobs\n")
    return "Stopped" in shell.expect(r"(?s)(\[1\]\S*\s+(?:Running|Stopped).*?)ready\$ ")


def _status(shell: Shell) -> int:
    """The exit status of the last command."""
    shell.type("echo status=$?\n")
    return int(shell.expect(r"status=(\d+)\n"))


def test_ctrl_c_reaches_the_command_alone(cluster3: Cluster, terminal: Open) -> None:
    shown = terminal("run", "job", "--", "sh", "-c", "echo pid=$$; exec sleep 60",
                     nodes=cluster3.urls)  # fmt: skip
    child = int(shown.expect(r"pid=(\d+)\n"))
    assert shown.foreground() == os.getpgid(child) == child
    shown.type("\x03")
    assert shown.end()[0] == 130
    assert not is_alive(child)
    assert is_free(cluster3, "job")


@pytest.mark.parametrize("key", ["\x03", "\x1c"], ids=["ctrl-c", "ctrl-backslash"])
@pytest.mark.parametrize("is_held", [False, True], ids=["running", "waiting"])
def test_a_key_ends_the_script_around_the_command(
    cluster3: Cluster, terminal: Open, is_held: bool, key: str
) -> None:
    """As without `run`: a shell goes on with its next line unless it is interrupted, too."""
    for server in cluster3 if is_held else []:
        server.command("SET", "job", "another", "PX", 60_000)
    # The command itself tells that it runs: a key before that is another matter.
    bare = terminal(program=("sh", "-c", "sh -c 'echo begun; exec sleep 60'; echo next"))
    bare.expect("begun")
    bare.type(key)
    script = f"echo begun; {RUN} sleep 60; echo next"
    shown = terminal(program=("sh", "-c", script), nodes=cluster3.urls)
    shown.expect("begun")
    eventually(
        lambda: bool(cluster3[0].keys("quorlock:queue:*")) or shown.foreground() != shown.pid
    )
    shown.type(key)
    status, text = shown.end()
    assert status == bare.end()[0] != 0
    assert "next" not in text.replace("echo next", "")


def test_ctrl_c_ends_a_loop_of_the_shell(cluster3: Cluster, shell: Shell) -> None:
    shell.type(f"for i in 1 2 3; do {RUN} sh -c 'echo pid=$$; exec sleep 60'; done\n")
    child = int(shell.expect(r"pid=(\d+)\n"))
    eventually(lambda: shell.foreground() == child)
    shell.type("\x03")
    shell.prompt()
    assert _status(shell) == 130
    assert is_free(cluster3, "job")


def test_modes_that_a_killed_program_leaves_are_undone(shell: Shell) -> None:
    child = _begin(shell, "stty raw -echo; echo raw; exec sleep 60")
    shell.expect("raw\r*\n")
    os.kill(child, signal.SIGKILL)
    shell.prompt()
    shell.type("stty -a | grep -oE -- '-?\\b(echo|icanon|isig)\\b' | tr '\\n' ' '; echo end\n")
    modes = shell.expect(r"\n((?:-?\w+ )+)end")
    assert sorted(modes.split()) == ["echo", "icanon", "isig"]


def test_a_command_may_take_ctrl_c_for_something_else(cluster3: Cluster, shell: Shell) -> None:
    child = _begin(shell, LOOP, traps='trap "echo no" INT')
    shell.type("\x03")
    shell.expect("no\n")
    assert is_alive(child)
    assert not is_free(cluster3, "job")
    shell.type("\x1c")  # Ctrl-\
    shell.prompt()
    assert _status(shell) == 131
    assert is_free(cluster3, "job")


def test_ctrl_z_stops_the_job_and_fg_continues_it(cluster3: Cluster, shell: Shell) -> None:
    child = _begin(shell, 'while read word; do echo "read=$word"; done')
    parent = _parent(child)
    assert shell.foreground() == child
    shell.type("one\n")
    shell.expect("read=one\n")
    shell.type("\x1a")
    shell.expect(STOPPED)
    assert (state(child), state(parent)) == ("T", "T")
    assert shell.foreground() == shell.pid
    shell.type("fg\n")
    eventually(lambda: shell.foreground() == child)
    shell.type("two\n")
    shell.expect("read=two\n")
    shell.type("\x1a")
    shell.expect(STOPPED)
    shell.type("fg\n")
    eventually(lambda: shell.foreground() == child)
    shell.type("\x04")
    shell.prompt()
    assert _status(shell) == 0
    assert is_free(cluster3, "job")


def test_the_lock_that_ended_while_the_job_was_stopped_is_lost(
    cluster3: Cluster, shell: Shell, tmp_path: Path
) -> None:
    """The command is told before it can go on."""
    (tmp_path / "worker.py").write_text(TOLD_FIRST)
    shell.type(f"{RUN} {sys.executable} {tmp_path}/worker.py\n")
    child = int(shell.expect(r"pid=(\d+)\n"))
    shell.type("\x1a")
    shell.expect(STOPPED)
    eventually(lambda: is_free(cluster3, "job"))
    shell.type("fg\n")
    shown = shell.expect(r"(?s)(.*)ready\$ ")
    assert "the lease on 'job' is lost" in shown
    assert "the command is being ended" in shown
    assert "told" in shown
    assert "worked" not in shown
    assert _status(shell) == 76
    assert not is_alive(child)


def test_a_script_has_the_terminal_again_after_it(cluster3: Cluster) -> None:
    """No shell with jobs takes it back for the script."""
    script = f"{RUN} true; read word; echo read=$word"
    with Terminal("-c", script, program=("sh",), nodes=cluster3.urls) as shown:
        shown.type("word\n")
        shown.expect("read=word\n")
        assert shown.end()[0] == 0


def test_a_job_in_the_background_leaves_the_terminal_alone(cluster3: Cluster, shell: Shell) -> None:
    child = _begin(shell, 'read word; echo "read=$word"', " &")
    eventually(lambda: state(child) == "T")  # it wanted to read
    assert shell.foreground() == shell.pid
    eventually(lambda: state(_parent(child)) == "T")
    eventually(lambda: _has_stopped(shell))  # bash continues no job that it takes for running
    shell.type("fg\n")
    eventually(lambda: shell.foreground() == child)
    shell.type("word\n")
    shell.expect("\nread=word\n")
    shell.prompt()
    eventually(lambda: is_free(cluster3, "job"))


def test_bg_continues_a_stopped_job(cluster3: Cluster, shell: Shell) -> None:
    child = _begin(shell, "exec sleep 60")
    shell.type("\x1a")
    shell.expect(STOPPED)
    shell.type("bg\n")
    eventually(lambda: state(child) != "T" and state(_parent(child)) != "T")
    assert shell.foreground() == shell.pid
    shell.type("kill %1; wait %1; echo status=$?\n")
    shell.expect(r"status=143\n")
    assert is_free(cluster3, "job")


def test_a_pipeline_keeps_the_terminal_until_the_command_wants_it(
    cluster3: Cluster, shell: Shell
) -> None:
    child = _begin(shell, 'read go <&3; read word </dev/tty; echo "read=$word"',
                   " 3< <(sleep 0.3; echo) | cat")  # fmt: skip
    assert shell.foreground() != child
    eventually(lambda: shell.foreground() == child)
    shell.type("word\n")
    shell.expect("\nread=word\n")
    shell.prompt()
    assert is_free(cluster3, "job")


def test_ctrl_c_ends_a_pipeline(cluster3: Cluster, shell: Shell) -> None:
    child = _begin(shell, "exec sleep 60", " | cat")
    shell.type("\x03")
    shell.prompt()
    eventually(lambda: not is_alive(child))
    eventually(lambda: is_free(cluster3, "job"))


def test_ctrl_z_stops_a_pipeline(cluster3: Cluster, shell: Shell) -> None:
    child = _begin(shell, "exec sleep 60", " | cat")
    shell.type("\x1a")
    shell.expect(STOPPED)
    assert (state(child), state(_parent(child))) == ("T", "T")
    shell.type("fg\n")
    eventually(lambda: state(child) != "T")
    shell.type("\x03")
    shell.prompt()
    eventually(lambda: not is_alive(child))
    eventually(lambda: is_free(cluster3, "job"))


def test_ctrl_z_before_the_lock_is_held(cluster3: Cluster, shell: Shell) -> None:
    for server in cluster3:
        server.command("SET", "job", "another", "PX", 60_000)
    shell.type(f"{RUN} echo ran\n")
    eventually(lambda: _name(shell.foreground()) == "quorlock")
    waiting = shell.foreground()
    shell.type("\x1a")
    shell.expect(STOPPED)
    assert state(waiting) == "T"
    shell.type("fg\n")
    for server in cluster3:
        server.command("DEL", "job")
    shell.expect("\nran\n")


def test_the_command_hears_of_a_new_size(shell: Shell) -> None:
    _begin(shell, LOOP, traps='trap "stty size; exit 5" WINCH')
    shell.resize(30, 100)
    shell.expect("30 100\n")
    shell.prompt()


def test_a_terminal_that_hangs_up_ends_the_command(cluster3: Cluster, shell: Shell) -> None:
    child = _begin(shell, "exec sleep 60")
    shell.hang_up()
    eventually(lambda: not is_alive(child))
    eventually(lambda: is_free(cluster3, "job"))


def test_a_lost_lock_gives_the_terminal_back(cluster3: Cluster, shell: Shell) -> None:
    child = _begin(shell, "exec sleep 60")
    assert shell.foreground() == child
    for server in cluster3:
        server.command("SET", "job", "another", "PX", 60_000)
    shell.expect("the lease on 'job' is lost")
    shell.prompt()
    assert shell.foreground() == shell.pid
    assert _status(shell) == 76
