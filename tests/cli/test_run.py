"""Tests `quorlock run` without a terminal: exit codes, the environment, signals, losses."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.cli.command import PROGRAM, Ended, call, is_alive, state
from tests.cli.conftest import Start
from tests.python.programs import has_place, is_free
from tests.support.cluster import Cluster
from tests.support.wait import eventually

#: Tells its process id, then waits for a signal.
SLEEPER = ("sh", "-c", "echo $$; exec sleep 60")
#: Goes on after a SIGTERM, which it tells.
STUBBORN = ("sh", "-c", "trap 'echo told' TERM; echo $$; while :; do sleep 0.05; done")


def test_the_command_runs_under_the_lock_with_our_streams(cluster3: Cluster, start: Start) -> None:
    command = start("run", "job", "--", "sh", "-c", "read it; echo $it; echo err >&2; exit 7",
                    nodes=cluster3.urls)  # fmt: skip
    eventually(lambda: None not in cluster3.values("job"))
    command._process.stdin.write(b"word\n")  # type: ignore[union-attr]
    ended = command.end()
    assert (ended.code, ended.out, ended.err) == (7, "word\n", "err\n")
    assert is_free(cluster3, "job")


def test_the_environment_names_the_lease(cluster3: Cluster) -> None:
    script = (
        'echo "$QUORLOCK_RESOURCE|$QUORLOCK_FENCING_TOKEN|$QUORLOCK_TOKEN|$QUORLOCK_SEQUENCER|'
        '$QUORLOCK_TTL_MS"'
    )
    ended = call("run", "--ttl", "4s", "job@1", "--", "sh", "-c", script, nodes=cluster3.urls)
    name, token, holder, sequencer, ttl = ended.out.rstrip("\n").split("|")
    assert (name, ttl, sequencer) == ("job@1", "4000", f"job%401@{token}")
    assert int(token) > 0
    assert len(holder) == 40
    several = call("run", "a", "b,c", "--", "sh", "-c", script, nodes=cluster3.urls)
    name, token, _, sequencer, _ = several.out.rstrip("\n").split("|")
    assert (name, sequencer) == ("a,b%2Cc", f"a,b%2Cc@{token}")


def test_a_command_that_a_signal_has_ended(cluster3: Cluster) -> None:
    ended = call("run", "job", "--", "sh", "-c", "kill -KILL $$", nodes=cluster3.urls)
    assert (ended.code, ended.err) == (128 + signal.SIGKILL, "")
    assert is_free(cluster3, "job")


def test_a_command_that_cannot_be_started(cluster3: Cluster, tmp_path: Path) -> None:
    absent = call("run", "job", "--", "no-such-program", nodes=cluster3.urls)
    assert absent.code == 127
    assert "no-such-program: command not found" in absent.err
    assert is_free(cluster3, "job")
    plain = tmp_path / "plain"
    plain.write_text("text")
    refused = call("run", "job", "--", str(plain), nodes=cluster3.urls)
    assert refused.code == 126
    assert "cannot be executed" in refused.err
    assert is_free(cluster3, "job")


def test_another_holds_it(cluster3: Cluster, start: Start) -> None:
    holder = start("run", "job", "--", *SLEEPER, nodes=cluster3.urls)
    holder.line()
    tried = call("run", "--try", "job", "--", "echo", "ran", nodes=cluster3.urls)
    assert (tried.code, tried.out) == (75, "")
    assert "'job' is held by another" in tried.err
    waited = call("run", "--wait", "300ms", "job", "--", "echo", "ran", nodes=cluster3.urls)
    assert (waited.code, waited.out) == (75, "")
    assert "gave up waiting for 'job'" in waited.err
    quiet = call("--quiet", "run", "--try", "job", "--", "echo", "ran", nodes=cluster3.urls)
    assert (quiet.code, quiet.out, quiet.err) == (75, "", "")


def _waited(cluster: Cluster, start: Start, *words: str) -> Ended:
    """How a command ends that has waited for `job`."""
    holder = start("run", "job", "--", *SLEEPER, nodes=cluster.urls)
    child = int(holder.line())
    waiting = start(*words, nodes=cluster.urls)
    eventually(lambda: has_place(cluster, "job"))
    os.kill(child, signal.SIGTERM)
    assert holder.end().code == 128 + signal.SIGTERM
    return waiting.end()


def test_it_waits_until_the_lock_is_free(cluster3: Cluster, start: Start) -> None:
    ended = _waited(cluster3, start, "run", "job", "--", "echo", "ran")
    assert (ended.code, ended.out) == (0, "ran\n")


def test_a_short_wait_beside_a_hung_node(cluster3: Cluster) -> None:
    """The try has its part of the time, whatever is left of it to connect."""
    cluster3[2].pause()
    words = ("run", "--wait", "100ms", "job", "--", "true")
    codes = [call(*words, nodes=cluster3.urls).code for _ in range(8)]
    # On a busy machine, it may be too short for the two nodes as well.
    assert codes.count(0) >= 4, codes


def test_no_quorum(cluster3: Cluster) -> None:
    for server in cluster3[:2]:
        server.kill()
    ended = call("--timeout", "500ms", "run", "job", "--", "echo", "ran", nodes=cluster3.urls)
    assert (ended.code, ended.out) == (69, "")
    assert "no quorum for 'job'" in ended.err


@pytest.mark.parametrize("name", ["TERM", "INT", "HUP", "QUIT", "USR1", "USR2"])
def test_signals_are_passed_on(cluster3: Cluster, start: Start, name: str) -> None:
    script = f"trap 'echo got {name}; exit 9' {name}; echo ready; while :; do sleep 0.02; done"
    command = start("run", "job", "--", "sh", "-c", script, nodes=cluster3.urls)
    assert command.line() == "ready"
    command.signal(getattr(signal, f"SIG{name}"))
    ended = command.end()
    assert (ended.code, ended.out) == (9, f"got {name}\n")
    assert is_free(cluster3, "job")


def test_a_child_that_a_passed_signal_ends(cluster3: Cluster, start: Start) -> None:
    command = start("run", "job", "--", *SLEEPER, nodes=cluster3.urls)
    child = int(command.line())
    command.signal(signal.SIGTERM)
    assert command.end().code == 128 + signal.SIGTERM
    assert not is_alive(child)
    assert is_free(cluster3, "job")


def test_a_signal_ends_the_wait(cluster3: Cluster, start: Start) -> None:
    holder = start("run", "job", "--", *SLEEPER, nodes=cluster3.urls)
    holder.line()
    held_by = cluster3.values("job")
    before = _connections(cluster3)
    waiting = start("run", "job", "--", "echo", "ran", nodes=cluster3.urls)
    eventually(lambda: _connections(cluster3) > before)
    waiting.signal(signal.SIGINT)
    ended = waiting.end()
    assert (ended.code, ended.out) == (128 + signal.SIGINT, "")
    assert cluster3.values("job") == held_by


def _connections(cluster: Cluster) -> int:
    return len(str(cluster[0].command("CLIENT", "LIST")).splitlines())


def test_an_ignored_hangup_stays_ignored(cluster3: Cluster) -> None:
    script = "kill -HUP $$; echo alive"
    ended = call("run", "job", "--", "sh", "-c", script, nodes=cluster3.urls, program=_NOHUP)
    assert (ended.code, ended.out) == (0, "alive\n")


_NOHUP = ("sh", "-c", 'trap "" HUP; exec "$@"', "sh", *PROGRAM)


def test_stop_and_continue_without_a_terminal(cluster3: Cluster, start: Start) -> None:
    """Nobody needs the terminal, so the lock is renewed while the command stands still."""
    command = start("run", "--ttl", "1s", "job", "--", *SLEEPER, nodes=cluster3.urls)
    child = int(command.line())
    held_by = cluster3.values("job")
    command.signal(signal.SIGTSTP)
    eventually(lambda: state(child) == "T")
    assert state(command.pid) != "T"
    before = [server.command("PTTL", "job") for server in cluster3]
    eventually(lambda: any(
        server.command("PTTL", "job") > last for server, last in zip(cluster3, before, strict=True)
    ))  # fmt: skip
    command.signal(signal.SIGCONT)
    eventually(lambda: state(child) != "T")
    assert cluster3.values("job") == held_by


def _lose(cluster: Cluster) -> None:
    """Another takes the keys of the lock on every server."""
    for server in cluster:
        server.command("SET", "job", "another", "PX", 60_000)


def test_a_lost_lock_ends_the_command(cluster3: Cluster, start: Start) -> None:
    command = start("run", "--ttl", "1s", "job", "--", *SLEEPER, nodes=cluster3.urls)
    child = int(command.line())
    _lose(cluster3)
    ended = command.end()
    assert ended.code == 76
    assert "the lease on 'job' is lost" in ended.err
    assert not is_alive(child)
    assert cluster3.values("job") == ["another"] * 3


def test_a_lost_quorum_ends_the_command(cluster3: Cluster, start: Start) -> None:
    command = start("run", "--ttl", "1s", "job", "--", *SLEEPER, nodes=cluster3.urls)
    child = int(command.line())
    for server in cluster3[:2]:
        server.pause()
    ended = command.end()
    assert ended.code == 76
    assert "the lease on 'job' is lost" in ended.err
    assert not is_alive(child)


def test_a_command_that_ignores_sigterm_is_killed(cluster3: Cluster, start: Start) -> None:
    command = start("run", "--ttl", "1s", "--grace", "300ms", "job", "--", *STUBBORN,
                    nodes=cluster3.urls)  # fmt: skip
    child = int(command.line())
    _lose(cluster3)
    ended = command.end()
    assert (ended.code, ended.out) == (76, "told\n")
    assert not is_alive(child)


def test_a_stopped_command_is_ended_when_the_lock_is_lost(cluster3: Cluster, start: Start) -> None:
    command = start("run", "--ttl", "1s", "--grace", "20s", "job", "--", *SLEEPER,
                    nodes=cluster3.urls)  # fmt: skip
    child = int(command.line())
    os.kill(child, signal.SIGSTOP)
    _lose(cluster3)
    assert command.end(within=10).code == 76
    assert not is_alive(child)


def test_a_stopped_command_is_ended_by_sigterm(cluster3: Cluster, start: Start) -> None:
    command = start("run", "job", "--", *SLEEPER, nodes=cluster3.urls)
    child = int(command.line())
    os.kill(child, signal.SIGSTOP)
    eventually(lambda: state(child) == "T")
    command.signal(signal.SIGTERM)
    assert command.end(within=10).code == 128 + signal.SIGTERM
    assert is_free(cluster3, "job")


def test_the_lock_is_held_until_the_whole_group_has_ended(cluster3: Cluster, start: Start) -> None:
    script = "sleep 60 >/dev/null & echo $!; exit 3"
    command = start("run", "--ttl", "1s", "job", "--", "sh", "-c", script, nodes=cluster3.urls)
    grandchild = int(command.line())
    holders = cluster3.values("job")
    before = [server.command("PTTL", "job") for server in cluster3]
    eventually(lambda: any(
        server.command("PTTL", "job") > last for server, last in zip(cluster3, before, strict=True)
    ))  # fmt: skip
    assert cluster3.values("job") == holders
    os.kill(grandchild, signal.SIGTERM)
    assert command.end().code == 3
    assert is_free(cluster3, "job")


def test_a_lost_lock_ends_what_the_command_has_left(cluster3: Cluster, start: Start) -> None:
    script = "sleep 60 >/dev/null & echo $!; exit 0"
    command = start("run", "--ttl", "1s", "job", "--", "sh", "-c", script, nodes=cluster3.urls)
    grandchild = int(command.line())
    _lose(cluster3)
    assert command.end().code == 76
    assert not is_alive(grandchild)


@pytest.mark.skipif(sys.platform != "linux", reason="other kernels tell no child")
def test_the_command_is_told_when_run_is_killed(cluster3: Cluster, start: Start) -> None:
    command = start("run", "--ttl", "1s", "job", "--", *SLEEPER, nodes=cluster3.urls)
    child = int(command.line())
    command.signal(signal.SIGKILL)
    eventually(lambda: not is_alive(child))
    eventually(lambda: is_free(cluster3, "job"))


def test_min_hold_keeps_the_lock_after_a_short_command(cluster3: Cluster) -> None:
    ended = call("run", "--min-hold", "20s", "job", "--", "true", nodes=cluster3.urls)
    assert ended.code == 0
    assert all(10_000 < server.command("PTTL", "job") <= 21_000 for server in cluster3)
    again = call("run", "--try", "job", "--", "true", nodes=cluster3.urls)
    assert again.code == 75


def test_a_long_min_hold_is_no_trouble_of_the_nodes(cluster3: Cluster) -> None:
    ended = call("run", "--min-hold", "5m", "job", "--", "true", nodes=cluster3.urls)
    assert (ended.code, ended.err) == (0, "")
    assert all(290_000 < server.command("PTTL", "job") <= 304_000 for server in cluster3)


def test_max_hold_ends_the_command(cluster3: Cluster) -> None:
    ended = call("run", "--ttl", "1s", "--max-hold", "1s", "job", "--", "sleep", "60",
                 nodes=cluster3.urls)  # fmt: skip
    assert ended.code == 76


def test_verbose_tells_what_happens(cluster3: Cluster) -> None:
    ended = call("run", "--verbose", "job", "--", "true", nodes=cluster3.urls)
    assert ended.code == 0
    assert "holding 'job'" in ended.err
    assert "released" in ended.err
    assert "waited for" not in ended.err


def test_verbose_tells_that_it_waits(cluster3: Cluster, start: Start) -> None:
    told = _waited(cluster3, start, "run", "--verbose", "job", "--", "true").err
    assert told.count("'job' is waited for") == 1
    assert told.index("waited for") < told.index("holding 'job'")


def test_fifty_side_by_side_take_turns(cluster3: Cluster, start: Start, tmp_path: Path) -> None:
    """Each finds the file as the last one left it."""
    counter = tmp_path / "counter"
    counter.write_text("0")
    script = f"n=$(cat {counter}); sleep 0.01; echo $((n + 1)) > {counter}"
    commands = [
        start("run", "--wait", "100s", "job", "--", "sh", "-c", script, nodes=cluster3.urls)
        for _ in range(50)
    ]
    assert [command.end(within=120).code for command in commands] == [0] * 50
    assert counter.read_text().strip() == "50"
    assert is_free(cluster3, "job")
