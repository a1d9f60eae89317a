"""Tests `run` with a standard error that blocks, or that it may not write to."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.command import PROGRAM, Command, is_alive, variables
from tests.cli.conftest import Start
from tests.cli.terminal import Shell, Terminal
from tests.cli.test_run_surroundings import Program, each_program
from tests.python.programs import is_free
from tests.support.cluster import Cluster
from tests.support.wait import eventually

#: Starts the words behind it with a standard error that takes no more.
FILLING = (
    "import os, sys; from tests.cli.test_run_messages import fill; fill(os.getpid());"
    "os.execvp(sys.argv[1], sys.argv[1:])"
)
FILLED = (sys.executable, "-c", FILLING)
#: Tells its process id, and uses neither a terminal nor its standard error after that.
WORKER = "echo pid=$$; exec </dev/null >/dev/null 2>&1; while :; do sleep 0.05; done"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def fill(pid: int) -> None:
    """Writes to the process's standard error, a pipe, until it takes no more."""
    pipe = os.open(f"/proc/{pid}/fd/2", os.O_WRONLY | os.O_NONBLOCK)
    for size in (4096, 1):
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(pipe, b"x" * size)
    os.close(pipe)


def _lose(cluster: Cluster, name: str = "job") -> None:
    """Another takes the keys of the lock on every server."""
    for server in cluster:
        server.command("SET", name, "another", "PX", 60_000)


def _begun(command: Command) -> int:
    """The process id of the worker."""
    return int(command.line().partition("=")[2])


def _ended(command: Command) -> int:
    """The status of a command whose standard error nobody reads before its end."""
    eventually(lambda: not is_alive(command.pid))
    return command.end().code


@each_program
def test_a_loss_ends_the_command_beside_a_blocked_stderr(
    cluster3: Cluster, start: Start, program: Program
) -> None:
    command = start("run", "--ttl", "1s", "job", "--", "sh", "-c", WORKER, nodes=cluster3.urls,
                    program=program)  # fmt: skip
    child = _begun(command)
    fill(command.pid)
    _lose(cluster3)
    eventually(lambda: not is_alive(child))
    assert _ended(command) == 76


@each_program
def test_the_command_starts_beside_a_blocked_stderr(
    cluster3: Cluster, start: Start, program: Program
) -> None:
    command = start("run", "--verbose", "job", "--", "sh", "-c", "echo pid=$$; exit 5",
                    nodes=cluster3.urls, program=(*FILLED, *program))  # fmt: skip
    assert _ended(command) == 5
    assert is_free(cluster3, "job")


def _renewal(cluster: Cluster) -> None:
    """Waits for a renewal of `job`."""
    seen = [cluster[0].command("PTTL", "job")]

    def is_renewed() -> bool:
        seen.append(cluster[0].command("PTTL", "job"))
        return bool(seen[-1] > seen[-2])

    eventually(is_renewed)


def test_notices_beside_a_blocked_stderr_stop_no_renewal(cluster3: Cluster, start: Start) -> None:
    """Another command, whose standard error is read, shows when the notice is told."""
    told = start("run", "--verbose", "other", "--", "sh", "-c", WORKER, nodes=cluster3.urls)
    _begun(told)
    command = start("run", "--verbose", "--ttl", "2s", "job", "--", "sh", "-c", WORKER,
                    nodes=cluster3.urls)  # fmt: skip
    child = _begun(command)
    fill(command.pid)
    holder = cluster3.values("job")[0]
    cluster3[2].kill()
    assert any("takes no part in locks" in line for line in iter(told.message, ""))
    for _ in range(4):
        _renewal(cluster3)
    assert cluster3[0].command("GET", "job") == holder
    assert is_alive(child)


def test_all_messages_are_written_in_order(cluster3: Cluster, start: Start) -> None:
    command = start("run", "--verbose", "job", "--", "true", nodes=cluster3.urls)
    lines = command.end().err.splitlines()
    assert [line.split()[1] for line in lines] == ["holding", "released"]


@pytest.fixture
def begun_in_shell(tmp_path: Path) -> Callable[[Shell, str], int]:
    """Types a command under the lock, and waits for its process id."""
    place = tmp_path / "pid"

    def begin(shell: Shell, tail: str) -> int:
        script = WORKER.replace("echo pid=$$", f"echo $$ > {place}.new; mv {place}.new {place}")
        shell.type(f"{PROGRAM[0]} run --ttl 1s job -- sh -c '{script}'{tail}\n")
        eventually(place.exists)
        return int(place.read_text())

    return begin


@pytest.mark.parametrize("tail", ["", " &"], ids=["foreground", "background"])
def test_run_is_not_stopped_by_its_own_message(
    cluster3: Cluster, begun_in_shell: Callable[[Shell, str], int], tail: str
) -> None:
    """With `stty tostop` the system stops background processes that write to the terminal."""
    with Shell(cluster3.urls) as shell:
        shell.type("stty tostop\n")
        shell.prompt()
        child = begun_in_shell(shell, tail)
        _lose(cluster3)
        eventually(lambda: not is_alive(child))
        shell.expect("the lease on 'job' is lost")
        shell.type("wait $!; echo status $?\n" if tail else "\n")
        shell.expect("status 76" if tail else r"ready\$ ")


def test_a_loss_ends_the_command_after_ctrl_s(cluster3: Cluster) -> None:
    words = ("run", "--ttl", "1s", "job", "--", "sh", "-c", WORKER)
    with Terminal(*words, nodes=cluster3.urls) as shown:
        child = int(shown.expect(r"pid=(\d+)\n"))
        shown.type("\x13")
        eventually(lambda: _takes_nothing(shown))
        _lose(cluster3)
        eventually(lambda: not is_alive(child))
        assert shown.end()[0] == 76


def _takes_nothing(shown: Terminal) -> bool:
    """Whether a write to the terminal would block."""
    device = os.open(f"/proc/{shown.pid}/fd/2", os.O_WRONLY | os.O_NOCTTY)
    try:
        return not select.select([], [device], [], 0)[1]
    finally:
        os.close(device)


@pytest.mark.parametrize("words", [["fly"], ["run", "-v", "job", "--", "true"]])
def test_each_message_is_one_write(cluster3: Cluster, words: list[str]) -> None:
    """Several commands may have one standard error, such as a log."""
    reader, writer = os.pipe2(os.O_DIRECT)  # each write is read apart
    with open(reader, "rb", buffering=0) as pipe, open(writer, "wb") as stderr:
        subprocess.run([*PROGRAM, *words], env=variables(cluster3.urls), stderr=stderr, check=False)
        stderr.close()
        messages = list(iter(lambda: pipe.read(1 << 16), b""))
    assert messages
    assert all(it.startswith(b"quorlock: ") and it.endswith(b"\n") for it in messages)
