"""Tests `run` of a command that becomes another user, as under sudo, and cannot be signalled."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import PROGRAM, Command, is_alive, state
from tests.cli.conftest import Start
from tests.support.cluster import Cluster
from tests.support.wait import eventually

SETPRIV = shutil.which("setpriv")
pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or SETPRIV is None, reason="starts programs as other users"
)
GOES_ON = "goes on without the lock"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder for all users, with the command, and a program that becomes root as sudo does."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        if os.statvfs(folder).f_flag & os.ST_NOSUID:
            pytest.skip("no program becomes another user here")
        shutil.copy(PROGRAM[0], folder / "quorlock")
        shutil.copy(str(SETPRIV), folder / "sudo")
        (folder / "sudo").chmod(0o4755)
        yield folder


def _started(
    start: Start, folder: Path, script: str, cluster: Cluster, grace: str = "300ms"
) -> tuple[Command, int]:
    """`run` as another user, and the process id that its command tells."""
    as_nobody = (str(SETPRIV), "--reuid=65534", "--regid=65534", "--clear-groups")
    command = start("run", "--ttl", "1s", "--grace", grace, "job", "--", "sh", "-c", script,
                    nodes=cluster.urls, program=(*as_nobody, str(folder / "quorlock")))  # fmt: skip
    return command, int(command.line())


def _lose(cluster: Cluster) -> None:
    for server in cluster:
        server.command("SET", "job", "another", "PX", 60_000)


def _ends_with_the_rest(command: Command, child: int) -> None:
    """What cannot be signalled runs until it is killed, and `run` waits for it."""
    assert is_alive(child)
    os.kill(child, signal.SIGKILL)
    ended = command.end()
    assert (ended.code, ended.err) == (76, "")


def _is_told_that_it_goes_on(command: Command, child: int) -> None:
    assert "the command is being ended" in command.message()
    assert GOES_ON in command.message()
    _ends_with_the_rest(command, child)


def test_a_command_that_cannot_be_signalled(cluster3: Cluster, start: Start, folder: Path) -> None:
    script = f"exec {folder}/sudo --reuid=0 sh -c 'echo $$; exec sleep 60'"
    command, child = _started(start, folder, script, cluster3)
    _lose(cluster3)
    told = command.message()
    assert "the lease on 'job' is lost" in told
    assert GOES_ON in told
    assert "being ended" not in told
    _ends_with_the_rest(command, child)


def test_a_part_of_a_command_that_cannot_be_signalled(
    cluster3: Cluster, start: Start, folder: Path
) -> None:
    script = f"{folder}/sudo --reuid=0 sh -c 'echo $$; exec sleep 60'; true"
    command, child = _started(start, folder, script, cluster3)
    _lose(cluster3)
    _is_told_that_it_goes_on(command, child)
    eventually(lambda: not is_alive(child))


def test_what_is_left_is_told_while_the_command_itself_runs(
    cluster3: Cluster, start: Start, folder: Path
) -> None:
    script = f"(sleep 60 &); exec {folder}/sudo --reuid=0 sh -c 'echo $$; exec sleep 60'"
    command, child = _started(start, folder, script, cluster3, grace="1h")
    _lose(cluster3)
    _is_told_that_it_goes_on(command, child)


def test_a_process_outside_of_the_group_that_cannot_be_signalled(
    cluster3: Cluster, start: Start, folder: Path
) -> None:
    """`timeout` puts it into another group, and cannot end it either."""
    script = f"timeout 60 {folder}/sudo --reuid=0 sh -c 'echo $$; exec sleep 60'; true"
    command, child = _started(start, folder, script, cluster3)
    _lose(cluster3)
    _is_told_that_it_goes_on(command, child)


@pytest.mark.parametrize("is_lost", [True, False], ids=["loss", "sigterm"])
def test_a_step_in_another_group_is_ended_beside_it(
    cluster3: Cluster, start: Start, folder: Path, is_lost: bool
) -> None:
    """What is left of the command's group runs on, and does not put off the end of the step."""
    step = "timeout 60 sh -c 'echo $$; exec sleep 60'"
    rest = f"exec {folder}/sudo --reuid=0 sh -c 'sleep 0.3; echo $$; exec sleep 60'"
    command, worker = _started(start, folder, f"{step} & {rest}", cluster3)
    child = int(command.line())
    if is_lost:
        _lose(cluster3)
    else:
        command.signal(signal.SIGTERM)
    eventually(lambda: not is_alive(worker))
    if is_lost:
        _is_told_that_it_goes_on(command, child)
    else:
        assert is_alive(child)
        os.kill(child, signal.SIGKILL)
        assert command.end().code == 128 + signal.SIGKILL


def test_a_command_out_of_reach_is_continued_beside_a_step_in_another_group(
    cluster3: Cluster, start: Start, folder: Path
) -> None:
    """A user may continue any process of the session, also after `run` was asked to end."""
    step = "timeout 60 sh -c 'trap : INT; echo $$; while :; do sleep 0.1; done'"
    rest = f"exec {folder}/sudo --reuid=0 sh -c 'sleep 0.3; echo $$; exec sleep 60'"
    command, worker = _started(start, folder, f"{step} & {rest}", cluster3)
    child = int(command.line())
    command.signal(signal.SIGINT)
    os.kill(child, signal.SIGSTOP)
    eventually(lambda: state(child) == "T")
    time.sleep(0.7)  # until `run` has looked for other groups
    command.signal(signal.SIGCONT)
    eventually(lambda: state(child) != "T")
    assert is_alive(worker)
    os.kill(child, signal.SIGKILL)
    os.killpg(os.getpgid(worker), signal.SIGKILL)
    command.end()
