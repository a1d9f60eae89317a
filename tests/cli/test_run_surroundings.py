"""Tests `run` where what it was started with, or what its command does, is out of the ordinary."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.cli.command import PROGRAM, call
from tests.cli.conftest import Start
from tests.cli.rewriting import between
from tests.cli.test_entry_points import NPM, PIP
from tests.python.programs import has_no_place, has_place, is_free
from tests.support.cluster import Cluster
from tests.support.wait import eventually

Program = tuple[str, ...]
each_program = pytest.mark.parametrize("program", [PROGRAM, PIP, NPM], ids=["cargo", "pip", "npm"])
#: Starts the words behind it with SIGCHLD blocked.
BLOCKING = (
    "import os, signal, sys; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD]);"
    "os.execvp(sys.argv[1], sys.argv[1:])"
)


@each_program
def test_a_command_that_a_real_time_signal_ends(cluster3: Cluster, program: Program) -> None:
    words = ("run", "job", "--", "sh", "-c", "kill -40 $$")
    assert call(*words, nodes=cluster3.urls, program=program).code == 128 + 40
    assert is_free(cluster3, "job")


@each_program
def test_started_with_signals_blocked(cluster3: Cluster, program: Program) -> None:
    blocking = (sys.executable, "-c", BLOCKING, *program)
    ended = call("run", "job", "--", "sh", "-c", "exit 3", nodes=cluster3.urls, program=blocking)
    assert ended.code == 3


@each_program
def test_the_command_has_the_usual_signals(cluster3: Cluster, program: Program) -> None:
    words = ("run", "job", "--", "sh", "-c", "kill -XFSZ $$")
    assert call(*words, nodes=cluster3.urls, program=program).code == 128 + signal.SIGXFSZ


@each_program
def test_started_without_standard_streams(
    cluster3: Cluster, program: Program, tmp_path: Path
) -> None:
    found = tmp_path / "found"
    closing = ("sh", "-c", 'exec "$@" 0<&- 1>&- 2>&-', "sh", *program)
    script = f"all=$(readlink /proc/$$/fd/0 /proc/$$/fd/1 /proc/$$/fd/2); echo $all > {found}"
    words = ("run", "job", "--", "sh", "-c", script)
    assert call(*words, nodes=cluster3.urls, program=closing).code == 0
    assert found.read_text().split() == ["/dev/null"] * 3


@pytest.mark.skipif(sys.platform != "linux", reason="orphans become children on Linux")
@each_program
def test_orphans_of_the_command_are_reaped(
    cluster3: Cluster, start: Start, program: Program
) -> None:
    script = "for i in 1 2 3 4 5; do setsid sh -c 'sleep 0.1 &'; done; echo done; read end"
    command = start("run", "job", "--", "sh", "-c", script, nodes=cluster3.urls, program=program)
    assert command.line() == "done"
    children = Path(f"/proc/{command.pid}/task/{command.pid}/children")
    eventually(lambda: len(children.read_text().split()) == 1)


def test_the_command_is_not_started_once_the_lease_has_ended(
    cluster3: Cluster, start: Start, tmp_path: Path
) -> None:
    """The process stands still between the grant and the start."""
    made, pids = tmp_path / "made", [0]

    def stop(data: bytes) -> bytes:
        if b"quorlock:sequencer" in data and pids:
            os.kill(pids.pop(), signal.SIGSTOP)
        return data

    # It waits for the record on a quorum, and thus for one of these nodes.
    with (
        between(cluster3[0], to_server=stop) as first,
        between(cluster3[1], to_server=stop) as second,
    ):
        nodes = [first, second, cluster3.urls[2]]
        command = start("run", "--ttl", "1s", "job", "--", "touch", str(made), nodes=nodes)
        pids[0] = command.pid
        eventually(lambda: not pids)
        time.sleep(1.2)  # the ttl ends
        command.signal(signal.SIGCONT)
        ended = command.end()
    assert (ended.code, made.exists()) == (76, False)
    assert "ended before the command was started" in ended.err


@pytest.mark.parametrize("ends", ["--wait", "SIGTERM"])
def test_who_gives_up_leaves_its_place(cluster3: Cluster, start: Start, ends: str) -> None:
    for server in cluster3:
        server.command("SET", "job", "another", "PX", 60_000)
    for _ in range(5):
        wait = ("--wait", "1s") if ends == "--wait" else ()
        command = start("run", *wait, "job", "--", "true", nodes=cluster3.urls)
        eventually(lambda: has_place(cluster3, "job"))
        if not wait:
            command.signal(signal.SIGTERM)
        assert command.end().code == (75 if wait else 128 + signal.SIGTERM)
        assert has_no_place(cluster3, "job")


def test_too_few_open_files_are_no_fault_of_the_command(cluster3: Cluster) -> None:
    seen = []
    for number in range(8, 24):
        limited = ("sh", "-c", f'ulimit -n {number}; exec "$@"', "sh", *PROGRAM)
        ended = call("run", "job", "--", "true", nodes=cluster3.urls, program=limited)
        assert ended.code in (0, 69, 70)
        seen.append(ended)
        assert is_free(cluster3, "job")
    of_command = [it for it in seen if "true: cannot be started: too many open files" in it.err]
    assert of_command
    assert all(it.code == 70 and "ulimit -n" in it.err for it in of_command)


@pytest.mark.skipif(sys.platform != "linux", reason="only there is a process told of that")
@pytest.mark.parametrize("event", ["npx", "test"])
def test_the_shell_of_npx_ends(cluster3: Cluster, start: Start, event: str) -> None:
    """npm passes SIGTERM on to it alone; with a script of a person it may end by itself."""
    line = ("sh", "-c", f"'{PROGRAM[0]}' run job -- sh -c 'echo begun; exec sleep 60'; exit")
    env = {"npm_lifecycle_event": event, "npm_lifecycle_script": f"'{PROGRAM[0]}'"}
    shell = start(nodes=cluster3.urls, program=line, env=env)
    assert shell.line() == "begun"
    shell.signal(signal.SIGTERM)
    if event == "npx":
        eventually(lambda: is_free(cluster3, "job"))
    else:
        time.sleep(1)
        assert not is_free(cluster3, "job")
